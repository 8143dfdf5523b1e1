"""What every kernel is called for short and what class of work it is, once per distinct name."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from traceanalyzer.classify.names import short_name, short_names
from traceanalyzer.classify.rules import load_rules

if TYPE_CHECKING:
    from traceanalyzer.classify.rules import RuleTable

#: Class and rule of copies and sets, whatever they are called.
MEMORY, MEMORY_RULE = "memory", "copies-and-sets"


def label(activity: pl.DataFrame, rules: RuleTable | None = None) -> pl.DataFrame:
    """One row per distinct (`kind`, `name`) of the kernels table, with what is said about it.

    `short_name` tells all names of the table apart; `family` may be the same for several, which makes it a
    group. `class` is by the rules, and `rule` is the one that fired (null: none knows the name).
    """
    rules = rules if rules is not None else load_rules()
    names = activity["name"].unique().drop_nulls().cast(pl.String).sort()
    short = short_names(names.to_list())
    texts = pl.DataFrame(
        {
            "name": names,
            "short_name": [short[name] for name in names],
            "family": [short_name(name) for name in names],
        },
        schema={"name": pl.String, "short_name": pl.String, "family": pl.String},
    )
    kernels = activity.filter(pl.col("kind") == "kernel")["name"].unique().drop_nulls().cast(pl.String)
    classes = rules.classify_frame(kernels).rename({"kernel": "name"})
    copies = pl.col("kind") != "kernel"
    return (
        activity.select("kind", "name")
        .unique()
        .with_columns(text=pl.col("name").cast(pl.String))
        .join(texts, left_on="text", right_on="name", how="left")
        .join(classes, left_on="text", right_on="name", how="left")
        .drop("text")
        .with_columns(
            pl.when(copies).then(pl.lit(MEMORY)).otherwise(pl.col("class")).alias("class"),
            pl.when(copies).then(pl.lit(MEMORY_RULE)).otherwise(pl.col("rule")).alias("rule"),
        )
    )
