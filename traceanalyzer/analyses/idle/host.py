"""What a thread was busy with: of the spans around its time the lowest that still holds half of it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from traceanalyzer.analyses import intervals
from traceanalyzer.analyses.exclusive import cut_at
from traceanalyzer.analyses.launched import as_rows, gathered
from traceanalyzer.analyses.like import alphabetical
from traceanalyzer.analyses.nesting import NONE, call_order, nest

Ints = npt.NDArray[np.int64]

#: A span has to hold this part of the time to be named.
HALF = 0.5
#: A range that somebody named is preferred to what runs inside of it, if it is no longer than so many times the time.
_LOCAL = 4
#: Before all times of a trace.
_EVER = -(2**62)


def lowest_holders(spans: pl.DataFrame, pieces: pl.DataFrame, thread: list[str]) -> pl.DataFrame:
    """For each `gap` of `pieces` the span that holds at least half of their time and is the shortest that does.

    `pieces` has `gap`, the thread's columns, `start_ns`, `end_ns`: stretches of one thread that do not overlap; several
    may be of one gap. `spans` has `name`, `is_range`, the thread's columns, `start_ns`, `duration_ns`. The result has
    `gap`, `name`, `covered_ns`, `own_ns` (the time of all its pieces). Where the span is none that somebody named
    (`is_range`), the shortest range around it is taken instead, if that is not much longer than the time.
    """
    numbers = pieces.select(thread).unique().with_row_index("thread")
    own_ns = _totals(pieces)
    least = int(own_ns[own_ns > 0].min(initial=2**62))  # what is shorter than half of that holds half of none
    long = spans.filter(pl.col("duration_ns") >= max(HALF * least, 1))
    own = long.join(numbers, on=thread, nulls_equal=True, maintain_order="left")
    asked = pieces.join(numbers, on=thread, how="left", nulls_equal=True, maintain_order="left")
    own = own[_in_call_order(own)]
    gap, span, covered = _summed(*_overlaps(asked, own), size=own.height)
    holding = covered >= HALF * own_ns[gap]
    gap, span, covered = gap[holding], span[holding], covered[holding]
    best = _best(gap, span, own, own_ns)
    return pl.DataFrame({
        "gap": gap[best].astype(np.uint32), "name": own["name"].gather(span[best]).cast(pl.String),
        "covered_ns": covered[best], "own_ns": own_ns[gap[best]],
    })  # fmt: skip


def _in_call_order(spans: pl.DataFrame) -> Ints:
    """Rows by thread and start, the longest of those that start together first."""
    thread, start = (spans[name].cast(pl.Int64).to_numpy() for name in ("thread", "start_ns"))
    return call_order(thread, start, start + spans["duration_ns"].to_numpy()) if len(start) else start


def _totals(pieces: pl.DataFrame) -> Ints:
    """The time of the pieces of each gap, by its number; 0 where there is none."""
    sums = pieces.group_by("gap").agg(own_ns=(pl.col("end_ns") - pl.col("start_ns")).sum())
    gap = sums["gap"].to_numpy().astype(np.int64)
    totals = np.zeros(int(gap.max()) + 1 if len(gap) else 0, np.int64)
    totals[gap] = sums["own_ns"].to_numpy()
    return totals


def _overlaps(pieces: pl.DataFrame, spans: pl.DataFrame) -> tuple[Ints, Ints, Ints]:
    """Gap, span and length of every overlap of a piece with a span of its thread, however deep.

    Both have `thread`; spans are in order of threads and start, the longest of those that start together first.
    """
    start = spans["start_ns"].to_numpy()
    end = start + spans["duration_ns"].to_numpy()
    thread, gap, since, until = (pieces[name].to_numpy() for name in ("thread", "gap", "start_ns", "end_ns"))
    order = np.argsort(thread, kind="stable")
    numbers = np.unique(thread)
    spans_of, pieces_of = (  # rows of each of the threads, from and to
        [np.searchsorted(each, numbers, side) for side in ("left", "right")]
        for each in (spans["thread"].to_numpy(), thread[order])
    )
    parts = [(np.zeros(0, np.int64),) * 3]
    for first, last, begin, until_row in zip(*spans_of, *pieces_of, strict=True):
        mine = order[begin:until_row]
        piece, span = _meeting(start[first:last], end[first:last], since[mine], until[mine])
        of, at = mine[piece], first + span
        covered = np.minimum(end[at], until[of]) - np.maximum(start[at], since[of])
        proper = covered > 0
        parts.append((gap[of[proper]].astype(np.int64), at[proper], covered[proper]))
    gaps, found, lengths = (np.concatenate(each) for each in zip(*parts, strict=True))
    return gaps, found, lengths


def _meeting(start: Ints, end: Ints, since: Ints, until: Ints) -> tuple[Ints, Ints]:
    """Pairs of a piece and a span of one thread that meet: those open before the piece, and those that start in it."""
    piece_parts, span_parts = [], []
    holders, at = _open_at(start, end, since)
    rows = np.arange(len(since))
    while len(rows):
        there = at != NONE
        rows, at = rows[there], at[there]
        earlier = start[at] < since[rows]  # what starts with the piece is met below
        piece_parts.append(rows[earlier])
        span_parts.append(at[earlier])
        at = holders[at]
    first, last = np.searchsorted(start, since, "left"), np.searchsorted(start, until, "left")
    many = np.maximum(last - first, 0)
    piece_parts.append(np.repeat(np.arange(len(since)), many))
    span_parts.append(np.arange(many.sum()) - np.repeat(np.cumsum(many) - many, many) + np.repeat(first, many))
    return np.concatenate(piece_parts), np.concatenate(span_parts)


def _summed(gap: Ints, span: Ints, covered: Ints, *, size: int) -> tuple[Ints, Ints, Ints]:
    """One row per gap and span, where a gap has several pieces; `size` is the number of spans."""
    key = gap * max(size, 1) + span
    order = np.argsort(key, kind="stable")
    firsts = np.flatnonzero(np.diff(key[order], prepend=-1))
    if not len(firsts):
        return gap, span, covered
    rows = order[firsts]
    return gap[rows], span[rows], np.add.reduceat(covered[order], firsts)


def _best(gap: Ints, span: Ints, spans: pl.DataFrame, own_ns: Ints) -> Ints:
    """Of the rows of each gap the one to name: a local range, else the shortest, the latest, the first by name."""
    if not len(gap):
        return gap
    duration, start = spans["duration_ns"].to_numpy()[span], spans["start_ns"].to_numpy()[span]
    local = spans["is_range"].to_numpy()[span] & (duration <= _LOCAL * own_ns[gap])
    order = np.lexsort((-start, duration, ~local, gap))
    same_gap, alike = np.ones((2, len(order)), bool)  # as the row before it in this order
    same_gap[0] = alike[0] = False
    for number, values in enumerate((gap, local, duration, start)):
        same = values[order][1:] == values[order][:-1]
        alike[1:] &= same
        if number == 0:
            same_gap[1:] = same
    firsts = np.flatnonzero(~same_gap)
    best = order[firsts]
    run = np.cumsum(~alike)  # rows that are alike in all have the same number
    tied = np.flatnonzero(run == np.repeat(run[firsts], np.diff(firsts, append=len(order))))
    if len(tied) > len(firsts):
        rows = order[tied]
        by_name = np.lexsort((rows, alphabetical(spans["name"].gather(span[rows])), gap[rows]))
        best = rows[by_name][np.flatnonzero(np.diff(gap[rows], prepend=-1))]
    return best


def _open_at(start: Ints, end: Ints, points: Ints) -> tuple[Ints, Ints]:
    """What holds each span, and the lowest span that is open at each point; `NONE` where there is none.

    `start` is in order, and of spans that start together the longest is first.
    """
    size = len(start)
    if (end[:-1] <= start[1:]).all():
        before = np.searchsorted(start, points, "right") - 1  # spans that do not overlap hold none
        is_open = (before >= 0) & (end[before] > points) if size else np.zeros(len(points), bool)
        return np.full(size, NONE), np.where(is_open, before, NONE)
    holders = nest(
        np.zeros(size + len(points), np.int64), np.concatenate([start, points]), np.concatenate([end, points])
    )
    return holders[:size], holders[size:]


def near(spans: pl.DataFrame, pieces: pl.DataFrame) -> pl.DataFrame:
    """The spans that overlap any of the pieces in time, of whichever thread: the others have no part in what follows.

    Both have `start_ns`; pieces have `end_ns`, spans `duration_ns`.
    """
    merged = intervals.merge(pieces.select("start_ns", "end_ns"))
    since, until = (merged[name].to_numpy() for name in ("start_ns", "end_ns"))
    if not len(since):
        return spans.head(0)
    start = spans["start_ns"].to_numpy()
    following = np.searchsorted(until, start, "right")
    starts = np.append(since, np.iinfo(np.int64).max)[following]
    return spans.filter(pl.Series(starts < start + spans["duration_ns"].to_numpy()))


def cut_by_lowest_range(ranges: pl.DataFrame, pieces: pl.DataFrame, thread: list[str]) -> pl.DataFrame:
    """The pieces cut where ranges of their thread begin and end, with the `name` of the lowest range around each.

    `pieces` has `gap`, the thread's columns, `start_ns`, `end_ns`; `ranges` has `name`, the thread's columns,
    `start_ns`, `duration_ns`. The name is null where no range is around, or only one that is much longer than the time
    of all pieces of the gap: that is around everything and tells nothing.
    """
    threads = pieces.select(thread).unique().with_row_index("thread")
    own = ranges.join(threads, on=thread, nulls_equal=True).filter(pl.col("duration_ns") > 0)
    asked = pieces.join(threads, on=thread, how="left", nulls_equal=True, maintain_order="left")
    cut = cut_at(asked, _segments(own, threads.height), ["thread"], "span").drop("thread")
    own_ns = (pl.col("end_ns") - pl.col("start_ns")).sum().over("gap")
    around = own.select(pl.col("name").cast(pl.String), range_ns="duration_ns")
    facts = {name: gathered(around[name], cut["span"]) for name in around.columns}
    named = cut.drop("span").with_columns(**facts)
    return named.with_columns(name=pl.when(pl.col("range_ns") <= _LOCAL * own_ns).then("name")).drop("range_ns")


def _segments(spans: pl.DataFrame, threads: int) -> pl.DataFrame:
    """The time line of each thread cut where its spans begin and end: `thread` (below `threads`), `start_ns`, `end_ns`.

    `span` is the row of the lowest span around each segment, null where there is none.
    """
    thread, start = (spans[name].cast(pl.Int64).to_numpy() for name in ("thread", "start_ns"))
    end = start + spans["duration_ns"].to_numpy()
    every = np.arange(threads)
    at = pl.DataFrame({
        "thread": np.concatenate([every, thread, thread, every]),
        "at_ns": np.concatenate([np.full(threads, _EVER), start, end, np.full(threads, -_EVER)]),
    }).unique().sort("thread", "at_ns")  # fmt: skip
    owner, edges = at["thread"].to_numpy(), at["at_ns"].to_numpy()
    same = owner[:-1] == owner[1:]
    owner, opens, closes = owner[:-1][same], edges[:-1][same], edges[1:][same]
    size = len(start)
    holders = nest(np.concatenate([thread, owner]), np.concatenate([start, opens]), np.concatenate([end, closes]))
    found = np.where(holders[size:] < size, holders[size:], NONE)
    return pl.DataFrame({
        "thread": pl.Series(owner, dtype=pl.UInt32), "start_ns": opens, "end_ns": closes,
        "span": as_rows(pl.Series(found)),
    })  # fmt: skip
