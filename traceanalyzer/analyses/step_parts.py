"""What each step consists of: its wall, busy and idle time, causes of idle, classes, kernels, and what the host did."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from traceanalyzer.analyses.idle import CAUSES, idle_gaps
from traceanalyzer.analyses.labels import label
from traceanalyzer.analyses.steps import find_steps, steps
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
    inside = rows.filter((pl.col("kind") != "outside") & pl.col("mark").is_null())
    if inside.is_empty():
        return pl.DataFrame(schema=SCHEMA)
    kind = inside.group_by("kind").agg(pl.len()).sort("len", "kind", descending=[True, False])["kind"][0]
    wanted = inside.filter(pl.col("kind") == kind)
    later = wanted.filter(pl.col("step") > rows["step"].min())
    wanted = later if later.height else wanted  # what the first step waited for is not in its window
    gaps = _in_windows(idle_gaps(trace, found=found), rows)
    named = trace.ranks.select("source", "path")
    kernels = trace.kernels.with_columns(step=found.of_kernel).join(named, on="source", how="left")
    parts = pl.concat([
        *_columns(wanted, "step", {"wall_ns": "wall", "busy_ns": "busy", "idle_ns": "idle"}),
        *_sums(gaps, "cause", {f"{cause}_ns": cause for cause in CAUSES}),
        _named(gaps.filter(pl.col("host_busy_ns") > 0), "host", "host_op", "host_busy_ns"),
        *_columns(wanted, "class", {f"{name}_ns": name for name in CLASSES}),
        _kernels(kernels, trace),
    ])  # fmt: skip
    keys = wanted.select(_KEY)
    return _with_zeros(parts.join(keys, on=_KEY, how="semi", nulls_equal=True), keys)


def _in_windows(gaps: pl.DataFrame, rows: pl.DataFrame) -> pl.DataFrame:
    """Gaps with the step in whose window they lie: no gap reaches over the edge of one, which is an end of activity."""
    windows = rows.drop_nulls("step").select("path", "device", "step", "start_ns", until="wall_ns")
    windows = windows.with_columns(until=pl.col("start_ns") + pl.col("until")).filter(
        pl.col("until") > pl.col("start_ns")
    )
    placed = gaps.drop("step").sort("start_ns").join_asof(
        windows.sort("start_ns"), on="start_ns", by=["path", "device"], check_sortedness=False
    )  # fmt: skip
    return placed.filter(pl.col("start_ns") < pl.col("until"))


def _columns(rows: pl.DataFrame, kind: str, columns: dict[str, str]) -> Iterator[pl.DataFrame]:
    for column, component in columns.items():
        yield rows.select(*_KEY, kind=pl.lit(kind), component=pl.lit(component), total_ns=column)


def _sums(rows: pl.DataFrame, kind: str, columns: dict[str, str]) -> Iterator[pl.DataFrame]:
    yield from _columns(rows.group_by(_KEY).agg(pl.col(*columns).sum()), kind, columns)


def _named(rows: pl.DataFrame, kind: str, name: str, amount: str) -> pl.DataFrame:
    known = rows.drop_nulls(name).group_by(*_KEY, name).agg(total_ns=pl.col(amount).sum())
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
