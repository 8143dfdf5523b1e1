"""Small words for messages and headings: counted nouns, ranges of numbers, shortened and printable text."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence


def counted(number: int, noun: str) -> str:
    """`1 rank`, `12 ranks`, `1,204 kernels`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def ranges(numbers: Iterable[int]) -> str:
    """`0-3, 7` for 0, 1, 2, 3, 7."""
    pieces: list[list[int]] = []
    for number in sorted(set(numbers)):
        if pieces and number == pieces[-1][-1] + 1:
            pieces[-1].append(number)
        else:
            pieces.append([number])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in pieces)


def listed(items: Sequence[str], *, at_most: int = 5) -> str:
    """`a, b, c` with an end to it: `a, b, c, d, e and 7 more`."""
    more = len(items) - at_most
    return ", ".join(items[:at_most]) + (f" and {more:,} more" if more > 0 else "")


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`; did you mean 'x'?`, or nothing where no known name is near."""
    near = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def middle(text: str, width: int, ellipsis: str = "…") -> str:
    """Shorten to `width` characters in the middle, so that both ends can be read."""
    if len(text) <= width:
        return text
    kept = max(width - len(ellipsis), 1)
    head = (kept + 1) // 2
    return text[:head] + ellipsis + text[len(text) - (kept - head) :]


def visible(text: str) -> str:
    """Text that cannot move the cursor or break a row: control characters are spelled out."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
