"""How long each device was at work: span, busy and idle per source and device."""

from __future__ import annotations

import polars as pl

from traceanalyzer.analyses import intervals

#: One device of one file; every figure of time is computed for it and then, at most, summed.
DEVICE_KEYS = ("source", "device")


def device_time(kernels: pl.DataFrame) -> pl.DataFrame:
    """One row per (source, device) with activity: `span_ns`, `busy_ns`, `idle_ns` and what they rest on.

    busy is the length of the union of device activity (kernels, copies, sets) over all streams of the device;
    span is its last end minus its first start; idle is span minus busy. Time before the first and after the
    last activity is in none of them. A negative duration adds no time and sets no window.
    """
    activity = kernels.filter(pl.col("duration_ns") >= 0)
    facts = activity.group_by(DEVICE_KEYS).agg(
        pl.col("rank").first(),
        events=pl.len().cast(pl.Int64),
        streams=pl.col("stream").n_unique().cast(pl.Int64),
        first_ns=pl.col("start_ns").min(),
        last_ns=(pl.col("start_ns") + pl.col("duration_ns")).max(),
    )
    busy = intervals.coverage(intervals.of_events(activity, DEVICE_KEYS), DEVICE_KEYS)
    return (
        facts.join(busy, on=DEVICE_KEYS, nulls_equal=True)
        .with_columns(span_ns=pl.col("last_ns") - pl.col("first_ns"), busy_ns=pl.col("covered_ns"))
        .with_columns(idle_ns=pl.col("span_ns") - pl.col("busy_ns"))
        .select(
            "source", "rank", "device", "events", "streams",
            "first_ns", "last_ns", "span_ns", "busy_ns", "idle_ns",
        )
        .sort(DEVICE_KEYS)
    )  # fmt: skip
