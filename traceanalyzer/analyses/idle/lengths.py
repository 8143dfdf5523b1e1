"""Many short gaps or a few long ones: a histogram of idle time."""

from __future__ import annotations

import polars as pl

from traceanalyzer.analyses.idle.causes import CAUSES
from traceanalyzer.analyses.ratio import ratio

#: What each figure is, word for word as it is shown with `--explain`.
DEFINITIONS = {
    "from_ns": "shortest gap of this line: lines are 1, 3.16 and 10 times a power of ten apart",
    "until_ns": "gaps of this line are shorter than this",
    "gaps": "how many gaps",
    "total_ns": "their length in all, or the pieces of a cause in all",
}
#: Edges a decade: two, at 1 and at the root of 10.
_EDGES = [round(10 ** (half / 2)) for half in range(37)]


def by_length(rows: pl.DataFrame) -> pl.DataFrame:
    """How much of the idle time of each run is in gaps of which length; `rows` are those of `idle_gaps`.

    One row per run and half a decade, from the shortest gap to the longest: `from_ns`, `until_ns`, `gaps`, `total_ns`,
    `share` (of the idle time of the run), and `<cause>_ns`, which sum to `total_ns`.
    """
    edges = pl.DataFrame({"from_ns": _EDGES[:-1], "until_ns": _EDGES[1:]})
    placed = rows.sort("duration_ns").join_asof(edges, left_on="duration_ns", right_on="from_ns")
    causes = [f"{cause}_ns" for cause in CAUSES]
    sums = placed.group_by("run", "from_ns").agg(
        pl.col(causes).sum(), gaps=pl.len().cast(pl.Int64), total_ns=pl.col("duration_ns").sum()
    )
    reach = sums.group_by("run").agg(least=pl.col("from_ns").min(), most=pl.col("from_ns").max())
    every = reach.join(edges, how="cross").filter(pl.col("from_ns").is_between("least", "most"))
    full = every.select("run", "from_ns", "until_ns").join(sums, on=["run", "from_ns"], how="left")
    filled = full.with_columns(pl.col("gaps", "total_ns", *causes).fill_null(0))
    whole = filled.with_columns(_whole=pl.col("total_ns").sum().over("run"))
    shared = whole.with_columns(share=ratio(whole["total_ns"], whole["_whole"]))
    return shared.select("run", "from_ns", "until_ns", "gaps", "total_ns", "share", *causes).sort("run", "from_ns")
