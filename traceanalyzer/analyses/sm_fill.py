"""How much of a GPU a launch can fill: blocks against streaming multiprocessors (SMs)."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from traceanalyzer.analyses.ratio import ratio

#: Blocks of a launch; null where the grid is not recorded, as in some replayed graphs.
BLOCKS = pl.col("grid_x").cast(pl.Int64) * pl.col("grid_y") * pl.col("grid_z")


def with_blocks_and_sms(kernels: pl.DataFrame, devices: pl.DataFrame) -> pl.DataFrame:
    """Add `blocks` of each launch and `sms` of its device; null where unknown.

    A device number that the file does not describe is taken for the one device that it does describe, if there
    is exactly one: processes see their GPU as number 0 although the driver counts differently.
    """
    known = devices.filter(pl.col("sms") > 0)
    by_id = known.unique(["source", "device"]).select("source", "device", "sms")
    only = devices.group_by("source").agg(only_sms=pl.col("sms").first(), described=pl.len())
    only = only.filter(pl.col("described") == 1).drop("described")
    return (
        kernels.join(by_id, on=["source", "device"], how="left")
        .join(only, on="source", how="left")
        .with_columns(blocks=BLOCKS, sms=pl.coalesce("sms", "only_sms").cast(pl.Int64))
        .drop("only_sms")
    )


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
