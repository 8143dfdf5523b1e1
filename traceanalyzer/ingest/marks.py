"""Begin and end marks -> slices. Begin/end pairs nest on a thread; asynchronous ones are joined by their id."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import polars as pl

from traceanalyzer.ingest.categories import MARK_PHASES
from traceanalyzer.ingest.losses import Losses

_BEGINS = ("B", "b", "S")
_COLUMNS = ("category", "name", "pid", "tid", "start_ns", "duration_ns", "args")


def pair(marks: pl.DataFrame, losses: Losses) -> pl.DataFrame:
    """Slices from marks (columns kind, category, name, pid, tid, start_ns, id, args; file order).

    Marks may stand in any order in a file: they are taken by time, and in file order at the same time. A B is
    closed by the next E of its thread that is not needed by a later B, whatever the names say. Marks without
    a partner have no duration: they are counted in `losses`.
    """
    open_marks: defaultdict[Any, list[tuple[int, dict[str, Any]]]] = defaultdict(list)
    closed: list[tuple[int, dict[str, Any]]] = []
    stray = 0
    rows = marks.with_row_index("index").sort("start_ns", "index").iter_rows(named=True)
    for row in rows:
        phase = MARK_PHASES[row["kind"]]
        stack = open_marks[_partner_key(phase, row)]
        if phase in _BEGINS:
            stack.append((row["index"], row))
        elif stack:
            index, begin = stack.pop()
            closed.append((index, _slice(begin, row)))
        else:
            stray += 1
    losses.add("end-without-begin", "end events without a begin have no duration and were dropped", count=stray)
    unclosed = sum(map(len, open_marks.values()))
    losses.add("unclosed-begin", "begin events without an end have no duration and were dropped", count=unclosed)
    closed.sort(key=lambda each: each[0])
    types = {name: marks.schema.get(name, pl.Int64()) for name in _COLUMNS}
    return pl.DataFrame([each for _, each in closed], schema=types)


def _partner_key(phase: str, row: dict[str, Any]) -> tuple[Any, ...]:
    if phase in "BE":
        return ("thread", row["pid"], row["tid"])
    kind = "nestable" if phase in "be" else "legacy"
    return (kind, row["pid"], row["category"], row["id"], row["name"])


def _slice(begin: dict[str, Any], end: dict[str, Any]) -> dict[str, Any]:
    return {
        **{name: begin[name] for name in ("category", "name", "pid", "tid", "start_ns")},
        "duration_ns": end["start_ns"] - begin["start_ns"],
        "args": begin["args"] if begin["args"] is not None else end["args"],
    }
