"""Kernels of a replayed graph and the calls that put them there when the graph was captured.

A replay starts all kernels of a graph with one call, so nothing on the host side says which operator each is of. A
trace of the capture does: its calls were recorded within their operators, but started nothing. The n-th kernel of a
name in a replay is the n-th call for that name in the capture (AMD's calls name their kernel), or the n-th of its kind
where calls do not say; where the numbers differ, nothing is claimed.
"""

from __future__ import annotations

import polars as pl

from traceanalyzer.analyses.launched import launched
from traceanalyzer.trace import Trace

_BEGIN = r"(?i)begin_?capture"
#: Calls that put a node into a graph, by what the node is.
_PUTS = {
    "kernel": r"(?i)launch(_?cooperative)?_?kernel",
    "memcpy": r"(?i)memcpy.*async",
    "memset": r"(?i)memset.*async",
}


def captured(trace: Trace, calls: pl.DataFrame, capture: Trace) -> pl.DataFrame:
    """`kernel`, `call`: kernels of replayed graphs, and the row of `capture.launches` that put them there.

    `calls` is what `launched` says of the trace. Of several captured graphs, each replay is taken for the one of which
    it matches most kernels; among equals, of the same rank, then the first.
    """
    put, replayed = nodes(capture), _replayed(trace, calls)
    labels = _labelled(put, replayed)
    graphs = labels[0].group_by("graph", "label", "rank").agg(count=pl.len())
    replays = labels[1].group_by("replay", "label", "named", "rank").agg(count=pl.len())
    named = labels[0].select("graph", "named").unique()
    alike = replays.join(graphs.join(named, on="graph"), on=["label", "named", "count"])
    best = (
        alike.group_by("replay", "graph")
        .agg(matched=pl.col("count").sum(), same_rank=pl.col("rank").eq_missing(pl.col("rank_right")).all())
        .sort("replay", "matched", "same_rank", "graph", descending=[False, True, True, False])
        .unique("replay", keep="first", maintain_order=True)
    )
    chosen = best.join(alike, on=["replay", "graph"]).select("replay", "graph", "label", "named")
    place = pl.int_range(pl.len())
    ours = labels[1].with_columns(place=place.over("replay", "label", "named"))
    theirs = labels[0].with_columns(place=place.over("graph", "label"))
    pairs = ours.join(chosen, on=["replay", "label", "named"]).join(theirs, on=["graph", "label", "named", "place"])
    return pairs.select("kernel", "call").sort("kernel")


def nodes(capture: Trace) -> pl.DataFrame:
    """The calls that were captured, in order: `graph` (a number), `call`, `kind`, `kernel` (a name, where known)."""
    calls = capture.scan("launches").select("source", "rank", "name", "pid", "tid", "start_ns", "kernel").collect()
    started = launched(capture).select(call="launch").drop_nulls().unique()
    text = pl.col("name").cast(pl.String)
    kind = pl.coalesce(pl.when(text.str.contains(pattern)).then(pl.lit(kind)) for kind, pattern in _PUTS.items())
    in_order = (
        calls.with_row_index("call").sort("source", "start_ns", "call", maintain_order=True).with_columns(
            kind=kind, begins=text.str.contains(_BEGIN).cum_sum().over("source"),
        )
    )  # fmt: skip
    put = in_order.filter(pl.col("kind").is_not_null()).join(started, on="call", how="anti", maintain_order="left")
    return put.select(
        pl.struct("source", "begins").rank("dense").alias("graph"), "rank", "call", "kind",
        kernel=pl.col("kernel").cast(pl.String),
    )  # fmt: skip


def _replayed(trace: Trace, calls: pl.DataFrame) -> pl.DataFrame:
    """The kernels of each replay in the order of its nodes: `replay` (row of the call), `rank`, `kernel`, `kind`."""
    activity = trace.kernels.select("rank", "kind", "start_ns", "graph_node_id", name=pl.col("name").cast(pl.String))
    inside = calls.select("kernel", "in_graph", replay="launch").hstack(activity)
    inside = inside.filter(pl.col("in_graph") & pl.col("replay").is_not_null())
    numbered = (pl.col("graph_node_id").null_count() == 0) & (pl.col("graph_node_id").n_unique() == pl.len())
    order = pl.when(numbered.over("replay")).then("graph_node_id").otherwise("start_ns")
    return inside.with_columns(order=order).sort("replay", "order", "kernel").drop("order")


def _labelled(nodes: pl.DataFrame, replayed: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Both with the `label` that tells nodes apart: names in graphs whose calls say them (`named`), else kinds."""
    says = (pl.col("kernel").is_not_null() | (pl.col("kind") != "kernel")).all().over("graph")
    kind = pl.col("kind").cast(pl.String)
    graphs = nodes.with_columns(
        named=says, label=pl.when(says).then(pl.coalesce("kernel", "kind")).otherwise(kind)
    )  # fmt: skip
    name = pl.when(kind == "kernel").then("name").otherwise(kind)
    both = [
        replayed.with_columns(named=pl.lit(named), label=label) for named, label in ((True, name), (False, kind))
    ]  # fmt: skip
    return graphs, pl.concat(both)
