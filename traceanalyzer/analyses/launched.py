"""Which launch call started each piece of device activity: by correlation id, or along an arrow where there is none."""

from __future__ import annotations

from typing import Literal

import polars as pl

from traceanalyzer.trace import Trace

#: What a launch call is called that replays a graph.
GRAPH_LAUNCH = r"(?i)graph_?launch"
_KEY = ["source", "correlation"]


def launched(trace: Trace) -> pl.DataFrame:
    """One row per row of `trace.kernels`, in order, with the row of `launches` that started it (`launch`).

    A call and what it started share a correlation id within a source; several kernels may share one (a graph). Where an
    id was used again it is the nearest call before the kernel, or else the first after it (the clocks of host and
    device differ). Where no call has the id it is followed along the arrow that ends at its start, if there is one: to
    the call that starts there, or at least to the thread and time (`pid`, `tid`, `site_ns`). `in_graph` is true where
    the call replays a graph, or the kernel bears the id of one; `launch_delay_ns` is the start of the kernel minus the
    start of the call.
    """
    kernels = trace.kernels.select(
        *_KEY, "external_id", "device", "stream", "start_ns",
        has_graph=pl.col("graph_id").is_not_null() | pl.col("graph_node_id").is_not_null(),
    ).with_row_index("kernel")  # fmt: skip
    calls = trace.scan("launches").select(*_KEY, "name", "pid", "tid", call_ns="start_ns").with_row_index("launch")
    launches = calls.collect()
    found = _by_correlation(kernels, launches)
    arrows = _by_arrow(kernels.join(found, on="kernel", how="anti"), launches, trace)
    found = pl.concat([found, arrows.select("kernel", "launch").drop_nulls()])
    rows = kernels.join(found, on="kernel", how="left", maintain_order="left", validate="1:1")
    graphs = _graph_launches(launches["name"])
    named = rows.join(launches.select("launch", "name", "call_ns"), on="launch", how="left", maintain_order="left")
    return named.join(arrows.drop("launch"), on="kernel", how="left", maintain_order="left").select(
        "kernel", "source", "correlation", "external_id", "launch",
        in_graph=pl.col("has_graph") | pl.col("name").is_in(graphs.implode()).fill_null(value=False),
        launch_delay_ns=pl.col("start_ns") - pl.col("call_ns"),
        pid="arrow_pid", tid="arrow_tid", site_ns="arrow_ns",
    )  # fmt: skip


def _graph_launches(names: pl.Series) -> pl.Series:
    """The distinct names that replay a graph."""
    distinct = names.unique().drop_nulls()
    return distinct.filter(distinct.cast(pl.String).str.contains(GRAPH_LAUNCH))


def _by_correlation(kernels: pl.DataFrame, launches: pl.DataFrame) -> pl.DataFrame:
    """`kernel`, `launch` of those whose id a call has."""
    known = kernels.select("kernel", *_KEY, "start_ns").drop_nulls("correlation")
    calls = launches.select("launch", *_KEY, "call_ns").drop_nulls("correlation")
    if not may_repeat(calls, "correlation"):
        return known.join(calls, on=_KEY).select("kernel", "launch")
    again = calls.filter(pl.struct(_KEY).is_duplicated())
    ids = again.select(_KEY).unique()
    once = known.join(calls.join(ids, on=_KEY, how="anti"), on=_KEY).select("kernel", "launch")
    return pl.concat([once, _nearest(known.join(ids, on=_KEY, how="semi"), again)])


def may_repeat(rows: pl.DataFrame, number: str) -> bool:
    """Whether a number may be there twice within a source: false is certain, and cheap to know.

    Joining by a number that many rows share would make a row for every pair.
    """
    mixed = rows.select(pl.col(number) * 65_537 + pl.col("source").cast(pl.Int64)).to_series()
    return mixed.n_unique() < rows.height


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
    flows = trace.scan("flows").select("source", "phase", "category", "id", "pid", "tid", "time_ns")
    starting = flows.filter(pl.col("phase") == "s") if kernels.height else flows.head(0)
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
