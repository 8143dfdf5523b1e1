"""Idle gaps: pieces by cause that sum to the idle time, and what the host was busy with."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from builders import Event, annotation, kernel, launch, memcpy, op, python_call, trace, traces, write_trace
from hypothesis import given
from hypothesis import strategies as st
from shared import CASES, CORPUS, corpus_folders, needs_cases, needs_corpus
from strategies import linked_ranks, traces_of_ranks
from test_plots import texts

import traceanalyzer as ta
from traceanalyzer import cli
from traceanalyzer.analyses import covers
from traceanalyzer.analyses.device_time import device_time
from traceanalyzer.analyses.idle import (
    CAUSES,
    by_cause,
    by_host,
    by_length,
    by_place,
    gaps_and_host,
    idle_doubts,
    idle_gaps,
)
from traceanalyzer.analyses.idle.host import lowest_holders
from traceanalyzer.analyses.trust import record_notes
from traceanalyzer.plots.idle import draw
from traceanalyzer.trace import Trace

CAUSE_COLUMNS = [f"{cause}_ns" for cause in CAUSES]
SAMPLES = Path(__file__).parent.parent / "sample_traces"


def overhead(at: float, dur: float) -> Event:
    return {**op("Activity Buffer Request", at=at, dur=dur, pid=-1, tid=0), "cat": "overhead"}


def gap(*events: Event, call: Event | None = None) -> dict[str, Any]:
    """The one gap, 100 to 600 us, between two kernels; the second is launched by `call`."""
    call = call or launch(at=590, dur=5, correlation=1)
    around = [kernel("a", at=0, dur=100), kernel("b", at=600, dur=10, correlation=1), call]
    (row,) = idle_gaps(trace([*around, *events])).to_dicts()
    assert row["duration_ns"] == sum(row[f"{cause}_ns"] for cause in CAUSES) == 500_000
    assert (row["previous_kernel"], row["next_kernel"], row["start_ns"]) == ("a", "b", 100_000)
    return row


def us(row: dict[str, Any]) -> dict[str, float]:
    """The pieces in us, without those that are nothing."""
    return {cause: row[f"{cause}_ns"] / 1000 for cause in CAUSES if row[f"{cause}_ns"]}


def test_code_of_its_own_is_host_busy_and_named() -> None:
    row = gap(annotation("build_mask", at=150, dur=430))
    assert us(row) == {"host_busy": 490, "launch_bound": 5, "queued": 5}
    assert (row["cause"], row["host_op"], row["host_share"]) == ("host_busy", "build_mask", 430 / 490)


def test_the_innermost_range_is_named_and_markers_of_steps_are_not() -> None:
    marker = annotation("ProfilerStep#1", at=0, dur=900)
    assert gap(marker, op("aten::tolist", at=110, dur=400))["host_op"] == "aten::tolist"
    assert gap(marker, annotation("outer", at=100, dur=480), annotation("inner", at=200, dur=300))["host_op"] == "inner"


def test_what_holds_less_than_half_is_not_named() -> None:
    row = gap(annotation("short", at=150, dur=200))
    assert (row["host_op"], row["host_share"]) == (None, None)


def test_waiting_and_launching_anew_is_sync() -> None:
    """The host waits until 570, and needs 20 us for the next launch."""
    row = gap(launch("cudaStreamSynchronize", at=50, dur=520))
    assert us(row) == {"sync": 490, "launch_bound": 5, "queued": 5}


def test_long_work_after_a_wait_is_work() -> None:
    row = gap(launch("cudaStreamSynchronize", at=50, dur=60), annotation("build", at=115, dur=470))
    assert us(row) == {"host_busy": 480, "sync": 10, "launch_bound": 5, "queued": 5}
    assert row["host_op"] == "build"


def test_launching_all_the_time_is_launch_bound() -> None:
    calls = [launch("cudaEventRecord", at=90 + 40 * i, dur=38) for i in range(13)]
    row = gap(*calls)
    assert us(row) == {"launch_bound": 495, "queued": 5}


def test_getting_memory_is_a_cause_of_its_own_and_the_call_is_named() -> None:
    row = gap(launch("hipFree", at=105, dur=470))
    assert us(row) == {"launch_bound": 25, "queued": 5, "allocation": 470}
    assert (row["cause"], row["host_op"]) == ("allocation", "hipFree")


def test_a_copy_to_memory_that_is_not_pinned_is_a_wait() -> None:
    copy = memcpy("Memcpy DtoH (Device -> Pageable)", at=0, dur=90, stream=9, correlation=7)
    call = launch("cudaMemcpyAsync", at=-5, dur=580, correlation=7)
    assert us(gap(copy, call)) == {"sync": 490, "launch_bound": 5, "queued": 5}


def test_what_was_launched_in_time_is_queued() -> None:
    assert us(gap(call=launch(at=20, dur=5, correlation=1))) == {"queued": 500}


def test_the_launch_of_a_graph_is_a_cause_of_its_own() -> None:
    row = gap(call=launch("cudaGraphLaunch", at=80, dur=450, correlation=1))
    assert us(row) == {"queued": 70, "graph_launch": 430}
    assert row["cause"] == "graph_launch"


def test_work_of_the_profiler_is_taken_out_of_all_others() -> None:
    assert us(gap(overhead(200, 300), call=launch(at=110, dur=480, correlation=1))) == {
        "launch_bound": 190, "queued": 10, "profiler": 300,
    }  # fmt: skip
    row = gap(overhead(200, 300), annotation("build", at=100, dur=490))
    assert us(row) == {"host_busy": 190, "launch_bound": 5, "queued": 5, "profiler": 300}


def test_waiting_for_ranks_is_a_cause_of_its_own() -> None:
    row = gap(op("c10d::ProcessGroup.wait", at=100, dur=470))
    assert us(row) == {"launch_bound": 25, "queued": 5, "comm_wait": 470}


def test_without_a_launch_nothing_is_known() -> None:
    row = gap(call=launch(at=590, dur=5, correlation=77))
    assert us(row) == {"unknown": 500}


def test_a_clock_that_differs_makes_no_negative_piece() -> None:
    assert us(gap(call=launch(at=700, dur=5, correlation=1))) == {"host_busy": 500}


def test_causes_and_hosts_are_summed_by_run() -> None:
    gaps = gaps_and_host(trace([
        kernel("a", at=0, dur=100), kernel("b", at=600, dur=10, correlation=1), launch(at=590, dur=5, correlation=1),
        annotation("build", at=150, dur=430),
    ]))  # fmt: skip
    assert by_cause(gaps.rows).rows() == [
        ("run", "host_busy", 1, 490_000, 0.98), ("run", "launch_bound", 1, 5_000, 0.01),
        ("run", "queued", 1, 5_000, 0.01),
    ]  # fmt: skip
    assert by_host(gaps).rows() == [("run", "build", 1, 430_000), ("run", None, 1, 60_000)]


def test_a_gap_is_named_by_what_its_largest_cause_was() -> None:
    """60 us of an operator in a gap of which cudaMalloc takes 400: not the operator is the culprit."""
    row = gap(op("aten::bmm", at=100, dur=60), launch("cudaMalloc", at=170, dur=400, correlation=7))
    assert row["cause"] == "allocation"
    assert (row["host_op"], row["host_busy_ns"] > 0) == ("cudaMalloc", True)


def test_what_lies_outside_of_a_stretch_is_not_lost() -> None:
    events = [kernel("k", at=10 * i, dur=4, correlation=i + 1) for i in range(50)]
    recorded = trace([*events, *(launch(at=10 * i - 3, dur=1, correlation=i + 1) for i in range(50))])
    part = ta.select(recorded, between_ns=(100_000, 200_000))
    assert idle_doubts(part, idle_gaps(part)).is_empty()
    assert [note.code for note in record_notes(part)] == []
    lost = trace([*events, launch(at=250, dur=1, correlation=99)])
    inside, outside = (ta.select(lost, between_ns=each) for each in ((200_000, 300_000), (0, 100_000)))
    assert idle_doubts(inside, idle_gaps(inside))["count"].to_list() == [1]
    assert idle_doubts(outside, idle_gaps(outside)).is_empty()


@pytest.mark.parametrize("mode", ["eager", "graph"])
@pytest.mark.parametrize("context", ["4k", "16k", "64k"])
def test_the_mask_is_what_the_device_waits_for(mode: str, context: str) -> None:
    """Of the idle time most is the mask, never the draft tree; as much of it as the host measured itself."""
    folder = SAMPLES / f"mask-{context}-{mode}"
    gaps = gaps_and_host(ta.read(folder))
    assert by_cause(gaps.rows).row(0)[1] == "host_busy"
    hosts = {name: total for _, name, _, total in by_host(gaps).iter_rows()}
    assert max(hosts, key=lambda name: hosts[name]) == "build_tree_mask"
    assert 0 < hosts["build_draft_tree"] < 0.1 * hosts["build_tree_mask"]
    truth = json.loads((folder / "truth.json").read_text())
    measured = sum(sum(rank["profiled"]["host_mask_ns"]) for rank in truth["ranks"])
    # the copy of the mask to the device runs inside of it, while the device is busy
    assert 0.5 * measured < hosts["build_tree_mask"] < 1.05 * measured


@pytest.mark.parametrize("run", ["healthy-eager", "sparse-graph", "cast-gpu-only"])
def test_the_gaps_of_a_host_that_is_ahead_are_queued(run: str) -> None:
    assert by_cause(idle_gaps(ta.read(SAMPLES / run))).row(0)[1] == "queued"


@given(linked_ranks(), st.integers(1, 60))
def test_gaps_of_stretches_that_tile_a_trace_are_its_gaps(ranks: Trace, cut_us: int) -> None:
    lengths = ranks.ranks.select(pl.col("last_ns") - pl.col("first_ns")).to_series().drop_nulls()
    if lengths.is_empty() or cut_us * 1000 >= lengths.min():  # type: ignore[operator]
        return
    whole = idle_gaps(ranks)
    parts = [ta.select(ranks, between_ns=between) for between in ((None, cut_us * 1000), (cut_us * 1000, None))]
    assert sum(int(idle_gaps(part)["duration_ns"].sum()) for part in parts) == whole["duration_ns"].sum()
    for part in parts:
        gaps = idle_gaps(part)
        assert gaps["duration_ns"].sum() == device_time(part)["idle_ns"].sum()
        assert gaps["duration_ns"].to_list() == gaps.select(pl.sum_horizontal(CAUSE_COLUMNS)).to_series().to_list()


def test_a_stretch_cuts_gaps_at_its_edges() -> None:
    around = [kernel("a", at=0, dur=100), kernel("b", at=600, dur=10, correlation=1)]
    recorded = trace([*around, launch(at=590, dur=5, correlation=1), annotation("build", at=150, dur=430)])
    part = ta.select(recorded, between_ns=(200_000, 597_000))
    (row,) = idle_gaps(part).to_dicts()
    assert (row["start_ns"], row["duration_ns"], row["next_kernel"], row["host_op"]) == (200_000, 397_000, "b", "build")
    assert us(row) == {"host_busy": 390, "launch_bound": 5, "queued": 2}


def test_a_stretch_of_time_is_refused() -> None:
    stretch = ta.select(trace([kernel("a", at=0, dur=10), kernel("b", at=90, dur=10)]), between_ns=(5_000, 50_000))
    for function in (ta.steps, ta.find_steps, ta.bandwidth, ta.findings):
        with pytest.raises(ta.UsageError, match="takes a whole trace"):
            function(stretch)


@needs_cases
def test_s17_every_gap_has_the_cause_that_a_person_sees() -> None:
    rows = idle_gaps(ta.read(next(CASES.glob("s17-*")) / "in"))
    assert rows["duration_ns"].to_list() == [300_000, 12_000, 60_000, 800_000]
    assert rows["cause"].to_list() == ["host_busy", "queued", "launch_bound", "profiler"]
    assert rows["host_op"][0] == "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
    assert rows["profiler_ns"].to_list() == [0, 0, 0, 785_000]


def assert_conserved(trace: Trace) -> None:
    rows = idle_gaps(trace)
    sums = rows.select(pl.sum_horizontal(f"{cause}_ns" for cause in CAUSES).alias("sum"))["sum"]
    assert (sums == rows["duration_ns"]).all()
    assert all((rows[f"{cause}_ns"] >= 0).all() for cause in CAUSES)
    key = ["path", "device"]
    idle = device_time(trace).join(trace.ranks.select("source", "path"), on="source").filter(pl.col("idle_ns") > 0)
    wanted = idle.select("path", pl.col("device").cast(pl.String), "idle_ns").sort(key)
    assert rows.group_by(key).agg(pl.col("duration_ns").sum()).sort(key).rows() == wanted.rows()
    assert by_cause(rows)["total_ns"].sum() == rows["duration_ns"].sum()


@given(traces_of_ranks())
def test_causes_sum_to_the_idle_time(ranks: Trace) -> None:
    assert_conserved(ranks)


@given(linked_ranks())
def test_causes_sum_to_the_idle_time_where_hosts_are_known(ranks: Trace) -> None:
    assert_conserved(ranks)


@needs_corpus
@pytest.mark.parametrize("folder", corpus_folders())
def test_causes_of_real_files_sum_to_the_idle_time(folder: str) -> None:
    try:
        trace = ta.read(CORPUS / folder, cache=False)
    except ta.UnreadableError:
        pytest.skip("no trace")
    assert_conserved(trace)


_TIMES = st.tuples(st.integers(0, 40), st.integers(1, 20))


@given(st.lists(_TIMES, max_size=8), st.lists(_TIMES, min_size=1, max_size=6))
def test_the_lowest_holder_is_that_of_a_walk_instant_by_instant(
    spans: list[tuple[int, int]], stretches: list[tuple[int, int]]
) -> None:
    nested = [(at, dur) for i, (at, dur) in enumerate(spans) if not _crosses(at, dur, spans[:i])]
    frame = pl.DataFrame(
        [(f"s{at}", False, 0, at * 10_000, dur * 10_000) for at, dur in nested],
        schema={
            "name": pl.String,
            "is_range": pl.Boolean,
            "t": pl.Int64,
            "start_ns": pl.Int64,
            "duration_ns": pl.Int64,
        },
        orient="row",
    )
    pieces = pl.DataFrame(
        [(i, 0, at * 10_000, (at + dur) * 10_000) for i, (at, dur) in enumerate(stretches)],
        schema={"gap": pl.UInt32, "t": pl.Int64, "start_ns": pl.Int64, "end_ns": pl.Int64}, orient="row",
    )  # fmt: skip
    found = {gap: name for gap, name, _, _ in lowest_holders(frame, pieces, ["t"]).iter_rows()}
    wanted = {i: _lowest(nested, at, at + dur) for i, (at, dur) in enumerate(stretches)}
    assert found == {gap: name for gap, name in wanted.items() if name is not None}


@pytest.mark.parametrize("names", [("b", "a", "c"), ("a", "b", "c"), ("c", "b", "a")])
def test_of_spans_that_are_alike_the_first_by_name_is_the_holder(names: tuple[str, ...]) -> None:
    """In gaps 0 and 2; that of gap 1 has a shorter one, and that of gap 3 but one."""
    spans = [(name, False, 0, at, 100) for at in (0, 200, 400) for name in names]
    frame = pl.DataFrame(
        [*spans, ("short", False, 0, 210, 80), ("only", False, 0, 600, 100)],
        schema=["name", "is_range", "t", "start_ns", "duration_ns"], orient="row",
    )  # fmt: skip
    pieces = pl.DataFrame(
        [(gap, 0, 200 * gap + 10, 200 * gap + 90) for gap in range(4)],
        schema={"gap": pl.UInt32, "t": pl.Int64, "start_ns": pl.Int64, "end_ns": pl.Int64}, orient="row",
    )  # fmt: skip
    found = lowest_holders(frame, pieces, ["t"]).select("gap", "name").rows()
    assert found == [(0, "a"), (1, "short"), (2, "a"), (3, "only")]


def _crosses(at: int, dur: int, others: list[tuple[int, int]]) -> bool:
    """Whether a span overlaps another without one of them holding the other, or begins where it does."""
    return any(
        (start < at < start + length < at + dur) or (at < start < at + dur < start + length) or at == start
        for start, length in others
    )


def _lowest(spans: list[tuple[int, int]], since: int, until: int) -> str | None:
    """The shortest span, of equals the later one, that holds half of [since, until)."""
    holding = [
        (length, -start)
        for start, length in spans
        if 2 * max(0, min(start + length, until) - max(start, since)) >= until - since
    ]
    return f"s{-min(holding)[1]}" if holding else None


@given(st.lists(_TIMES, max_size=6), st.lists(_TIMES, max_size=8))
def test_what_is_uncovered_is_what_no_interval_holds(
    stretches: list[tuple[int, int]], covered: list[tuple[int, int]]
) -> None:
    frames = [
        pl.DataFrame(
            [("k", at, at + dur) for at, dur in each],
            schema={"k": pl.String, "start_ns": pl.Int64, "end_ns": pl.Int64}, orient="row",
        )
        for each in (stretches, covered)
    ]  # fmt: skip
    held = {instant for at, dur in covered for instant in range(at, at + dur)}
    found: dict[int, set[int]] = {i: set() for i in range(len(stretches))}
    for _, start, end, number in covers.uncovered(frames[0], frames[1], ["k"]).iter_rows():
        assert found[number].isdisjoint(range(start, end))
        found[number] |= set(range(start, end))
    assert found == {i: set(range(at, at + dur)) - held for i, (at, dur) in enumerate(stretches)}


def test_what_ran_while_it_waited_is_not_what_it_was_busy_with() -> None:
    """An operator around a wait of 940 us, and own code of another function behind it."""
    around = [
        kernel("a", at=0, dur=100),
        kernel("b", at=2000, dur=10, correlation=1),
        launch(at=1990, dur=5, correlation=1),
    ]
    host = [
        op("aten::item", at=50, dur=970), launch("cudaStreamSynchronize", at=60, dur=940),
        annotation("build_mask", at=1030, dur=950),
    ]  # fmt: skip
    (row,) = idle_gaps(trace([*around, *host])).to_dicts()
    assert row["host_op"] == "build_mask"


def test_a_range_over_the_whole_run_does_not_hide_the_function() -> None:
    wide = annotation("timed region", at=0, dur=10_000)
    function = {**annotation("f.py(3): build_mask", at=120, dur=460), "cat": "python_function"}
    inner = {**annotation("f.py(9): helper", at=150, dur=40), "cat": "python_function"}
    assert gap(wide, function, inner)["host_op"] == "f.py(3): build_mask"


def test_a_local_range_is_named_rather_than_what_runs_in_it() -> None:
    assert (
        gap(annotation("build_mask", at=105, dur=480), op("aten::tolist", at=110, dur=400))["host_op"] == "build_mask"
    )


def test_markers_of_any_kind_name_nothing() -> None:
    markers = [annotation("ProfilerStep#1", at=0, dur=900), annotation("step[DECODE bs=1]", at=10, dur=800)]
    function = {**annotation("f.py(3): build_mask", at=120, dur=460), "cat": "python_function"}
    assert gap(*markers, function)["host_op"] == "f.py(3): build_mask"


def test_the_command_names_cause_and_culprit(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["idle-gaps", str(SAMPLES / "mask-64k-eager"), "--limit", "3"]) == 0
    out = capsys.readouterr().out
    assert out.index("host_busy") < out.index("launch_bound")
    assert "build_tree_mask" in out
    assert cli.main(["idle-gaps", str(SAMPLES / "mask-64k-eager"), "--format", "json", "--limit", "3"]) == 0
    content = json.loads(capsys.readouterr().out)
    longest = content["rows"][0]
    assert (longest["cause"], longest["host_op"]) == ("host_busy", "build_tree_mask")
    assert {each["cause"] for each in content["causes"]} <= set(CAUSES)


# ------------------------------------------------------------------------------------------ lengths and doubts


def test_lengths_are_half_decades() -> None:
    events = [kernel("k", at=at, dur=1) for at in (0, 2, 5, 106, 1107)]  # gaps of 1, 2, 100 and 1,000 us
    rows = by_length(idle_gaps(trace(events)))
    assert rows.select("from_ns", "until_ns", "gaps", "total_ns").rows() == [
        (1_000, 3_162, 2, 3_000),
        (3_162, 10_000, 0, 0),
        (10_000, 31_623, 0, 0),
        (31_623, 100_000, 0, 0),
        (100_000, 316_228, 1, 100_000),
        (316_228, 1_000_000, 0, 0),
        (1_000_000, 3_162_278, 1, 1_000_000),
    ]
    assert rows["share"].sum() == pytest.approx(1)
    assert by_length(idle_gaps(trace([]))).is_empty()


def test_the_table_of_lengths_has_a_line_for_each_decade(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Gaps of exactly a power of ten are the shortest of a line, not the longest of the one above."""
    file = write_trace(tmp_path / "a.json", [kernel("k", at=at, dur=1) for at in (0, 2, 13, 1014)])
    assert cli.main(["idle-gaps", str(file)]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines() if " µs to " in line or " ms to " in line]
    assert [(*line[:5], line[5]) for line in lines] == [
        ("1", "µs", "to", "10", "µs", "1"), ("10", "µs", "to", "100", "µs", "1"), ("100", "µs", "to", "1", "ms", "0"),
        ("1", "ms", "to", "10", "ms", "1"),
    ]  # fmt: skip


