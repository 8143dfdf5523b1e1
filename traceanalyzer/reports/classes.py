"""The report of `classes`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl

from traceanalyzer.analyses import classes, overview
from traceanalyzer.report import Column, Fact, Remainder, Report, Section
from traceanalyzer.reports import shared
from traceanalyzer.trace import Trace

_COLUMNS = (
    Column("short_name", "kernel", "name"),
    Column("class", "class", "class"),
    Column("rule", "rule", "text"),
    Column("count", "count", "count", optional=1),
    Column("total_ns", "total", "time", unit_of="total"),
    Column("share_of_kernel_time", "share", "share"),
)


def build(
    trace: Trace,
    rows: pl.DataFrame,
    unclassified: pl.DataFrame,
    *,
    filter: str | None = None,
    wanted: Sequence[str] = (),
    limit: int = 0,
    explain: bool = False,
) -> Report:
    """One section per run with its `limit` first rows (0: all), under the share that no rule could classify.

    `rows` are those of `classes` with the same `filter` and `wanted` classes; `unclassified` is of all rows.
    """
    devices = overview.devices(trace)
    runs = overview.runs(trace, per_device=devices).to_dicts()
    per_run = [rows.filter(pl.col("run") == run["run"]) for run in runs]
    shown = [frame.head(limit) if limit else frame for frame in per_run]
    nothing = shared.no_kernels(trace, filter, wanted)
    sections = [
        _section(run, each, cut, unclassified.filter(pl.col("run") == run["run"]), nothing)
        for run, each, cut in zip(runs, per_run, shown, strict=True)
    ]
    return Report(
        command="classes",
        title="Classes of kernels",
        sections=sections,
        data={"rows": pl.concat(shown) if shown else rows, "unclassified": unclassified},
        traces=shared.traces(devices),
        notes=shared.notes(trace),
        definitions=_definitions(rows.columns) if explain else {},
    )


def _definitions(figures: list[str]) -> dict[str, str]:
    return {name: classes.DEFINITIONS[name] for name in figures if name in classes.DEFINITIONS}


def _section(
    run: dict[str, Any], rows: pl.DataFrame, shown: pl.DataFrame, unclassified: pl.DataFrame, nothing: str
) -> Section:
    facts = [
        Fact(each["class"], each["total_ns"], "time", each["share_of_kernel_time"])
        for each in unclassified.iter_rows(named=True)
    ]
    return Section(
        frame=shown,
        columns=_COLUMNS,
        title=run["run"],
        facts=[Fact("", shared.ranks_found(run)), *facts],
        empty=nothing,
        remainder=_remainder(rows.slice(shown.height)),
    )


def _remainder(rest: pl.DataFrame) -> Remainder | None:
    if rest.is_empty():
        return None
    noun = "kernel" if rest.height == 1 else "kernels"
    return Remainder(rest.height, noun, int(rest["total_ns"].sum()), float(rest["share_of_kernel_time"].sum()))
