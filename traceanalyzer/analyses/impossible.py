"""Durations that cannot be true: an event that still runs although later ones of its stream have long begun.

Some profilers stamp the end of a kernel late. One such record can outweigh all others, so figures are given both as
recorded and clipped. Neighbours that overlap a little (dependent launches) are normal and left alone.
"""

from __future__ import annotations

import polars as pl

STREAM_KEYS = ["source", "device", "stream"]
#: Running past the start of this later event of the stream, by more than so much, is what is impossible.
OVERRUN_NS = 1_000_000


def impossible(kernels: pl.DataFrame) -> pl.DataFrame:
    """The events that run past the start of two or more later events of their stream by over 1 ms.

    Their columns, and `row` (place in `kernels`), `clipped_ns` (length if it ended where the next event of the
    stream starts) and `overrun_ns` (how far it runs past that start).
    """
    end = pl.col("start_ns") + pl.col("duration_ns")
    kernels = kernels.with_row_index("row")
    suspects = kernels.filter(pl.col("duration_ns") > OVERRUN_NS)
    if suspects.is_empty():  # the usual case, which must not cost a sort
        return suspects.with_columns(clipped_ns=pl.lit(0, pl.Int64), overrun_ns=pl.lit(0, pl.Int64))
    busy_streams = kernels.select(*STREAM_KEYS, "start_ns").join(
        suspects.select(STREAM_KEYS).unique(), on=STREAM_KEYS, how="semi", nulls_equal=True
    )
    starts = busy_streams.sort("start_ns").select(
        *(pl.col(key).alias(f"_{key}") for key in STREAM_KEYS),
        next_start=pl.col("start_ns"),
        second_start=pl.col("start_ns").shift(-1).over(STREAM_KEYS),
    )
    followed = suspects.sort("start_ns").join_asof(
        starts,
        left_on="start_ns",
        right_on="next_start",
        by_left=STREAM_KEYS,
        by_right=[f"_{key}" for key in STREAM_KEYS],
        strategy="forward",
        allow_exact_matches=False,
        coalesce=False,
        check_sortedness=False,
    )
    return (
        followed.filter(end > pl.col("second_start") + OVERRUN_NS)
        .with_columns(
            clipped_ns=pl.col("next_start") - pl.col("start_ns"),
            overrun_ns=end - pl.col("next_start"),
        )
        .select(*kernels.columns, "clipped_ns", "overrun_ns")
        .sort("row")
    )


def clipped(kernels: pl.DataFrame, found: pl.DataFrame) -> pl.DataFrame:
    """The kernels with the impossible ones `found` among them ended at the next start."""
    return (
        kernels.with_row_index("row")
        .join(found.select("row", "clipped_ns"), on="row", how="left", maintain_order="left")
        .with_columns(duration_ns=pl.coalesce("clipped_ns", "duration_ns"))
        .drop("row", "clipped_ns")
    )
