"""Which launch call started each piece of device activity: by correlation id, or along an arrow where there is none."""

from __future__ import annotations

from typing import Literal

import numpy as np
import polars as pl

from traceanalyzer.analyses.like import like
from traceanalyzer.trace import Trace

#: What a launch call is called that replays a graph.
GRAPH_LAUNCH = r"(?i)graph_?launch"
_KEY = ["source", "correlation"]
_NO_ARROWS = pl.DataFrame(schema={
    "kernel": pl.UInt32, "launch": pl.UInt32, "arrow_pid": pl.Categorical, "arrow_tid": pl.Categorical,
    "arrow_ns": pl.Int64,
})  # fmt: skip


def launched(trace: Trace) -> pl.DataFrame:
    """One row per row of `trace.kernels`, in order, with the row of `launches` that started it (`launch`).

    A call and what it started share a correlation id within a source; several kernels may share one (a graph). Where an
    id was used again it is the nearest call before the kernel, or else the first after it (the clocks of host and
    device differ). Where no call has the id it is followed along the arrow that ends at its start, if there is one: to
    the call that starts there, or at least to the thread and time (`pid`, `tid`, `site_ns`). `in_graph` is true where
    the call replays a graph, or the kernel bears the id of one; `launch_delay_ns` is the start of the kernel minus the
    start of the call.
    """
    return trace.once("launched", lambda: _launched(trace))


def _launched(trace: Trace) -> pl.DataFrame:
    kernels = trace.kernels.select(*_KEY, "external_id", "device", "stream", "start_ns", "graph_id", "graph_node_id")
    kernels = kernels.with_row_index("kernel")
    calls = trace.scan("launches").select(*_KEY, "name", "pid", "tid", call_ns="start_ns").with_row_index("launch")
    launches = calls.collect()
    launch = scattered(kernels.height, _by_correlation(kernels, launches))
    lost = kernels.filter(launch.is_null())
    arrows = _by_arrow(lost, launches, trace)
    if arrows.height:
        along = arrows.select("kernel", "launch").drop_nulls()
        launch = pl.select(pl.coalesce(launch, scattered(kernels.height, along))).to_series()
    graphs = like(launches["name"], GRAPH_LAUNCH)
    has_graph = pl.col("graph_id").is_not_null() | pl.col("graph_node_id").is_not_null()
    found = kernels.select(
        "kernel", "source", "correlation", "external_id",
        launch=launch,
        in_graph=has_graph | gathered(graphs, launch).fill_null(value=False),
        launch_delay_ns=pl.col("start_ns") - gathered(launches["call_ns"], launch),
    )  # fmt: skip
    sites = arrows.select("kernel", pid="arrow_pid", tid="arrow_tid", site_ns="arrow_ns")
    if sites.is_empty():
        nothing = {name: pl.lit(None, dtype) for name, dtype in sites.drop("kernel").schema.items()}
        return found.with_columns(**nothing)
    return found.join(sites, on="kernel", how="left", maintain_order="left")


def gathered(values: pl.Series, rows: pl.Series) -> pl.Series:
    """The values of these rows, null for null."""
    if not len(values):
        return pl.repeat(None, len(rows), dtype=values.dtype, eager=True)
    return values.gather(rows)


def as_rows(numbers: pl.Series) -> pl.Series:
    """Numbers as rows of a table, null for negative ones."""
    return (
        numbers.to_frame("n")
        .select(pl.when(pl.col("n") >= 0).then("n").cast(pl.UInt32))
        .to_series()
        .alias(numbers.name)
    )


def scattered(size: int, pairs: pl.DataFrame, number: str = "launch") -> pl.Series:
    """The `number` by `kernel`, of which each is there once at most; null for the others."""
    rows = np.full(size, -1, np.int64)
    rows[pairs["kernel"].to_numpy()] = pairs[number].to_numpy()
    return as_rows(pl.Series(number, rows))


def _by_correlation(kernels: pl.DataFrame, launches: pl.DataFrame) -> pl.DataFrame:
    """`kernel`, `launch` of those whose id a call has."""
    known = kernels.select("kernel", *_KEY, "start_ns").drop_nulls("correlation")
    calls = launches.select("launch", *_KEY, "call_ns").drop_nulls("correlation")
    if not may_repeat(calls, "correlation"):
        return by_number(known, calls, "correlation").select("kernel", "launch")
    again = calls.filter(pl.struct(_KEY).is_duplicated())
    ids = again.select(_KEY).unique()
    once = known.join(calls.join(ids, on=_KEY, how="anti"), on=_KEY).select("kernel", "launch")
    return pl.concat([once, _nearest(known.join(ids, on=_KEY, how="semi"), again)])


