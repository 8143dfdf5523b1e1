"""How work gets to the GPU: launch calls and the host time they take, the delay until their work starts, the queue."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from traceanalyzer.analyses import intervals
from traceanalyzer.analyses.arguments import need_trace
from traceanalyzer.analyses.launched import launched
from traceanalyzer.analyses.ratio import ratio, rounded_mean
from traceanalyzer.analyses.steps import Found, find_steps
from traceanalyzer.trace import Trace

#: What each figure is, word for word as it is shown with `--explain`.
DEFINITIONS = {
    "call": "name of the runtime or driver call",
    "graph": "whether it replays graphs",
    "calls": "calls of that name; names that start no work (allocation, synchronization) are not listed",
    "lost": "those of them of which no kernel, copy or set was recorded: captured into a graph, or lost",
    "started": "kernels, copies and sets that they started",
    "per_call": "started / calls that started any; above 1 for graphs",
    "host_ns": "host time in these calls: sum of their durations",
    "host_mean_ns": "host time / calls, rounded half to even",
    "host_max_ns": "longest call",
    "delay_p50_ns": "launch delay: start of the first activity that a call started minus start of the call; it holds "
    "the time in the call, the way to the GPU and the wait for earlier work. Nearest-rank percentile, without early "
    "ones",
    "delay_p99_ns": "as delay_p50_ns, 99 %",
    "delay_max_ns": "longest launch delay",
    "idle_calls": "calls to a stream on which nothing was left to run when the call started",
    "idle_delay_p50_ns": "middle launch delay of those: what a launch takes when it waits for nothing",
    "early": "calls whose first activity starts before they do: the clocks of host and device differ",
    "depth_mean": "kernels, copies and sets launched to the stream and not yet started, averaged over the time from "
    "its first call to its last start",
    "depth_max": "most of them at any time; a graph launch brings all of its kernels at once",
    "empty_share": "part of that time in which none was waiting: the GPU had nothing to go on with",
    "steps": "steps of that kind, by markers on the host",
    "calls_p50": "middle number of calls that started work in a step",
    "graphs_p50": "middle number of graph launches in a step",
    "started_p50": "middle number of kernels, copies and sets launched in a step",
    "host_p50_ns": "middle host time in launch calls in a step",
    "host_share": "host time in launch calls / length of the markers, over all steps of the kind",
}
#: Names that start work, whether or not any was recorded.
_STARTS = r"(?i)launch|memcpy|memset"
#: Names that hold such a word and start nothing.
_OTHER = r"(?i)launch_?host_?func|callConfiguration|attribute|occupancy"
_STREAM = ["source", "device", "stream"]
_OF = ["run", "path", "rank"]


@dataclass(frozen=True)
class Launches:
    """What is known of launching, in three tables; see `DEFINITIONS`."""

    calls: pl.DataFrame
    """One row per file and name of call, the one with most host time first."""
    streams: pl.DataFrame
    """One row per stream that work was launched to."""
    steps: pl.DataFrame
    """One row per file and kind of step, where markers tell steps."""


def launches(trace: Trace, *, found: Found | None = None) -> Launches:
    """Launch calls by name, the queue of each stream, and launches per step, for each file of a trace.

    `found` is what `find_steps` gave, where it is at hand already.
    """
    need_trace(trace, "launches")
    found = found or find_steps(trace)
    work = _work(trace, found)
    per_call = _per_call(work)
    of_file = trace.ranks.select("source", *_OF)
    tables = (_calls(_all_calls(trace, per_call)), _streams(work), _steps(work, found))
    return Launches(*(table.join(of_file, on="source", how="left", maintain_order="left")
                      .select(*_OF, pl.exclude("source", *_OF)) for table in tables))  # fmt: skip


def _work(trace: Trace, found: Found) -> pl.DataFrame:
    """Device activity of which the launch call is known, with its times and whether its stream was idle by then."""
    activity = trace.kernels.select(*_STREAM, "start_ns", "duration_ns").with_columns(step=found.of_kernel)
    links = launched(trace).select("kernel", "launch", "in_graph", "launch_delay_ns")
    end = pl.col("start_ns") + pl.col("duration_ns")
    before = links.hstack(activity).sort(*_STREAM, "start_ns", "kernel").with_columns(
        free_ns=end.cum_max().shift(1).over(_STREAM)
    )  # fmt: skip
    calls = trace.scan("launches").select(host_ns="duration_ns").with_row_index("launch").collect()
    known = before.filter(pl.col("launch").is_not_null()).join(calls, on="launch", how="left", maintain_order="left")
    return known.with_columns(call_ns=pl.col("start_ns") - pl.col("launch_delay_ns"))


def _per_call(work: pl.DataFrame) -> pl.DataFrame:
    """One row per call that started anything: how much, the delay of the first, whether its stream was idle."""
    first = pl.col("launch_delay_ns").arg_min()
    return work.group_by("launch").agg(
        started=pl.len().cast(pl.Int64),
        graph=pl.col("in_graph").any(),
        delay_ns=pl.col("launch_delay_ns").min(),
        idle=(pl.col("free_ns").get(first) <= pl.col("call_ns").get(first)).fill_null(value=True),
    )


def _all_calls(trace: Trace, per_call: pl.DataFrame) -> pl.DataFrame:
    """All calls of names that start work, with what each started."""
    calls = trace.scan("launches").select("source", "duration_ns", call="name").with_row_index("launch").collect()
    joined = calls.join(per_call, on="launch", how="left", maintain_order="left")
    text = pl.col("call").cast(pl.String)
    names = joined.select("call", "started").group_by("call").agg(pl.col("started").sum())
    starting = names.filter((pl.col("started") > 0) | (text.str.contains(_STARTS) & ~text.str.contains(_OTHER)))
    return joined.join(starting.select("call"), on="call", how="semi", maintain_order="left")


def _calls(calls: pl.DataFrame) -> pl.DataFrame:
    delay, early = pl.col("delay_ns"), pl.col("delay_ns") < 0
    late = delay.filter(delay >= 0)
    rows = calls.group_by("source", pl.col("call").cast(pl.String)).agg(
        calls=pl.len().cast(pl.Int64),
        graph=pl.col("graph").any().fill_null(value=False),
        lost=pl.col("started").null_count().cast(pl.Int64),
        started=pl.col("started").sum(),
        host_ns=pl.col("duration_ns").sum(),
        host_max_ns=pl.col("duration_ns").max(),
        delay_p50_ns=_nearest_rank(late, 50),
        delay_p99_ns=_nearest_rank(late, 99),
        delay_max_ns=late.max(),
        idle_calls=pl.col("idle").sum().cast(pl.Int64),
        idle_delay_p50_ns=_nearest_rank(delay.filter((delay >= 0) & pl.col("idle")), 50),
        early=early.sum().cast(pl.Int64),
    )
    rows = rows.with_columns(
        per_call=ratio(rows["started"], rows["calls"] - rows["lost"]),
        host_mean_ns=rounded_mean("host_ns", "calls"),
    )
    order = [name for name in DEFINITIONS if name in rows.columns]
    return rows.sort("source", "host_ns", "call", descending=[False, True, False]).select("source", *order)


def _streams(work: pl.DataFrame) -> pl.DataFrame:
    """The queue of each stream: what was launched and has not started."""
    waits = work.filter(pl.col("launch_delay_ns") >= 0).select(
        *_STREAM, start_ns="call_ns", end_ns="start_ns"
    )  # fmt: skip
    whole = intervals.hull(waits, _STREAM)
    pieces = intervals.depth(waits, _STREAM).with_columns(length=pl.col("end_ns") - pl.col("start_ns"))
    depth = pieces.group_by(_STREAM).agg(
        depth_max=pl.col("depth").max().cast(pl.Int64), waited=pl.col("length").sum(),
        area=(pl.col("depth") * pl.col("length")).sum(),
    )  # fmt: skip
    started = work.group_by(_STREAM).agg(started=pl.len().cast(pl.Int64))
    rows = started.join(whole, on=_STREAM, how="left", nulls_equal=True).join(
        depth, on=_STREAM, how="left", nulls_equal=True
    )  # fmt: skip
    window = rows["end_ns"] - rows["start_ns"]
    rows = rows.with_columns(
        pl.col("device", "stream").cast(pl.String),
        depth_mean=ratio(rows["area"].fill_null(0), window),
        depth_max=pl.when(pl.col("end_ns").is_not_null()).then(pl.col("depth_max").fill_null(0)),
        empty_share=ratio(window - rows["waited"].fill_null(0), window),
    )
    return rows.sort("source", "device", "started", "stream", descending=[False, False, True, False]).select(
        "source", "device", "stream", "started", "depth_mean", "depth_max", "empty_share"
    )


def _steps(work: pl.DataFrame, found: Found) -> pl.DataFrame:
    """Launches per step, by kind, of files whose steps have markers."""
    marked = found.steps.filter(pl.col("found_by") == "marker")
    key = ["source", "step"]
    calls = work.drop_nulls("step").group_by(*key, "launch").agg(
        started=pl.len().cast(pl.Int64), graph=pl.col("in_graph").any(), host_ns=pl.col("host_ns").first()
    )  # fmt: skip
    per_step = calls.group_by(key).agg(
        calls=pl.len().cast(pl.Int64), graphs=pl.col("graph").sum().cast(pl.Int64),
        started=pl.col("started").sum(), host_ns=pl.col("host_ns").sum(),
    )  # fmt: skip
    counts = ("calls", "graphs", "started", "host_ns")
    steps = marked.join(per_step, on=key, how="left", maintain_order="left").with_columns(pl.col(counts).fill_null(0))
    rows = steps.group_by("source", "kind").agg(
        steps=pl.len().cast(pl.Int64),
        **{f"{name}_p50": _nearest_rank(pl.col(name), 50) for name in counts[:3]},
        host_p50_ns=_nearest_rank(pl.col("host_ns"), 50),
        host=pl.col("host_ns").sum(),
        length=(pl.col("end_ns") - pl.col("start_ns")).sum(),
    )
    return rows.with_columns(host_share=ratio(rows["host"], rows["length"])).drop("host", "length").sort(
        "source", "steps", "kind", descending=[False, True, False]
    )  # fmt: skip


def _nearest_rank(values: pl.Expr, percent: int) -> pl.Expr:
    """The smallest value that so many percent do not exceed; null where there is none."""
    known = values.drop_nulls().sort()
    return known.slice((known.len().cast(pl.Int64) * percent + 99) // 100 - 1, 1).first()
