"""Small words for messages and headings: counted nouns, ranges of numbers, natural order, shortened text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

#: Sorts as people count: see `natural_key`.
NaturalKey = tuple[tuple[tuple[int, int, str], ...], str]


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
    import difflib  # here, not at the top: only mistakes need it

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


_DIGITS = re.compile(r"([0-9]+)")


def natural_key(text: str | int) -> NaturalKey:
    """Key that sorts numbers inside text by value: TP-2 before TP-10, stream 7 before stream 20."""
    whole = str(text)
    pieces = (piece for piece in _DIGITS.split(whole) if piece)
    return tuple(_piece_key(piece) for piece in pieces), whole


def _piece_key(piece: str) -> tuple[int, int, str]:
    if not _DIGITS.fullmatch(piece):
        return (1, 0, piece.casefold())
    digits = piece.lstrip("0")  # longer is larger: no int(), which refuses numbers of more than 4300 digits
    return (0, len(digits), digits)