@given(linked_ranks())
def test_lengths_hold_all_idle_time_and_all_causes(ranks: Trace) -> None:
    gaps = idle_gaps(ranks)
    rows = by_length(gaps)
    assert (rows["gaps"].sum(), rows["total_ns"].sum()) == (gaps.height, gaps["duration_ns"].sum())
    for cause in CAUSES:
        assert rows[f"{cause}_ns"].sum() == gaps[f"{cause}_ns"].sum()


def test_gaps_between_the_same_kernels_are_one_place() -> None:
    events: list[Event] = []
    for step in range(3):
        at = 1000.0 * step
        events += [
            annotation("step[DECODE bs=1]", at=at, dur=990),
            annotation("sample", at=at + 200, dur=500),
            *(launch(at=at + ahead, dur=2, correlation=10 * step + number) for number, ahead in ((1, 5), (2, 710))),
            kernel("a", at=at + 10, dur=100, correlation=10 * step + 1),
            kernel("b", at=at + 720, dur=280, correlation=10 * step + 2),
        ]
    first, second = by_place(idle_gaps(trace(events))).to_dicts()
    assert (first["previous_kernel"], first["next_kernel"]) == ("a", "b")
    assert (first["gaps"], first["steps"], first["total_ns"], first["mean_ns"]) == (3, 3, 1_830_000, 610_000)
    assert (first["cause"], first["host_op"]) == ("host_busy", "sample")
    assert (second["next_kernel"], second["gaps"], second["steps"], second["total_ns"]) == ("a", 2, 2, 20_000)
    assert first["share"] + second["share"] == pytest.approx(1)


