"""What every kernel is called for short and what class of work it is, once per distinct name."""

from __future__ import annotations

import re
from collections.abc import Sequence
from os import PathLike
from pathlib import Path

import polars as pl

from traceanalyzer.classify.names import short_name, short_names
from traceanalyzer.classify.rules import RuleTable, load_rules
from traceanalyzer.errors import UsageError

#: Files of class rules, as callers may name them.
Paths = str | PathLike[str] | Sequence[str | PathLike[str]]

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


def rule_table(rules: RuleTable | Paths | None) -> RuleTable | None:
    """The class rules that a caller gives: a table, files, or none."""
    if rules is None or isinstance(rules, RuleTable):
        return rules
    return load_rules([Path(path) for path in ([rules] if isinstance(rules, str | PathLike) else rules)])


def compiled(pattern: str | None) -> re.Pattern[str] | None:
    """A pattern to search names with; raises `UsageError` where it is none."""
    if pattern is None:
        return None
    try:
        return re.compile(pattern)
    except (re.error, TypeError) as error:
        raise UsageError(f"{pattern!r} is no regular expression: {error}") from error


def matching(labelled: pl.DataFrame, pattern: re.Pattern[str] | None, classes: Sequence[str]) -> pl.DataFrame:
    """The kernels of these classes whose name matches; without a pattern, or without classes, of any."""
    if classes:
        labelled = labelled.filter(pl.col("class").is_in(classes))
    if pattern is None:
        return labelled
    hits = [name is not None and bool(pattern.search(name)) for name in labelled["name"].cast(pl.String)]
    return labelled.filter(pl.Series(hits, dtype=pl.Boolean))
