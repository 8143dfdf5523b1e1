"""Names cut to a width: the part that says most stays, and names that differ still do.

A name is cut in the middle, so that both ends can be read. The words before the first digit say what a kernel does
(`ncclDevKernel_ReduceScatter`), so they are not cut for the sake of the end. Where two names of a column come out the
same, the cut moves to where they agree.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence

from rich.cells import cell_len

_ELLIPSIS = "…"
#: What a name begins with, up to its first number or argument; and the words in it.
_STEM = re.compile(r"[^\d<(\[]*")
_WORD_END = re.compile(r"(?<=[^_:\s])(?=[_:\s])|$")


def cut(texts: Sequence[str], width: int, *, names: bool = True) -> list[str]:
    """The texts in at most `width` cells, those that differ still different; `names` are those of kernels."""
    shown = {text: _plain(text, width, names=names) for text in texts}
    for group in _clashes(shown):
        shown |= _apart(group, width, {shown[text] for text in shown.keys() - set(group)}, names=names)
    for group in _clashes(shown):  # nothing else is left to tell them apart
        shown |= {text: _numbered(text, at, width) for at, text in enumerate(group, start=1)}
    return [shown[text] for text in texts]


def plainly_apart(texts: Iterable[str], width: int, *, names: bool = True) -> bool:
    """Whether texts that differ still do when each is cut in the middle."""
    distinct = set(texts)
    return len({_plain(text, width, names=names) for text in distinct}) == len(distinct)


def _clashes(shown: dict[str, str]) -> list[list[str]]:
    alike: dict[str, list[str]] = defaultdict(list)
    for text, short in shown.items():
        alike[short].append(text)
    return [group for group in alike.values() if len(group) > 1]


def _apart(group: Sequence[str], width: int, taken: set[str], *, names: bool) -> dict[str, str]:
    """Texts that are cut alike, cut elsewhere: the place is moved as little as it takes to tell them apart."""
    usual = _head(group[0], width - 1, names=names)
    least = _whole_words(group[0], usual) if names else 0
    for head in sorted(range(least, width), key=lambda head: abs(head - usual)):
        tried = {text: _with_head(text, width, head) for text in group}
        if len(set(tried.values())) == len(group) and taken.isdisjoint(tried.values()):
            return tried
    at = _first_difference(group)
    shown = {text: _around(text, width, at) for text in group}
    for alike in _clashes(shown):  # they differ further on as well
        shown |= _apart(alike, width, taken, names=names) if _first_difference(alike) > at else {}
    return shown


def _first_difference(texts: Sequence[str]) -> int:
    one, other = min(texts), max(texts)
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def _plain(text: str, width: int, *, names: bool) -> str:
    return _with_head(text, width, _head(text, width - 1, names=names))


def _head(text: str, kept: int, *, names: bool) -> int:
    """How much of the beginning is kept, of so many characters in all."""
    half = (kept + 1) // 2
    if not names:
        return half
    whole, wanted = len(_stem(text)), kept - kept // 4
    if whole <= wanted:
        return max(half, whole)
    end = _WORD_END.search(text, wanted)
    return max(half, min(end.start() if end else kept, kept))


def _stem(text: str) -> str:
    """The words before the first number or argument; the letters before a digit (`bf16`) belong to the number."""
    stem = _STEM.match(text)
    words = stem[0] if stem else ""
    return words if len(words) == len(text) else words.rstrip("abcdefghijklmnopqrstuvwxyz")


def _whole_words(text: str, head: int) -> int:
    """Where the last word ends that such a beginning shows in full; the beginning itself where there is none."""
    ends = [end.start() for end in _WORD_END.finditer(_stem(text)) if end.start() <= head]
    return max(ends, default=head)


def _with_head(text: str, width: int, head: int) -> str:
    """So much of the beginning, and of the end what has room; some characters are two cells wide."""
    if cell_len(text) <= width:
        return text
    for kept in range(width - 1, 0, -1):
        first = min(head, kept)
        short = text[:first] + _ELLIPSIS + text[len(text) - (kept - first) :]
        if cell_len(short) <= width:
            return short
    return _ELLIPSIS


def _around(text: str, width: int, at: int) -> str:
    """What leads to a place in the middle and a little of what follows, behind a glimpse of the beginning."""
    for kept in range(max(width - 2, 1), 0, -1):
        first = min(4, kept // 3)
        start = max(at + 2 - (kept - first), first)
        rest = text[start : start + kept - first]
        short = text[:first] + _ELLIPSIS + rest + (_ELLIPSIS if start + len(rest) < len(text) else "")
        if cell_len(short) <= width:
            return short
    return _ELLIPSIS


def _numbered(text: str, number: int, width: int) -> str:
    mark = f"~{number}"
    return _with_head(text, max(width - len(mark), 1), width) + mark
