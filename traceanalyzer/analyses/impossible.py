"""Durations that cannot be true: an event that still runs although later ones of its stream have long begun.

Some profilers stamp the end of a kernel late. One such record can outweigh all others, so figures are given both as
recorded and clipped. Neighbours that overlap a little (dependent launches) are normal and left alone.
"""

from __future__ import annotations

import polars as pl

from traceanalyzer.analyses.device_time import all_activity
from traceanalyzer.analyses.stretch import Stretch
from traceanalyzer.trace import Trace

STREAM_KEYS = ["source", "device", "stream"]
#: Running past the start of this later event of the stream, by more than so much, is what is impossible.
OVERRUN_NS = 1_000_000
#: Inside this module a stream is a number: `join_asof` takes unknown streams and devices for unlike each other.
_STREAM = "_stream"


def impossible_in(trace: Trace) -> pl.DataFrame:
    """What is `impossible` among all device activity of a trace, of whatever kind, before anything is filtered.

    Of a stretch of time, what cannot be shows only in the activity around it; what does not reach into it is left out.
    """
    found = impossible(all_activity(trace))
    if not isinstance(trace, Stretch) or found.is_empty():
        return found
    reaches = (pl.col("start_ns") < pl.col("until_ns")) & (_end() > pl.col("from_ns"))
    return found.join(trace.windows, on="source", maintain_order="left").filter(reaches).select(found.columns)


def impossible(kernels: pl.DataFrame) -> pl.DataFrame:
    """The events that run past the start of two or more later events of their stream by over 1 ms.

    Their columns, and `clipped_ns` (length if it ended where the next event of the stream starts) and `overrun_ns`
    (how far it runs past that start). An unknown stream or device is one like any other.
    """
    suspects = kernels.filter(pl.col("duration_ns") > OVERRUN_NS)
    if suspects.is_empty():  # the usual case, which must not cost a sort
        return suspects.with_columns(clipped_ns=pl.lit(0, pl.Int64), overrun_ns=pl.lit(0, pl.Int64))
    streams = suspects.select(STREAM_KEYS).unique().with_row_index(_STREAM)
    starts = (
        kernels.select(*STREAM_KEYS, "start_ns")
        .join(streams, on=STREAM_KEYS, nulls_equal=True)
        .sort("start_ns")
        .select(_STREAM, next_start=pl.col("start_ns"), second_start=pl.col("start_ns").shift(-1).over(_STREAM))
    )
    followed = (
        suspects.with_row_index("_row")
        .join(streams, on=STREAM_KEYS, nulls_equal=True)
        .sort("start_ns")
        .join_asof(
            starts,
            left_on="start_ns",
            right_on="next_start",
            by=_STREAM,
            strategy="forward",
            allow_exact_matches=False,
            coalesce=False,
            check_sortedness=False,
        )
    )
    return (
        followed.filter(_end() > pl.col("second_start") + OVERRUN_NS)
        .sort("_row")
        .select(
            *kernels.columns,
            clipped_ns=pl.col("next_start") - pl.col("start_ns"),
            overrun_ns=_end() - pl.col("next_start"),
        )
    )


def clipped(kernels: pl.DataFrame, found: pl.DataFrame) -> pl.DataFrame:
    """The kernels with the impossible ones `found` among them ended at the next start.

    What is found in all activity of a trace serves for any part of it: they are told by stream, start and duration.
    """
    if found.is_empty():
        return kernels
    key = [*STREAM_KEYS, "start_ns", "duration_ns"]
    ends = found.select(*key, "clipped_ns").unique()
    return (
        kernels.join(ends, on=key, how="left", nulls_equal=True, maintain_order="left")
        .with_columns(duration_ns=pl.coalesce("clipped_ns", "duration_ns"))
        .drop("clipped_ns")
    )


def _end() -> pl.Expr:
    return pl.col("start_ns") + pl.col("duration_ns")