def may_repeat(rows: pl.DataFrame, number: str) -> bool:
    """Whether a number may be there twice within a source: false is certain, and cheap to know.

    Joining by a number that many rows share would make a row for every pair.
    """
    return rows.select(_mixed(number)).to_series().n_unique() < rows.height


def by_number(left: pl.DataFrame, right: pl.DataFrame, number: str) -> pl.DataFrame:
    """The rows of both that have the same number in the same source; on the right, no number `may_repeat`.

    The two are joined as one, which takes half the time of two.
    """
    mixed = [each.with_columns(_mixed(number)) for each in (left, right)]
    pairs = mixed[0].join(mixed[1], on="_mixed", suffix="_right")
    same = (pl.col("source") == pl.col("source_right")) & (pl.col(number) == pl.col(f"{number}_right"))
    return pairs.filter(same)


def _mixed(number: str) -> pl.Expr:
    """Source and number as one, by arithmetic that wraps around: others may come out the same."""
    return (pl.col(number) * 65_537 + pl.col("source").cast(pl.Int64)).alias("_mixed")


def _nearest(kernels: pl.DataFrame, calls: pl.DataFrame) -> pl.DataFrame:
    """The latest call of the id that starts before the kernel, else the first after it."""
    kernels, calls = kernels.sort("start_ns"), calls.sort("call_ns", "launch")
    before = _asof(kernels, calls, "backward")
    return pl.concat([before, _asof(kernels.join(before, on="kernel", how="anti"), calls, "forward")])


def _asof(kernels: pl.DataFrame, calls: pl.DataFrame, strategy: Literal["backward", "forward"]) -> pl.DataFrame:
    """`kernel`, `launch` of those that have a call on that side; both sorted by time."""
    found = kernels.join_asof(
        calls, left_on="start_ns", right_on="call_ns", by=_KEY, strategy=strategy, check_sortedness=False
    )
    return found.select("kernel", "launch").drop_nulls()


def _by_arrow(kernels: pl.DataFrame, launches: pl.DataFrame, trace: Trace) -> pl.DataFrame:
    """`kernel`, `launch`, `arrow_pid`, `arrow_tid`, `arrow_ns`: where the arrow starts that ends where a kernel does.

    Of several arrows the one counts that starts with a launch call, then the one from a thread with operators.
    """
    if kernels.is_empty():
        return _NO_ARROWS.clear()
    flows = trace.scan("flows").select("source", "phase", "category", "id", "pid", "tid", "time_ns")
    starting = flows.filter(pl.col("phase") == "s")
    starts = starting.select("source", "category", "id", arrow_pid="pid", arrow_tid="tid", arrow_ns="time_ns").collect()
    ends = flows.filter(pl.col("phase") == "f").select(
        "source", "category", "id", stream=pl.col("tid").cast(pl.String).str.strip_prefix("stream "), start_ns="time_ns"
    )
    key = ["source", "category", "id"]
    threads = trace.scan("ops").select("source", arrow_pid="pid", arrow_tid="tid").unique().collect()
    place = ["source", "arrow_pid", "arrow_tid", "arrow_ns"]
    calls = launches.select("launch", "source", arrow_pid="pid", arrow_tid="tid", arrow_ns="call_ns")
    return (
        kernels.select("kernel", "source", "start_ns", stream=pl.col("stream").cast(pl.String))
        .join((ends if starts.height else ends.head(0)).collect(), on=["source", "stream", "start_ns"])
        .join(starts.unique(key, keep="none"), on=key)
        .join(calls.unique(place, keep="first", maintain_order=True), on=place, how="left")
        .join(threads.with_columns(has_ops=True), on=place[:-1], how="left")
        .sort("kernel", pl.col("launch").is_null(), pl.col("has_ops").is_null(), "arrow_ns", "id")
        .unique("kernel", keep="first", maintain_order=True)
        .select("kernel", "launch", "arrow_pid", "arrow_tid", "arrow_ns")
    )
