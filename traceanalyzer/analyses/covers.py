"""How much of given stretches a set of intervals covers, and what it leaves of them: see `intervals` for the words.

These search sorted arrays, and numpy takes as long to import as a small question to answer: hence a module of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt
import polars as pl

from traceanalyzer.analyses.intervals import END, GROUP, START, by_group, merge, merge_groups, with_keys

Ints = npt.NDArray[np.int64]


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


def _numbered(merged: pl.DataFrame, points: pl.DataFrame, by: Sequence[str]) -> tuple[Ints, Ints]:
    """The group of each row of both, as a number in the order of the merged ones; -1 for a group that has none."""
    if not by:
        return np.zeros(merged.height, np.int64), np.zeros(points.height, np.int64)
    groups = merged.select(by).unique(maintain_order=True).with_row_index(GROUP)
    own, asked = (
        each.select(by).join(groups, on=list(by), how="left", nulls_equal=True, maintain_order="left")[GROUP]
        for each in (merged, points)
    )
    return own.cast(pl.Int64).to_numpy(), asked.cast(pl.Int64).fill_null(-1).to_numpy()


def _last_before(group: Ints, start: Ints, asked: Ints, at: Ints) -> Ints:
    """For each point the row of its group that starts last, not after it; -1 where there is none.

    Rows are in order of groups and starts.
    """
    place = placed(group, start, asked, at, "right") - 1
    return np.where((place >= 0) & (group[place] == asked), place, -1)


def placed(group: Ints, values: Ints, asked: Ints, at: Ints, side: Literal["left", "right"]) -> Ints:
    """`np.searchsorted` within groups: where in the rows, in order of `group` (0, 1, ...) and `values`, each belongs.

    All groups at once: there may be a thousand of one row each. -1 is a group ahead of all.
    """
    if not len(group):
        return np.zeros(len(at), np.int64)
    low = min(int(values.min()), int(at.min(initial=values[0])))
    width = max(int(values.max()), int(at.max(initial=values[0]))) - low + 1
    if (int(group.max()) + 2) * width >= 2**62:  # times of no one clock: too far apart for one number with the group
        every = np.unique(np.concatenate([values, at]))
        values, at = np.searchsorted(every, values), np.searchsorted(every, at)
        low, width = 0, len(every)
    return np.searchsorted(group * width + (values - low), asked * width + (at - low), side)


def uncovered(stretches: pl.DataFrame, covered: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    """What of each stretch is not covered, stretch by stretch: they may overlap each other, unlike in `subtract`.

    A piece has the keys, `start_ns`, `end_ns` and the `row` of its stretch; pieces stand in the order of the stretches.
    """
    groups, (own, taken) = by_group(by, stretches.with_row_index("row"), covered, keep=("row",))
    pieces = _uncovered(own, merge_groups(taken))
    return with_keys(pieces.sort("row", START), groups, by)


def _uncovered(stretches: pl.DataFrame, covered: pl.DataFrame) -> pl.DataFrame:
    """Cut stretches where the covered intervals of their group lie, which are disjoint and in order."""
    group, row, since, until = (stretches[name].to_numpy() for name in (GROUP, "row", START, END))
    group = group.astype(np.int64)
    gone, start, end = (covered[name].to_numpy().astype(np.int64) for name in (GROUP, START, END))
    first = placed(gone, end, group, since, "right")
    last = np.maximum(placed(gone, start, group, until, "left"), first)
    many = last - first + 1  # one piece more than there are intervals
    of = np.repeat(np.arange(len(since)), many)
    number = np.arange(many.sum()) - np.repeat(np.cumsum(many) - many, many)
    begins, ends = since[of], until[of]
    behind, ahead = number > 0, number < many[of] - 1
    place = first[of] + number  # of the interval that the piece ends at, if there is one
    begins[behind] = np.maximum(begins[behind], end[place[behind] - 1])
    ends[ahead] = np.minimum(ends[ahead], start[place[ahead]])
    pieces = pl.DataFrame({GROUP: group[of], START: begins, END: ends, "row": row[of]})
    return pieces.filter(pl.col(END) > pl.col(START)).cast({GROUP: pl.UInt32, "row": pl.UInt32})
