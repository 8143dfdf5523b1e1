"""What one device of one file adds to the comparison of ranks: small, whatever the size of the file.

A part is made from one file alone, on any machine; the reduction puts the parts of all files together. It holds sums by
step and class, and one row per collective; no event is in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from traceanalyzer.analyses import intervals, overview
from traceanalyzer.analyses.labels import label
from traceanalyzer.analyses.steps.find import Found, find_steps
from traceanalyzer.analyses.steps.times import steps
from traceanalyzer.classify.rules import CLASSES, RuleTable
from traceanalyzer.trace import Trace

COMMUNICATION = "communication"
_UNIT = ["source", "device"]
#: What the metadata of a collective tells of it, beside its group.
_WHAT = ("collective", "element_type", "in_elements", "out_elements")
_GROUP = ("process_group", "group_description", "group_ranks", "group_size")
CALLS = pl.Schema({
    "group": pl.UInt32(), "kind": pl.UInt32(), "sequence": pl.Int64(), "start_ns": pl.Int64(),
    "duration_ns": pl.Int64(), "step": pl.UInt32(),
})  # fmt: skip
GROUPS = pl.Schema({
    "group": pl.UInt32(), "process_group": pl.String(), "group_description": pl.String(), "group_ranks": pl.String(),
    "group_size": pl.Int32(), "stream": pl.UInt32(),
})  # fmt: skip
KINDS = pl.Schema({
    "kind": pl.UInt32(), "kernel": pl.String(), "collective": pl.String(), "element_type": pl.String(),
    "in_elements": pl.Int64(), "out_elements": pl.Int64(),
})  # fmt: skip


@dataclass(frozen=True)
class RankPart:
    """One device of one source."""

    source: int
    device: str | None
    facts: Mapping[str, Any]
    """What `overview.devices` says of it: `span_ns`, `busy_ns`, `idle_ns`, `name`, `sms`, counts of activity."""
    steps: pl.DataFrame
    """One row per step and one for what is outside of all (`step` null): `step`, `name`, `kind`, `mark`, `start_ns`
    (absolute), `wall_ns`, `busy_ns`, `work_ns` (in which anything but communication ran), `idle_ns`, `kernels` and
    `<class>_ns`."""
    calls: pl.DataFrame
    """`CALLS`: one row per kernel of communication, in order of its start; `group` and `kind` are rows of the other
    two tables, `sequence` is null where it was not recorded."""
    groups: pl.DataFrame
    """`GROUPS`: process groups. Where no metadata tells, all is null but `stream`, the number of the stream among those
    of communication without metadata."""
    kinds: pl.DataFrame
    """`KINDS`: kernels with what they were given to do, as far as it is known."""


def rank_parts(trace: Trace, *, found: Found | None = None, rules: RuleTable | None = None) -> list[RankPart]:
    """The parts of every device with activity of every source of a trace, in order of source and device."""
    found = found or find_steps(trace)
    devices = overview.devices(trace).drop_nulls("span_ns")
    if devices.is_empty():
        return []
    labels = label(trace.kernels.select("kind", "name"), rules)
    per_step = _with_work(_steps(trace, found, rules), trace, labels)
    calls = _calls(trace, found, labels)
    parts = []
    for facts in devices.with_columns(pl.col("device", "name").cast(pl.String)).iter_rows(named=True):
        own = (pl.col("source") == facts["source"]) & pl.col("device").eq_missing(facts["device"])
        mine, groups, kinds = _coded(calls.filter(own))
        parts.append(
            RankPart(facts["source"], facts["device"], facts, per_step.filter(own).drop(_UNIT), mine, groups, kinds)
        )
    return parts


def _steps(trace: Trace, found: Found, rules: RuleTable | None) -> pl.DataFrame:
    sources = trace.used.select("source", "path", "rank", origin_ns="first_ns")
    rows = steps(trace, found=found, rules=rules).join(sources, on=["path", "rank"], how="left", nulls_equal=True)
    return rows.with_columns(start_ns=pl.col("start_ns") + pl.col("origin_ns")).select(
        *_UNIT, "step", "name", "kind", "mark", "start_ns", "wall_ns", "busy_ns", "idle_ns", "kernels",
        *(f"{name}_ns" for name in CLASSES),
    )  # fmt: skip


def _with_work(rows: pl.DataFrame, trace: Trace, labels: pl.DataFrame) -> pl.DataFrame:
    """`work_ns` of each window: what communication alone covers is no work."""
    classes = labels.select("kind", "name", "class")
    activity = trace.kernels.join(classes, on=["kind", "name"], how="left", nulls_equal=True).filter(
        pl.col("class").ne_missing(COMMUNICATION)
    )  # fmt: skip
    covered = intervals.of_events(activity.with_columns(pl.col("device").cast(pl.String)), _UNIT)
    windows = rows.select(*_UNIT, "start_ns", until_ns=pl.col("start_ns") + pl.col("wall_ns"))
    until, since = (
        intervals.covered_until(covered, windows.select(*_UNIT, at_ns=name), _UNIT) for name in ("until_ns", "start_ns")
    )
    whole = intervals.coverage(covered, _UNIT).rename({"covered_ns": "all_ns"})
    inside = pl.col("step").is_not_null()
    measured = rows.with_columns(work_ns=until - since).join(
        whole, on=_UNIT, how="left", nulls_equal=True, maintain_order="left"
    )  # fmt: skip
    in_steps = pl.col("work_ns").filter(inside).sum().over(_UNIT)
    outside = pl.col("all_ns").fill_null(0) - in_steps
    return measured.with_columns(work_ns=pl.when(inside).then("work_ns").otherwise(outside)).drop("all_ns")


def _calls(trace: Trace, found: Found, labels: pl.DataFrame) -> pl.DataFrame:
    """Kernels of communication with what is known of their collective."""
    kernels = labels.filter(pl.col("kind") == "kernel")
    names = kernels.filter(pl.col("class") == COMMUNICATION)["name"].unique()
    key = ["source", "correlation", "start_ns", "duration_ns"]
    told = trace.collectives.filter(pl.col("on_device")).select(*key, *_GROUP, *_WHAT, "sequence")
    told = told.unique(key, keep="first", maintain_order=True).with_columns(told=pl.lit(value=True))
    rows = trace.kernels.select(*_UNIT, "kind", "name", "stream", "external_id", *key[1:]).with_columns(
        step=found.of_kernel
    ).filter((pl.col("kind") == "kernel") & (pl.col("duration_ns") >= 0))  # fmt: skip
    rows = rows.join(told, on=key, how="left", nulls_equal=True, maintain_order="left")
    rows = rows.filter(pl.col("name").is_in(names.implode()) | pl.col("told").fill_null(value=False))
    rows = _by_host(rows, trace)
    texts = ("device", "name", "stream", *_GROUP[:3], *_WHAT[:2])
    rows = rows.with_columns(pl.col(name).cast(pl.String) for name in texts)
    return _with_groups_of_streams(rows).sort("source", "device", "start_ns", "duration_ns", nulls_last=True)


def _by_host(rows: pl.DataFrame, trace: Trace) -> pl.DataFrame:
    """What the host's own record of the collective tells, where the kernel has none."""
    key = ["source", "external_id"]
    host = trace.collectives.filter(~pl.col("on_device")).drop_nulls("external_id")
    host = host.select(*key, *(pl.col(name).alias(f"host_{name}") for name in (*_GROUP, *_WHAT, "sequence")))
    host = host.unique(key, keep="none").with_columns(host_told=pl.lit(value=True))
    joined = rows.join(host, on=key, how="left", maintain_order="left")
    without = pl.col("told").is_null() & pl.col("host_told")
    return joined.with_columns(
        *(pl.when(without).then(f"host_{name}").otherwise(name).alias(name) for name in (*_GROUP, *_WHAT, "sequence")),
        told=pl.coalesce("told", "host_told"),
    ).select(rows.columns)


