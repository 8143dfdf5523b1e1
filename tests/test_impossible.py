"""Durations that cannot be true, and overlaps that can."""

from __future__ import annotations

import polars as pl
from builders import Event, kernel, trace
from hypothesis import given
from strategies import traces_of_ranks

from traceanalyzer.analyses.impossible import clipped, impossible
from traceanalyzer.trace import Trace


def found(*events: Event) -> list[tuple[str, int, int]]:
    """(name, clipped, overrun) of the events that cannot be, in µs."""
    us = pl.col("clipped_ns", "overrun_ns") // 1000
    return impossible(trace(events).kernels).select(pl.col("name").cast(pl.String), us).rows()


def test_an_event_that_runs_past_two_later_ones_by_over_a_millisecond_is_impossible() -> None:
    events = [kernel("long", at=0, dur=5000), kernel("a", at=12, dur=10), kernel("b", at=30, dur=10)]
    assert found(*events) == [("long", 12, 4988)]


def test_running_past_one_later_event_is_no_proof() -> None:
    assert found(kernel("long", at=0, dur=5000), kernel("a", at=12, dur=10)) == []


def test_a_small_overrun_is_an_overlap_of_dependent_launches() -> None:
    assert found(kernel("k", at=0, dur=1020), kernel("a", at=10, dur=1), kernel("b", at=20, dur=1)) == []
    assert found(kernel("k", at=0, dur=1021), kernel("a", at=10, dur=1), kernel("b", at=20, dur=1)) != []


def test_other_streams_do_not_matter() -> None:
    others = [kernel("a", at=at, dur=1, stream=8) for at in (10, 20, 30)]
    assert found(kernel("long", at=0, dur=5000, stream=7), *others) == []


def test_events_that_start_together_are_not_later() -> None:
    assert found(*(kernel(name, at=0, dur=5000) for name in "abc")) == []
    together = [kernel("a", at=12, dur=10), kernel("b", at=12, dur=10)]
    assert found(kernel("long", at=0, dur=5000), *together) == [("long", 12, 4988)]


def test_only_the_impossible_are_clipped_and_rows_stay_in_place() -> None:
    events = [kernel("a", at=12, dur=10), kernel("long", at=0, dur=5000), kernel("b", at=30, dur=10)]
    kernels = trace(events).kernels
    assert clipped(kernels, impossible(kernels))["duration_ns"].to_list() == [10_000, 12_000, 10_000]


@given(traces_of_ranks())
def test_short_events_are_never_touched(drawn: Trace) -> None:
    assert impossible(drawn.kernels).is_empty()
    assert clipped(drawn.kernels, impossible(drawn.kernels)).equals(drawn.kernels)
