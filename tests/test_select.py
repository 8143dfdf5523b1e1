"""Narrowing a trace, and what is said about things that are not there."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from builders import kernel, op, trace, traces
from hypothesis import assume, given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal
from strategies import traces_of_ranks

from traceanalyzer.analyses import overview
from traceanalyzer.analyses.device_time import device_time
from traceanalyzer.analyses.select import select
from traceanalyzer.errors import UsageError
from traceanalyzer.trace import Trace


def two_runs() -> Trace:
    return traces(
        trace([kernel("a", at=100, dur=10), op("aten::mm", at=90, dur=5)], rank=0, run="first-DECODE"),
        trace([kernel("b", at=500, dur=10, stream=20)], rank=1, run="first-DECODE"),
        trace([kernel("c", at=0, dur=10, device=1)], rank=0, run="second-EXTEND"),
    )


def names(trace: Trace) -> list[str]:
    return [str(name) for name in trace.kernels["name"]]


def test_nothing_asked_for_leaves_everything() -> None:
    assert names(select(two_runs())) == ["a", "b", "c"]


def test_rank_narrows_every_table() -> None:
    rank1 = select(two_runs(), ranks=[1])
    assert names(rank1) == ["b"]
    assert rank1.ops.is_empty()
    assert rank1.used["path"].to_list() == ["first-DECODE/rank1.json"]


def test_ranks_that_were_not_asked_for_are_not_missing() -> None:
    both = traces(*(trace([kernel("k", at=0, dur=1)], rank=rank, world_size=3) for rank in (0, 1)))
    found = overview.runs(select(both, ranks=[0])).row(0, named=True)
    assert (found["ranks"], found["ranks_missing"], found["files"]) == ([0], [2], 1)
    assert overview.files(select(both, ranks=[0]))["rank"].to_list() == [0]


def test_runs_are_names_or_patterns() -> None:
    assert names(select(two_runs(), runs=["second-EXTEND"])) == ["c"]
    assert names(select(two_runs(), runs=["*-DECODE"])) == ["a", "b"]


def test_devices_and_streams_leave_the_host_side_whole() -> None:
    assert names(select(two_runs(), devices=["1"])) == ["c"]
    narrowed = select(two_runs(), streams=["20"])
    assert names(narrowed) == ["b"]
    assert narrowed.ops.height == 1


def test_between_counts_from_the_first_activity_of_each_file_by_start() -> None:
    events = [kernel("a", at=1000, dur=10), kernel("b", at=1005, dur=10), kernel("c", at=1010, dur=1)]
    assert names(select(trace(events), between_ns=(5_000, 10_000))) == ["b"]
    assert names(select(trace(events), between_ns=(None, 10_000))) == ["a", "b"]
    assert names(select(trace(events), between_ns=(10_000, None))) == ["c"]


@given(traces_of_ranks(), st.data())
def test_stretches_that_tile_a_trace_add_up_to_it(drawn: Trace, data: st.DataObject) -> None:
    longest = max((drawn.ranks["last_ns"] - drawn.ranks["first_ns"]).drop_nulls().to_list(), default=0)
    assume(longest > 1)
    cut = data.draw(st.integers(1, longest - 1))
    before, after = select(drawn, between_ns=(None, cut)), select(drawn, between_ns=(cut, None))
    whole = device_time(drawn).select("source", "device", "span_ns", "busy_ns", "idle_ns")
    both = [device_time(part) for part in (before, after)]
    summed = pl.concat(both).group_by("source", "device").agg(pl.col("span_ns", "busy_ns", "idle_ns").sum())
    assert_frame_equal(whole, summed.sort("source", "device"))
    assert all(part.filter(pl.col("busy_ns") > pl.col("span_ns")).is_empty() for part in both)
    assert pl.concat(map(overview.runs, (before, after)))["busy_ns"].sum() == whole["busy_ns"].sum()
    total = pl.col("duration_ns").sum()
    parts = before.kernels.select(total).item() + after.kernels.select(total).item()
    assert parts == drawn.kernels.select(total).item()
    assert before.kernels.height + after.kernels.height == drawn.kernels.height


def times(trace: Trace) -> list[tuple[int, ...]]:
    return device_time(trace).select("events", "span_ns", "busy_ns", "idle_ns").rows()


def test_times_of_a_stretch_are_of_what_lies_in_it() -> None:
    one = trace([kernel("a", at=0, dur=10), kernel("b", at=20, dur=10), kernel("c", at=90, dur=10)])
    assert times(select(one, between_ns=(5_000, 25_000))) == [(1, 20_000, 10_000, 10_000)]
    assert times(select(one, between_ns=(-5_000, 5_000))) == [(1, 5_000, 5_000, 0)]
    assert times(select(one, between_ns=(95_000, 900_000))) == [(0, 5_000, 5_000, 0)]
    empty = select(one, between_ns=(40_000, 60_000))
    assert (names(empty), times(empty)) == ([], [(0, 20_000, 0, 20_000)])


def test_a_stretch_stays_one_when_it_is_narrowed_further() -> None:
    one = trace([kernel("a", at=0, dur=30), kernel("b", at=10, dur=30, stream=20), kernel("c", at=50, dur=10)])
    stretch = select(one, between_ns=(5_000, 45_000))
    assert times(select(stretch, streams=20)) == [(1, 30_000, 30_000, 0)]
    assert times(select(stretch, ranks=0)) == times(stretch)
    assert times(select(stretch, between_ns=(20_000, None))) == [(0, 25_000, 20_000, 5_000)]
    assert times(stretch.replace(ops=stretch.ops)) == times(stretch)
    assert times(stretch.replace(kernels=stretch.kernels)) == [(1, 30_000, 30_000, 0)]


def test_durations_that_cannot_be_are_found_although_the_stretch_ends_first() -> None:
    late = trace([kernel("k", at=0, dur=9000), *(kernel("k", at=at, dur=5) for at in (20, 40, 9100))])
    found = overview.devices(select(late, between_ns=(0, 10_000))).row(0, named=True)
    assert (found["busy_ns"], found["clipped_busy_ns"]) == (10_000, 10_000)
    found = overview.devices(select(late, between_ns=(30_000, 50_000))).row(0, named=True)
    assert (found["busy_ns"], found["clipped_busy_ns"], found["clipped_idle_ns"]) == (20_000, 5_000, 15_000)


def test_a_stretch_outside_of_the_trace_is_wrong_use() -> None:
    one = trace([kernel("a", at=100, dur=61_900)])
    for outside in ((61_900_000, None), (70_000_000, 80_000_000), (None, 0)):
        with pytest.raises(UsageError, match=r"the trace ends at 61\.9 ms"):
            select(one, between_ns=outside)
    two = traces(one, trace([kernel("b", at=0, dur=1)], rank=1))
    assert times(select(two, between_ns=(50_000, None))) == [(0, 61_850_000, 61_850_000, 0), (0, 0, 0, 0)]
    assert names(select(Trace.empty(), between_ns=(5, 10))) == []


def test_one_value_stands_for_itself_and_labels_may_be_numbers() -> None:
    same: Any
    for same in (1, "1", [1], ("1",), {1}):
        assert names(select(two_runs(), ranks=same)) == ["b"]
        assert names(select(two_runs(), devices=same)) == ["c"]
    assert names(select(two_runs(), runs="*-DECODE", streams=20)) == ["b"]
    assert names(select(two_runs(), streams=["7", "20"])) == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"ranks": [0, 9]}, "no rank 9 in these files; ranks: 0-1"),
        ({"runs": ["first-DECOD"]}, "no run 'first-DECOD' in these files; did you mean 'first-DECODE'?"),
        ({"runs": ["zzz"]}, "no run 'zzz' in these files; there is first-DECODE, second-EXTEND"),
        ({"streams": ["3"]}, "no stream 3 in these files; streams: 7, 20"),
        ({"devices": ["7"]}, "no device 7 in these files; devices: 0, 1"),
        ({"devices": "01"}, "no device 01 in these files; devices: 0, 1"),
        ({"ranks": "first"}, "ranks: 'first' is no whole number"),
        ({"streams": [7.0]}, "streams: 7.0 is neither text nor a whole number"),
        ({"runs": True}, "runs: True is neither text nor a whole number"),
        ({"ranks": None}, "ranks: None is neither text nor a whole number"),
        ({"between_ns": (10_000_000, 5)}, "a stretch between 10 ms and 0.000005 ms ends before it begins"),
        ({"between_ns": (5,)}, "between_ns: (5,) is no pair of whole ns such as (0, 5_000_000); None is an open end"),
        (
            {"between_ns": "5..9"},
            "between_ns: '5..9' is no pair of whole ns such as (0, 5_000_000); None is an open end",
        ),
    ],
)
def test_what_is_not_there_is_said_with_what_is(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        select(two_runs(), **wrong)
    assert str(caught.value) == message
