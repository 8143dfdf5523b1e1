"""Notes as lines on standard error: the grave ones, one line a kind, and an end to it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace

from traceanalyzer.notes import Note
from traceanalyzer.render import cells
from traceanalyzer.text import counted

#: More than this nobody reads; `info` shows them all.
MOST_LINES = 10


def note_lines(notes: Iterable[Note]) -> list[str]:
    """One line per level and code, gravest first as given; notes of level info are for `info` alone."""
    kinds: dict[tuple[str, str], list[Note]] = defaultdict(list)
    for note in notes:
        if note.level != "info":
            kinds[note.level, note.code].append(note)
    lines = [_line(same) for same in kinds.values()]
    more = len(lines) - MOST_LINES
    return lines[:MOST_LINES] + ([f"{counted(more, 'more note')}, see traceanalyze info"] if more > 0 else [])


def _line(same: list[Note]) -> str:
    total = sum(note.count or 0 for note in same)
    return cells.note(replace(same[0], count=total), files=len(same))
