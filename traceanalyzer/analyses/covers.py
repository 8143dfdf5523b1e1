"""How much of given stretches a set of intervals covers, and what it leaves of them: see `intervals` for the words.

These search sorted arrays, and numpy takes as long to import as a small question to answer: hence a module of its own.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from traceanalyzer.analyses.intervals import END, GROUP, START, by_group, merge, merge_groups, with_keys


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
    groups = merged.select(by).unique(maintain_order=True).with_row_index(GROUP)
    own, asked = (
        each.select(by).join(groups, on=list(by), how="left", nulls_equal=True, maintain_order="left")[GROUP]
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
    groups, (own, taken) = by_group(by, stretches.with_row_index("row"), covered, keep=("row",))
    parts = []
    merged = {group: each for (group,), each in merge_groups(taken).group_by(GROUP)}
    for (group,), each in own.group_by(GROUP):
        gone = merged.get(group, taken.clear()).sort(START)
        parts.append(_uncovered_of_group(each, gone["start_ns"].to_numpy(), gone["end_ns"].to_numpy()))
    pieces = pl.concat(parts) if parts else own.select(GROUP, START, END, "row")
    return with_keys(pieces.sort("row", START), groups, by)


def _uncovered_of_group(stretches: pl.DataFrame, start: np.ndarray, end: np.ndarray) -> pl.DataFrame:
    """Cut stretches where the covered intervals (disjoint, in order) lie."""
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
        GROUP: stretches[GROUP].to_numpy()[row], START: np.maximum(begins, since[row]),
        END: np.minimum(ends, until[row]), "row": stretches["row"].to_numpy()[row],
    })  # fmt: skip
    return pieces.filter(pl.col(END) > pl.col(START)).cast({GROUP: pl.UInt32, "row": pl.UInt32})
