"""Why idle time may be of the profiler's making, and by how much where that can be told."""

from __future__ import annotations

from collections.abc import Callable

import polars as pl

from traceanalyzer.analyses.launched import GRAPH_LAUNCH
from traceanalyzer.analyses.trust import launches_without_kernel
from traceanalyzer.text import counted
from traceanalyzer.trace import Trace

#: What each figure is, word for word as it is shown with `--explain`.
DEFINITIONS = {
    "reason": "stacks-recorded: Python stacks slow the host; lost-records: launch calls without a device record; "
    "lost-graphs: replays of graphs of which no kernel was recorded; profiler-at-work: rows in which the profiler says "
    "that it held up the host",
    "count": "how many such events",
    "at_most_ns": "idle time that this may have made, unknown where no figure can be given: lost records at the middle "
    "length of a kernel, or all idle time if that is less; the piece of idle that overlaps the profiler's own rows",
}
SCHEMA = pl.Schema({
    "run": pl.String(), "reason": pl.String(), "count": pl.Int64(), "at_most_ns": pl.Int64(), "text": pl.String(),
})  # fmt: skip


def idle_doubts(trace: Trace, gaps: pl.DataFrame) -> pl.DataFrame:
    """One row per run and reason (`SCHEMA`) for which its idle time is an upper bound; `gaps` are those of `idle_gaps`.

    A reason says nothing of how much idle it made but where `at_most_ns` is known.
    """
    runs = trace.ranks.select("source", "run")
    rows = pl.concat([_stacks(trace, runs), _lost(trace, runs), _profiler(gaps)])
    idle = gaps.group_by("run").agg(idle_ns=pl.col("duration_ns").sum())
    rows = rows.join(idle, on="run", how="left").with_columns(
        at_most_ns=pl.when(pl.col("at_most_ns").is_not_null()).then(
            pl.min_horizontal("at_most_ns", pl.col("idle_ns").fill_null(0))
        )
    ).drop("idle_ns")  # fmt: skip
    busy = trace.kernels.select("source").unique().join(runs, on="source")["run"].unique()
    return rows.filter(pl.col("run").is_in(busy.implode())).sort("run", "reason")


def _stacks(trace: Trace, runs: pl.DataFrame) -> pl.DataFrame:
    counts = trace.event_counts.filter(pl.col("table") == "python_calls").group_by("source").agg(pl.col("count").sum())
    rows = counts.join(runs, on="source").group_by("run").agg(pl.col("count").sum().cast(pl.Int64))
    return _doubts(
        rows.filter(pl.col("count") > 0).with_columns(at_most_ns=pl.lit(None, pl.Int64)), "stacks-recorded",
        lambda _: "stacks were recorded (with_stack), which slows the host",
    )  # fmt: skip


def _lost(trace: Trace, runs: pl.DataFrame) -> pl.DataFrame:
    lost = launches_without_kernel(trace).join(runs, on="source")
    replay = pl.col("name").cast(pl.String).str.contains(GRAPH_LAUNCH)
    kernels = trace.kernels.filter((pl.col("kind") == "kernel") & (pl.col("duration_ns") >= 0))
    middle = kernels.join(runs, on="source").group_by("run").agg(middle_ns=pl.col("duration_ns").median())
    calls = lost.filter(~replay).group_by("run").agg(count=pl.len().cast(pl.Int64)).join(middle, on="run", how="left")
    calls = calls.with_columns(at_most_ns=(pl.col("count") * pl.col("middle_ns")).round().cast(pl.Int64))
    graphs = lost.filter(replay).group_by("run").agg(count=pl.len().cast(pl.Int64))
    graphs = graphs.with_columns(at_most_ns=pl.lit(None, pl.Int64))
    return pl.concat([
        _doubts(calls, "lost-records", lambda count: f"no device record of {counted(count, 'launch call')}"),
        _doubts(graphs, "lost-graphs", lambda count: f"no kernel was recorded of {counted(count, 'replay')} of graphs"),
    ])  # fmt: skip


def _profiler(gaps: pl.DataFrame) -> pl.DataFrame:
    rows = gaps.filter(pl.col("profiler_ns") > 0).group_by("run").agg(
        count=pl.len().cast(pl.Int64), at_most_ns=pl.col("profiler_ns").sum()
    )  # fmt: skip
    return _doubts(rows, "profiler-at-work", lambda count: f"the profiler was at work in {counted(count, 'gap')}")


def _doubts(rows: pl.DataFrame, reason: str, text: Callable[[int], str]) -> pl.DataFrame:
    texts = pl.Series("text", [text(count) for count in rows["count"]], dtype=pl.String)
    named = rows.with_columns(texts, reason=pl.lit(reason))
    return named.select(pl.col(name).cast(dtype) for name, dtype in SCHEMA.items())
