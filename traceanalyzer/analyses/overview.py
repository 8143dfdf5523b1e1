"""What is in these files: runs with the ranks found and missing, files, devices, events by kind."""

from __future__ import annotations

import polars as pl

from traceanalyzer.analyses.arguments import need_trace
from traceanalyzer.analyses.described import with_description
from traceanalyzer.analyses.device_time import all_activity, device_time
from traceanalyzer.analyses.impossible import clipped, impossible_in
from traceanalyzer.analyses.missing import missing_ranks
from traceanalyzer.analyses.select import NOT_SELECTED
from traceanalyzer.analyses.stretch import Stretch
from traceanalyzer.trace import Trace

_KIND_COUNTS = {"kernels": "kernel", "copies": "memcpy", "sets": "memset"}

#: What each figure is, word for word as it is shown with `--explain`.
DEFINITIONS = {
    "span_ns": "last end minus first start of the device activity (kernels, copies, sets) of a device; "
    "with --between, the part of the stretch that lies in this span",
    "busy_ns": "length of the union of the device activity of a device over all its streams; "
    "activity that runs over an edge of --between counts on each side with its part",
    "idle_ns": "span minus busy; time before the first and after the last activity is in neither",
    "clipped_span_ns": "span with durations that cannot be true ended at the next start on their stream",
    "clipped_busy_ns": "busy with durations that cannot be true ended at the next start on their stream",
    "clipped_idle_ns": "clipped span minus clipped busy",
    "ranks_missing": "ranks below the world size, as most files have it, that no file is from; "
    "without a world size, below the highest rank of the recording; none of a graph capture or a merged file",
    "kernels": "events of category kernel; copies and sets are counted apart",
    "streams": "streams with device activity",
    "sms": "streaming multiprocessors (compute units on AMD), as the file says",
    "events": "entries of the event array, of whatever kind",
    "json_bytes": "size of the JSON text inside the file, unpacked",
    "whole": "false: the file was cut or damaged, and what could be read was kept",
}


def devices(trace: Trace) -> pl.DataFrame:
    """One row per file and device, and one with null device for a file without device activity.

    Adds to `device_time` the file it came from, the device's `name` and `sms`, and how many `kernels`, `copies`
    and `sets` ran on it. What a file without activity did is not known: its times are null. Where durations
    cannot be true (see `impossible_in`), `clipped_span_ns`, `clipped_busy_ns` and `clipped_idle_ns` come last.
    """
    need_trace(trace, "devices")
    key = ["source", "device"]
    counts = trace.kernels.group_by(key).agg(
        (pl.col("kind") == kind).sum().cast(pl.Int64).alias(column) for column, kind in _KIND_COUNTS.items()
    )
    active = (
        device_time(trace)
        .drop("rank", "events")
        .join(counts, on=key, how="left", nulls_equal=True)
        .with_columns(pl.col(*_KIND_COUNTS).fill_null(0))
    )
    active = with_description(active, trace.devices, "name", "sms")
    found = impossible_in(trace)
    if found.height:
        windows = trace.windows if isinstance(trace, Stretch) else None
        times = _clipped_times(clipped(all_activity(trace), found), windows)
        active = active.join(times, on=key, how="left", nulls_equal=True)
    files = trace.used.select("source", "path", "run", "stage", "rank")
    return files.join(active, on="source", how="left", maintain_order="left_right").select(
        "source", "path", "run", "stage", "rank", "device", "name", "sms", "streams", "span_ns", "busy_ns", "idle_ns",
        *_KIND_COUNTS, *clipped_columns(active),
    )  # fmt: skip


def clipped_columns(frame: pl.DataFrame) -> list[str]:
    """Those of the times with durations clipped that a frame has; none where all durations can be true."""
    return [name for name in frame.columns if name.startswith("clipped_")]


def _clipped_times(activity: pl.DataFrame, windows: pl.DataFrame | None) -> pl.DataFrame:
    times = device_time(activity, windows=windows)
    names = {name: f"clipped_{name}" for name in ("span_ns", "busy_ns", "idle_ns")}
    return times.select("source", "device", *names).rename(names)


def files(trace: Trace, *, per_device: pl.DataFrame | None = None) -> pl.DataFrame:
    """One row per file, or per rank of a merged one, left-out files included.

    Times are sums over the devices of the file; null where it has no device activity or is left out. `per_device` is
    the result of `devices`, where it is at hand already.
    """
    need_trace(trace, "files")
    found = devices(trace) if per_device is None else per_device
    columns = ("span_ns", "busy_ns", "idle_ns", *_KIND_COUNTS, *clipped_columns(found))
    per_file = (
        found.drop_nulls("span_ns")
        .group_by("source")
        .agg(
            pl.col("device").cast(pl.String).alias("devices"),
            pl.col("name").drop_nulls().first().cast(pl.String).alias("gpu"),
            pl.col("sms").drop_nulls().first(),
            *(pl.col(column).sum() for column in columns),
        )
    )
    asked_for = trace.ranks.filter(pl.col("reason").ne_missing(NOT_SELECTED))
    return asked_for.join(per_file, on="source", how="left", maintain_order="left").select(
        "path", "run", "stage", "rank", "world_size", "used", "reason", "producer", "whole", "devices", "gpu", "sms",
        *columns, "events", "file_bytes", "json_bytes", "gzipped",
    )  # fmt: skip


def runs(trace: Trace, *, per_device: pl.DataFrame | None = None) -> pl.DataFrame:
    """One row per run: how many files, which ranks are there and which are not, and summed device times.

    `world_size` and `ranks_missing` are those of `missing_ranks`; a file with an unknown rank counts in `files` only.
    `per_device` is the result of `devices`, where it is at hand already.
    """
    need_trace(trace, "runs")
    facts = trace.used.group_by("run", maintain_order=True).agg(
        pl.col("stage").first(),
        files=pl.len().cast(pl.Int64),
        ranks=pl.col("rank").drop_nulls().unique().sort(),
        producers=pl.col("producer").drop_nulls().unique().sort(),
    )
    per_run = (devices(trace) if per_device is None else per_device).drop_nulls("span_ns")
    times = per_run.group_by("run").agg(
        devices=pl.len().cast(pl.Int64),
        gpus=pl.col("name").drop_nulls().unique().cast(pl.String).sort(),
        sms=pl.col("sms").drop_nulls().unique().sort(),
        **{name: pl.col(name).sum() for name in ("span_ns", "busy_ns", "idle_ns", *_KIND_COUNTS)},
        **{name: pl.col(name).sum() for name in clipped_columns(per_run)},
    )
    first = ("run", "stage", "files", "world_size")
    return (
        facts.join(missing_ranks(trace.ranks), on="run", how="left", maintain_order="left")
        .join(times, on="run", how="left", maintain_order="left")
        .with_columns(pl.col("devices").fill_null(0))
        .select(*first, pl.exclude(*first, "ranks_missing"), "ranks_missing")
    )


def events(trace: Trace) -> pl.DataFrame:
    """How many events of each `phase` and `category` there are and which table holds them, most first."""
    need_trace(trace, "events")
    key = ["phase", "category", "table"]
    found = trace.event_counts.group_by(key).agg(pl.col("count").sum())
    return found.sort("count", *key, descending=[True, False, False, False])
