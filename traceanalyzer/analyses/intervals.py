"""The interval algebra that the other analyses stand on: what is covered, by how many, where the gaps are.

A *set of intervals* is a frame with `start_ns`, `end_ns` (Int64, whole nanoseconds) and the key columns named
in `by`; other columns are ignored. Every operation works within each group of equal keys (null is a key like
any other), is exact, and is linear after one sort.

- An interval covers [start, end). One that ends where another starts touches it: the two merge into one.
- A point (end == start) covers nothing, yet it happened: `merge`, `hull` and `gaps` see it, lengths do not.
- An interval that ends before it starts, or with an unknown end, says nothing and is ignored.

Results are sorted by the keys, then by start.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

START, END = "start_ns", "end_ns"

#: Here and in `covers` the keys of a row are one number: the place of its group in sorted order.
GROUP = "_group"


def of_events(events: pl.DataFrame, by: Sequence[str] = ()) -> pl.DataFrame:
    """The set of intervals of a table of events (`start_ns`, `duration_ns`), negative durations left out."""
    end = (pl.col(START) + pl.col("duration_ns")).alias(END)
    return events.filter(pl.col("duration_ns") >= 0).select(*by, START, end)


def merge(intervals: pl.DataFrame, by: Sequence[str] = ()) -> pl.DataFrame:
    """The union: intervals that neither overlap nor touch, and the points that nothing else holds."""
    groups, (own,) = by_group(by, intervals)
    return with_keys(merge_groups(own), groups, by)


def hull(intervals: pl.DataFrame, by: Sequence[str] = ()) -> pl.DataFrame:
    """One interval per group: first start to last end, points included."""
    groups, (own,) = by_group(by, intervals)
    rims = own.group_by(GROUP).agg(pl.col(START).min(), pl.col(END).max()).sort(GROUP)
    return with_keys(rims, groups, by)


def coverage(intervals: pl.DataFrame, by: Sequence[str] = ()) -> pl.DataFrame:
    """`covered_ns` per group: the length of the union."""
    groups, (own,) = by_group(by, intervals)
    length = (pl.col(END) - pl.col(START)).sum().alias("covered_ns")
    return with_keys(merge_groups(own).group_by(GROUP).agg(length).sort(GROUP), groups, by)


def subtract(a: pl.DataFrame, b: pl.DataFrame, by: Sequence[str] = ()) -> pl.DataFrame:
    """What `a` covers and `b` does not."""
    return _where((pl.col("in_a") > 0) & (pl.col("in_b") == 0), a, b, by)


def intersect(a: pl.DataFrame, b: pl.DataFrame, by: Sequence[str] = ()) -> pl.DataFrame:
    """What both cover."""
    return _where((pl.col("in_a") > 0) & (pl.col("in_b") > 0), a, b, by)


def gaps(intervals: pl.DataFrame, by: Sequence[str] = (), *, within: pl.DataFrame | None = None) -> pl.DataFrame:
    """What is not covered between the first start and the last end of each group, or `within` another set.

    Without `within` a point in a gap cuts it in two: the gap before it and the gap after it.
    """
    if within is not None:
        return subtract(within, intervals, by)
    groups, (own,) = by_group(by, intervals)
    between = (
        merge_groups(own)
        .select(GROUP, start_ns=pl.col(END).shift(1), end_ns=pl.col(START), same=~_changes(GROUP))
        .filter("same")
    )
    return with_keys(between.drop("same"), groups, by)


def depth(intervals: pl.DataFrame, by: Sequence[str] = ()) -> pl.DataFrame:
    """How many intervals overlap: pieces of constant `depth` (1 or more), which tile the union."""
    groups, (own,) = by_group(by, intervals)
    pieces = _sweep(_endpoints(own, depth=1), "depth").filter(pl.col("depth") > 0)
    return with_keys(_join_touching(pieces, "depth"), groups, by)


def by_group(
    by: Sequence[str], *sets: pl.DataFrame, keep: Sequence[str] = ()
) -> tuple[pl.DataFrame, list[pl.DataFrame]]:
    """The sorted groups of several sets, and the sets with their keys replaced by the place of the group.

    Numbers sort and compare several times faster than the text and categories that keys are made of.
    """
    valid = [
        each.filter(pl.col(END) >= pl.col(START)).select(
            *by, START, END, *(name for name in keep if name in each.columns)
        )
        for each in sets
    ]
    if not by:
        return pl.DataFrame(), [each.with_columns(pl.lit(0, pl.UInt32).alias(GROUP)) for each in valid]
    groups = pl.concat([each.select(by).unique() for each in valid]).unique().sort(by).with_row_index(GROUP)
    return groups, [each.join(groups, on=list(by), nulls_equal=True).drop(by) for each in valid]


def with_keys(result: pl.DataFrame, groups: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    """Put the keys back in the place of the group."""
    if not by:
        return result.drop(GROUP)
    keys = groups.drop(GROUP)[result[GROUP]]
    return pl.concat([keys, result.drop(GROUP)], how="horizontal")


def _changes(*columns: str) -> pl.Expr:
    """True in the first row and wherever one of the columns differs from the row before."""
    return pl.any_horizontal(pl.col(column).ne_missing(pl.col(column).shift(1)) for column in columns)


def merge_groups(own: pl.DataFrame) -> pl.DataFrame:
    """`merge` of intervals whose keys are a number already."""
    # The latest end so far counts, not that of the row before: a long interval may hold many short ones.
    in_order = (pl.col(GROUP) > pl.col(GROUP).shift(1)) | (
        (pl.col(GROUP) == pl.col(GROUP).shift(1)) & (pl.col(START) >= pl.col(START).shift(1))
    )
    ordered = own if own.select(in_order.slice(1).all()).item() else own.sort(GROUP, START, END)
    reached = ordered.with_columns(reach=pl.col(END).cum_max().over(GROUP))
    return _islands(reached, _changes(GROUP) | (pl.col(START) > pl.col("reach").shift(1)), end="reach")


def _islands(rows: pl.DataFrame, first: pl.Expr, *values: str, end: str = END) -> pl.DataFrame:
    """Fold each stretch of sorted rows (it begins where `first` is true) into one: first start, last end."""
    marked = rows.with_columns(first=first).with_columns(last=pl.col("first").shift(-1, fill_value=True))
    ends = marked.filter("last")[end].alias(END)
    return marked.filter("first").select(GROUP, START, ends, *values)


def _endpoints(own: pl.DataFrame, **weights: int) -> pl.DataFrame:
    """Two rows per interval, `weights` at its start and minus `weights` at its end; points have none."""
    proper = own.filter(pl.col(END) > pl.col(START))
    up = [pl.lit(weight, pl.Int32).alias(name) for name, weight in weights.items()]
    down = [pl.lit(-weight, pl.Int32).alias(name) for name, weight in weights.items()]
    starts = proper.select(GROUP, pl.col(START).alias("at"), *up)
    return starts.vstack(proper.select(GROUP, pl.col(END).alias("at"), *down))


def _sweep(endpoints: pl.DataFrame, *counts: str) -> pl.DataFrame:
    """Pieces between neighbouring endpoints with the running `counts` that hold there.

    The running sums need no grouping: every interval that opens in a group closes in it, so they are back at
    0 where the next group begins. No piece with a count above 0 reaches from one group into the next.
    """
    running = endpoints.sort(GROUP, "at").with_columns(pl.col(*counts).cum_sum())
    settled = running.filter(_changes(GROUP, "at").shift(-1, fill_value=True))  # all of one instant are in
    return settled.select(GROUP, pl.col("at").alias(START), pl.col("at").shift(-1).alias(END), *counts)


def _where(inside: pl.Expr, a: pl.DataFrame, b: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    groups, (own_a, own_b) = by_group(by, a, b)
    endpoints = _endpoints(own_a, in_a=1, in_b=0).vstack(_endpoints(own_b, in_a=0, in_b=1))
    return with_keys(_join_touching(_sweep(endpoints, "in_a", "in_b").filter(inside)), groups, by)


def _join_touching(pieces: pl.DataFrame, *alike: str) -> pl.DataFrame:
    """Join neighbours that touch and are alike; `pieces` are disjoint, without points, and sorted."""
    apart = pl.col(START).ne_missing(pl.col(END).shift(1))
    return _islands(pieces, _changes(GROUP, *alike) | apart, *alike)
