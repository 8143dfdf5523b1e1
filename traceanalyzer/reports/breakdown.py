"""The report of `breakdown`."""

from __future__ import annotations

from typing import Any

import polars as pl

from traceanalyzer.analyses import breakdown, overview
from traceanalyzer.analyses.breakdown import STATES
from traceanalyzer.report import Column, Fact, Report, Section
from traceanalyzer.reports import shared
from traceanalyzer.trace import Trace

_COLUMNS = (
    Column("state", "state", "text"),
    Column("part", "class or cause", "class"),
    Column("total_ns", "total", "time", unit_of="total"),
    Column("clipped_total_ns", "clipped", "time", unit_of="total"),
    Column("share", "of span", "share", bar=True),
    Column("least_share", "least", "share", optional=1),
    Column("most_share", "most", "share", optional=1),
    Column("hidden_communication_ns", "hidden", "time", optional=2, unit_of="total"),
)
#: What the states are called above the table.
_SAID = {"communication": "exposed communication"}


def build(trace: Trace, rows: pl.DataFrame, *, explain: bool = False) -> Report:
    """One section per run, added up over its devices; programs get the rows of every device, as of `breakdown`."""
    devices = overview.devices(trace)
    runs = overview.runs(trace, per_device=devices).to_dicts()
    summed = breakdown.per_run(rows)
    return Report(
        command="breakdown",
        title="Breakdown",
        sections=[_section(run, summed.filter(pl.col("run") == run["run"])) for run in runs],
        data={"rows": rows, "runs": summed},
        traces=shared.traces(devices),
        notes=shared.notes(trace),
        definitions=_definitions([*shared.traces(devices).columns, *rows.columns, *summed.columns]) if explain else {},
    )


def _definitions(figures: list[str]) -> dict[str, str]:
    words = overview.DEFINITIONS | breakdown.DEFINITIONS
    return {name: words[name] for name in dict.fromkeys(figures) if name in words}


def _section(run: dict[str, Any], rows: pl.DataFrame) -> Section:
    frame = rows.with_columns(part=pl.coalesce("class", "cause"))
    return Section(
        frame=frame,
        columns=_columns(run, frame),
        title=run["run"],
        facts=[*_span_facts(run), *_state_facts(rows)],
        empty=shared.NO_ACTIVITY,
    )


def _columns(run: dict[str, Any], rows: pl.DataFrame) -> list[Column]:
    dropped = set() if (run["devices"] or 0) > 1 else {"least_share", "most_share"}
    if not rows.is_empty() and not rows["hidden_communication_ns"].sum():
        dropped.add("hidden_communication_ns")
    return [column for column in _COLUMNS if column.name in rows.columns and column.name not in dropped]


def _span_facts(run: dict[str, Any]) -> list[Fact]:
    return [fact for fact in shared.run_facts(run) if not fact.label.startswith(("busy", "idle"))]


def _state_facts(rows: pl.DataFrame) -> list[Fact]:
    """The states, each with all of its classes."""
    facts = []
    for state in STATES:
        found = rows.filter(pl.col("state") == state)
        if not found.is_empty():
            share = float(found["share"].sum()) if found["share"].null_count() == 0 else None
            facts.append(Fact(_SAID.get(state, state), int(found["total_ns"].sum()), "time", share))
    hidden = rows["hidden_communication_ns"].sum()
    return [*facts, Fact("hidden communication", int(hidden), "time")] if hidden else facts
