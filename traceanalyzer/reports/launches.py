"""The report of `launches`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl

from traceanalyzer.analyses import launches as analysis
from traceanalyzer.analyses import overview
from traceanalyzer.report import Column, Fact, Remainder, Report, Section
from traceanalyzer.reports import shared
from traceanalyzer.text import counted
from traceanalyzer.trace import Trace

_RANK = Column("rank", "rank", "count")
_CALLS = [
    _RANK,
    Column("call", "call", "name"),
    Column("calls", "calls", "count"),
    Column("host_ns", "host time", "time", unit_of="host"),
    Column("host_mean_ns", "mean", "time", optional=3, unit_of="one call"),
    Column("host_max_ns", "max", "time", optional=7, unit_of="one call"),
    Column("started", "started", "count"),
    Column("lost", "nothing", "count", optional=4),
    Column("early", "early", "count", optional=5),
    Column("delay_p50_ns", "delay p50", "time", unit_of="delay"),
    Column("delay_p99_ns", "p99", "time", optional=2, unit_of="delay"),
    Column("delay_max_ns", "max", "time", optional=6, unit_of="delay"),
    Column("idle_calls", "to idle", "count", optional=1),
    Column("idle_delay_p50_ns", "p50 to idle", "time", unit_of="delay"),
]
_STREAMS = [
    _RANK,
    Column("device", "device", "text", optional=1),
    Column("stream", "stream", "text"),
    Column("started", "started", "count"),
    Column("depth_mean", "waiting on average", "rate"),
    Column("depth_max", "at most", "count"),
    Column("empty_share", "none waiting", "share", bar=True),
]
_STEPS = [
    _RANK,
    Column("kind", "kind of step", "text"),
    Column("steps", "steps", "count"),
    Column("calls_p50", "calls a step", "count"),
    Column("graphs_p50", "graphs", "count"),
    Column("started_p50", "kernels, copies, sets", "count"),
    Column("host_p50_ns", "host time", "time", unit_of="host"),
    Column("host_share", "of the step", "share"),
]


def build(trace: Trace, found: analysis.Launches, *, limit: int = 0, explain: bool = False) -> Report:
    """For each run its calls by name, its streams, and its steps where markers tell them."""
    devices = overview.devices(trace)
    runs = overview.runs(trace, per_device=devices).to_dicts()
    words = overview.DEFINITIONS | analysis.DEFINITIONS
    figures = [*found.calls.columns, *found.streams.columns, *found.steps.columns]
    return Report(
        command="launches",
        title="Launches",
        sections=[section for run in runs for section in _run(run, found, limit)],
        data={"rows": found.calls, "streams": found.streams, "steps": found.steps},
        traces=shared.traces(devices),
        notes=shared.notes(trace),
        definitions={name: words[name] for name in figures if name in words and explain},
    )


def _run(run: dict[str, Any], found: analysis.Launches, limit: int) -> list[Section]:
    several = len(run["ranks"]) > 1
    calls, streams, steps = (
        table.filter(pl.col("run") == run["run"]) for table in (found.calls, found.streams, found.steps)
    )
    facts = [Fact("", shared.ranks_found(run)), *_facts(calls)]
    head = _section(calls, _CALLS, several=several, limit=limit)
    head = Section(
        head.frame, head.columns, title=run["run"], facts=facts, empty=_nothing(run), remainder=head.remainder
    )
    more = [(streams, _STREAMS), (steps, _STEPS)]
    return [head, *(_section(table, columns, several=several, limit=limit) for table, columns in more if table.height)]


def _section(rows: pl.DataFrame, columns: Sequence[Column], *, several: bool, limit: int) -> Section:
    shown = rows.head(limit) if limit else rows
    rest = rows.height - shown.height
    kept = [
        column for column in columns
        if (several or column is not _RANK) and not (column.optional and _says_nothing(rows[column.name]))
    ]  # fmt: skip
    return Section(shown, kept, remainder=Remainder(rest, "row" if rest == 1 else "rows") if rest else None)


def _says_nothing(values: pl.Series) -> bool:
    return values.is_null().all() or (values.dtype.is_integer() and (values.fill_null(0) == 0).all())


def _facts(calls: pl.DataFrame) -> list[Fact]:
    """What is said above the table: how much was launched, and by how many graph launches."""
    if calls.is_empty():
        return []
    started = int(calls["started"].sum())
    launched = f"{counted(int(calls['calls'].sum()), 'launch call')} started {started:,} kernels, copies and sets"
    graphs = calls.filter(pl.col("graph"))
    replays = int(graphs["calls"].sum()) - int(graphs["lost"].sum())
    if not replays:
        return [Fact("", launched)]
    noun = "graph launch" if replays == 1 else "graph launches"
    return [Fact("", launched), Fact("", f"{replays:,} {noun} of {int(graphs['started'].sum()) / replays:,.0f} each")]


def _nothing(run: dict[str, Any]) -> str:
    """Why there is no row."""
    if not run["devices"]:
        return shared.NO_ACTIVITY
    return "no launch calls recorded (record with ProfilerActivity.CPU)"
