"""Which of many names match a pattern, and their order: each distinct one is looked at once."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

Ints = npt.NDArray[np.int64]


def like(names: pl.Series, pattern: str) -> pl.Series:
    """For each name whether the regular expression is found in it; false where there is no name."""
    distinct = names.unique().drop_nulls()
    found = distinct.filter(distinct.cast(pl.String).str.contains(pattern))
    return names.is_in(found.implode()).fill_null(value=False)


def alphabetical(names: pl.Series) -> Ints:
    """Names as numbers in their order, of which an unknown one is the first."""
    codes = names.cast(pl.Categorical).to_physical().cast(pl.Int64).fill_null(-1).to_numpy()
    _, index, number = np.unique(codes, return_index=True, return_inverse=True)
    place = names.gather(index).cast(pl.String).fill_null("").rank("dense").cast(pl.Int64).to_numpy()
    return place[number]
