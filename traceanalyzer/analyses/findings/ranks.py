"""Rules about ranks: communication that stands in the way, and who waits for whom."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import polars as pl

from traceanalyzer.analyses.breakdown import breakdown
from traceanalyzer.analyses.findings.context import RunContext
from traceanalyzer.analyses.findings.finding import Finding
from traceanalyzer.analyses.findings.words import milliseconds, percent

#: Exposed communication is worth a word from this part of the span of a rank on.
EXPOSED_SHARE = 0.15
#: Ranks wait for one another if the largest exposed part is so many times the smallest, and so much of the span more.
_TIMES, _MORE = 1.5, 0.05
#: A kernel is named that makes up this part of the difference.
_NAMED = 0.3


def communication_stands_in_the_way(run: RunContext) -> Iterator[Finding]:
    """Communication that nothing hides; and where ranks differ in it, the one that they wait for."""
    rows = breakdown(run.trace, rules=run.rules).filter(pl.col("state") == "communication").drop_nulls("share")
    exposed = rows.sort("share", "rank", "device", descending=[True, False, False])
    if exposed.is_empty() or exposed["share"][0] < EXPOSED_SHARE:
        return
    most, least = exposed.row(0, named=True), exposed.row(-1, named=True)
    total = int(exposed["total_ns"].sum())
    share = total / run.span_ns
    waits = most["share"] > _TIMES * least["share"] and most["share"] - least["share"] > _MORE
    text = (
        f"Communication that no compute hides takes {percent(most['share'])} of the span of {_name(most)} "
        f"({milliseconds(most['total_ns'])})"
    )
    evidence: dict[str, Any] = {
        "exposed_ns": total, "share": share,
        "devices": exposed.select("rank", "device", "total_ns", "share").to_dicts(),
        "thresholds": {"exposed_share_of_span": EXPOSED_SHARE},
    }  # fmt: skip
    if exposed.height == 1 or not waits:
        text += f", {percent(share)} over all devices." if exposed.height > 1 else "."
    else:
        kernel = _makes_late(run, least, most)
        evidence |= {"waited_for": least["rank"], "made_late_by": kernel}
        text += (
            f", but only {percent(least['share'])} of that of {_name(least)}: the others wait for {_name(least)}"
            f"{_because(kernel)}."
        )
    title = f"exposed communication takes up to {percent(most['share'])} of the span"
    yield Finding(
        run.run, "exposed-communication", title, text, at_stake_ns=total, share=most["share"], evidence=evidence,
        confidence="medium" if waits else "high",
    )  # fmt: skip


def _name(row: dict[str, Any]) -> str:
    return f"device {row['device']}" if row["rank"] is None else f"rank {row['rank']}"


def _makes_late(run: RunContext, late: dict[str, Any], waiting: dict[str, Any]) -> dict[str, Any] | None:
    """The kernel that the late rank runs longer than the waiting one, if it makes up much of the difference."""
    if late["rank"] is None or waiting["rank"] is None or late["rank"] == waiting["rank"]:
        return None
    labels = run.labels.select("kind", "name", "class", "short_name")
    kernels = run.trace.kernels.join(labels, on=["kind", "name"], how="left", nulls_equal=True)
    compute = kernels.filter(pl.col("class") != "communication")
    sums = compute.group_by("short_name").agg(
        late=pl.col("duration_ns").filter(pl.col("rank") == late["rank"]).sum(),
        waiting=pl.col("duration_ns").filter(pl.col("rank") == waiting["rank"]).sum(),
        more=(pl.col("rank") == late["rank"]).sum().cast(pl.Int64) - (pl.col("rank") == waiting["rank"]).sum(),
    )
    longest = sums.with_columns(extra_ns=pl.col("late") - pl.col("waiting")).sort(
        "extra_ns", "short_name", descending=[True, False]
    )
    if longest.is_empty():
        return None
    first = longest.row(0, named=True)
    if first["extra_ns"] < _NAMED * (waiting["total_ns"] - late["total_ns"]):
        return None
    return {"kernel": first["short_name"], "extra_ns": first["extra_ns"], "more_launches": first["more"]}


def _because(kernel: dict[str, Any] | None) -> str:
    if kernel is None:
        return ""
    more = kernel["more_launches"]
    launches = f" in {more:,} more launches" if more > 0 else ""
    return f", which spends {milliseconds(kernel['extra_ns'])} more in {kernel['kernel']}{launches}"
