"""What one device of one file adds to the comparison of ranks: small, whatever the size of the file.

A part is made from one file alone, on any machine; the reduction puts the parts of all files together. It holds sums by
step and class, and one row per collective; no event is in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from traceanalyzer.analyses import intervals, overview
from traceanalyzer.analyses.covers import covered_within
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
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class ProcessGroup:
    """A group of ranks, as calls name it. Where no metadata tells, all is None but `stream`: the number of the stream
    among those of communication without metadata."""

    process_group: str | None
    group_description: str | None
    group_ranks: str | None
    group_size: int | None
    stream: int | None = None


@dataclass(frozen=True)
class Kind:
    """What a call does: a kernel and, where recorded, what it was given."""

    kernel: str
    collective: str | None
    element_type: str | None
    in_elements: int | None
    out_elements: int | None


@dataclass(frozen=True)
class CallRows:
    """Kernels of communication, in order of their start: arrays of one length."""

    group: npt.NDArray[np.uint32]
    """Places in `RankPart.groups`."""
    kind: npt.NDArray[np.uint32]
    """Places in `RankPart.kinds`."""
    start_ns: Ints
    duration_ns: Ints
    step: npt.NDArray[np.int32]
    """-1: in none."""
    sequence: Ints | None
    """Recorded numbers, -1 where there is none; None where there are none at all."""

    def of_group(self, group: int) -> CallRows:
        """Those of one group."""
        own = self.group == group
        return self.where(own)

    def where(self, own: npt.NDArray[np.bool_]) -> CallRows:
        """The chosen ones."""
        sequence = None if self.sequence is None else self.sequence[own]
        return CallRows(
            self.group[own], self.kind[own], self.start_ns[own], self.duration_ns[own], self.step[own], sequence
        )


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
    calls: CallRows
    groups: tuple[ProcessGroup, ...]
    kinds: tuple[Kind, ...]


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
    windows = rows.select(*_UNIT, "start_ns", end_ns=pl.col("start_ns") + pl.col("wall_ns"))
    within = covered_within(covered, windows, _UNIT)
    whole = intervals.coverage(covered, _UNIT).rename({"covered_ns": "all_ns"})
    inside = pl.col("step").is_not_null()
    measured = rows.with_columns(work_ns=within).join(
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


def _coded(rows: pl.DataFrame) -> tuple[CallRows, tuple[ProcessGroup, ...], tuple[Kind, ...]]:
    """Calls with small numbers for their group and kind, and what the numbers stand for."""
    of_group = (*_GROUP, "stream")
    groups = rows.select(of_group).unique(maintain_order=True).with_row_index("group")
    named = rows.drop("kind").rename({"name": "kernel"})
    kinds = named.select("kernel", *_WHAT).unique(maintain_order=True).with_row_index("kind")
    calls = named.join(groups, on=of_group, how="left", nulls_equal=True, maintain_order="left").join(
        kinds, on=["kernel", *_WHAT], how="left", nulls_equal=True, maintain_order="left"
    )  # fmt: skip
    numbers = calls["sequence"]
    return (
        CallRows(
            calls["group"].cast(pl.UInt32).to_numpy(), calls["kind"].cast(pl.UInt32).to_numpy(),
            calls["start_ns"].to_numpy(), calls["duration_ns"].to_numpy(),
            calls["step"].cast(pl.Int32).fill_null(-1).to_numpy(),
            None if numbers.null_count() == len(numbers) else numbers.fill_null(-1).to_numpy(),
        ),
        tuple(ProcessGroup(*row) for row in groups.drop("group").iter_rows()),
        tuple(Kind(kernel or "", *row) for kernel, *row in kinds.drop("kind").iter_rows()),
    )  # fmt: skip
