"""What analyses notice about the quality of a trace, beside what the reader did: notes with stable codes."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from traceanalyzer.analyses.impossible import impossible_in
from traceanalyzer.notes import Note
from traceanalyzer.text import counted, middle
from traceanalyzer.trace import Trace

#: Tables of what the host did; a range that the profiler drew on the device is not of the host.
_HOST_TABLES = ("launches", "ops", "annotations", "python_calls")
_ON_DEVICE = pl.col("category").str.starts_with("gpu_").fill_null(value=False)


def notes(trace: Trace) -> list[Note]:
    """`no-device-activity` and `impossible-duration`, one per file that it is about."""
    return [*_without_activity(trace), *_impossible_durations(trace)]


def _without_activity(trace: Trace) -> Iterator[Note]:
    count, table = pl.col("count"), pl.col("table")
    parts = trace.event_counts.select(
        "source",
        all=count,
        on_host=count * (table.is_in(_HOST_TABLES) & ~_ON_DEVICE),
        launches=count * (table == "launches"),
    )
    counts = parts.group_by("source").agg(pl.col("all", "on_host", "launches").sum())
    silent = trace.used.filter(pl.col("first_ns").is_null()).join(counts, on="source", how="left")
    for path, all_, on_host, launches in silent.sort("path").select("path", "all", "on_host", "launches").iter_rows():
        if launches:
            calls = counted(launches, "launch call")
            why = f"{calls}, but no device activity: it was not recorded, or the profiler lost it"
        elif on_host:
            why = "no device activity and no launch calls: the host alone was recorded"
        else:
            why = "no device activity" if all_ else "holds no events"
        yield Note("warning", "no-device-activity", why, path, 1)


def _impossible_durations(trace: Trace) -> Iterator[Note]:
    found = impossible_in(trace).join(trace.ranks.select("source", "path"), on="source")
    for (path,), group in found.sort("path", "overrun_ns", descending=[False, True]).group_by(
        "path", maintain_order=True
    ):
        worst = group.row(0, named=True)
        text = (
            f"durations that cannot be: {middle(str(worst['name']), 80)} on stream {worst['stream']} runs "
            f"{worst['overrun_ns'] / 1e6:,.3f} ms past the start of the next; clipped figures stand beside"
        )
        yield Note("warning", "impossible-duration", text, str(path), group.height)