@given(linked_ranks())
def test_places_hold_all_gaps(ranks: Trace) -> None:
    gaps = idle_gaps(ranks)
    places = by_place(gaps)
    assert (places["gaps"].sum(), places["total_ns"].sum()) == (gaps.height, gaps["duration_ns"].sum())


def doubts(*events: Event) -> list[tuple[str, int, int | None]]:
    around = [
        kernel("a", at=0, dur=100),
        kernel("b", at=600, dur=10, correlation=1),
        launch(at=590, dur=5, correlation=1),
    ]
    recorded = trace([*around, *events])
    return idle_doubts(recorded, idle_gaps(recorded)).select("reason", "count", "at_most_ns").rows()


def test_idle_is_an_upper_bound_and_why_is_said() -> None:
    assert doubts() == []
    assert doubts(python_call("f.py(1): f", at=0, dur=9)) == [("stacks-recorded", 1, None)]
    lost = [launch(at=200 + 10 * i, dur=1, correlation=9 + i) for i in range(3)]
    assert doubts(*lost) == [("lost-records", 3, 3 * 55_000)]  # the middle kernel takes 55 us
    lost = [launch(at=200 + 10 * i, dur=1, correlation=9 + i) for i in range(30)]
    assert doubts(*lost) == [("lost-records", 30, 500_000)]  # the device was idle for no longer
    assert doubts(launch("cudaGraphLaunch", at=200, dur=1, correlation=9)) == [("lost-graphs", 1, None)]
    assert doubts(overhead(at=150, dur=40)) == [("profiler-at-work", 1, 40_000)]


