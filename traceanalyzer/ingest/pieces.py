"""Cutting the text of an event array into pieces of whole entries, by guess and verify.

The text between two entries is learned from the file; its last occurrence in the buffer is taken for a boundary, and
the piece before it counts only if it parses. That proves the boundary: a text that starts between two entries and
parses as a list ends between entries.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable

_LEARN_BYTES = 1 << 16
_BOUNDARY = re.compile(rb"\}\s*,\s*\{\s*\"")
_TRIES = 4


class BoundaryError(Exception):
    """A piece does not parse: it was cut in the wrong place, or something in it is damaged."""


class MismatchError(Exception):
    """A piece holds something that only the entry-by-entry way can take."""


class PieceCutter:
    """Offers a file's text in pieces."""

    def __init__(self) -> None:
        self._separator: bytes | None = None

    def cut(self, buffer: bytearray, start: int, end: int, take: Callable[[memoryview], None]) -> int:
        """Let `take` have the largest piece of ``buffer[start:end]`` that parses, as a JSON list.

        `take` raises `BoundaryError` for a piece that does not parse and `MismatchError` for one it cannot take.
        Gives the index behind the piece and its comma, or `start`. Only ``buffer[start - 1]`` is changed for good.
        """
        separator = self._separator or self._learn(buffer, start, end)
        if separator is None:
            return start
        buffer[start - 1] = ord("[")
        for _ in range(_TRIES):
            end = buffer.rfind(separator, start, end)
            if end < 0:
                break
            comma = buffer.index(b",", end)
            buffer[comma] = ord("]")
            try:
                take(memoryview(buffer)[start - 1 : comma + 1])
            except BoundaryError:
                continue
            except MismatchError:
                break
            finally:
                buffer[comma] = ord(",")
            return comma + 1
        return start

    def _learn(self, buffer: bytearray, start: int, end: int) -> bytes | None:
        """The most common text between two entries in what comes next."""
        found = Counter(_BOUNDARY.findall(bytes(buffer[start : min(start + _LEARN_BYTES, end)])))
        if found:
            self._separator = found.most_common(1)[0][0]
        return self._separator
