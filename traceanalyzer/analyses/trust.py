"""What analyses notice about the quality of a trace, beside what the reader did: notes with stable codes."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from traceanalyzer.analyses.impossible import impossible
from traceanalyzer.notes import Note
from traceanalyzer.text import middle
from traceanalyzer.trace import Trace


def notes(trace: Trace) -> list[Note]:
    """`no-device-activity` and `impossible-duration`, one per file that it is about."""
    return [*_without_activity(trace), *_impossible_durations(trace)]


def _without_activity(trace: Trace) -> Iterator[Note]:
    launches = trace.event_counts.filter(pl.col("table") == "launches").group_by("source").agg(pl.col("count").sum())
    silent = trace.used.filter(pl.col("first_ns").is_null()).join(launches, on="source", how="left")
    for path, count in silent.sort("path").select("path", "count").iter_rows():
        if count:
            why = f"{count:,} launch calls, but no device activity: it was not recorded, or the profiler lost it"
        else:
            why = "no device activity and no launch calls: the host alone was recorded"
        yield Note("warning", "no-device-activity", why, path, 1)


def _impossible_durations(trace: Trace) -> Iterator[Note]:
    found = impossible(trace.kernels).join(trace.ranks.select("source", "path"), on="source")
    for (path,), group in found.sort("path", "overrun_ns", descending=[False, True]).group_by(
        "path", maintain_order=True
    ):
        worst = group.row(0, named=True)
        text = (
            f"durations that cannot be: {middle(str(worst['name']), 80)} on stream {worst['stream']} runs "
            f"{worst['overrun_ns'] / 1e6:,.3f} ms past the start of the next; clipped figures stand beside"
        )
        yield Note("warning", "impossible-duration", text, str(path), group.height)
