"""The report of `scaling`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import polars as pl

from traceanalyzer import formats
from traceanalyzer.analyses import overview
from traceanalyzer.analyses import scaling as analysis
from traceanalyzer.report import Column, Fact, Remainder, Report, Section
from traceanalyzer.reports import shared
from traceanalyzer.text import middle
from traceanalyzer.trace import Trace

#: Parts with less than this of the largest step are left to programs.
_SMALLEST = 0.002
_K = 1024


def build(
    runs: Mapping[int, Trace], rows: pl.DataFrame, *, at: int | None = None, limit: int = 0, explain: bool = False
) -> Report:
    """What of a step grows, then what does not, each by its time; `rows` are those of `scaling`, projected to `at`."""
    contexts = sorted(runs)
    devices = [overview.devices(runs[context]) for context in contexts]
    largest = f"mean_{contexts[-1]}_ns"
    whole = float(rows.filter((pl.col("kind") == "step") & (pl.col("component") == "wall"))[largest][0])
    worth = rows.filter(pl.max_horizontal(f"mean_{context}_ns" for context in contexts) >= _SMALLEST * whole)
    worth = worth.with_columns(per_k_ns=(pl.col("slope_ns_per_token") * _K).round().cast(pl.Int64))
    matters = (pl.col("kind") == "step") | pl.col("grows")
    growing = worth.filter(matters).sort(
        pl.col("kind") == "step", "slope_ns_per_token", descending=True, maintain_order=True
    )
    steady = worth.filter(~matters).sort(pl.col("kind") == "host", largest, descending=True, maintain_order=True)
    shown = growing.head(limit) if limit else growing
    shown_steady = steady.head(max(limit - shown.height, 0)) if limit else steady
    left = rows.height - shown.height - shown_steady.height
    remainder = Remainder(left, "smaller part" if left == 1 else "smaller parts") if left else None
    title = " · ".join(_short(context) for context in contexts) + " tokens of context"
    sections = [
        Section(shown, _columns(contexts, at), title=title, facts=_facts(rows, contexts, at)),
        Section(shown_steady, _columns(contexts, None, heading="does not grow"), remainder=remainder),
    ]
    words = {name: text for name, text in analysis.DEFINITIONS.items() if at is not None or "project" not in name}
    return Report(
        command="scaling",
        title="Scaling with the context",
        sections=sections if shown_steady.height else [replace(sections[0], remainder=remainder)],
        data={"rows": rows},
        traces=pl.concat([shared.traces(each) for each in devices], how="diagonal"),
        notes=[note for context in contexts for note in shared.notes(runs[context])],
        definitions=words if explain else {},
    )


def _columns(contexts: list[int], at: int | None, *, heading: str = "part of a step") -> list[Column]:
    projected = (
        []
        if at is None
        else [
            Column("projected_ns", f"at {_short(at)}?", "time", unit_of="mean"),
            Column("projected_low_ns", "from", "time", unit_of="mean", optional=3),
            Column("projected_high_ns", "to", "time", unit_of="mean", optional=3),
        ]
    )
    return [
        Column("component", heading, "name"),
        Column("kind", "kind", "text"),
        *(Column(f"mean_{each}_ns", f"at {_short(each)}", "time", unit_of="mean") for each in contexts),
        *projected,
        Column("per_k_ns", "each 1k", "time", unit_of="slope"),
        Column("share_of_growth", "of growth", "share", bar=heading == "part of a step"),
        Column("model", "model", "text", optional=1),
        Column("r2", "r²", "rate", optional=2),
    ]


def _facts(rows: pl.DataFrame, contexts: list[int], at: int | None) -> list[Fact]:
    """The answer in a line: how much a step grows, and which part that is."""
    step = rows.filter((pl.col("kind") == "step") & (pl.col("component") == "wall")).row(0, named=True)
    first, last = (round(step[f"mean_{context}_ns"]) for context in (contexts[0], contexts[-1]))
    facts = [Fact(f"step at {_short(contexts[0])}", first, "time"), Fact(f"at {_short(contexts[-1])}", last, "time")]
    if at is not None:
        facts.append(Fact(f"at {_short(at)} by the {step['model']} fit", step["projected_ns"], "time"))
        facts.append(Fact("", _interval(step)))
    if not step["grows"]:
        return [*facts, Fact("", "does not grow with the context")]
    facts.append(Fact("each 1k tokens", round(step["slope_ns_per_token"] * _K), "time"))
    growing = rows.filter(pl.col("grows") & pl.col("kind").is_in(["cause", "host", "class", "kernel"]))
    for kinds in (["host", "kernel"], ["cause", "class"]):
        most = growing.filter(pl.col("kind").is_in(kinds)).sort("slope_ns_per_token", descending=True).head(1)
        facts += [
            Fact("grows:", f"{middle(row['component'], 60)} ({row['kind']})", share=row["share_of_growth"])
            for row in most.iter_rows(named=True)
        ]
    return facts


def _interval(step: dict[str, Any]) -> str:
    low, high = step["projected_low_ns"], step["projected_high_ns"]
    if low is None or high is None:
        return "how sure that is cannot be told: too few steps"
    return f"95 % of the mean within {formats.ns(low)} to {formats.ns(high)}"


def _short(context: int) -> str:
    """`4k`, `1.5k`, `300`."""
    return str(context) if context < _K else f"{context / _K:.4g}k"
