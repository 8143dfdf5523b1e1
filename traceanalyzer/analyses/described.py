"""What a file says about the devices that its activity ran on."""

from __future__ import annotations

import polars as pl


def with_description(rows: pl.DataFrame, devices: pl.DataFrame, *columns: str) -> pl.DataFrame:
    """Add columns of the `devices` table to rows that have `source` and `device`; null where unknown.

    A device number that the file does not describe is taken for the one device that it does describe, if there
    is exactly one: processes see their GPU as number 0 although the driver counts differently. So all devices that
    the file lists must be in `devices`, also those of which it does not say what is asked for.
    """
    only = {column: f"_only_{column}" for column in columns}
    by_id = devices.unique(["source", "device"], keep="first", maintain_order=True).select("source", "device", *columns)
    alone = by_id.group_by("source").agg(
        *(pl.col(column).first().alias(name) for column, name in only.items()), _described=pl.len()
    )
    return (
        rows.join(by_id, on=["source", "device"], how="left", maintain_order="left")
        .join(alone.filter(pl.col("_described") == 1), on="source", how="left", maintain_order="left")
        .with_columns(pl.coalesce(column, name).alias(column) for column, name in only.items())
        .drop(*only.values(), "_described")
    )
