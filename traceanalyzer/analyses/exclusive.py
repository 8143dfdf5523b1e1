"""Who has each instant, by name: device activity with the time that it does not share with what goes before it.

The rule is that of `breakdown` (compute, then communication, then memory; among equals what started first), but every
single activity gets its time, at the cost of cutting what is behind others into pieces.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from traceanalyzer.analyses import covers

#: In the order in which instants are given away.
STATES = ("compute", "communication", "memory")
_ROW, _GROUP = "_row", "_group"


def exclusive(activity: pl.DataFrame, by: Sequence[str]) -> pl.Series:
    """For each row of `activity` the length of the instants that it has for itself, in ns; they sum to the union.

    `activity` has the keys `by`, `start_ns`, `end_ns` (not before the start), `state`, one of `STATES`, and `order`: of
    several rows of a state the least one has the instant. These are numbers in the order in which the activity began,
    before it was cut: a piece starts where it is cut, whichever was first.
    """
    rows = activity.with_row_index(_ROW)
    own, taken = [], rows.head(0)
    for state in STATES:
        wanted = rows.filter(pl.col("state") == state)
        left = _left(wanted, taken, by)
        own.append(_first_come(left, by))
        taken = pl.concat([taken, wanted])
    lengths = pl.concat(own).group_by(_ROW).agg(pl.col("own_ns").sum())
    found = rows.select(_ROW).join(lengths, on=_ROW, how="left", maintain_order="left")
    return found["own_ns"].fill_null(0).alias("own_ns")


def _left(wanted: pl.DataFrame, taken: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    """The pieces of the wanted intervals that nothing taken covers, with the row that each is of."""
    columns = [*by, "start_ns", "end_ns", "order", _ROW]
    if taken.is_empty() or wanted.is_empty():
        return wanted.select(columns)
    pieces = covers.uncovered(wanted, taken, by)
    return pieces.with_columns(wanted[name].gather(pieces["row"]) for name in ("order", _ROW)).select(columns)


def _first_come(pieces: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    """`_row`, `own_ns`: in the order of starts each piece has what lies behind the latest end so far.

    That is right by `order` too: what was cut off of one row is cut off of all, so pieces that overlap start together,
    or as their rows did.
    """
    ordered = pieces.sort(*by, "start_ns", "order")
    reached = pl.col("end_ns").cum_max().shift(1).over(by)
    own = (pl.col("end_ns") - pl.max_horizontal("start_ns", reached)).clip(lower_bound=0)
    return ordered.select(_ROW, own_ns=own)


def cut_at(activity: pl.DataFrame, windows: pl.DataFrame, by: Sequence[str], number: str) -> pl.DataFrame:
    """The activity cut at the edges of the windows of its group; what lies in no window is left out.

    `windows` has the keys, `start_ns`, `end_ns` and a `number`; those of a group follow each other without overlap. A
    piece has the columns of its activity, its own `start_ns` and `end_ns`, and the number of its window. A point
    belongs to the window that it starts in.
    """
    keys = [each.select(by).unique() for each in (activity, windows)]
    groups = pl.concat(keys).unique().with_row_index(_GROUP)
    own, places = (
        each.join(groups, on=list(by), how="left", nulls_equal=True, maintain_order="left")
        for each in (activity, windows)
    )
    return _cut(own, places.sort(_GROUP, "start_ns"), number).drop(_GROUP)


def _cut(activity: pl.DataFrame, windows: pl.DataFrame, number: str) -> pl.DataFrame:
    """`cut_at` of groups that are numbers; windows are in their order, and in that of time."""
    group, start, end = (activity[name].to_numpy().astype(np.int64) for name in (_GROUP, "start_ns", "end_ns"))
    window, opens, closes = (windows[name].to_numpy().astype(np.int64) for name in (_GROUP, "start_ns", "end_ns"))
    first = covers.placed(window, closes, group, start, "right")
    last = np.maximum(covers.placed(window, opens, group, end, "left"), first + (end == start))
    last = np.minimum(last, np.searchsorted(window, group, "right"))
    many = np.maximum(last - first, 0)
    row = np.repeat(np.arange(len(start)), many)
    place = np.arange(many.sum()) - np.repeat(np.cumsum(many) - many, many) + first[row]
    cut = activity[row].with_columns(
        pl.Series("start_ns", np.maximum(start[row], opens[place])),
        pl.Series("end_ns", np.minimum(end[row], closes[place])),
        windows[number].gather(place),
    )
    return cut.filter((pl.col("end_ns") > pl.col("start_ns")) | pl.Series(end[row] == start[row]))
