"""A forgiving reader of C++ names as demanglers print them: text in, nested groups out.

Nothing here knows what a kernel is. Names come from many demanglers and some were cut off by a profiler,
so brackets may not balance: what does not fit is kept as plain text, and no input is an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias


@dataclass(slots=True)
class Group:
    """A bracketed part of a name, split at its commas."""

    bracket: str  # the opening one
    parts: list[list[Item]] = field(default_factory=lambda: [[]])


Item: TypeAlias = "str | Group"

CLOSING = {"<": ">", "(": ")", "{": "}", "[": "]"}
OPENING = {closing: opening for opening, closing in CLOSING.items()}

ANONYMOUS = frozenset({"(anonymous namespace)", "{anonymous}", "<unnamed>", "`anonymous namespace'"})

# Every alternative consumes at least one character and none can match the same text in two ways: linear.
# Words come first since most tokens are words; `operator<` is none.
_TOKEN = re.compile(
    r"(?!operator)[\w$.@']+"
    r"|\(anonymous namespace\)|\{anonymous\}|<unnamed>|`anonymous namespace'"
    r"|operator(?:\(\)|\[\]|<=>|->\*?|<<=?|>>=?|&&|\|\||\+\+|--|[-+*/%^&|!=<>]=?|[~,])"
    r"|[\w$.@']+"
    r"|::|->|\s+|.",
    re.DOTALL,
)
#: What is more than a word: everything else only has to be told from white space.
_SIGNS = frozenset({*CLOSING, *OPENING, ","})


def parse(text: str) -> list[Item]:
    """The name as a list of words and groups. White space is one blank, unbalanced brackets are words."""
    root = Group("")
    innermost, part = root, root.parts[0]
    open_groups = [root]
    open_count = dict.fromkeys(CLOSING, 0)
    for token in _TOKEN.findall(text):
        if token not in _SIGNS:
            if not token.isspace():
                part.append(token)
            elif part:
                part.append(" ")
        elif token in CLOSING and _opens(token, part):
            innermost = Group(token)
            part.append(innermost)
            open_groups.append(innermost)
            open_count[token] += 1
            part = innermost.parts[0]
        elif token in OPENING and open_count[OPENING[token]] and not _is_greater_than(token, innermost):
            while True:  # brackets left open inside this one end with it
                closed = open_groups.pop()
                open_count[closed.bracket] -= 1
                _strip(closed.parts[-1])
                if closed.bracket == OPENING[token]:
                    break
            innermost = open_groups[-1]
            part = innermost.parts[-1]
        elif token == "," and innermost is not root:
            _strip(part)
            part = []
            innermost.parts.append(part)
        else:
            part.append(token)
    return root.parts[0]


def _strip(part: list[Item]) -> None:
    if part and part[-1] == " ":
        part.pop()


def _opens(token: str, before: list[Item]) -> bool:
    """Whether this bracket opens a group: `<` does only behind a name, else it is less-than."""
    if token != "<":
        return True
    name = before[-1] if before else ""
    return isinstance(name, str) and (
        name[-1:].isalnum() or name.startswith("operator") or name[-1:] in ("_", "$", "'")
    )


def _is_greater_than(token: str, innermost: Group) -> bool:
    """`>` inside round or square brackets compares, as in `enable_if<(((8)>(0)))>`."""
    return token == ">" and innermost.bracket != "<"


def leaves(items: list[Item], limit: int) -> Iterator[str]:
    """The words of a name in reading order, brackets and blanks left out, at most `limit` of them.

    The stack is explicit because names nest deeper than Python's own; the limit is needed because the
    groups of a mangled name are shared, so that a short name can unfold to an endless one.
    """
    stack: list[Iterator[Item]] = [iter(items)]
    while stack and limit > 0:
        item = next(stack[-1], None)
        if item is None:
            stack.pop()
        elif isinstance(item, Group):
            stack.extend(iter(part) for part in reversed(item.parts))
            limit -= 1
        elif item not in (" ", "::"):
            limit -= 1
            yield item
