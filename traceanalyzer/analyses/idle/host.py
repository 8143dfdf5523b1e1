"""What ran on a thread during a stretch of time: the range, python function or operator that holds most of it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from traceanalyzer.analyses.nesting import NONE, nest

Ints = npt.NDArray[np.int64]


def holder_of_most(spans: pl.DataFrame, stretches: pl.DataFrame, thread: list[str]) -> pl.DataFrame:
    """For each stretch the name of the innermost spans that hold most of it: `name`, `covered_ns`; null where none is.

    `spans` has `name`, the thread's columns, `start_ns`, `duration_ns`; `stretches` the thread's columns, `start_ns`,
    `end_ns`. Rows keep the order of the stretches.
    """
    numbers = stretches.select(thread).unique().with_row_index("thread")
    own = spans.join(numbers, on=thread, nulls_equal=True).filter(pl.col("duration_ns") > 0)
    asked = stretches.join(numbers, on=thread, how="left", nulls_equal=True, maintain_order="left")
    segments = _innermost(own)
    overlaps = _overlaps(asked, segments)
    named = overlaps.with_columns(name=own["name"][overlaps["span"]].cast(pl.String))
    totals = named.group_by("stretch", "name").agg(pl.col("covered_ns").sum())
    most = totals.sort("covered_ns", "name", descending=[True, False]).unique(
        "stretch", keep="first", maintain_order=True
    )
    rows = pl.DataFrame({"stretch": pl.arange(stretches.height, dtype=pl.UInt32, eager=True)})
    return rows.join(most, on="stretch", how="left", maintain_order="left").select("name", "covered_ns")


def _innermost(spans: pl.DataFrame) -> pl.DataFrame:
    """The time of each thread cut where the innermost span changes: `thread`, `start_ns`, `end_ns`, `span` (row)."""
    thread, start, duration = (spans[name].cast(pl.Int64).to_numpy() for name in ("thread", "start_ns", "duration_ns"))
    end = start + duration
    holders = nest(thread, start, end)
    held = holders != NONE
    end = np.where(held, np.minimum(end, end[np.where(held, holders, 0)]), end)  # a little over its holder is cut
    rows = np.arange(len(start))
    # where a span begins it is innermost, where it ends its holder is
    frame = pl.DataFrame({
        "thread": np.concatenate([thread, thread]),
        "at": np.concatenate([start, end]),
        "ends": np.concatenate([np.zeros(len(start), np.int8), np.full(len(start), -1, np.int8)]),
        "length": np.concatenate([-duration, duration]),
        "span": np.concatenate([rows, holders]),
    })  # fmt: skip
    # of one instant: ends before starts, inner ends first; of starts the longest first, so that the innermost stays
    ordered = frame.sort("thread", "at", "ends", "length", maintain_order=True)
    return ordered.select(
        "thread", start_ns="at", end_ns=pl.col("at").shift(-1).over("thread"), span="span",
    ).filter((pl.col("span") != NONE) & (pl.col("end_ns") > pl.col("start_ns")))  # fmt: skip


def _overlaps(stretches: pl.DataFrame, segments: pl.DataFrame) -> pl.DataFrame:
    """`stretch` (row), `span`, `covered_ns` of each overlap of a stretch with a segment of its thread."""
    found = []
    for (number,), own in segments.group_by("thread", maintain_order=True):
        mine = stretches.with_row_index("stretch").filter(pl.col("thread") == number)
        starts, ends = own["start_ns"].to_numpy(), own["end_ns"].to_numpy()
        since, until = mine["start_ns"].to_numpy(), mine["end_ns"].to_numpy()
        first = np.searchsorted(ends, since, "right")
        last = np.maximum(np.searchsorted(starts, until, "left"), first)
        many = last - first
        stretch = np.repeat(np.arange(len(many)), many)
        segment = np.arange(many.sum()) - np.repeat(np.cumsum(many) - many, many) + np.repeat(first, many)
        covered = np.minimum(ends[segment], until[stretch]) - np.maximum(starts[segment], since[stretch])
        found.append(pl.DataFrame({
            "stretch": mine["stretch"].to_numpy()[stretch], "span": own["span"].to_numpy()[segment],
            "covered_ns": covered,
        }))  # fmt: skip
    schema = {"stretch": pl.UInt32, "span": pl.Int64, "covered_ns": pl.Int64}
    if not found:
        return pl.DataFrame(schema=schema)
    return pl.concat(found).select(pl.col(name).cast(dtype) for name, dtype in schema.items())
