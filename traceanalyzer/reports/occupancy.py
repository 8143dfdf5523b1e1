"""The report of `occupancy`."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import polars as pl

from traceanalyzer.analyses import occupancy, overview
from traceanalyzer.choices import LaunchBy, OccupancySort
from traceanalyzer.hardware import gpus
from traceanalyzer.notes import Note
from traceanalyzer.report import Column, Fact, Remainder, Report, Section
from traceanalyzer.reports import shared
from traceanalyzer.trace import Trace

#: A kernel is marked where it fills less of the SMs than this and takes at least that share of the kernel time.
LOW_FILL, LARGE_SHARE = 0.5, 0.05
_MARKED = f"! fills less than {LOW_FILL:.0%} of the SMs and takes {LARGE_SHARE:.0%} or more of the kernel time"
_COLUMNS = (
    Column("short_name", "kernel", "name"),
    Column("class", "class", "class", optional=8),
    Column("configurations", "shapes", "count", optional=9),
    Column("total_ns", "total", "time", unit_of="total"),
    Column("share_of_kernel_time", "share", "share", optional=3),
    Column("count", "count", "count", optional=7),
    Column("grid", "grid", "text", optional=1),
    Column("block", "block", "text", optional=4),
    Column("registers", "regs", "count", optional=5),
    Column("shared_memory", "shared", "bytes", optional=5),
    Column("resident_blocks_per_sm", "per SM", "count", optional=6),
    Column("limited_by", "limited by", "text", optional=2),
    Column("theoretical_occupancy", "occupancy", "share"),
    Column("launch_occupancy", "of launch", "share", optional=12),
    Column("trace_occupancy", "trace says", "share", optional=11),
    Column("waves", "waves", "count", optional=3),
    Column("wave_fill", "wave fill", "share", optional=10),
    Column("tail_waste_ns", "tail", "time", optional=10, unit_of="waste"),
    Column("sm_fill", "SM fill", "share", mark="underfilled"),
    Column("idle_sm_ns", "idle SMs", "time", unit_of="waste"),
    Column("unknown", "unknown because", "text", optional=2),
)


def build(
    trace: Trace,
    rows: pl.DataFrame,
    launches: pl.DataFrame,
    *,
    by: LaunchBy = "launch",
    gpu: str | None = None,
    sort: OccupancySort = "idle",
    filter: str | None = None,
    classes: Sequence[str] = (),
    limit: int = 0,
    explain: bool = False,
) -> Report:
    """One section per run with its `limit` first rows (0: all); what is left out is summed up below them.

    `rows` are those of `occupancy`, called with the same `by`, `gpu`, `sort`, `filter` and `classes`; `launches` are
    the same by launch, from which is said what is unknown.
    """
    devices = overview.devices(trace)
    runs = overview.runs(trace, per_device=devices).to_dicts()
    per_run = [rows.filter(pl.col("run") == run["run"]) for run in runs]
    shown = [frame.head(limit) if limit else frame for frame in per_run]
    nothing = shared.no_kernels(trace, filter, classes)
    columns = _columns(rows, sort)
    asked = [Fact("laid on", _named(gpu))] if gpu else []
    reasons = [[each.message for each in _unknown(launches, run["run"])] for run in runs]
    sections = [
        _section(run, each, cut, by, columns, asked, nothing, why)
        for run, each, cut, why in zip(runs, per_run, shown, reasons, strict=True)
    ]
    return Report(
        command="occupancy",
        title="Occupancy",
        sections=sections,
        data={"rows": pl.concat(shown) if shown else rows},
        traces=shared.traces(devices),
        notes=[*shared.notes(trace), *occupancy.notes(launches)],
        definitions={name: text for name, text in occupancy.DEFINITIONS.items() if name in rows.columns}
        if explain
        else {},
    )


def run_devices(trace: Trace, gpu: str | None = None) -> dict[str, str]:
    """What the launches of each run are laid on, in words: its own devices, or the GPU that was asked about."""
    runs = overview.runs(trace, per_device=overview.devices(trace)).to_dicts()
    return {run["run"]: _named(gpu) if gpu else shared.devices_found(run) for run in runs}


def _named(gpu: str) -> str:
    found = gpus.find(gpu)
    return f"{found.name} ({found.sms} {'SMs' if found.vendor == 'NVIDIA' else 'CUs'})" if found.sms else found.name


def _section(
    run: dict[str, Any],
    rows: pl.DataFrame,
    shown: pl.DataFrame,
    by: LaunchBy,
    columns: Sequence[Column],
    asked: Sequence[Fact],
    nothing: str,
    unknown: Sequence[str],
) -> Section:
    # Collectives are meant to run on few SMs, beside compute.
    compute = pl.col("class").ne_missing("communication")
    marked = (pl.col("sm_fill") < LOW_FILL) & (pl.col("share_of_kernel_time") >= LARGE_SHARE) & compute
    frame = shown.with_columns(underfilled=marked.fill_null(value=False))
    return Section(
        frame=frame,
        columns=columns,
        title=run["run"],
        facts=[*shared.run_facts(run), *asked],
        empty=nothing,
        remainder=_remainder(rows.slice(shown.height), by),
        footnotes=[*([_MARKED] if frame["underfilled"].any() else []), *unknown],
    )


def _unknown(launches: pl.DataFrame, run: str) -> Iterator[Note]:
    return occupancy.notes(launches.filter(pl.col("run") == run))


def _remainder(rest: pl.DataFrame, by: LaunchBy) -> Remainder | None:
    if rest.is_empty():
        return None
    noun = "kernel" if by == "kernel" else "launch shape"
    return Remainder(
        rest.height,
        noun if rest.height == 1 else f"{noun}s",
        int(rest["total_ns"].sum()),
        float(rest["share_of_kernel_time"].sum()),
    )


def _columns(rows: pl.DataFrame, sort: OccupancySort) -> list[Column]:
    """The columns that hold anything; what is sorted by is always shown."""
    sorted_by, _ = occupancy.SORTED_BY[sort]
    silent = {"unknown", "trace_occupancy", "limited_by"}
    shown = [
        column
        for column in _COLUMNS
        if column.name in rows.columns and not (column.name in silent and rows[column.name].is_null().all())
    ]
    return [dataclasses.replace(column, optional=0) if column.name == sorted_by else column for column in shown]
