"""What each step consists of: its wall, busy and idle time, causes of idle, classes, kernels, and what the host did."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from traceanalyzer.analyses.labels import label
from traceanalyzer.analyses.step_time import step_time
from traceanalyzer.analyses.steps import find_steps, plain_steps, steps
from traceanalyzer.classify.rules import CLASSES, RuleTable
from traceanalyzer.trace import Trace

#: Kinds of components, from the whole to its parts.
KINDS = ("step", "cause", "host", "class", "kernel")
_KEY = ["path", "device", "step"]
SCHEMA = pl.Schema({
    "path": pl.String(), "device": pl.String(), "step": pl.UInt32(), "kind": pl.String(), "component": pl.String(),
    "total_ns": pl.Int64(),
})  # fmt: skip


def step_parts(trace: Trace, *, marker: str | None = None, rules: RuleTable | None = None) -> pl.DataFrame:
    """One row per step of a device and component of it (`SCHEMA`), of the kind of step that there is most of.

    Components of kind `step` are wall, busy and idle. Those of kind `cause` sum to idle; `host` names what the host was
    busy with while the device was idle; `class` and `kernel` are plain sums of durations. A component that a step does
    not have is 0 there. Partial and slow steps are left out (see `steps`), and the first one where there are others.
    """
    found = find_steps(trace, marker=marker)
    rows = steps(trace, found=found, rules=rules)
    wanted = plain_steps(rows)
    if wanted.is_empty():
        return pl.DataFrame(schema=SCHEMA)
    times = step_time(trace, found=found, rows=rows, rules=rules)
    named = trace.ranks.select("source", "path")
    kernels = trace.kernels.with_columns(step=found.of_kernel).join(named, on="source", how="left")
    parts = pl.concat([
        *_columns(wanted, "step", {"wall_ns": "wall", "busy_ns": "busy", "idle_ns": "idle"}),
        _named(times, "cause", "cause"),
        _named(times, "host", "host_op"),
        *_columns(wanted, "class", {f"{name}_ns": name for name in CLASSES}),
        _kernels(kernels, trace),
    ])  # fmt: skip
    keys = wanted.select(_KEY)
    return _with_zeros(parts.join(keys, on=_KEY, how="semi", nulls_equal=True), keys)


def _columns(rows: pl.DataFrame, kind: str, columns: dict[str, str]) -> Iterator[pl.DataFrame]:
    for column, component in columns.items():
        yield rows.select(*_KEY, kind=pl.lit(kind), component=pl.lit(component), total_ns=column)


def _named(times: pl.DataFrame, kind: str, name: str) -> pl.DataFrame:
    known = times.drop_nulls(name).group_by(*_KEY, name).agg(pl.col("total_ns").sum())
    return known.select(*_KEY, kind=pl.lit(kind), component=name, total_ns="total_ns")


def _kernels(kernels: pl.DataFrame, trace: Trace) -> pl.DataFrame:
    labels = label(trace.kernels.select("kind", "name")).select(
        "kind", "name", component=pl.coalesce("family", pl.col("name").cast(pl.String))
    )
    rows = kernels.drop_nulls("step").filter(pl.col("duration_ns") >= 0)
    named = rows.join(labels, on=["kind", "name"], how="left", nulls_equal=True)
    sums = named.group_by("path", pl.col("device").cast(pl.String), "step", "component").agg(
        total_ns=pl.col("duration_ns").sum()
    )
    return sums.select(*_KEY, kind=pl.lit("kernel"), component="component", total_ns="total_ns")


def _with_zeros(parts: pl.DataFrame, keys: pl.DataFrame) -> pl.DataFrame:
    """Every component in every step."""
    components = parts.filter(pl.col("total_ns") != 0).select("kind", "component").unique()
    every = keys.join(components, how="cross")
    sums = parts.group_by(*_KEY, "kind", "component").agg(pl.col("total_ns").sum())
    full = every.join(sums, on=[*_KEY, "kind", "component"], how="left", nulls_equal=True)
    filled = full.with_columns(pl.col("total_ns").fill_null(0))
    return filled.select(pl.col(name).cast(dtype) for name, dtype in SCHEMA.items()).sort(*SCHEMA.names()[:5])
