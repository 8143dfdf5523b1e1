"""Entries that are not quite JSON, as real writers leave them: read what was meant, and say what was wrong.

A repair never guesses a value: bare words such as nan become null, a backslash that escapes nothing stands for
itself, a quote inside a name is told from the one that ends it by what follows. What does not come out as an object
is damage, and the caller drops it.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from json import JSONDecoder
from typing import Any

from traceanalyzer.ingest.finder import Finder
from traceanalyzer.ingest.source import HOLE

#: What may be wrong with an entry, and how it is said.
KINDS = {
    "bad-escape": "strings with backslashes that escape nothing were read with the backslash",
    "control-character": "strings with raw control characters were kept",
    "not-a-number": "numbers written as nan, inf or the like were read as missing",
    "negative-time": "negative times written as -1.-05 were read",
    "unescaped-quote": "strings with unescaped quotes were read up to the quote that ends them",
}
#: Entries are told from damage within this many characters.
LONGEST_ENTRY = 1 << 20
_TOKEN = re.compile(r'\s*(?:([{}\[\],:])|"((?:[^"\\]|\\.)*)"|([^\s{}\[\],:"]+))', re.DOTALL)
_ESCAPE_PAIR = re.compile(r'\\\\|\\(?=u(?![0-9a-fA-F]{4}))|\\(?=[^"\\/bfnrtu]|$)', re.DOTALL)
_CONTROL = re.compile(r"[\x00-\x1f]")
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")
_SPLIT_NEGATIVE = re.compile(r"(-?)(\d+)\.-(\d+)")
_NOT_A_NUMBER = re.compile(r"[+-]?(?:nan(?:\(\w*\))?|inf(?:inity)?|1\.#\w+)", re.IGNORECASE)
_WORDS = {"true", "false", "null"}
#: Keys whose values are never free text: what looks like a quote inside them is damage.
_PLAIN_KEYS = {"ph", "cat", "pid", "tid", "ts", "dur", "id", "s", "bp"}
_SWALLOWED = re.compile(r'"(?:ph|cat|pid|tid|ts|dur|args)"\s*:|\}\s*,\s*\{\s*"')
#: What follows a quote that ends a value of an object.
_AFTER_VALUE = re.compile(r'\s*(?:[}\]]|,\s*(?:"[^"\\]{0,80}"\s*:|[\[{]))')


class NeedsMoreText(Exception):  # noqa: N818  (no error: the text simply ends too early to tell)
    """The text ends before the entry does."""


@dataclass(frozen=True)
class Repaired:
    """An entry that was read after repairs."""

    value: dict[str, Any]
    end: int
    kinds: Counter[str]


def repair(text: str, start: int, decoder: JSONDecoder) -> Repaired | None:
    """Read the object that begins at ``text[start]``; None if no repair helps. `decoder` must not be strict.

    Raises `NeedsMoreText` where more text could change the answer.
    """
    parts: list[str] = []
    kinds: Counter[str] = Counter()
    position, after_colon = start, False
    open_brackets: list[str] = []
    key = ""
    limit = min(len(text), start + LONGEST_ENTRY)
    swallowed = Finder(_SWALLOWED, text, limit)
    while position < limit:
        token = _TOKEN.match(text, position, limit)
        if token is None:  # the end, or a string without an end
            break
        sign, string, word = token.groups()
        position = token.end()
        in_object = bool(open_brackets) and open_brackets[-1] == "{"
        if sign:
            if not _fits(sign, open_brackets, is_value=after_colon or not in_object):
                return None
            parts.append(sign)
            if not open_brackets:
                return _decoded("".join(parts), position, kinds, decoder)
            after_colon = sign == ":"
            continue
        if word is not None and in_object and not after_colon:
            return None
        if string is not None:
            if not after_colon:
                key = string
            elif key not in _PLAIN_KEYS:
                string, position = _whole_string(text, token, position, limit, swallowed, kinds)
            parts.append(f'"{_clean(string, kinds)}"')
        else:
            number = _bare_word(word, kinds)
            if number is None:
                return None
            parts.append(number)
        after_colon = False
    if limit < start + LONGEST_ENTRY:
        raise NeedsMoreText
    return None


def _fits(sign: str, open_brackets: list[str], *, is_value: bool) -> bool:
    """Follow the brackets; False where a sign cannot stand. A lost bracket is found out at the next entry that way,
    not at the end of the text."""
    if sign in "{[":
        open_brackets.append(sign)
        return is_value
    if sign in "}]":
        return bool(open_brackets) and open_brackets.pop() == {"}": "{", "]": "["}[sign]
    return bool(open_brackets)


def _decoded(text: str, end: int, kinds: Counter[str], decoder: JSONDecoder) -> Repaired | None:
    if HOLE in text:
        return None
    try:
        value = decoder.decode(text)
    except (ValueError, RecursionError):
        return None
    return Repaired(value, end, kinds) if isinstance(value, dict) else None


def _whole_string(
    text: str, token: re.Match[str], position: int, limit: int, swallowed: Finder, kinds: Counter[str]
) -> tuple[str, int]:
    """The content of a string value of an object, beyond quotes inside it that nobody escaped."""
    string: str = token.group(2)
    if _AFTER_VALUE.match(text, position):
        return string, position
    first = token.start(2)
    found = swallowed.behind(first)
    longest = limit if found is None else found.end()
    quote = text.find('"', position, limit)
    while quote >= 0:
        if quote >= longest:
            return string, position  # the quote that is missing is the one that ends it: damage
        if _AFTER_VALUE.match(text, quote + 1):
            kinds["unescaped-quote"] += 1
            return text[first:quote].replace('\\"', '"').replace('"', '\\"'), quote + 1
        quote = text.find('"', quote + 1, limit)
    return string, limit


def _clean(string: str, kinds: Counter[str]) -> str:
    """The content of a string with every backslash in order. Control characters stay; the decoder takes them."""
    if _CONTROL.search(string):
        kinds["control-character"] += 1
    if "\\" not in string:
        return string
    fixed = _ESCAPE_PAIR.sub(lambda _: "\\\\", string)
    if fixed != string:
        kinds["bad-escape"] += 1
    return fixed


def _bare_word(word: str, kinds: Counter[str]) -> str | None:
    """A number or literal as JSON wants it; None for anything else."""
    if word in _WORDS or _NUMBER.fullmatch(word):
        return word
    if _NOT_A_NUMBER.fullmatch(word):
        kinds["not-a-number"] += 1
        return "null"
    negative = _SPLIT_NEGATIVE.fullmatch(word)
    if negative:
        kinds["negative-time"] += 1
        return f"-{negative[2]}.{negative[3].zfill(3)}"
    return None