def test_the_command_says_that_idle_is_an_upper_bound(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    events = [
        kernel("a", at=0, dur=100),
        kernel("b", at=600, dur=10, correlation=1),
        launch(at=590, dur=5, correlation=1),
    ]
    path = write_trace(tmp_path / "t.json", [*events, overhead(at=150, dur=40), python_call("f", at=0, dur=9)])
    assert cli.main(["idle-gaps", str(path), "--no-cache"]) == 0
    said = capsys.readouterr().out
    assert "the profiler was at work in 1 gap; 40.0 µs of it at most" in said
    assert "stacks were recorded (with_stack), which slows the host; by how much is not known" in said


# ------------------------------------------------------------------------------------------ neighbours


@given(
    st.lists(st.tuples(st.integers(0, 6), st.integers(0, 2), st.sampled_from("abc"), st.integers(0, 3)), max_size=20)
)
def test_of_kernels_that_start_or_end_together_the_neighbour_is_told_by_rule(kernels: list[tuple[Any, ...]]) -> None:
    """Ahead of a gap what began last, behind it what was launched first; of equals the last, and the first, by name."""
    events = [launch(at=-10 + number, dur=0.5, correlation=number + 1) for number in range(4)]
    events += [
        kernel(name, at=3 * at, dur=dur, correlation=number + 1, stream=stream)
        for stream, (at, dur, name, number) in enumerate(kernels)
    ]
    for gap in idle_gaps(trace(events)).iter_rows(named=True):
        origin = 3 * min(at for at, *_ in kernels)
        since = origin + gap["start_ns"] / 1000
        until = since + gap["duration_ns"] / 1000
        ends = [(3 * at, name) for at, dur, name, _ in kernels if 3 * at + dur == since]
        begins = [(number, name) for at, _, name, number in kernels if 3 * at == until]
        assert (gap["previous_kernel"], gap["next_kernel"]) == (max(ends)[1], min(begins)[1])


def test_kernels_that_start_together_are_not_looked_at_one_by_one() -> None:
    """As in replays of graphs over several streams: calls of functions do not grow with their number."""
    one = trace([kernel("a", at=0, dur=1), kernel("b", at=0, dur=1, stream=8)])
    calls = []
    for count in (10, 500):
        many = pl.concat([one.kernels] * count).with_columns(start_ns=pl.int_range(2 * count) // 2 * 5_000)
        recorded = one.replace(kernels=many)
        calls.append(calls_of(partial(idle_gaps, recorded)))
    assert calls[1] < 1.5 * calls[0]


def test_threads_are_not_looked_at_one_by_one() -> None:
    """A server has thousands of them; each operation of a table for each one would take a millisecond."""
    count = 300
    few, many = (
        trace([event for number in range(threads) for event in [
            launch(at=600 * number + 500, dur=1, correlation=number + 1, tid=number),
            annotation("in a range", at=600 * number + 100, dur=300, tid=number),
            op("aten::topk", at=600 * number + 120, dur=200, tid=number),
            kernel("k", at=600 * number + 505, dur=5, correlation=number + 1),
        ]])
        for threads in (10, count)
    )  # fmt: skip
    calls = [calls_of(partial(gaps_and_host, recorded)) for recorded in (few, many)]
    assert calls[1] < calls[0] + 400 * count
    hosts = gaps_and_host(many).host.group_by("name").agg(pl.col("total_ns").sum())
    assert dict(hosts.iter_rows()) == {"in a range": (count - 1) * 300_000, None: (count - 1) * 290_000}


def calls_of(function: Callable[[], object]) -> int:
    """How many functions of Python it calls."""
    calls = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        function()
    finally:
        sys.setprofile(None)
    return calls


# ------------------------------------------------------------------------------------------ the picture


def test_the_picture_names_cause_and_culprit() -> None:
    said = texts(draw(idle_gaps(ta.read(SAMPLES / "mask-64k-eager")), "svg"))
    assert "92% of 194 ms idle is host_busy, most of it build_tree_mask" in said
    assert "host_busy 92%: build_tree_mask" in said
    assert "rank 1" in said
    assert "launch_bound  5.7%" in said


def test_the_picture_names_what_holds_most_of_a_cause() -> None:
    """Of two like gaps each has a name of its own: none of them is most of it. Names stand in one line."""
    events, at = [kernel("k", at=0, dur=1)], 1
    for number, name in enumerate(("a", "b"), start=1):
        events += [
            annotation(name, at=at, dur=500), launch(at=at + 500, dur=1, correlation=number),
            kernel("k", at=at + 501, dur=1, correlation=number),
        ]  # fmt: skip
        at += 502
    said = texts(draw(idle_gaps(trace(events)), "svg"))
    assert "is host_busy\n" in said
    assert "most of it" not in said
    one = [kernel("k", at=0, dur=1), annotation("c\nd", at=1, dur=500), launch(at=501, dur=1, correlation=1)]
    said = texts(draw(idle_gaps(trace([*one, kernel("k", at=502, dur=1, correlation=1)])), "svg"))
    assert "most of it c\\nd\n" in said
    assert "host_busy >99%: c\\nd\n" in said


def test_more_devices_than_there_is_room_for_are_counted() -> None:
    many = traces(*(trace([kernel("k", at=0, dur=1), kernel("k", at=9, dur=1)], rank=rank) for rank in range(20)))
    assert "4 more devices not drawn" in texts(draw(idle_gaps(many), "svg"))
    with pytest.raises(ta.UsageError, match="ever idle"):
        draw(idle_gaps(trace([kernel("k", at=0, dur=1)])), "svg")
