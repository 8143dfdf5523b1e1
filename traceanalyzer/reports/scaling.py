"""The report of `scaling`."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from traceanalyzer.analyses import overview
from traceanalyzer.analyses import scaling as analysis
from traceanalyzer.report import Column, Fact, Remainder, Report, Section
from traceanalyzer.reports import shared
from traceanalyzer.text import middle
from traceanalyzer.trace import Trace

#: Parts with less than this of the largest step are left to programs.
_SMALLEST = 0.002
_K = 1024


def build(runs: Mapping[int, Trace], rows: pl.DataFrame, *, limit: int = 0, explain: bool = False) -> Report:
    """The parts of a step at each context, those that grow first; `rows` are those of `scaling`."""
    contexts = sorted(runs)
    devices = [overview.devices(runs[context]) for context in contexts]
    largest = f"mean_{contexts[-1]}_ns"
    whole = float(rows.filter((pl.col("kind") == "step") & (pl.col("component") == "wall"))[largest][0])
    means = [f"mean_{context}_ns" for context in contexts]
    worth = rows.filter(pl.max_horizontal(means) >= _SMALLEST * whole)
    ordered = worth.sort(pl.col("kind") == "step", "slope_ns_per_token", descending=True, maintain_order=True)
    shown = ordered.head(limit) if limit else ordered
    frame = shown.with_columns(
        pl.col(means).round().cast(pl.Int64), per_k_ns=(pl.col("slope_ns_per_token") * _K).round().cast(pl.Int64)
    )
    columns = [
        Column("component", "part of a step", "name"),
        Column("kind", "kind", "text"),
        *(Column(f"mean_{each}_ns", f"at {_short(each)}", "time", unit_of="mean") for each in contexts),
        Column("per_k_ns", "each 1k", "time", unit_of="slope"),
        Column("share_of_growth", "of growth", "share", bar=True),
        Column("model", "model", "text", optional=1),
        Column("r2", "r²", "rate", optional=2),
    ]  # fmt: skip
    left = rows.height - shown.height
    section = Section(
        frame,
        columns,
        title=" · ".join(_short(context) for context in contexts) + " tokens of context",
        facts=_facts(rows, contexts),
        remainder=Remainder(left, "smaller part" if left == 1 else "smaller parts") if left else None,
    )
    return Report(
        command="scaling",
        title="Scaling with the context",
        sections=[section],
        data={"rows": rows},
        traces=pl.concat([shared.traces(each) for each in devices], how="diagonal"),
        notes=[note for context in contexts for note in shared.notes(runs[context])],
        definitions={name: words for name, words in analysis.DEFINITIONS.items() if explain},
    )


def _facts(rows: pl.DataFrame, contexts: list[int]) -> list[Fact]:
    """The answer in a line: how much a step grows, and which part that is."""
    step = rows.filter((pl.col("kind") == "step") & (pl.col("component") == "wall")).row(0, named=True)
    first, last = (round(step[f"mean_{context}_ns"]) for context in (contexts[0], contexts[-1]))
    facts = [Fact(f"step at {_short(contexts[0])}", first, "time"), Fact(f"at {_short(contexts[-1])}", last, "time")]
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


def _short(context: int) -> str:
    """`4k`, `1.5k`, `300`."""
    return str(context) if context < _K else f"{context / _K:.4g}k"
