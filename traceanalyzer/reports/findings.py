"""The report of `findings`."""

from __future__ import annotations

import polars as pl

from traceanalyzer.analyses import findings, overview
from traceanalyzer.analyses.findings.run import RULES, Rule
from traceanalyzer.report import Column, Report, Section
from traceanalyzer.reports import shared
from traceanalyzer.trace import Trace

_COLUMNS = [
    Column("severity", "severity", "text"),
    Column("text", "finding", "prose"),
    Column("confidence", "confidence", "text", optional=2),
    Column("rule", "rule", "text", optional=1),
]


def build(trace: Trace, rows: pl.DataFrame, *, limit: int = 0, explain: bool = False) -> Report:
    """One section per run with its findings; `rows` are those of `findings`."""
    devices = overview.devices(trace)
    runs = overview.runs(trace, per_device=devices).to_dicts()
    sections = []
    for run in runs:
        own = rows.filter(pl.col("run") == run["run"])
        sections.append(
            Section(
                own.head(limit) if limit else own,
                _COLUMNS,
                title=run["run"],
                facts=shared.run_facts(run),
                empty=f"nothing stands out; looked at: {', '.join(map(_looked_at, RULES))}"
                if run["devices"]
                else f"{shared.NO_ACTIVITY}: nothing could be looked at",
            )
        )
    words = findings.DEFINITIONS
    return Report(
        command="findings",
        title="Findings",
        sections=sections,
        data={"rows": rows},
        traces=shared.traces(devices),
        notes=shared.notes(trace),
        definitions={name: words[name] for name in rows.columns if name in words} if explain else {},
        json_texts=frozenset({"evidence"}),
    )


def _looked_at(rule: Rule) -> str:
    return rule.__name__.replace("_", " ")
