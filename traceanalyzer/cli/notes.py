"""Notes as lines on standard error: the grave ones, one line a kind, and an end to it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from traceanalyzer.notes import Note
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
    """`warning: rank0.json: 3 device events ...`; several files are counted, and the first one speaks for them."""
    first = same[0]
    where = f"{first.path}: " if first.path else ""
    total = sum(note.count or 0 for note in same)
    count = f" ({total:,})" if total > 1 else ""
    others = f", and in {counted(len(same) - 1, 'more file')}" if len(same) > 1 else ""
    return f"{first.level}: {where}{first.message}{count}{others}"
