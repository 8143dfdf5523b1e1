"""Busy, idle and classes over time: a stretch cut into bins, and how much of each bin is what.

Bins serve a millisecond as well as minutes: close up a bin holds a part of one kernel, from far away many kernels.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from traceanalyzer.analyses import covers
from traceanalyzer.analyses.arguments import need_trace
from traceanalyzer.analyses.idle import CAUSES, idle_gaps
from traceanalyzer.analyses.labels import label
from traceanalyzer.analyses.steps import find_steps, steps
from traceanalyzer.analyses.stretch import need_whole
from traceanalyzer.classify.rules import CLASSES, RuleTable
from traceanalyzer.errors import UsageError
from traceanalyzer.trace import Trace

#: From and to in ns after the first device activity of each file; None: open.
Window = tuple[int | None, int | None]
_LANE = ["path", "device", "stream"]


@dataclass(frozen=True)
class Timeline:
    """What there is to draw. Times are ns after the first device activity of each file."""

    lanes: pl.DataFrame
    """`run`, `path`, `rank`, `device`, `stream` of each lane: null stream is the whole device."""
    bins: pl.DataFrame
    """`path`, `device`, `stream`, `bin`, `kind` (class or idle), `name` (of the class or cause), `covered_ns`."""
    kernels: pl.DataFrame
    """The longest activities of each lane of a device: `path`, `device`, `name`, `class`, `start_ns`, `end_ns`."""
    gaps: pl.DataFrame
    """Rows of `idle_gaps` that reach into the window."""
    steps: pl.DataFrame
    """Rows of `steps` that reach into the window."""
    start_ns: int
    end_ns: int
    count: int
    """How many bins."""


def timeline(
    trace: Trace,
    *,
    between_ns: Window = (None, None),
    step: int | None = None,
    bins: int = 1200,
    marker: str | None = None,
    rules: RuleTable | None = None,
) -> Timeline:
    """The timeline of all devices of a trace, or of a window of it: `between_ns`, or the time of a `step`.

    Raises `UsageError` where nothing is in the window, or there is no such step.
    """
    need_trace(trace, "timeline")
    need_whole(trace, "timeline")
    found = find_steps(trace, marker=marker)
    all_steps = steps(trace, found=found, rules=rules)
    gaps = idle_gaps(trace, found=found)
    activity = _activity(trace, rules)
    first, last = _window(activity, all_steps, between_ns, step)
    inside = (pl.col("start_ns") < last) & (pl.col("end_ns") > first)
    activity = activity.filter(inside)
    if activity.is_empty():
        raise UsageError(f"nothing runs between {first / 1e6:,.3f} and {last / 1e6:,.3f} ms")
    gaps = gaps.with_columns(end_ns=pl.col("start_ns") + pl.col("duration_ns")).filter(inside)
    edges = np.linspace(first, last, bins + 1).round().astype(np.int64)
    lanes = _lanes(activity)
    windows = all_steps.with_columns(end_ns=pl.col("start_ns") + pl.col("wall_ns")).drop_nulls("step")
    return Timeline(
        lanes=lanes,
        bins=pl.concat([_busy_bins(activity, lanes, edges), _idle_bins(gaps, edges)]),
        kernels=activity.select("path", "device", "name", "class", "start_ns", "end_ns"),
        gaps=gaps,
        steps=windows.filter(inside),
        start_ns=first,
        end_ns=last,
        count=bins,
    )


def _activity(trace: Trace, rules: RuleTable | None) -> pl.DataFrame:
    labels = label(trace.kernels.select("kind", "name"), rules).select("kind", "name", "class", "short_name")
    files = trace.ranks.select("source", "run", "path", "rank", "first_ns")
    rows = trace.kernels.filter(pl.col("duration_ns") >= 0).join(
        labels, on=["kind", "name"], how="left", nulls_equal=True
    )
    start = pl.col("start_ns") - pl.col("first_ns")
    return rows.join(files, on="source", how="left").select(
        "run", "path", "rank", pl.col("device", "stream").cast(pl.String),
        name=pl.coalesce("short_name", pl.col("name").cast(pl.String)), start_ns=start,
        end_ns=start + pl.col("duration_ns"), **{"class": pl.col("class").cast(pl.String)},
    )  # fmt: skip


def _window(activity: pl.DataFrame, all_steps: pl.DataFrame, between_ns: Window, step: int | None) -> tuple[int, int]:
    ends = activity["end_ns"].to_list()
    if not ends:
        raise UsageError("no device activity, so there is nothing to draw")
    first, last = 0, max(ends)
    if step is not None:
        rows = all_steps.filter(pl.col("step") == step)
        if rows.is_empty():
            numbers = all_steps["step"].drop_nulls().to_list()
            there = f"steps are 0 to {max(numbers)}" if numbers else "no steps were found"
            raise UsageError(f"no step {step}; {there}")
        first = min(rows["start_ns"].to_list())
        last = max((rows["start_ns"] + rows["wall_ns"]).to_list())
    lower, upper = between_ns
    first, last = max(first, lower or 0), min(last, upper) if upper is not None else last
    return first, max(last, first + 1)


def _lanes(activity: pl.DataFrame) -> pl.DataFrame:
    """A lane for each device, and below it one for each of its streams where it has several."""
    key = ["run", "path", "rank", "device"]
    streams = activity.group_by(*key, "stream").agg(busy=(pl.col("end_ns") - pl.col("start_ns")).sum())
    several = streams.filter(pl.len().over(key) > 1)
    devices = streams.select(key).unique().with_columns(stream=pl.lit(None, pl.String), busy=pl.lit(None, pl.Int64))
    lanes = pl.concat([devices, several.select(devices.columns)])
    return lanes.sort(*key, pl.col("stream").is_not_null(), "busy", "stream", descending=[False] * 5 + [True, False])


def _busy_bins(activity: pl.DataFrame, lanes: pl.DataFrame, edges: np.ndarray) -> pl.DataFrame:
    """How much of each bin each class covers, on each lane; where classes overlap, scaled to fit the busy time."""
    whole = activity.with_columns(stream=pl.lit(None, pl.String))
    streams = activity.join(lanes.drop_nulls("stream").select(_LANE), on=_LANE, how="semi", nulls_equal=True)
    rows = pl.concat([whole, streams])
    by_class = _binned(rows, [*_LANE, "class"], edges)
    busy = _binned(rows, _LANE, edges).rename({"covered_ns": "busy_ns"})
    joined = by_class.join(busy, on=[*_LANE, "bin"], how="left", nulls_equal=True)
    total = pl.col("covered_ns").sum().over([*_LANE, "bin"])
    return joined.select(
        *_LANE, "bin", kind=pl.lit("class"), name="class",
        covered_ns=pl.col("covered_ns") * pl.min_horizontal(1.0, pl.col("busy_ns") / total),
    )  # fmt: skip


def _idle_bins(gaps: pl.DataFrame, edges: np.ndarray) -> pl.DataFrame:
    """How much of each bin gaps of each cause cover; a gap is drawn in the colour of its largest cause."""
    rows = gaps.select("path", "device", "start_ns", "end_ns", "cause", stream=pl.lit(None, pl.String))
    binned = _binned(rows, [*_LANE, "cause"], edges)
    return binned.select(
        *_LANE, "bin", kind=pl.lit("idle"), name="cause", covered_ns=pl.col("covered_ns").cast(pl.Float64)
    )


def _binned(rows: pl.DataFrame, key: list[str], edges: np.ndarray) -> pl.DataFrame:
    """`bin`, `covered_ns` of each group of intervals, bins that nothing covers left out."""
    groups = rows.select(key).unique()
    at = groups.join(pl.DataFrame({"bin": np.arange(len(edges)), "at_ns": edges}), how="cross")
    covered = at.with_columns(covers.covered_until(rows, at, key)).sort(*key, "bin")
    ahead = pl.col("covered_ns").shift(-1) - pl.col("covered_ns")
    return (
        covered.with_columns(covered_ns=ahead)
        .filter((pl.col("bin") < len(edges) - 1) & (pl.col("covered_ns") > 0))
        .drop("at_ns")
    )


ORDER = (*CLASSES, *CAUSES)
"""Names in the order in which they are stacked."""
