"""What analyses notice about the quality of a trace, beside what the reader did: notes with stable codes."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from traceanalyzer.analyses.impossible import impossible_in
from traceanalyzer.analyses.stretch import Stretch, whole_of
from traceanalyzer.notes import Level, Note
from traceanalyzer.text import counted, middle
from traceanalyzer.trace import Trace

#: Tables of what the host did; a range that the profiler drew on the device is not of the host.
_HOST_TABLES = ("launches", "ops", "annotations", "python_calls")
_ON_DEVICE = pl.col("category").str.starts_with("gpu_").fill_null(value=False)


#: Calls that start device work by their name. Every runtime call has a correlation id, waits and queries too.
_STARTS_WORK = r"(?i)launch|memcpy|memset"
_STARTS_NONE = r"(?i)hostfunc|configurecall"
_CAPTURES = r"(?i)stream.*begincapture"
#: What makes a record the same as another one. No profiler stamps two records of one stream alike.
_SAME_RECORD = ("source", "name", "device", "stream", "start_ns", "duration_ns", "correlation")
#: From this share of launch calls on, records that do not fit are worth a warning. Sets of nothing have no record.
_WORTH_A_WARNING, _WORTH_A_WARNING_OF_SETS = 0.01, 0.1
_SETS = r"(?i)memset"


def notes(trace: Trace) -> list[Note]:
    """`no-device-activity` and `impossible-duration`, one per file that it is about."""
    return [*_without_activity(trace), *_impossible_durations(trace)]


def record_notes(trace: Trace) -> list[Note]:
    """What does not fit among the records of launches and device activity, one note per kind and file.

    `launch-without-kernel`, `kernel-before-launch` (two clocks that disagree), `duplicate-record`. They take the tables
    `kernels` and `launches`, which not every question reads.
    """
    return [*_launches_without_kernel(trace), *_kernels_before_launch(trace), *_duplicates(trace)]


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
            f"durations that cannot be: {middle(str(worst['name']), 80)} on {_stream(worst['stream'])} runs "
            f"{worst['overrun_ns'] / 1e6:,.3f} ms past the start of the next; clipped figures stand beside"
        )
        yield Note("warning", "impossible-duration", text, str(path), group.height)


def _stream(name: str | None) -> str:
    return "an unknown stream" if name is None else f"stream {name}"


def launches_without_kernel(trace: Trace) -> pl.DataFrame:
    """The rows of `launches` that should have started device work of which there is no record."""
    whole = whole_of(trace)  # what a stretch leaves out is not lost
    starting = _starting(trace)
    linked = whole.kernels.select("source", "correlation").drop_nulls().unique()
    idle = starting.join(linked, on=["source", "correlation"], how="anti")
    # where no id of a file leads to device work, its ids say nothing: a producer without links, or no activity at all
    return idle.join(linked.select("source").unique(), on="source", how="semi")


def _starting(trace: Trace) -> pl.DataFrame:
    name = pl.col("name").cast(pl.String)
    calls = trace.launches.filter(pl.col("correlation").is_not_null())
    if isinstance(trace, Stretch):
        inside = (pl.col("start_ns") >= pl.col("from_ns")) & (pl.col("start_ns") < pl.col("until_ns"))
        calls = calls.join(trace.windows, on="source").filter(inside).select(calls.columns)
    return calls.filter(name.str.contains(_STARTS_WORK) & ~name.str.contains(_STARTS_NONE))


def _launches_without_kernel(trace: Trace) -> Iterator[Note]:
    name = pl.col("name").cast(pl.String)
    idle = launches_without_kernel(trace)
    capturing = set(trace.launches.filter(name.str.contains(_CAPTURES))["source"])
    totals = dict(_starting(trace).group_by("source").agg(pl.len()).iter_rows())
    for source, path, lost in _by_file(trace, idle):
        most, count = lost["name"].cast(pl.String).value_counts(sort=True).row(0)
        why = "captured into a graph, or lost by the profiler" if source in capturing else "lost by the profiler"
        text = (
            f"{lost.height:,} of {counted(totals[source], 'launch call')} started no recorded device activity "
            f"({most}: {count:,}): {why}; idle may be too high"
        )
        only_sets = bool(lost["name"].cast(pl.String).str.contains(_SETS).all())
        least = _WORTH_A_WARNING_OF_SETS if only_sets else _WORTH_A_WARNING
        yield Note(_level(lost.height, totals[source], least), "launch-without-kernel", text, path, lost.height)


def _kernels_before_launch(trace: Trace) -> Iterator[Note]:
    keys = ["source", "correlation"]
    firsts = [
        frame.filter(pl.col("correlation").is_not_null()).group_by(keys).agg(pl.col("start_ns").min())
        for frame in (trace.launches, trace.kernels)
    ]
    linked = firsts[0].join(firsts[1], on=keys, suffix="_on_device", how="inner")
    linked = linked.select("source", early_ns=pl.col("start_ns") - pl.col("start_ns_on_device"))
    totals = dict(linked.group_by("source").agg(pl.len()).iter_rows())
    for source, path, early in _by_file(trace, linked.filter(pl.col("early_ns") > 0)):
        largest = int(early["early_ns"].to_numpy().max())
        text = (
            f"device activity of {early.height:,} of {counted(totals[source], 'launch call')} starts before the call, "
            f"by up to {largest / 1e3:,.1f} µs: the clocks of host and device disagree"
        )
        yield Note(_level(early.height, totals[source]), "kernel-before-launch", text, path, early.height)


def _duplicates(trace: Trace) -> Iterator[Note]:
    again = trace.kernels.filter(~pl.struct(_SAME_RECORD).is_first_distinct())
    for _, path, copies in _by_file(trace, again):
        text = (
            f"{counted(copies.height, 'record')} of device activity the same in name, stream, times and id as another "
            f"({int(copies['duration_ns'].sum()) / 1e6:,.3f} ms): totals count them again, busy time does not"
        )
        yield Note("warning", "duplicate-record", text, path, copies.height)


def _by_file(trace: Trace, rows: pl.DataFrame) -> Iterator[tuple[int, str, pl.DataFrame]]:
    """Rows by source, in the order of the files' paths; sources without rows are left out."""
    groups = {int(source): group for (source,), group in rows.group_by("source", maintain_order=True)}
    for source, path in trace.used.sort("path").select("source", "path").iter_rows():
        if source in groups:
            yield source, path, groups[source]


def _level(count: int, total: int, least: float = _WORTH_A_WARNING) -> Level:
    return "warning" if count >= least * total else "info"
