"""What the records of launches and device activity say of each other: losses, clocks that disagree, copies."""

from __future__ import annotations

import pytest
from builders import Event, kernel, launch, memcpy, trace, traces
from shared import CORPUS, needs_corpus

import traceanalyzer as ta
from traceanalyzer.analyses.trust import record_notes


def noted(*events: Event) -> list[tuple[str, str, int | None]]:
    return [(note.level, note.code, note.count) for note in record_notes(trace(events))]


def launched(number: int, *, at: float, name: str = "cudaLaunchKernel") -> list[Event]:
    return [launch(name, at=at, dur=2, correlation=number), kernel(f"k{number}", at=at + 3, dur=1, correlation=number)]


def test_launches_that_started_nothing_are_counted() -> None:
    calls = [launch("cudaLaunchKernel", at=100 + i, dur=1, correlation=50 + i) for i in range(3)]
    assert noted(*launched(1, at=0), *calls) == [("warning", "launch-without-kernel", 3)]
    (note,) = record_notes(trace([*launched(1, at=0), *calls]))
    assert "3 of 4 launch calls" in note.message
    assert "lost by the profiler" in note.message
    assert "captured" not in note.message


def test_launches_of_a_capture_may_start_nothing() -> None:
    begin = launch("cudaStreamBeginCapture", at=5, dur=1, correlation=9)
    (note,) = record_notes(trace([*launched(1, at=0), begin, launch("cuLaunchKernelEx", at=10, dur=1, correlation=10)]))
    assert "captured into a graph" in note.message


@pytest.mark.parametrize("name", ["cudaStreamSynchronize", "cudaEventRecord", "cudaLaunchHostFunc"])
def test_calls_that_start_no_device_work_are_no_loss(name: str) -> None:
    assert noted(*launched(1, at=0), launch(name, at=10, dur=1, correlation=2)) == []


def test_one_launch_of_many_that_started_nothing_is_no_warning() -> None:
    events = [event for i in range(1, 201) for event in launched(i, at=10 * i)]
    lost = launch("cudaMemsetAsync", at=5, dur=1, correlation=999)
    assert noted(*events, lost) == [("info", "launch-without-kernel", 1)]


def test_some_sets_without_a_record_are_no_warning() -> None:
    events = [event for i in range(1, 21) for event in launched(i, at=10 * i)]
    lost = launch("cudaMemsetAsync", at=5, dur=1, correlation=999)
    assert noted(*events, lost) == [("info", "launch-without-kernel", 1)]
    assert noted(*events, {**lost, "name": "cudaLaunchKernel"}) == [("warning", "launch-without-kernel", 1)]


def test_where_no_id_leads_to_device_work_the_ids_say_nothing() -> None:
    assert noted(launch(at=0, dur=1, correlation=1), kernel("k", at=5, dur=1)) == []
    assert noted(launch(at=0, dur=1, correlation=1)) == []


def test_ids_are_those_of_a_file() -> None:
    one = trace([*launched(1, at=0), launch(at=9, dur=1, correlation=2)])
    other = trace([*launched(2, at=0), launch(at=9, dur=1, correlation=1)])
    assert [note.count for note in record_notes(traces(one, other))] == [1, 1]


def test_kernels_before_their_launch_tell_of_two_clocks() -> None:
    early = [launch(at=20, dur=2, correlation=7), kernel("k", at=12.5, dur=1, correlation=7)]
    assert noted(*launched(1, at=0), *early) == [("warning", "kernel-before-launch", 1)]
    (note,) = record_notes(trace([*launched(1, at=0), *early]))
    assert "1 of 2 launch calls starts before the call, by up to 7.5 µs" in note.message


def test_of_a_graph_replay_the_first_kernel_counts() -> None:
    replay = [kernel(f"k{i}", at=100 + i, dur=0.5, correlation=3) for i in range(20)]
    assert noted(launch("cudaGraphLaunch", at=90, dur=5, correlation=3), *replay) == []


def test_records_that_are_the_same_in_all_are_said() -> None:
    once = memcpy(at=5, dur=2)
    other_stream = kernel("k", at=5, dur=2, stream=8)
    assert noted(kernel("k", at=5, dur=2), other_stream, once, once, once) == [("warning", "duplicate-record", 2)]


@needs_corpus
@pytest.mark.parametrize(
    ("folder", "file", "expected"),
    [
        # by hand from the files: launch calls whose id no device record has, links whose device side starts first
        ("ao-vit", "bfloat16.json.gz", [("warning", "launch-without-kernel", 372)]),
        ("ao-root", "trace.json.gz", [("warning", "kernel-before-launch", 95)]),
        ("py4ai", "trace.json", [("info", "launch-without-kernel", 2)]),
        ("saf-true", "asdf_True.json.gz", []),
    ],
)
def test_real_files(folder: str, file: str, expected: list[tuple[str, str, int]]) -> None:
    found = record_notes(ta.read(CORPUS / folder / file, cache=False))
    assert [(note.level, note.code, note.count) for note in found] == expected
