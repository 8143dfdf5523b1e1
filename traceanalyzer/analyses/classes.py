"""The audit of the class rules: which kernel fell into which class, by which rule, and what no rule knows."""

from __future__ import annotations

import polars as pl

from traceanalyzer.analyses import top_kernels as top
from traceanalyzer.analyses.arguments import Values, need_choice, need_trace
from traceanalyzer.analyses.labels import Paths
from traceanalyzer.analyses.ratio import ratio
from traceanalyzer.choices import AUDIT_SORTS, AuditSort
from traceanalyzer.classify.rules import UNMATCHED, RuleTable
from traceanalyzer.text import natural_key
from traceanalyzer.trace import Trace

#: Classes that say nothing about the work, the least known first: no rule, or a generated name without content.
UNCLASSIFIED = (UNMATCHED, "triton_other")

#: What each figure is, word for word as it is shown with `--explain`.
DEFINITIONS = {
    "class": "class of work, by the first rule that knows the name; other: none does; triton_other: the name is a "
    "generated one that says nothing",
    "rule": "the rule that gave the class; unknown where none knows the name",
    "count": top.DEFINITIONS["count"],
    "total_ns": top.DEFINITIONS["total_ns"],
    "share_of_kernel_time": "total / total of all kernels of the run, before filter and limit; copies and sets are not "
    "part of it",
}

_COLUMNS = ("run", "kernel", "short_name", "class", "rule", "count", "total_ns", "share_of_kernel_time")
#: The columns that each order looks at after the run, each with whether the largest comes first.
_ORDERS: dict[AuditSort, tuple[tuple[str, bool], ...]] = {
    "unclassified": (("unknown", False), ("total_ns", True)),
    "total": (("total_ns", True),),
    "count": (("count", True),),
    "class": (("class", False), ("total_ns", True)),
    "rule": (("class", False), ("rule", False), ("total_ns", True)),
    "name": (),
}


def classes(
    trace: Trace,
    *,
    filter: str | None = None,
    classes: Values = (),
    sort: AuditSort = "unclassified",
    rules: RuleTable | Paths | None = None,
) -> pl.DataFrame:
    """One row per kernel name and run with the class it has and the rule that gave it; see `DEFINITIONS`.

    Columns: run, kernel, short_name, class, rule (null: no rule knows the name), count, total_ns,
    share_of_kernel_time. Kernels only: copies and sets are the class memory whatever they are called. `sort`
    "unclassified" (the default) has the names that no rule knows first, then generated ones that say nothing, then
    the others, the longest-running first within each. `filter`, `classes` and `rules` are those of `top_kernels`.
    """
    need_trace(trace, "classes")
    need_choice("sort", sort, AUDIT_SORTS)
    rows = top.top_kernels(trace, filter=filter, classes=classes, rules=rules, explain=True).select(_COLUMNS)
    return _in_order(rows, sort)


def unclassified(rows: pl.DataFrame) -> pl.DataFrame:
    """How much of the kernel time of each run is unclassified, from all rows of `classes`.

    Columns: run, class ("other" and "triton_other", both for every run), names, total_ns, share_of_kernel_time
    (null where no kernel took any time).
    """
    runs = rows.group_by("run", maintain_order=True).agg(all_ns=pl.col("total_ns").sum())
    found = rows.group_by("run", "class").agg(names=pl.len().cast(pl.Int64), total_ns=pl.col("total_ns").sum())
    wanted = runs.join(pl.DataFrame({"class": UNCLASSIFIED}), how="cross")
    shares = wanted.join(found, on=["run", "class"], how="left", maintain_order="left").with_columns(
        pl.col("names", "total_ns").fill_null(0)
    )
    return shares.with_columns(share_of_kernel_time=ratio(shares["total_ns"], shares["all_ns"])).drop("all_ns")


def _in_order(rows: pl.DataFrame, sort: AuditSort) -> pl.DataFrame:
    runs = sorted(rows["run"].unique().drop_nulls(), key=natural_key)
    known = len(UNCLASSIFIED)
    places = {name: at for at, name in enumerate(UNCLASSIFIED)}
    unknown = pl.col("class").replace_strict(places, default=known, return_dtype=pl.Int8)
    run_place = pl.col("run").replace_strict({run: at for at, run in enumerate(runs)}, return_dtype=pl.UInt32)
    order = [*_ORDERS[sort], ("kernel", False)]
    return (
        rows.with_columns(unknown=unknown, place=run_place)
        .sort("place", *(column for column, _ in order), descending=[False, *(largest for _, largest in order)])
        .select(rows.columns)
    )
