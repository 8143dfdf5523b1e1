"""Durations that cannot be true, and overlaps that can."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from builders import Event, kernel, memcpy, trace
from hypothesis import given
from strategies import traces_of_ranks

from traceanalyzer.analyses import overview, trust
from traceanalyzer.analyses.impossible import clipped, impossible
from traceanalyzer.analyses.select import select
from traceanalyzer.analyses.top_kernels import top_kernels
from traceanalyzer.choices import By
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


@pytest.mark.parametrize("column", ["stream", "device"])
def test_an_unknown_stream_or_device_is_one_like_any_other(column: str) -> None:
    events = [kernel("long", at=0, dur=5000), kernel("a", at=12, dur=10), kernel("b", at=30, dur=10)]
    kernels = trace(events).kernels
    kernels = kernels.with_columns(pl.lit(None, kernels.schema[column]).alias(column))
    assert impossible(kernels)["clipped_ns"].to_list() == [12_000]
    assert clipped(kernels, impossible(kernels))["duration_ns"].to_list() == [12_000, 10_000, 10_000]


LATE_STAMP = [
    kernel("gemm", at=0, dur=9000),
    memcpy(at=20, dur=5),
    kernel("norm", at=40, dur=5),
    kernel("gemm", at=9100, dur=5),
]


def clipped_total(name: str, **options: Any) -> int:
    rows = top_kernels(trace(LATE_STAMP), **options)
    return int(
        rows.filter(pl.col("kernel" if options.get("by") != "class" else "group") == name)["clipped_total_ns"][0]
    )


@pytest.mark.parametrize("by", ["name", "short", "class"])
def test_clipped_totals_do_not_depend_on_grouping_and_filters(by: By) -> None:
    assert clipped_total("gemm", by=by) == 25_000
    assert clipped_total("gemm", by=by, filter="gemm") == 25_000
    assert clipped_total("gemm", by=by, classes="gemm") == 25_000
    assert clipped_total("norm", by=by, filter="norm") == 5_000


def test_a_stretch_knows_what_lies_around_it() -> None:
    whole = trace(LATE_STAMP)
    start = select(whole, between_ns=(0, 10_000))
    assert top_kernels(start).select("total_ns", "clipped_total_ns").rows() == [(9_000_000, 20_000)]
    for between in ((0, 10_000), (30_000, 50_000)):
        assert [note.code for note in trust.notes(select(whole, between_ns=between))] == ["impossible-duration"]
    after = select(whole, between_ns=(9_050_000, None))
    assert trust.notes(after) == []
    assert not overview.clipped_columns(overview.devices(after))
    assert "clipped_total_ns" not in top_kernels(after).columns


@given(traces_of_ranks())
def test_short_events_are_never_touched(drawn: Trace) -> None:
    assert impossible(drawn.kernels).is_empty()
    assert clipped(drawn.kernels, impossible(drawn.kernels)).equals(drawn.kernels)
