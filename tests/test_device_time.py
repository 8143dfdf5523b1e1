"""Span, busy and idle of a device."""

from __future__ import annotations

from typing import Any

import polars as pl
from builders import Event, kernel, memcpy, trace, traces
from hypothesis import given
from polars.testing import assert_frame_equal
from strategies import traces_of_ranks

from traceanalyzer.analyses.device_time import device_time
from traceanalyzer.trace import Trace


def times(*events: Event) -> list[tuple[Any, ...]]:
    """(device, span, busy, idle) of each device, in ns."""
    return device_time(trace(events).kernels).select("device", "span_ns", "busy_ns", "idle_ns").rows()


def test_busy_is_a_union_over_streams_not_a_sum() -> None:
    overlapping = kernel("a", at=0, dur=20, stream=7), kernel("b", at=10, dur=20, stream=8)
    assert times(*overlapping) == [("0", 30_000, 30_000, 0)]


def test_idle_is_the_time_between_first_start_and_last_end_that_nothing_covers() -> None:
    assert times(kernel("a", at=100, dur=10), kernel("b", at=130, dur=20)) == [("0", 50_000, 30_000, 20_000)]


def test_copies_are_activity() -> None:
    assert times(kernel("a", at=0, dur=10), memcpy(at=10, dur=5)) == [("0", 15_000, 15_000, 0)]


def test_devices_of_one_file_are_apart() -> None:
    both = kernel("a", at=0, dur=10, device=0), kernel("a", at=50, dur=5, device=1)
    assert times(*both) == [("0", 10_000, 10_000, 0), ("1", 5_000, 5_000, 0)]


def test_the_same_device_number_in_two_files_is_two_devices() -> None:
    two = traces(trace([kernel("a", at=0, dur=10)], rank=0), trace([kernel("a", at=5, dur=10)], rank=1))
    assert device_time(two.kernels).select("source", "rank", "busy_ns").rows() == [
        (0, 0, 10_000),
        (1, 1, 10_000),
    ]


def test_a_kernel_of_no_length_widens_the_span_and_is_not_busy() -> None:
    assert times(kernel("a", at=0, dur=10), kernel("b", at=15, dur=0)) == [("0", 15_000, 10_000, 5_000)]


def test_a_negative_duration_adds_nothing_and_sets_no_window() -> None:
    assert times(kernel("a", at=10, dur=10), kernel("b", at=0, dur=-5)) == [("0", 10_000, 10_000, 0)]


def test_absolute_times_are_exact() -> None:
    base = 1_767_225_605_123_456_789
    one = device_time(trace([kernel("a", at=0.001, dur=0.002)], base_ns=base).kernels)
    assert one.select("first_ns", "last_ns", "busy_ns").rows() == [(base + 1, base + 3, 2)]


def test_no_activity_gives_no_rows_and_all_columns() -> None:
    none = device_time(Trace.empty().kernels)
    assert none.is_empty()
    assert {"source", "device", "span_ns", "busy_ns", "idle_ns"} <= set(none.columns)


@given(traces_of_ranks())
def test_busy_and_idle_make_up_the_span(drawn: Trace) -> None:
    found = device_time(drawn.kernels)
    assert found.filter(pl.col("busy_ns") + pl.col("idle_ns") != pl.col("span_ns")).is_empty()
    assert found.filter((pl.col("busy_ns") < 0) | (pl.col("busy_ns") > pl.col("span_ns"))).is_empty()


@given(traces_of_ranks())
def test_one_rank_at_a_time_gives_the_same(drawn: Trace) -> None:
    sources = drawn.ranks["source"].to_list()
    apart = [device_time(drawn.kernels.filter(pl.col("source") == source)) for source in sources]
    assert_frame_equal(device_time(drawn.kernels), pl.concat(apart))
