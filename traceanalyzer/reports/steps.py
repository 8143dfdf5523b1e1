"""The report of `steps`."""

from __future__ import annotations

from typing import Any

import polars as pl

from traceanalyzer import formats
from traceanalyzer.analyses import overview
from traceanalyzer.analyses import steps as analysis
from traceanalyzer.analyses.idle import CAUSES
from traceanalyzer.analyses.ratio import ratio
from traceanalyzer.classify.rules import CLASSES
from traceanalyzer.report import Column, Fact, Remainder, Report, Section
from traceanalyzer.reports import shared
from traceanalyzer.trace import Trace

_SUMMARY = [
    Column("rank", "rank", "count"),
    Column("device", "device", "text", optional=6),
    Column("kind", "kind", "text"),
    Column("steps", "steps", "count"),
    Column("marked", "odd", "count", optional=5),
    Column("p50_ns", "p50", "time", unit_of="wall"),
    Column("p95_ns", "p95", "time", optional=3, unit_of="wall"),
    Column("p99_ns", "p99", "time", optional=4, unit_of="wall"),
    Column("max_ns", "max", "time", optional=1, unit_of="wall"),
    Column("busy_share", "busy", "share", bar=True),
    Column("tokens_per_s", "tokens/s", "rate"),
    Column("ns_per_token", "per token", "time", optional=2),
]
_STEPS = [
    Column("rank", "rank", "count"),
    Column("device", "device", "text", optional=7),
    Column("step", "step", "count"),
    Column("kind", "kind", "text"),
    Column("mark", "mark", "text", optional=3),
    Column("batch", "batch", "count", optional=6),
    Column("tokens", "tokens", "count", optional=5),
    Column("start_ns", "start", "time", optional=4, unit_of="start"),
    Column("wall_ns", "wall", "time", unit_of="wall"),
    Column("busy_ns", "busy", "time", unit_of="wall"),
    Column("idle_ns", "idle", "time", unit_of="wall"),
    Column("idle_share", "of wall", "share"),
    Column("why_idle", "idle by", "text", optional=2),
    Column("host_wall_ns", "on host", "time", optional=2, unit_of="wall"),
    Column("kernels", "kernels", "count"),
    Column("largest", "largest class", "text", optional=1),
]
_FOUND_BY = {
    "marker": "markers on the host",
    "graph": "replays of CUDA graphs that repeat",
    "sequence": "the sequence of kernels that repeats",
}
_NONE_FOUND = (
    "no steps found: no markers (ProfilerStep#, step[DECODE ...], execute_*; --step-marker names others), and no "
    "sequence of kernels that repeats"
)


def build(trace: Trace, rows: pl.DataFrame, *, limit: int = 0, explain: bool = False) -> Report:
    """For each run what its steps take by kind, then the steps; `rows` are those of `steps`."""
    devices = overview.devices(trace)
    runs = overview.runs(trace, per_device=devices).to_dicts()
    summary = analysis.summary(rows)
    sections = [section for run in runs for section in _run(run, rows, summary, limit)]
    words = overview.DEFINITIONS | analysis.DEFINITIONS
    return Report(
        command="steps",
        title="Steps",
        sections=sections,
        data={"rows": _limited(rows, limit), "kinds": summary},
        traces=shared.traces(devices),
        notes=shared.notes(trace),
        definitions={name: words[name] for name in rows.columns if name in words and explain},
    )


def _limited(rows: pl.DataFrame, limit: int) -> pl.DataFrame:
    """The first rows of each run; 0: all."""
    return rows.group_by("run", maintain_order=True).head(limit) if limit else rows


def _run(run: dict[str, Any], rows: pl.DataFrame, summary: pl.DataFrame, limit: int) -> list[Section]:
    own = rows.filter(pl.col("run") == run["run"])
    of_steps = own.filter(pl.col("kind") != "outside")
    kinds = summary.filter(pl.col("run") == run["run"])
    facts = [Fact("", shared.ranks_found(run)), *_found(of_steps)]
    head = Section(kinds, _SUMMARY, title=run["run"], facts=facts, empty=_NONE_FOUND)
    if of_steps.is_empty():
        return [head]
    frame = own.filter((pl.col("kind") != "outside") | (pl.col("wall_ns") > 0) | (pl.col("kernels") > 0))
    frame = frame.with_columns(idle_share=ratio(frame["idle_ns"], frame["wall_ns"]), largest=_largest(frame))
    frame = frame.with_columns(why_idle=_why_idle(frame))
    cut = frame.head(limit) if limit else frame
    more = frame.height - cut.height
    rest = Remainder(more, "row" if more == 1 else "rows") if more else None
    columns = [column for column in _STEPS if not frame[column.name].is_null().all()]
    return [head, Section(cut, columns, remainder=rest)]


def _found(steps: pl.DataFrame) -> list[Fact]:
    """By what the steps were found, and how sure that is."""
    facts = []
    for found_by, confidence in steps.group_by("found_by").agg(pl.col("confidence").min()).sort("found_by").iter_rows():
        sure = "" if found_by == "marker" else f" (confidence {formats.share(confidence, 0)})"
        facts.append(Fact("steps by", f"{_FOUND_BY[found_by]}{sure}"))
    return facts


def _largest(rows: pl.DataFrame) -> pl.Series:
    """The class with most of the time of each step, and its part of it."""
    classes = [f"{name}_ns" for name in CLASSES]
    texts = []
    for row in rows.select(classes).iter_rows(named=True):
        total = sum(row.values())
        name = max(classes, key=lambda each: row[each]) if total else None
        texts.append(None if name is None else f"{name.removesuffix('_ns')} {formats.share(row[name] / total, 0)}")
    return pl.Series("largest", texts, dtype=pl.String)


def _why_idle(rows: pl.DataFrame) -> pl.Series:
    """The cause with most of the idle time of each step, and its part of it; null where that is not known."""
    columns = [f"idle_{cause}_ns" for cause in CAUSES]
    if not set(columns) <= set(rows.columns):
        return pl.Series("why_idle", [None] * rows.height, dtype=pl.String)
    texts = []
    for idle, *pieces in rows.select("idle_ns", *columns).iter_rows():
        amount, cause = max(zip((piece or 0 for piece in pieces), CAUSES, strict=True))
        texts.append(f"{cause} {formats.share(amount / idle, 0)}" if idle and amount else None)
    return pl.Series("why_idle", texts, dtype=pl.String)
