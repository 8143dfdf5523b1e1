"""What a finding is."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import polars as pl

Severity = Literal["high", "medium", "low"]
Confidence = Literal["high", "medium", "low"]

#: What each column is, word for word as it is shown with `--explain`.
DEFINITIONS = {
    "rule": "stable name of the rule that fired",
    "severity": "high: a third of the time or more is at stake; medium: a tenth; low: less, or a doubt about the trace",
    "title": "the finding in a few words",
    "text": "what is so, and what it would take",
    "evidence": "the numbers that it rests on, the thresholds, and events to look at",
    "confidence": "high where all of it is recorded, medium where a part is inferred, low where it may be the profiler",
    "at_stake_ns": "device time that the finding is about",
}
SCHEMA = pl.Schema({
    "run": pl.String(), "rule": pl.String(), "severity": pl.String(), "title": pl.String(), "text": pl.String(),
    "evidence": pl.String(), "confidence": pl.String(), "at_stake_ns": pl.Int64(),
})  # fmt: skip


@dataclass(frozen=True)
class Finding:
    """One finding about one run."""

    run: str
    rule: str
    title: str
    text: str
    at_stake_ns: int
    """Device time that it is about: what findings are ordered by."""
    share: float
    """The same as a part of all that the rule looks at; decides how severe it is."""
    evidence: Mapping[str, Any]
    confidence: Confidence = "high"
    is_doubt: bool = False
    """A doubt about the trace, which comes after what is said of the program."""

    @property
    def severity(self) -> Severity:
        """By the share that is at stake."""
        if self.is_doubt or self.share < 0.1:
            return "low"
        return "high" if self.share >= 1 / 3 else "medium"

    def row(self) -> dict[str, Any]:
        """As `SCHEMA` has it; the evidence as JSON text."""
        return {
            "run": self.run, "rule": self.rule, "severity": self.severity, "title": self.title, "text": self.text,
            "evidence": json.dumps(self.evidence), "confidence": self.confidence, "at_stake_ns": self.at_stake_ns,
        }  # fmt: skip