def _with_groups_of_streams(rows: pl.DataFrame) -> pl.DataFrame:
    """A library keeps a stream for a group: what has no metadata on a stream of one group is that group's."""
    key = [*_UNIT, "stream"]
    known = rows.filter("told").select(*key, *_GROUP).unique()
    single = known.filter(pl.len().over(key) == 1)
    joined = rows.join(single, on=key, how="left", nulls_equal=True, maintain_order="left", suffix="_of_stream")
    filled = joined.with_columns(
        pl.when(pl.col("told").is_null()).then(f"{name}_of_stream").otherwise(name).alias(name) for name in _GROUP
    ).select(rows.columns)
    unknown = pl.all_horizontal(pl.col(_GROUP).is_null())
    first = filled.filter(unknown).group_by(key).agg(begun=pl.col("start_ns").min())
    order = first.with_columns(number=pl.col("begun").rank("ordinal").over(_UNIT).cast(pl.UInt32) - 1)
    numbered = filled.join(order.drop("begun"), on=key, how="left", nulls_equal=True, maintain_order="left")
    return numbered.with_columns(stream=pl.when(unknown).then("number")).drop("number", "told")


def _coded(rows: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    """Calls with small numbers for their group and kind, and what the numbers stand for."""
    groups = rows.select(*_GROUP, "stream").unique(maintain_order=True).with_row_index("group")
    kinds = rows.select(pl.col("name").alias("kernel"), *_WHAT).unique(maintain_order=True).with_row_index("kind")
    calls = rows.drop("kind").rename({"name": "kernel"}).join(
        groups, on=[*_GROUP, "stream"], how="left", nulls_equal=True, maintain_order="left"
    ).join(kinds, on=["kernel", *_WHAT], how="left", nulls_equal=True, maintain_order="left")  # fmt: skip
    return _as(calls, CALLS), _as(groups, GROUPS), _as(kinds, KINDS)


def _as(frame: pl.DataFrame, wanted: pl.Schema) -> pl.DataFrame:
    return frame.select(pl.col(name).cast(dtype) for name, dtype in wanted.items())
