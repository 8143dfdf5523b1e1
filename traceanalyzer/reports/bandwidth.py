"""The report of `bandwidth`."""

from __future__ import annotations

from typing import Any

import polars as pl

from traceanalyzer.analyses import bandwidth, overview
from traceanalyzer.hardware.rates import Rates, RateTable
from traceanalyzer.report import Column, Fact, Remainder, Report, Section
from traceanalyzer.reports import shared
from traceanalyzer.trace import Trace

_COLUMNS = [
    Column("short_name", "kernel", "name"),
    Column("op", "operator", "text", optional=1),
    Column("shapes", "shapes", "text"),
    Column("class", "class", "class", optional=7),
    Column("count", "count", "count", optional=5),
    Column("total_ns", "total", "time", unit_of="total"),
    Column("share", "share", "share", optional=3),
    Column("bytes_each", "each", "si_bytes", optional=2),
    Column("gb_per_s", "GB/s", "rate"),
    Column("tflop_per_s", "TFLOP/s", "rate", optional=4),
    Column("share_of_roof", "of roof", "share", bar=True),
    Column("bound", "bound", "text", optional=6),
    Column("source", "from", "text", optional=8),
]


def build(trace: Trace, rows: pl.DataFrame, *, rates: RateTable = (), limit: int = 0, explain: bool = False) -> Report:
    """One section per run with its `limit` first rows (0: all). `rows` are those of `bandwidth`, not filtered yet by
    anything but the trace, so that shares are of all of it."""
    devices = overview.devices(trace)
    runs = overview.runs(trace, per_device=devices).to_dicts()
    known_roofs = bandwidth.roofs(trace, rates)
    sections, shown = [], []
    for run in runs:
        of_run = rows.filter(pl.col("run") == run["run"])
        cut = of_run.head(limit) if limit else of_run
        shown.append(cut)
        sections.append(_section(run, of_run, cut, known_roofs))
    traces = shared.traces(devices)
    words, figures = overview.DEFINITIONS | bandwidth.DEFINITIONS, [*traces.columns, *rows.columns]
    return Report(
        command="bandwidth",
        title="Bandwidth",
        sections=sections,
        data={"rows": pl.concat(shown) if shown else rows},
        traces=traces,
        notes=shared.notes(trace),
        definitions={name: words[name] for name in figures if name in words and explain},
    )


def _section(run: dict[str, Any], rows: pl.DataFrame, shown: pl.DataFrame, roofs: dict[str, Rates | None]) -> Section:
    total = int(rows["total_ns"].sum())
    frame = shown.with_columns(
        bytes_each=pl.col("bytes") // pl.col("count").clip(1), share=pl.col("total_ns") / total if total else None
    )
    rest = rows.slice(shown.height)
    left_out = int(rest["total_ns"].sum())
    return Section(
        frame=frame,
        columns=[column for column in _COLUMNS if column.name in frame.columns],
        title=run["run"],
        facts=_facts(run, rows, total, roofs),
        empty=shared.NO_ACTIVITY,
        remainder=Remainder(rest.height, "row" if rest.height == 1 else "rows", left_out, left_out / total)
        if rest.height and total
        else None,
        footnotes=_why_unknown(rows, total),
    )


def _facts(run: dict[str, Any], rows: pl.DataFrame, total: int, roofs: dict[str, Rates | None]) -> list[Fact]:
    known = int(rows.filter(pl.col("bytes").is_not_null())["total_ns"].sum())
    facts = [Fact("", shared.ranks_found(run)), Fact("device time", total, "time")]
    if total:
        facts.append(Fact("bytes known for", known, "time", known / total))
    return [*facts, *(Fact("", _roof(name, roofs.get(name))) for name in run["gpus"] or ())]


def _roof(name: str, rates: Rates | None) -> str:
    if rates is None:
        return f"{name}: rates unknown"
    memory = "memory unknown" if rates.gb_per_s is None else f"memory {rates.gb_per_s:,.0f} GB/s"
    dense = [f"{precision} {rate:,.0f}" for precision, rate in rates.tflop_per_s.items() if precision == "bf16"]
    return f"{name}: {memory}" + (f", {dense[0]} TFLOP/s" if dense else "")


def _why_unknown(rows: pl.DataFrame, total: int) -> list[str]:
    """Why bytes are unknown, where that is so for more than a hundredth of the time."""
    unknown = rows.filter(pl.col("bytes").is_null()).group_by("source").agg(pl.col("total_ns").sum())
    large = unknown.filter(pl.col("total_ns") * 100 > total).sort("total_ns", "source", descending=[True, False])
    return [f"{share / total:.1%} of the time {reason}" for reason, share in large.iter_rows()] if total else []
