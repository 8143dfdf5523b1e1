"""The short name and the class of every kernel, once per distinct name."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from traceanalyzer.classify import load_rules, short_names

if TYPE_CHECKING:
    from traceanalyzer.classify import RuleTable

#: Copies and sets are of this class whatever they are called.
MEMORY = "memory"


def label(kernels: pl.DataFrame, rules: RuleTable | None = None) -> pl.DataFrame:
    """One row per distinct (`kind`, `name`) of a kernels table: `short_name`, `class` and the `rule` that fired."""
    distinct = kernels.select("kind", "name").unique().sort("kind", "name")
    names = [name for name in distinct["name"].unique().cast(pl.String) if name is not None]
    short = short_names(names)
    table = rules if rules is not None else load_rules()
    found = {name: table.classify(name) for name in names}
    named = pl.DataFrame(
        {
            "name": pl.Series(names, dtype=pl.String).cast(pl.Categorical),
            "short_name": [short[name] for name in names],
            "class": [found[name].class_ for name in names],
            "rule": [found[name].rule for name in names],
        },
        schema={"name": pl.Categorical, "short_name": pl.String, "class": pl.String, "rule": pl.String},
    )
    copies = pl.col("kind") != "kernel"
    return distinct.join(named, on="name", how="left", nulls_equal=True, maintain_order="left").with_columns(
        pl.when(copies).then(pl.lit(MEMORY)).otherwise(pl.col("class")).alias("class"),
        pl.when(copies).then(pl.lit("copies and sets")).otherwise(pl.col("rule")).alias("rule"),
    )
