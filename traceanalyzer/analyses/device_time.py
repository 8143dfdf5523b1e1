"""How long each device was at work: span, busy and idle per source and device."""

from __future__ import annotations

import polars as pl

from traceanalyzer.analyses import intervals
from traceanalyzer.analyses.stretch import Stretch
from traceanalyzer.errors import UsageError
from traceanalyzer.trace import Trace

#: One device of one file; every figure of time is computed for it and then, at most, summed.
DEVICE_KEYS = ("source", "device")
_START, _END = pl.col("start_ns"), pl.col("start_ns") + pl.col("duration_ns")


def device_time(activity: Trace | pl.DataFrame, *, windows: pl.DataFrame | None = None) -> pl.DataFrame:
    """One row per (source, device) with activity: `span_ns`, `busy_ns`, `idle_ns` and what they rest on.

    Takes a trace or its `kernels`. busy is the length of the union of device activity (kernels, copies, sets) over
    all streams of the device; span is its last end minus its first start; idle is span minus busy. Time before the
    first and after the last activity is in none of them. A negative duration adds no time and sets no window.

    `windows` (`source`, `from_ns`, `until_ns`) narrows all figures to one stretch of time per source; a trace that
    was narrowed with `select(between_ns=...)` brings its own. span is then the part of the stretch between the first
    start and the last end of the device, busy what activity covers of it, whether it starts there or runs into it;
    `events` and `streams` are of the activity that starts there. Stretches that tile a trace add up to it.
    """
    if isinstance(activity, Trace):
        windows = activity.windows if isinstance(activity, Stretch) else windows
        activity = all_activity(activity)
    if not isinstance(activity, pl.DataFrame):
        raise UsageError("device_time takes a Trace, as read(PATH) gives it, or its kernels")
    valid = activity.filter(pl.col("duration_ns") >= 0)
    inside = pl.lit(value=True)
    if windows is not None:
        valid = valid.join(windows, on="source")
        inside = (pl.col("from_ns") <= _START) & (pl.col("until_ns") > _START)
    facts = valid.group_by(DEVICE_KEYS).agg(
        pl.col("rank").first(),
        events=inside.sum().cast(pl.Int64) if windows is not None else pl.len().cast(pl.Int64),
        streams=pl.col("stream").filter(inside).n_unique().cast(pl.Int64),
        first_ns=_START.min(),
        last_ns=_END.max(),
    )
    if windows is not None:
        valid, facts = _within(valid), _cut(facts, windows)
    busy = intervals.coverage(intervals.of_events(valid, DEVICE_KEYS), DEVICE_KEYS)
    return (
        facts.join(busy, on=DEVICE_KEYS, how="left", nulls_equal=True)
        .with_columns(span_ns=pl.col("last_ns") - pl.col("first_ns"), busy_ns=pl.col("covered_ns").fill_null(0))
        .with_columns(idle_ns=pl.col("span_ns") - pl.col("busy_ns"))
        .select(
            "source", "rank", "device", "events", "streams",
            "first_ns", "last_ns", "span_ns", "busy_ns", "idle_ns",
        )
        .sort(DEVICE_KEYS)
    )  # fmt: skip


def all_activity(trace: Trace) -> pl.DataFrame:
    """The activity that times rest on: of a stretch of time also what runs into it, and what lies around it."""
    return trace.activity if isinstance(trace, Stretch) else trace.kernels


def _within(valid: pl.DataFrame) -> pl.DataFrame:
    """The parts of the activity that lie in its window."""
    start, end = pl.max_horizontal(_START, "from_ns"), pl.min_horizontal(_END, "until_ns")
    return valid.with_columns(start_ns=start, duration_ns=end - start).filter(pl.col("duration_ns") >= 0)


def _cut(facts: pl.DataFrame, windows: pl.DataFrame) -> pl.DataFrame:
    """First and last activity of each device cut to its window; both the same where they lie outside of it."""
    first, last, start, end = (pl.col(name) for name in ("first_ns", "last_ns", "from_ns", "until_ns"))
    return (
        facts.join(windows, on="source")
        .with_columns(first_ns=pl.max_horizontal(first, pl.min_horizontal(start, last)))
        .with_columns(last_ns=pl.max_horizontal(first, pl.min_horizontal(last, end)))
    )
