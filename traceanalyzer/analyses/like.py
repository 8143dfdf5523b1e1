"""Which of many names match a pattern: each distinct one is looked at once."""

from __future__ import annotations

import polars as pl


def like(names: pl.Series, pattern: str) -> pl.Series:
    """For each name whether the regular expression is found in it; false where there is no name."""
    distinct = names.unique().drop_nulls()
    found = distinct.filter(distinct.cast(pl.String).str.contains(pattern))
    return names.is_in(found.implode()).fill_null(value=False)
