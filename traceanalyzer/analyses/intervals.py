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
from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    import numpy as np

START, END = "start_ns", "end_ns"

#: Inside this module the keys of a row are one number: the place of its group in sorted order.
_GROUP = "_group"


def of_events(events: pl.DataFrame, by: Sequence[str] = ()) -> pl.DataFrame:
    """The set of intervals of a table of events (`start_ns`, `duration_ns`), negative durations left out."""
    end = (pl.col(START) + pl.col("duration_ns")).alias(END)
    return events.filter(pl.col("duration_ns") >= 0).select(*by, START, end)


def merge(intervals: pl.DataFrame, by: Sequence[str] = ()) -> pl.DataFrame:
    """The union: intervals that neither overlap nor touch, and the points that nothing else holds."""
    groups, (own,) = _indexed(by, intervals)
    return _named(_merge(own), groups, by)


def hull(intervals: pl.DataFrame, by: Sequence[str] = ()) -> pl.DataFrame:
    """One interval per group: first start to last end, points included."""
    groups, (own,) = _indexed(by, intervals)
    rims = own.group_by(_GROUP).agg(pl.col(START).min(), pl.col(END).max()).sort(_GROUP)
    return _named(rims, groups, by)


def coverage(intervals: pl.DataFrame, by: Sequence[str] = ()) -> pl.DataFrame:
    """`covered_ns` per group: the length of the union."""
    groups, (own,) = _indexed(by, intervals)
    length = (pl.col(END) - pl.col(START)).sum().alias("covered_ns")
    return _named(_merge(own).group_by(_GROUP).agg(length).sort(_GROUP), groups, by)


def covered_until(intervals: pl.DataFrame, points: pl.DataFrame, by: Sequence[str] = ()) -> pl.Series:
    """For each of the points (`at_ns` and the keys), in their order, how much of its group is covered before it."""
    return _covered_until(merge(intervals, by), points, ["at_ns"], by)[0]


def covered_within(intervals: pl.DataFrame, stretches: pl.DataFrame, by: Sequence[str] = ()) -> pl.Series:
    """How much of each stretch (`start_ns`, `end_ns` and the keys) is covered, in their order."""
    since, until = _covered_until(merge(intervals, by), stretches, [START, END], by)
    return until - since


def _covered_until(
    merged: pl.DataFrame, points: pl.DataFrame, columns: Sequence[str], by: Sequence[str]
) -> list[pl.Series]:
    """`covered_until` of the points in each of the columns, by intervals that are merged already."""
    if merged.is_empty():
        return [pl.Series("covered_ns", np.zeros(points.height, np.int64)) for _ in columns]
    group, asked = _numbered(merged, points, by)
    start, end = merged[START].to_numpy(), merged[END].to_numpy()
    before = np.cumsum(end - start) - (end - start)
    first = np.searchsorted(group, np.arange(int(group.max()) + 1))  # of each group
    series = []
    for column in columns:
        at = points[column].fill_null(int(start.min())).to_numpy()  # an unknown point: nothing is before it
        place = _last_before(group, start, asked, at)
        known = place >= 0
        found = np.where(known, before[place] - before[first[group[place]]], 0)
        covered = np.where(known, found + np.minimum(at, end[place]) - start[place], 0)
        series.append(pl.Series("covered_ns", covered))
    return series


