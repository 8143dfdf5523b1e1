"""Division that is as exact as a double allows."""

from __future__ import annotations

import polars as pl


def ratio(part: pl.Series, whole: pl.Series) -> pl.Series:
    """part / whole, each correctly rounded; null where either is unknown or the whole is 0.

    polars divides by a column that holds one value by multiplying with its reciprocal, so that a share of the
    whole can come out as 0.9999999999999999. Rows of results are few: Python's own division is fast enough.
    """
    quotients = [
        None if one is None or not other else one / other
        for one, other in zip(part.to_list(), whole.to_list(), strict=True)
    ]
    return pl.Series(part.name, quotients, dtype=pl.Float64)


def rounded_mean(total: str, count: str) -> pl.Expr:
    """total / count to the nearest whole number, halves to the even one, without a double in between."""
    whole, number = pl.col(total), pl.col(count)
    floor, twice_rest = whole // number, 2 * (whole % number)
    up = (twice_rest > number) | ((twice_rest == number) & (floor % 2 == 1))
    return floor + up.cast(pl.Int64)
