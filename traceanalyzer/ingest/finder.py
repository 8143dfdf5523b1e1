"""Looking ahead in one text from many places of it, in time that grows with the text alone.

Where much is damaged, the same questions are asked at every entry: where does the next event begin, where does a trace.
The answer at one entry is often the answer at the next thousand, and where nothing follows, finding that out takes a
walk to the end of the text.
"""

from __future__ import annotations

import re
from bisect import bisect_left


class Finder:
    """Finds the first match of a pattern behind any place of a text, up to its `end`. Remembers what it passed by."""

    def __init__(self, pattern: re.Pattern[str], text: str, end: int | None = None) -> None:
        self._pattern, self._text = pattern, text
        self._end = len(text) if end is None else end
        self._begin_at(0)

    def _begin_at(self, place: int) -> None:
        self._looked_from = self._look_on = place
        """All matches that begin between these two are known."""
        self._matches: list[re.Match[str]] = []
        self._starts: list[int] = []

    def behind(self, place: int) -> re.Match[str] | None:
        """The first match that begins at `place` or behind it."""
        if not self._looked_from <= place <= self._look_on:
            self._begin_at(place)
        index = bisect_left(self._starts, place)
        if index < len(self._starts):
            return self._matches[index]
        if self._look_on > self._end:
            return None
        found = self._pattern.search(self._text, self._look_on, self._end)
        self._look_on = found.start() + 1 if found else self._end + 1
        if found:
            self._matches.append(found)
            self._starts.append(found.start())
        return found
