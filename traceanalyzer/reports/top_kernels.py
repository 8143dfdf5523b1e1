"""The report of `top-kernels`."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import polars as pl

from traceanalyzer.analyses import overview, top_kernels
from traceanalyzer.analyses.unknown_origins import REASONS, REMEDIES
from traceanalyzer.choices import By, Sort
from traceanalyzer.notes import Note
from traceanalyzer.report import Column, Remainder, Report, Section
from traceanalyzer.reports import shared
from traceanalyzer.text import counted
from traceanalyzer.trace import Trace

#: A kernel is marked where it fills less of the SMs than this and takes at least that share of the kernel time.
LOW_FILL, LARGE_SHARE = 0.5, 0.05
_MARKED = (
    f"! fills less than {LOW_FILL:.0%} of the SMs (blocks / SMs) and takes {LARGE_SHARE:.0%} or more of the kernel time"
)
_NOUNS: dict[By, str] = {
    "name": "kernel", "short": "short name", "class": "class", "op": "operator", "module": "module",
    "annotation": "annotation", "stack": "stack", "shape": "shape",
}  # fmt: skip


def build(
    trace: Trace,
    rows: pl.DataFrame,
    *,
    by: By = "name",
    sort: Sort | None = None,
    filter: str | None = None,
    classes: Sequence[str] = (),
    limit: int = 0,
    explain: bool = False,
) -> Report:
    """One section per run with its `limit` first rows (0: all); what is left out is summed up below them.

    `rows` are those of `top_kernels`, called with the same `by`, `sort`, `filter`, `classes` and `explain`.
    """
    devices = overview.devices(trace)
    runs = overview.runs(trace, per_device=devices).to_dicts()
    per_run = [rows.filter(pl.col("run") == run["run"]) for run in runs]
    shown = [frame.head(limit) if limit else frame for frame in per_run]
    nothing = shared.no_kernels(trace, filter, classes)
    traces = shared.traces(devices)
    columns = _columns(
        by, sort or top_kernels.default_sort(by), rows, several_ranks=any(len(run["ranks"]) > 1 for run in runs)
    )
    sections = [
        _section(run, each, cut, by, columns, nothing) for run, each, cut in zip(runs, per_run, shown, strict=True)
    ]
    return Report(
        command="top-kernels",
        title="Top kernels" if by == "name" else f"Top kernels by {_NOUNS[by]}",
        sections=sections,
        data={"rows": pl.concat(shown) if shown else rows},
        traces=traces,
        notes=[*shared.notes(trace), *_unknown(rows, by)],
        definitions=_definitions([*traces.columns, *rows.columns]) if explain else {},
    )


def _unknown(rows: pl.DataFrame, by: By) -> Iterator[Note]:
    """How much has no group, and why: one note per reason."""
    if "reason" not in rows.columns:
        return
    time = "self_ns" if "self_ns" in rows.columns else "total_ns"
    found = rows.drop_nulls("reason").group_by("reason").agg(pl.col("count", time).sum()).sort(time, descending=True)
    for reason, count, _ in found.iter_rows():
        text = f"{counted(count, 'kernel')} without {_NOUNS[by]}: {REASONS[reason]}"
        remedy = f"; {REMEDIES[reason]}" if reason in REMEDIES else ""
        yield Note("info", f"unknown-{by}", text + remedy, None, count)


def _remedies(rows: pl.DataFrame) -> list[str]:
    """How to learn what is unknown."""
    reasons = rows["reason"].drop_nulls().to_list() if "reason" in rows.columns else []
    return [f"{REASONS[reason]}: {REMEDIES[reason]}" for reason in reasons if reason in REMEDIES]


def _named(frame: pl.DataFrame) -> pl.DataFrame:
    """The rows with a text in the place of a group that is unknown."""
    if "reason" not in frame.columns:
        return frame
    texts = {reason: f"unknown: {text}" for reason, text in REASONS.items()}
    return frame.with_columns(group=pl.coalesce("group", pl.col("reason").replace_strict(texts, default=None)))


def _definitions(figures: list[str]) -> dict[str, str]:
    """What each of the figures that are shown is."""
    words = overview.DEFINITIONS | top_kernels.DEFINITIONS
    return {name: words[name] for name in figures if name in words}


def _section(
    run: dict[str, Any], rows: pl.DataFrame, shown: pl.DataFrame, by: By, columns: Sequence[Column], nothing: str
) -> Section:
    # Collectives are meant to run on few SMs, beside compute.
    compute = pl.col("class").ne_missing("communication")
    marked = (pl.col("sm_fill") < LOW_FILL) & (pl.col("share_of_kernel_time") >= LARGE_SHARE) & compute
    frame = _named(shown).with_columns(underfilled=marked.fill_null(value=False))
    return Section(
        frame=frame,
        columns=columns,
        title=run["run"],
        facts=shared.run_facts(run),
        empty=nothing,
        remainder=_remainder(rows.slice(shown.height), by),
        footnotes=[*([_MARKED] if frame["underfilled"].any() else []), *_remedies(rows)],
    )


def _remainder(rest: pl.DataFrame, by: By) -> Remainder | None:
    if rest.is_empty():
        return None
    plural = "classes" if by == "class" else f"{_NOUNS[by]}s"
    noun = _NOUNS[by] if rest.height == 1 else plural
    time, share = ("self_ns", "self_share") if "self_ns" in rest.columns else ("total_ns", "share_of_kernel_time")
    return Remainder(rest.height, noun, int(rest[time].sum()), float(rest[share].sum()))


def _columns(by: By, sort: Sort, rows: pl.DataFrame, *, several_ranks: bool) -> list[Column]:
    name = Column("short_name", "kernel", "name") if by == "name" else Column("group", _NOUNS[by], "name")
    nested = "self_ns" in rows.columns
    columns = [
        name,
        Column("class", "class", "class", optional=2),
        Column("rule", "rule", "text"),
        Column("self_ns", "self", "time", unit_of="total"),
        Column("self_share", "share", "share", bar=True),
        Column("total_ns", "total", "time", unit_of="total"),
        Column("clipped_total_ns", "clipped", "time", unit_of="total"),
        Column("share_of_kernel_time", "of all" if nested else "share", "share", bar=not nested),
        Column("share_of_busy", "of busy", "share", optional=6),
        Column("count", "count", "count"),
        Column("ranks", "ranks", "count", optional=5),
        Column("mean_ns", "mean", "time", optional=3, unit_of="one"),
        Column("p50_ns", "p50", "time", optional=8, unit_of="one"),
        Column("p99_ns", "p99", "time", optional=4, unit_of="one"),
        Column("min_ns", "min", "time", optional=9, unit_of="one"),
        Column("max_ns", "max", "time", optional=7, unit_of="one"),
        Column("blocks", "blocks", "count", optional=1),
        Column("grids", "grids", "count", optional=10),
        Column("sm_fill", "SM fill", "share", mark="underfilled"),
    ]
    dropped = {"ranks"} if not several_ranks else set()
    if by == "class":
        dropped.add("class")
    shown = [column for column in columns if column.name in rows.columns and column.name not in dropped]
    sorted_by = top_kernels.SORTED_BY.get(sort)  # what is sorted by is always shown
    return [dataclasses.replace(column, optional=0) if column.name == sorted_by else column for column in shown]
