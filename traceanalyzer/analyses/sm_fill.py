"""How much of a GPU a launch can fill: blocks against streaming multiprocessors (SMs)."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from traceanalyzer.analyses.described import with_description
from traceanalyzer.analyses.ratio import ratio

#: Blocks of a launch; null where the grid is not recorded, as in some replayed graphs.
BLOCKS = pl.col("grid_x").cast(pl.Int64) * pl.col("grid_y") * pl.col("grid_z")


def with_blocks_and_sms(kernels: pl.DataFrame, devices: pl.DataFrame) -> pl.DataFrame:
    """Add `blocks` of each launch and `sms` of its device; null where unknown (see `with_description`)."""
    described = with_description(kernels, devices, "sms")
    sms = pl.when(pl.col("sms") > 0).then(pl.col("sms").cast(pl.Int64))  # some producers write 0 for unknown
    return described.with_columns(blocks=BLOCKS, sms=sms)


def sm_fill(launches: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    """`sm_fill` per group: min(1, blocks / SMs), weighted by duration over the launches where both are known.

    Takes the columns of `with_blocks_and_sms`. Groups in which nothing is known, or all that is known took no
    time, have no row. The sums are whole numbers per SM count, so that the order of rows cannot show.
    """
    covered = pl.min_horizontal("blocks", "sms") * pl.col("duration_ns")
    parts = (
        launches.drop_nulls(["blocks", "sms"])
        .group_by(*by, "sms")
        .agg(covered=covered.sum(), weight_ns=pl.col("duration_ns").sum())
        .filter(pl.col("weight_ns") > 0)
        .sort("sms")
    )
    parts = parts.with_columns(filled_ns=ratio(parts["covered"], parts["sms"]))
    sums = parts.group_by(by, maintain_order=True).agg(pl.col("filled_ns", "weight_ns").sum())
    return sums.select(*by, sm_fill=ratio(sums["filled_ns"], sums["weight_ns"]))
