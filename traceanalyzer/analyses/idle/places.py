"""Where in the program devices are idle: gaps between the same two kernels are one place that comes back."""

from __future__ import annotations

import polars as pl

from traceanalyzer.analyses.idle.causes import CAUSES, largest_cause
from traceanalyzer.analyses.ratio import ratio

#: What each figure is, word for word as it is shown with `--explain`.
DEFINITIONS = {
    "gaps": "how many gaps lie between these two kernels",
    "steps": "in how many steps such a gap is, of all devices; unknown where no steps were found",
    "mean_ns": "their mean length",
}
_PLACE = ["run", "previous_kernel", "next_kernel"]
_ORDER = ["run", "total_ns", "next_kernel", "previous_kernel"]


def by_place(rows: pl.DataFrame) -> pl.DataFrame:
    """The gaps of each run by the kernels around them, those with most idle time first; `rows` are of `idle_gaps`.

    Columns: run, previous_kernel, next_kernel, gaps, steps, total_ns, mean_ns, share (of the idle time of the run),
    cause (with most of it), host_op (that most of it has; null where none is known).
    """
    causes = [f"{cause}_ns" for cause in CAUSES]
    steps = pl.struct("path", "device", "step").filter(pl.col("step").is_not_null()).n_unique()
    sums = rows.group_by(_PLACE).agg(
        pl.col(causes).sum(), gaps=pl.len().cast(pl.Int64), steps=steps.cast(pl.Int64),
        total_ns=pl.col("duration_ns").sum(), mean_ns=pl.col("duration_ns").mean().round().cast(pl.Int64),
    )  # fmt: skip
    hosts = rows.drop_nulls("host_op").group_by(*_PLACE, "host_op").agg(_host_ns=pl.col("duration_ns").sum())
    first = hosts.sort("_host_ns", "host_op", descending=[True, False]).unique(_PLACE, keep="first")
    known_steps = rows.group_by("run").agg(_steps=pl.col("step").is_not_null().any())
    sums = sums.join(known_steps, on="run", how="left").with_columns(steps=pl.when(pl.col("_steps")).then("steps"))
    table = sums.with_columns(cause=largest_cause(), _whole=pl.col("total_ns").sum().over("run")).join(
        first, on=_PLACE, how="left", nulls_equal=True
    )
    known = table.with_columns(
        share=ratio(table["total_ns"], table["_whole"]),
        host_op=pl.when(pl.col("_host_ns") * 2 > pl.col("total_ns")).then("host_op"),
    )
    ordered = known.sort(*_ORDER, descending=[False, True, False, False])
    return ordered.select(*_PLACE, "gaps", "steps", "total_ns", "mean_ns", "share", "cause", "host_op")
