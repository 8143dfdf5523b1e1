"""Findings: on the planted faults the right one on top with the right numbers, on a healthy run none."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from builders import Event, annotation, kernel, launch, op, trace
from hypothesis import given
from shared import CORPUS, corpus_folders, needs_corpus
from strategies import traces_of_ranks

import traceanalyzer as ta
from traceanalyzer.analyses.findings import SCHEMA, Finding, findings
from traceanalyzer.analyses.findings.context import RunContext
from traceanalyzer.trace import Trace

SAMPLES = Path(__file__).parent.parent / "sample_traces"
MODES = ("eager", "gpu-only", "graph")
modes = pytest.mark.parametrize("mode", MODES)
SMS = {"id": 0, "name": "NVIDIA H200", "numSms": 132}


def found(folder: str) -> list[dict[str, Any]]:
    rows = findings(ta.read(SAMPLES / folder)).to_dicts()
    return [{**row, "evidence": json.loads(row["evidence"])} for row in rows]


def rules(events: list[Event], **options: Any) -> list[str]:
    return findings(trace(events, device_properties=[SMS], **options))["rule"].to_list()


@modes
def test_a_healthy_run_gives_none(mode: str) -> None:
    assert found(f"healthy-{mode}") == []


@modes
def test_the_kernel_that_does_not_fill_the_device(mode: str) -> None:
    (first,) = found(f"sparse-{mode}")
    evidence = first["evidence"]
    assert (first["rule"], first["severity"]) == ("underfilled-kernel", "high")
    assert (evidence["kernel"], evidence["blocks"], evidence["sms"]) == ("_tiled_sparse_decode_kernel", 64, 132)
    assert evidence["sm_fill"] == pytest.approx(64 / 132)
    assert evidence["share_of_kernel_time"] == pytest.approx(0.668, abs=0.002)
    assert evidence["idle_sm_ns"] == pytest.approx(evidence["total_ns"] * 68 / 132, rel=1e-6)
    assert "64 blocks on 132 SMs" in first["text"]
    assert len(evidence["events"]) == 3


def test_the_cast_of_a_pool_of_which_little_is_read() -> None:
    (first,) = found("cast-eager")
    evidence = first["evidence"]
    assert (first["rule"], first["severity"]) == ("copies-more-than-is-read", "high")
    assert evidence["bytes_per_call"] == 495_000 * 576 * 3
    assert evidence["bytes_per_step"] == 3 * 495_000 * 576 * 3  # three layers
    assert (evidence["rows"], evidence["rows_read"], evidence["reader"]) == (495_000, 4_096, "aten::gather")
    assert evidence["share_of_kernel_time"] == pytest.approx(0.698, abs=0.002)
    assert "855 MB a call and 2.57 GB a step" in first["text"]


@pytest.mark.parametrize("mode", ["gpu-only", "graph"])
def test_without_shapes_the_cast_is_a_copy_that_takes_the_time(mode: str) -> None:
    (first,) = found(f"cast-{mode}")
    assert (first["rule"], first["severity"]) == ("copies-take-the-time", "high")
    assert "record_shapes" in first["text"]
    assert first["evidence"]["share_of_kernel_time"] == pytest.approx(0.70, abs=0.005)


@modes
@pytest.mark.parametrize(("context", "share"), [("4k", 0.27), ("16k", 0.42), ("64k", 0.66)])
def test_the_idle_device(mode: str, context: str, share: float) -> None:
    (first,) = found(f"mask-{context}-{mode}")
    assert first["rule"] == "device-idle"
    assert first["evidence"]["share"] == pytest.approx(share, abs=0.05)
    assert first["confidence"] == "high"
    if mode != "gpu-only":  # without ranges nothing has a name
        assert "most of it build_tree_mask" in first["text"]
        assert "It is not build_draft_tree" in first["text"]


def filling(*, blocks: int, dur: float = 20) -> list[Event]:
    """Ten launches, back to back."""
    grid = (blocks, 1, 1)
    return [kernel("k", at=i * dur, dur=dur, grid=grid) for i in range(10)]


def test_blocks_for_most_of_the_sms_are_enough() -> None:
    assert rules(filling(blocks=64)) == ["underfilled-kernel"]
    assert rules(filling(blocks=80)) == []


def test_few_blocks_that_reach_the_roof_are_no_fault() -> None:
    """96 MB in 25 us are 3,840 GB/s, 80 % of what the device can do."""
    shapes: dict[str, Any] = {"Input Dims": [[48_000_000], [48_000_000], []], "Input type": ["bool", "bool", "Scalar"]}
    events = [
        event
        for i in range(10)
        for event in (
            op("aten::copy_", at=i * 25, dur=5, **shapes),
            launch(at=i * 25 + 1, dur=1, correlation=i + 1),
            kernel("k", at=i * 25 + 3, dur=25, grid=(64, 1, 1), correlation=i + 1),
        )
    ]
    assert rules(events) == []


def test_work_far_from_the_roof_is_said() -> None:
    """96 MB in 100 us are 960 GB/s, a fifth of what the device can do."""
    shapes: dict[str, Any] = {"Input Dims": [[48_000_000]], "Input type": ["bool"]}
    events = [
        event
        for i in range(3)
        for event in (
            op("aten::relu", at=100 * i, dur=5, **shapes),
            launch(at=100 * i + 1, dur=1, correlation=i + 1),
            kernel("k", at=100 * i + 3, dur=100, grid=(1000, 1, 1), correlation=i + 1),
        )
    ]
    assert rules(events) == ["far-from-roof"]


def test_idle_with_stacks_is_an_upper_bound() -> None:
    events = [kernel("k", at=0, dur=100, grid=(132, 1, 1)), kernel("k", at=900, dur=100, grid=(132, 1, 1))]
    (row,) = findings(trace(events)).to_dicts()
    assert (row["rule"], row["confidence"], row["at_stake_ns"]) == ("device-idle", "high", 800_000)
    with_stack = [*events, {**annotation("f.py(3): f", at=0, dur=500), "cat": "python_function"}]
    (row,) = findings(trace(with_stack)).to_dicts()
    assert row["confidence"] == "low"
    assert "upper bound" in row["text"]


def copied(*readers: Event, count: int = 10) -> list[str]:
    """Rules that fire where a tensor of 1,000,000 x 64 is copied, each time before these operators."""
    shape = [1_000_000, 64]
    copy: dict[str, Any] = {
        "Input Dims": [shape, shape, []],
        "Input type": ["c10::BFloat16", "c10::BFloat16", "Scalar"],
    }
    events: list[Event] = []
    for i in range(count):
        at = i * 1000.0
        events += [
            op("aten::copy_", at=at, dur=10, **copy),
            launch(at=at + 1, dur=1, correlation=i + 1),
            kernel("copy", at=at + 20, dur=900, grid=(2000, 1, 1), correlation=i + 1),
            *({**reader, "ts": at + 20 + place} for place, reader in enumerate(readers)),
        ]
    return rules(events)


def reader(name: str, dims: Any, values: Any = None, index: str = "long int") -> Event:
    types = [
        "c10::BFloat16",
        *(index if each and len(each) < 2 else "c10::BFloat16" if each else "Scalar" for each in dims[1:]),
    ]
    more: dict[str, Any] = {"Input Dims": dims, "Input type": types}
    if values:
        more["Concrete Inputs"] = values
    return op(name, at=0, dur=0.5, **more)


WHOLE = [1_000_000, 64]


def test_few_rows_of_a_copy_that_are_read() -> None:
    rows = reader("aten::index_select", [WHOLE, [], [4096]], ["", "0", ""])
    assert copied(rows) == ["copies-more-than-is-read"]
    assert copied(reader("aten::embedding", [WHOLE, [4096]])) == ["copies-more-than-is-read"]


@pytest.mark.parametrize(
    "readers",
    [
        [reader("aten::index_select", [WHOLE, [], [8]], ["", "1", ""])],  # of every row
        [reader("aten::index_select", [WHOLE, [], [200_000]], ["", "0", ""])] * 3,  # three times a fifth
        [reader("aten::index_select", [WHOLE, [], [9]], ["", "0", ""]), reader("aten::mul", [WHOLE, WHOLE])],
        [],
    ],
    ids=["another dimension", "many reads", "a reader of the whole", "nothing"],
)
def test_a_copy_of_which_much_is_read_is_not_said_to_be_for_little(readers: list[Event]) -> None:
    assert "copies-more-than-is-read" not in copied(*readers)


def test_the_rank_that_others_wait_for_and_what_makes_it_late() -> None:
    (first,) = found("straggler-eager")
    evidence = first["evidence"]
    assert (first["rule"], first["severity"], first["confidence"]) == ("slow-rank", "medium", "high")
    assert (evidence["rank"], evidence["because"]) == (1, "kernel")
    assert evidence["name"].startswith("nvjet_sm90_tst_256x128")
    assert evidence["extra_count"] == 66  # one more product in each of 3 layers of 22 steps
    assert first["title"] == "the others wait for rank 1"
    assert "in 66 more launches" in first["text"]


def test_kernels_without_length_and_traces_without_kernels_are_no_error() -> None:
    assert rules([kernel("copy_kernel", at=i, dur=0) for i in range(5)]) == []
    assert rules([]) == []


def test_tiny_runs_are_not_judged() -> None:
    assert rules([kernel("fill", at=0, dur=2, grid=(1, 1, 1))]) == []


def test_a_step_is_of_one_device() -> None:
    """Four devices in one file, each idle for 0.45 ms of its steps of 1 ms."""
    events: list[Event] = []
    for step in range(5):
        events.append(annotation(f"ProfilerStep#{step}", at=1000 * step, dur=999))
        for device in range(4):
            number = 10 * step + device + 1
            events.append(launch(at=1000 * step + 10 + device, dur=1, correlation=number))
            events.append(
                kernel("k", at=1000 * step + 400, dur=550, device=device, grid=(132, 1, 1), correlation=number)
            )
    (row,) = findings(trace(events)).to_dicts()
    # the first step's window begins with its own kernel
    assert json.loads(row["evidence"])["ns_per_step"] == pytest.approx(450_000 * 4 / 5)
    assert "Each of 4 devices does nothing" in row["text"]


def test_lost_records_are_a_doubt_and_come_last() -> None:
    events = [*filling(blocks=64), launch(at=0, dur=1, correlation=1), kernel("j", at=200, dur=1, correlation=1)]
    events += [launch(at=5 + i, dur=1, correlation=10 + i) for i in range(5)]
    rows = findings(trace(events, device_properties=[SMS]))
    assert rows["rule"].to_list() == ["underfilled-kernel", "launch-without-kernel"]
    assert rows["severity"].to_list() == ["high", "low"]


def test_rules_of_a_users_own_are_asked_too() -> None:
    def many_kernels(run: RunContext) -> Iterator[Finding]:
        yield Finding(run.run, "many", "many", "text", 5, 0.5, {"count": run.trace.kernels.height})

    rows = findings(trace(filling(blocks=132)), checks=[many_kernels])
    assert rows.select("rule", "severity", "evidence").rows() == [("many", "high", '{"count": 10}')]


@given(traces_of_ranks())
def test_any_trace_has_findings_of_the_published_form(ranks: Trace) -> None:
    rows = findings(ranks)
    assert rows.schema == SCHEMA
    assert set(rows["severity"]) <= {"high", "medium", "low"}
    assert (rows["at_stake_ns"] >= 0).all()
    for text in rows["evidence"]:
        json.loads(text)


@needs_corpus
@pytest.mark.parametrize("folder", corpus_folders())
def test_real_files_have_findings_of_the_published_form(folder: str) -> None:
    try:
        rows = findings(ta.read(CORPUS / folder, cache=False))
    except ta.UnreadableError:
        pytest.skip("no trace")
    assert rows.schema == SCHEMA
    assert not rows.filter(pl.col("text").str.contains(r"\b(nan|None|inf)\b")).height
