"""What a thread was busy with: of the spans around its time the lowest that still holds half of it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from traceanalyzer.analyses.exclusive import cut_at
from traceanalyzer.analyses.nesting import NONE, nest

Ints = npt.NDArray[np.int64]

#: A span has to hold this part of the time to be named.
HALF = 0.5
#: A range that somebody named is preferred to what runs inside of it, if it is no longer than so many times the time.
_LOCAL = 4
#: Before all times of a trace.
_EVER = -(2**62)
_OVERLAP = {"gap": pl.UInt32, "span": pl.Int64, "covered_ns": pl.Int64}


def lowest_holders(spans: pl.DataFrame, pieces: pl.DataFrame, thread: list[str]) -> pl.DataFrame:
    """For each `gap` of `pieces` the span that holds at least half of their time and is the shortest that does.

    `pieces` has `gap`, the thread's columns, `start_ns`, `end_ns`: stretches of one thread that do not overlap; several
    may be of one gap. `spans` has `name`, `is_range`, the thread's columns, `start_ns`, `duration_ns`. The result has
    `gap`, `name`, `covered_ns`, `own_ns` (the time of all its pieces). Where the span is none that somebody named
    (`is_range`), the shortest range around it is taken instead, if that is not much longer than the time.
    """
    numbers = pieces.select(thread).unique().with_row_index("thread")
    own = spans.join(numbers, on=thread, nulls_equal=True, maintain_order="left").filter(pl.col("duration_ns") > 0)
    asked = pieces.join(numbers, on=thread, how="left", nulls_equal=True, maintain_order="left")
    totals = asked.group_by("gap").agg(own_ns=(pl.col("end_ns") - pl.col("start_ns")).sum())
    covered = _overlaps(asked, own.with_row_index("span")).group_by("gap", "span").agg(pl.col("covered_ns").sum())
    facts = own.select("name", "is_range", "start_ns", "duration_ns").with_row_index("span").cast({"span": pl.Int64})
    holding = covered.join(totals, on="gap").filter(pl.col("covered_ns") >= HALF * pl.col("own_ns"))
    holding = holding.join(facts, on="span", how="left").with_columns(pl.col("name").cast(pl.String))
    local = pl.col("is_range") & (pl.col("duration_ns") <= _LOCAL * pl.col("own_ns"))
    best = holding.sort(
        "gap", local, "duration_ns", "start_ns", "name", descending=[False, True, False, True, False]
    ).unique("gap", keep="first", maintain_order=True)  # fmt: skip
    return best.select("gap", "name", "covered_ns", "own_ns")


def _overlaps(pieces: pl.DataFrame, spans: pl.DataFrame) -> pl.DataFrame:
    """`gap`, `span`, `covered_ns` of every overlap of a piece with a span of its thread, however deep."""
    by_thread = {int(number): own for (number,), own in spans.group_by("thread", maintain_order=True)}
    found = [
        _overlaps_of_thread(own, by_thread[int(number)])
        for (number,), own in pieces.group_by("thread", maintain_order=True)
        if number in by_thread
    ]
    return pl.concat(found) if found else pl.DataFrame(schema=_OVERLAP)


def _overlaps_of_thread(pieces: pl.DataFrame, spans: pl.DataFrame) -> pl.DataFrame:
    """A piece meets the spans that are open where it starts, and those that start in it."""
    spans = spans.sort("start_ns", "duration_ns", descending=[False, True])
    start = spans["start_ns"].to_numpy()
    end = start + spans["duration_ns"].to_numpy()
    since, until = pieces["start_ns"].to_numpy(), pieces["end_ns"].to_numpy()
    size = len(start)
    holders = nest(np.zeros(size + len(since), np.int64), np.concatenate([start, since]), np.concatenate([end, since]))
    piece_parts, span_parts = [], []
    at = holders[size:]
    rows = np.arange(len(since))
    while len(rows):
        open_ = at != NONE
        rows, at = rows[open_], at[open_]
        piece_parts.append(rows)
        span_parts.append(at)
        at = holders[at]
    first, last = np.searchsorted(start, since, "left"), np.searchsorted(start, until, "left")
    many = np.maximum(last - first, 0)
    piece_parts.append(np.repeat(np.arange(len(since)), many))
    span_parts.append(np.arange(many.sum()) - np.repeat(np.cumsum(many) - many, many) + np.repeat(first, many))
    piece, span = np.concatenate(piece_parts), np.concatenate(span_parts)
    covered = np.minimum(end[span], until[piece]) - np.maximum(start[span], since[piece])
    pairs = pl.DataFrame({
        "gap": pieces["gap"].to_numpy()[piece], "span": spans["span"].to_numpy()[span], "covered_ns": covered,
        "piece": piece,
    })  # fmt: skip
    # a span that starts where a piece does is met both ways
    once = pairs.unique(["piece", "span"], keep="first", maintain_order=True).filter(pl.col("covered_ns") > 0)
    return once.select(pl.col(name).cast(dtype) for name, dtype in _OVERLAP.items())


def cut_by_lowest_range(ranges: pl.DataFrame, pieces: pl.DataFrame, thread: list[str]) -> pl.DataFrame:
    """The pieces cut where ranges of their thread begin and end, with the `name` of the lowest range around each.

    `pieces` has `gap`, the thread's columns, `start_ns`, `end_ns`; `ranges` has `name`, the thread's columns,
    `start_ns`, `duration_ns`. The name is null where no range is around, or only one that is much longer than the time
    of all pieces of the gap: that is around everything and tells nothing.
    """
    threads = pieces.select(thread).unique()
    own = ranges.join(threads, on=thread, how="semi", nulls_equal=True).filter(pl.col("duration_ns") > 0)
    without = threads.join(own, on=thread, how="anti", nulls_equal=True)
    nothing = pl.struct(name=pl.lit(None, pl.String), range_ns=pl.lit(None, pl.Int64))
    windows = [without.with_columns(start_ns=pl.lit(_EVER), end_ns=pl.lit(-_EVER), range=nothing)]
    windows += [spans.head(1).select(thread).join(_segments(spans), how="cross") for spans in own.partition_by(thread)]
    cut = cut_at(pieces, pl.concat(windows), thread, "range").unnest("range")
    own_ns = (pl.col("end_ns") - pl.col("start_ns")).sum().over("gap")
    return cut.with_columns(name=pl.when(pl.col("range_ns") <= _LOCAL * own_ns).then("name")).drop("range_ns")


def _segments(spans: pl.DataFrame) -> pl.DataFrame:
    """The time line of one thread cut where its spans begin and end, with the lowest span around each segment."""
    start = spans["start_ns"].to_numpy()
    end = start + spans["duration_ns"].to_numpy()
    edges = np.unique(np.concatenate([[_EVER], start, end, [-_EVER]]))
    opens, closes = edges[:-1], edges[1:]
    size = len(start)
    holders = nest(
        np.zeros(size + len(opens), np.int64), np.concatenate([start, opens]), np.concatenate([end, closes])
    )[size:]  # fmt: skip
    rows = pl.Series(np.where((holders == NONE) | (holders >= size), NONE, holders))
    known = pl.select(pl.when(rows >= 0).then(rows)).to_series().cast(pl.UInt32)
    around = spans.select(pl.col("name").cast(pl.String), range_ns="duration_ns")
    facts = around.select(pl.struct(pl.all()).gather(known).alias("range"))
    return pl.DataFrame({"start_ns": opens, "end_ns": closes}).with_columns(facts)
