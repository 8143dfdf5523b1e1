"""The report of `timeline`: what the picture shows, in numbers."""

from __future__ import annotations

import polars as pl

from traceanalyzer.analyses import overview
from traceanalyzer.analyses.timeline import Timeline
from traceanalyzer.report import Column, Fact, Report, Section
from traceanalyzer.reports import shared
from traceanalyzer.trace import Trace

_COLUMNS = [
    Column("rank", "rank", "count"),
    Column("device", "device", "text", optional=1),
    Column("name", "busy with, idle by", "text"),
    Column("total_ns", "total", "time"),
    Column("share", "share", "share", bar=True),
]
_DEFINITIONS = {
    "total_ns": "part of the window that activity of the class, or gaps of that largest cause, cover; where classes "
    "overlap, scaled so that they fit the busy time",
    "share": "total / window",
}


def build(trace: Trace, what: Timeline, *, explain: bool = False) -> Report:
    """One section per run: each device with its classes and causes of idle in the window."""
    devices = overview.devices(trace)
    window = what.end_ns - what.start_ns
    sums = (
        what.bins.filter(pl.col("stream").is_null())
        .group_by("path", "device", "kind", "name")
        .agg(total_ns=pl.col("covered_ns").sum().round().cast(pl.Int64))
    )
    files = what.lanes.filter(pl.col("stream").is_null()).select("run", "path", "rank", "device")
    rows = files.join(sums, on=["path", "device"], how="left", nulls_equal=True).with_columns(
        share=pl.col("total_ns") / window
    )
    idle = pl.col("kind") == "idle"
    rows = rows.sort("run", "rank", "path", "device", idle, "total_ns", "name", descending=[*[False] * 5, True, False])
    text = pl.when(idle).then(pl.concat_str(pl.lit("idle: "), "name")).otherwise(pl.col("name").fill_null("unknown"))
    sections = [
        Section(
            rows.filter(pl.col("run") == run).with_columns(name=text),
            _COLUMNS,
            title=str(run),
            facts=[Fact("from", what.start_ns, "time"), Fact("to", what.end_ns, "time")],
        )
        for run in rows["run"].unique(maintain_order=True)
    ]
    return Report(
        command="timeline",
        title="Timeline",
        sections=sections,
        data={"rows": rows},
        traces=shared.traces(devices),
        notes=shared.notes(trace),
        definitions=_DEFINITIONS if explain else {},
    )
