"""Rules about ranks: who makes the others wait, and communication that stands in the way."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import polars as pl

from traceanalyzer.analyses.breakdown import breakdown
from traceanalyzer.analyses.findings.context import RunContext
from traceanalyzer.analyses.findings.finding import Confidence, Finding
from traceanalyzer.analyses.ranks.sentences import lateness, reason, who
from traceanalyzer.analyses.words import milliseconds, percent

#: Exposed communication is worth a word from this part of the span of a rank on.
EXPOSED_SHARE = 0.15
#: A slow rank is worth a word if it is so much of the time behind, and the others waited so long for it.
BEHIND_SHARE, LITTLE_NS = 0.05, 100_000
#: Reasons that are in the evidence.
_REASONS = 5


def a_rank_is_slow(run: RunContext) -> Iterator[Finding]:
    """Ranks that the others wait for beyond chance, and what makes them late."""
    found = run.imbalance
    for row in found.culprits.iter_rows(named=True):
        own = pl.col("rank").eq_missing(row["rank"]) & pl.col("device").eq_missing(row["device"])
        waited = int(found.ranks.filter(own)["waited_for_ns"].sum())
        if waited < LITTLE_NS or row["share"] < BEHIND_SHARE:
            continue
        name = who(row["rank"], row["device"])
        text = (
            f"{name.capitalize()} {lateness(row)}: the others wait {milliseconds(waited)} for it in all. {reason(row)}"
        )
        confidence: Confidence = "high" if row["because"] == "kernel" else "medium"
        yield Finding(
            run.run, "slow-rank", f"the others wait for {name}", text, at_stake_ns=waited, share=row["share"],
            confidence=confidence,
            evidence={
                **{key: row[key] for key in _FIGURES}, "waited_for_ns": waited,
                "reasons": found.reasons.filter(own).head(_REASONS).drop("run", "rank", "device").to_dicts(),
                "thresholds": {"share_of_time": BEHIND_SHARE, "waited_for_ns": LITTLE_NS},
            },
        )  # fmt: skip


_FIGURES = (
    "rank", "device", "group", "behind_ns", "share", "last", "collectives", "steps", "peer_rank", "delay_ns", "because",
    "name", "extra_ns", "extra_count", "because_share",
)  # fmt: skip


def communication_stands_in_the_way(run: RunContext) -> Iterator[Finding]:
    """Communication that nothing hides. Where a slow rank makes the others wait, only what that rank itself has."""
    rows = breakdown(run.trace, rules=run.rules).filter(pl.col("state") == "communication").drop_nulls("share")
    slow = run.imbalance.culprits.select("rank", pl.col("device")).with_columns(slow=pl.lit(value=True))
    judged = rows.with_columns(pl.col("device").cast(pl.String))
    if slow.height:
        judged = judged.join(slow, on=["rank", "device"], how="semi", nulls_equal=True)
    exposed = judged.sort("share", "rank", "device", descending=[True, False, False])
    if exposed.is_empty() or exposed["share"][0] < EXPOSED_SHARE:
        return
    most = exposed.row(0, named=True)
    total = int(exposed["total_ns"].sum())
    share = total / run.span_ns
    whose = who(most["rank"], most["device"])
    text = (
        f"Communication that no compute hides takes {percent(most['share'])} of the span of {whose} "
        f"({milliseconds(most['total_ns'])})"
    )
    text += f", {percent(share)} over all devices" if exposed.height > 1 else ""
    evidence: dict[str, Any] = {
        "exposed_ns": total, "share": share,
        "devices": exposed.select("rank", "device", "total_ns", "share").to_dicts(),
        "thresholds": {"exposed_share_of_span": EXPOSED_SHARE},
    }  # fmt: skip
    waits = run.imbalance.ranks.select(pl.col("wait_ns", "transfer_ns").sum()).row(0)
    if sum(waits):
        evidence["wait_share_of_communication"] = waits[0] / sum(waits)
        text += f"; {percent(waits[0] / sum(waits))} of all communication is waiting for other ranks"
    title = f"exposed communication takes up to {percent(most['share'])} of the span"
    yield Finding(
        run.run, "exposed-communication", title, f"{text}.", at_stake_ns=total, share=most["share"], evidence=evidence
    )
