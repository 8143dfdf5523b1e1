"""Finder: what it remembers is what a search of its own would find."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from traceanalyzer.ingest.finder import Finder

_TEXT = st.text("ab{", max_size=40)


@given(_TEXT, st.lists(st.integers(0, 45), max_size=30), st.none() | st.integers(0, 40))
def test_a_finder_finds_what_a_search_finds_from_any_place_in_any_order(
    text: str, places: list[int], end: int | None
) -> None:
    pattern = re.compile(r"a+\{|ba")
    end = None if end is None else min(end, len(text))
    finder = Finder(pattern, text, end)
    for place in places:
        expected = pattern.search(text, place, len(text) if end is None else end)
        found = finder.behind(place)
        assert (found and found.span()) == (expected and expected.span())