def _numbered(merged: pl.DataFrame, points: pl.DataFrame, by: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """The group of each row of both, as a number in the order of the merged ones; -1 for a group that has none."""
    if not by:
        return np.zeros(merged.height, np.int64), np.zeros(points.height, np.int64)
    groups = merged.select(by).unique(maintain_order=True).with_row_index(_GROUP)
    own, asked = (
        each.select(by).join(groups, on=list(by), how="left", nulls_equal=True, maintain_order="left")[_GROUP]
        for each in (merged, points)
    )
    return own.cast(pl.Int64).to_numpy(), asked.cast(pl.Int64).fill_null(-1).to_numpy()


def _last_before(group: np.ndarray, start: np.ndarray, asked: np.ndarray, at: np.ndarray) -> np.ndarray:
    """For each point the row of its group that starts last, not after it; -1 where there is none.

    Rows are in order of groups and starts.
    """
    low = min(int(start.min()), int(at.min(initial=start[0])))
    width = max(int(start.max()), int(at.max(initial=start[0]))) - low + 1
    if (int(group.max()) + 2) * width < 2**62:
        place = np.searchsorted(group * width + (start - low), asked * width + (at - low), "right") - 1
    else:  # times of no one clock: too far apart for one number with the group
        place = np.full(len(at), -1, np.int64)
        for number in np.unique(asked[asked >= 0]).tolist():
            first, last = np.searchsorted(group, [number, number + 1])
            mine = np.flatnonzero(asked == number)
            place[mine] = first + np.searchsorted(start[first:last], at[mine], "right") - 1
    return np.where((place >= 0) & (group[place] == asked), place, -1)


def uncovered(stretches: pl.DataFrame, covered: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    """What of each stretch is not covered, stretch by stretch: they may overlap each other, unlike in `subtract`.

    A piece has the keys, `start_ns`, `end_ns` and the `row` of its stretch; pieces stand in the order of the stretches.
    """
    groups, (own, taken) = _indexed(by, stretches.with_row_index("row"), covered, keep=("row",))
    parts = []
    merged = {group: each for (group,), each in _merge(taken).group_by(_GROUP)}
    for (group,), each in own.group_by(_GROUP):
        gone = merged.get(group, taken.clear()).sort(START)
        parts.append(_uncovered_of_group(each, gone["start_ns"].to_numpy(), gone["end_ns"].to_numpy()))
    pieces = pl.concat(parts) if parts else own.select(_GROUP, START, END, "row")
    return _named(pieces.sort("row", START), groups, by)


def _uncovered_of_group(stretches: pl.DataFrame, start: np.ndarray, end: np.ndarray) -> pl.DataFrame:
    """Cut stretches where the covered intervals (disjoint, in order) lie."""
    import numpy as np  # here, not at the top: it takes as long to import as a small question takes to answer

    since, until = stretches[START].to_numpy(), stretches[END].to_numpy()
    first = np.searchsorted(end, since, "right")
    last = np.maximum(np.searchsorted(start, until, "left"), first)
    many = last - first + 1  # one piece more than there are intervals
    row = np.repeat(np.arange(len(since)), many)
    number = np.arange(many.sum()) - np.repeat(np.cumsum(many) - many, many)
    before = first[row] + number - 1  # the interval that a piece begins behind
    begins = np.where(number == 0, since[row], end[np.clip(before, 0, None)] if len(end) else since[row])
    follows = before + 1
    is_last = number == many[row] - 1
    ends = np.where(
        is_last, until[row], start[np.clip(follows, 0, max(len(start) - 1, 0))] if len(start) else until[row]
    )
    pieces = pl.DataFrame({
        _GROUP: stretches[_GROUP].to_numpy()[row], START: np.maximum(begins, since[row]),
        END: np.minimum(ends, until[row]), "row": stretches["row"].to_numpy()[row],
    })  # fmt: skip
    return pieces.filter(pl.col(END) > pl.col(START)).cast({_GROUP: pl.UInt32, "row": pl.UInt32})


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
    groups, (own,) = _indexed(by, intervals)
    between = (
        _merge(own)
        .select(_GROUP, start_ns=pl.col(END).shift(1), end_ns=pl.col(START), same=~_changes(_GROUP))
        .filter("same")
    )
    return _named(between.drop("same"), groups, by)


def depth(intervals: pl.DataFrame, by: Sequence[str] = ()) -> pl.DataFrame:
    """How many intervals overlap: pieces of constant `depth` (1 or more), which tile the union."""
    groups, (own,) = _indexed(by, intervals)
    pieces = _sweep(_endpoints(own, depth=1), "depth").filter(pl.col("depth") > 0)
    return _named(_join_touching(pieces, "depth"), groups, by)


def _indexed(
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
        return pl.DataFrame(), [each.with_columns(pl.lit(0, pl.UInt32).alias(_GROUP)) for each in valid]
    groups = pl.concat([each.select(by).unique() for each in valid]).unique().sort(by).with_row_index(_GROUP)
    return groups, [each.join(groups, on=list(by), nulls_equal=True).drop(by) for each in valid]


def _named(result: pl.DataFrame, groups: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    """Put the keys back in the place of the group."""
    if not by:
        return result.drop(_GROUP)
    keys = groups.drop(_GROUP)[result[_GROUP]]
    return pl.concat([keys, result.drop(_GROUP)], how="horizontal")


def _changes(*columns: str) -> pl.Expr:
    """True in the first row and wherever one of the columns differs from the row before."""
    return pl.any_horizontal(pl.col(column).ne_missing(pl.col(column).shift(1)) for column in columns)


def _merge(own: pl.DataFrame) -> pl.DataFrame:
    # The latest end so far counts, not that of the row before: a long interval may hold many short ones.
    reached = own.sort(_GROUP, START, END).with_columns(reach=pl.col(END).cum_max().over(_GROUP))
    return _islands(reached, _changes(_GROUP) | (pl.col(START) > pl.col("reach").shift(1)), end="reach")


def _islands(rows: pl.DataFrame, first: pl.Expr, *values: str, end: str = END) -> pl.DataFrame:
    """Fold each stretch of sorted rows (it begins where `first` is true) into one: first start, last end."""
    marked = rows.with_columns(first=first).with_columns(last=pl.col("first").shift(-1, fill_value=True))
    ends = marked.filter("last")[end].alias(END)
    return marked.filter("first").select(_GROUP, START, ends, *values)


def _endpoints(own: pl.DataFrame, **weights: int) -> pl.DataFrame:
    """Two rows per interval, `weights` at its start and minus `weights` at its end; points have none."""
    proper = own.filter(pl.col(END) > pl.col(START))
    up = [pl.lit(weight, pl.Int32).alias(name) for name, weight in weights.items()]
    down = [pl.lit(-weight, pl.Int32).alias(name) for name, weight in weights.items()]
    starts = proper.select(_GROUP, pl.col(START).alias("at"), *up)
    return starts.vstack(proper.select(_GROUP, pl.col(END).alias("at"), *down))


def _sweep(endpoints: pl.DataFrame, *counts: str) -> pl.DataFrame:
    """Pieces between neighbouring endpoints with the running `counts` that hold there.

    The running sums need no grouping: every interval that opens in a group closes in it, so they are back at
    0 where the next group begins. No piece with a count above 0 reaches from one group into the next.
    """
    running = endpoints.sort(_GROUP, "at").with_columns(pl.col(*counts).cum_sum())
    settled = running.filter(_changes(_GROUP, "at").shift(-1, fill_value=True))  # all of one instant are in
    return settled.select(_GROUP, pl.col("at").alias(START), pl.col("at").shift(-1).alias(END), *counts)


def _where(inside: pl.Expr, a: pl.DataFrame, b: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    groups, (own_a, own_b) = _indexed(by, a, b)
    endpoints = _endpoints(own_a, in_a=1, in_b=0).vstack(_endpoints(own_b, in_a=0, in_b=1))
    return _named(_join_touching(_sweep(endpoints, "in_a", "in_b").filter(inside)), groups, by)


def _join_touching(pieces: pl.DataFrame, *alike: str) -> pl.DataFrame:
    """Join neighbours that touch and are alike; `pieces` are disjoint, without points, and sorted."""
    apart = pl.col(START).ne_missing(pl.col(END).shift(1))
    return _islands(pieces, _changes(_GROUP, *alike) | apart, *alike)
