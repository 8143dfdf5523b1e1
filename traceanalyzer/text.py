"""Small words for messages and headings: counted nouns, ranges of numbers, shortened and printable text."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence


def counted(number: int, noun: str) -> str:
    """`1 rank`, `12 ranks`, `1,204 kernels`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def ranges(numbers: Iterable[int], *, most: int | None = None) -> str:
    """Numbers as people write them: `2, 5-7`; at most `most` pieces, the rest is counted."""
    spans: list[list[int]] = []
    for number in sorted(set(numbers)):
        if spans and spans[-1][1] == number - 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    shown = ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in spans[:most])
    hidden = sum(last - first + 1 for first, last in spans[most:]) if most else 0
    return shown + (f" and {hidden} more" if hidden else "")


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
