"""Narrowing a trace, and what is said about things that are not there."""

from __future__ import annotations

import polars as pl
import pytest
from builders import kernel, op, trace, traces
from hypothesis import given
from hypothesis import strategies as st
from strategies import traces_of_ranks

from traceanalyzer.analyses import overview
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


@given(traces_of_ranks(), st.integers(0, 60_000))
def test_stretches_that_tile_a_trace_add_up_to_it(drawn: Trace, cut: int) -> None:
    before, after = select(drawn, between_ns=(None, cut)), select(drawn, between_ns=(cut, None))
    total = pl.col("duration_ns").sum()
    parts = before.kernels.select(total).item() + after.kernels.select(total).item()
    assert parts == drawn.kernels.select(total).item()
    assert before.kernels.height + after.kernels.height == drawn.kernels.height


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"ranks": [0, 9]}, "no rank 9 in these files; ranks: 0-1"),
        ({"runs": ["first-DECOD"]}, "no run 'first-DECOD' in these files; did you mean 'first-DECODE'?"),
        ({"runs": ["zzz"]}, "no run 'zzz' in these files; there is first-DECODE, second-EXTEND"),
        ({"streams": ["3"]}, "no stream 3 in these files; streams: 7, 20"),
        ({"devices": ["7"]}, "no device 7 in these files; devices: 0, 1"),
    ],
)
def test_what_is_not_there_is_said_with_what_is(wrong: dict[str, list[str]], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        select(two_runs(), **wrong)  # type: ignore[arg-type]
    assert str(caught.value) == message
