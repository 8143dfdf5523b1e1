"""Lines of styled text: with the codes of a terminal where styles are shown, else the text alone.

Small on purpose: a library for it takes longer to import than a report takes to draw.
"""

from __future__ import annotations

import os
import sys
from typing import IO, NamedTuple

#: Codes of the words that a style is made of.
_CODES = {"bold": "1", "dim": "2"}
_COLOURS = {
    "red": "31", "green": "32", "yellow": "33", "blue": "34", "magenta": "35", "cyan": "36",
    "bright_blue": "94", "bright_magenta": "95",
}  # fmt: skip
_TERMINALS_WITHOUT_STYLES = ("dumb", "unknown")


class Piece(NamedTuple):
    """A text in one style: words of `_CODES` and `_COLOURS`; none for plain text."""

    text: str
    style: str = ""


Line = tuple[Piece, ...]


def line(text: str, style: str = "") -> Line:
    """A line in one style."""
    return (Piece(text, style),)


class Pen:
    """Writes lines on a stream, in the styles that it can show."""

    def __init__(self, file: IO[str], *, plain: bool = False) -> None:
        """`plain`: without styles whatever the environment says."""
        self._file = file
        shown = {} if plain or not _shows_styles(file) else _CODES if os.environ.get("NO_COLOR") else _CODES | _COLOURS
        self._codes = shown

    def write(self, line: Line) -> None:
        """Write a line without the white space at its end."""
        last = len(line) - 1
        while last >= 0 and not line[last].text.rstrip():
            last -= 1
        pieces = [self._painted(text, style) for text, style in line[:last]] if last > 0 else []
        if last >= 0:
            pieces.append(self._painted(line[last].text.rstrip(), line[last].style))
        self._file.write("".join(pieces) + "\n")

    def _painted(self, text: str, style: str) -> str:
        codes = ";".join(self._codes[word] for word in style.split() if word in self._codes)
        return f"\x1b[{codes}m{text}\x1b[0m" if codes and text else text


def _shows_styles(file: IO[str]) -> bool:
    """Whether what is written on a stream is shown by a terminal that knows styles."""
    if not (os.environ.get("FORCE_COLOR") or file.isatty()):
        return False
    if os.environ.get("TERM", "").lower() in _TERMINALS_WITHOUT_STYLES:
        return False
    return sys.platform != "win32" or "WT_SESSION" in os.environ or "ANSICON" in os.environ
