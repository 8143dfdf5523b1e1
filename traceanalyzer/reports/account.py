"""The report of `account`."""

from __future__ import annotations

from typing import Any

import polars as pl

from traceanalyzer import formats
from traceanalyzer.analyses import account as analysis
from traceanalyzer.analyses import overview
from traceanalyzer.analyses.account import Account
from traceanalyzer.analyses.ratio import ratio
from traceanalyzer.report import Column, Fact, Remainder, Report, Section
from traceanalyzer.reports import shared
from traceanalyzer.text import counted, listed
from traceanalyzer.trace import Trace

_COLUMNS = [
    Column("component", "part of a step", "name"),
    Column("said_kind", "kind", "text", optional=1),
    Column("measured", "measured", "time", unit_of="step"),
    Column("budget_ns_per_step", "budget", "time", unit_of="step"),
    Column("times", "× budget", "rate"),
    Column("share", "of step", "share", bar=True),
]
#: How kinds of components are called in a table.
_SAID = {"cause": "idle", "host": "idle: host busy"}
#: Of all idle time the part from which on it is said to be in steps that are left out; steps that are sure.
_MUCH, _SURE = 0.2, 0.8
_NO_STEPS = "no whole steps found: see traceanalyze steps"


def build(trace: Trace, found: Account, *, limit: int = 0, explain: bool = False) -> Report:
    """For each run what a step consists of; with a budget its components first, then what is in none of them."""
    devices = overview.devices(trace)
    runs = overview.runs(trace, per_device=devices).to_dicts()
    return Report(
        command="account",
        title="Account of a step",
        sections=[_run(run, found, limit) for run in runs],
        data={"rows": _limited(found.rows, limit), "steps": found.totals},
        traces=shared.traces(devices),
        notes=shared.notes(trace),
        definitions=dict(analysis.DEFINITIONS) if explain else {},
    )


def _limited(rows: pl.DataFrame, limit: int) -> pl.DataFrame:
    """The whole of each run and its first parts; 0: all."""
    if not limit:
        return rows
    part = pl.col("kind") != "step"
    return rows.filter(~part | (part.cum_sum().over("run") <= limit))


def _run(run: dict[str, Any], found: Account, limit: int) -> Section:
    own = found.rows.filter((pl.col("run") == run["run"]) & (pl.col("kind") != "step"))
    totals = found.totals.filter(pl.col("run") == run["run"])
    facts = [Fact("", shared.ranks_found(run))]
    if totals.is_empty():
        return Section(own, _COLUMNS[:1], title=run["run"], facts=facts, empty=_NO_STEPS)
    step = totals.row(0, named=True)
    frame = own.with_columns(
        measured=pl.col("measured_ns_per_step").round().cast(pl.Int64),
        said_kind=pl.col("kind").replace(_SAID),
        times=ratio(own["measured_ns_per_step"], own["budget_ns_per_step"]),
    )
    shown = frame.head(limit) if limit else frame
    rest = frame.slice(shown.height)
    has_budget = step["in_budget_ns"] is not None
    columns = [each for each in _COLUMNS if has_budget or each.name not in ("budget_ns_per_step", "times")]
    return Section(
        shown,
        columns,
        title=run["run"],
        facts=[*facts, *_step_facts(step), *_budget_facts(step), *_profiler_facts(step)],
        remainder=_remainder(rest, step),
        footnotes=_absent(own),
    )


def _absent(rows: pl.DataFrame) -> list[str]:
    """The components of the budget of which nothing is there."""
    empty = (pl.col("kind") == "budget") & (pl.col("measured_ns_per_step") == 0)
    names = rows.filter(empty)["component"].to_list()
    if not names:
        return []
    return [f"nothing in a step is of {listed(names)}: no name matches, or what does has no time of its own"]


def _step_facts(step: dict[str, Any]) -> list[Fact]:
    kind = "" if step["step_kind"] == "step" else f"{step['step_kind']} "
    found = []
    if step["confidence"] < _SURE:
        found = [Fact("", f"steps by the sequence of kernels, confidence {formats.share(step['confidence'], 0)}")]
    return [
        Fact(f"mean of {counted(step['steps'], f'{kind}step')}", step["wall_ns"], "time"),
        Fact("busy", step["busy_ns"], "time", _share(step["busy_ns"], step)),
        Fact("idle", step["idle_ns"], "time", _share(step["idle_ns"], step)),
        *found,
        *_left_out(step),
    ]


def _left_out(step: dict[str, Any]) -> list[Fact]:
    """That the steps which are left out hold much of the idle time, where they do."""
    idle = step["left_out_idle_ns"]
    whole = idle + step["idle_ns"] * step["steps"]
    if not whole or idle / whole < _MUCH:
        return []
    steps = f"{counted(step['left_out'], 'step')} left out (first, partial or slow)"
    return [Fact(f"idle of {steps}", idle, "time", None), Fact("of all idle", formats.share(idle / whole))]


def _budget_facts(step: dict[str, Any]) -> list[Fact]:
    within = step["in_budget_ns"]
    if within is None:
        return []
    rest = step["wall_ns"] - within
    expected = step["budget_ns"]
    return [
        *([] if expected is None else [Fact("budget", expected, "time", _share(expected, step))]),
        Fact("its components take", within, "time", _share(within, step)),
        Fact("in none of them", rest, "time", _share(rest, step)),
    ]


def _profiler_facts(step: dict[str, Any]) -> list[Fact]:
    if step["measured_step_ns"] is None:
        return []
    facts = [Fact("without a profiler", step["measured_step_ns"], "time")]
    if step["measured_step_ns"] < step["busy_ns"]:
        return [*facts, Fact("", "shorter than the GPU is busy here: another program, or another unit")]
    if step["inflation_ns"] <= 0:
        return [*facts, Fact("", "the profiler makes steps no longer")]
    facts.append(Fact("only under the profiler", step["inflation_ns"], "time", _share(step["inflation_ns"], step)))
    if step["idle_ns"]:
        share = step["inflated_idle_ns"] / step["idle_ns"]
        facts.append(Fact("of idle at most", step["inflated_idle_ns"], "time", share))
    return facts


def _remainder(rest: pl.DataFrame, step: dict[str, Any]) -> Remainder | None:
    if rest.is_empty():
        return None
    total = int(rest["measured"].sum())
    return Remainder(rest.height, "part" if rest.height == 1 else "parts", total, _share(total, step))


def _share(time_ns: int, step: dict[str, Any]) -> float | None:
    """Part of the wall time of a step, which is 0 where all its activity is points."""
    return time_ns / step["wall_ns"] if step["wall_ns"] else None
