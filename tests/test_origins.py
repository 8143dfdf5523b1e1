"""Kernels by operator, module, annotation, stack and shape: nothing is lost, nothing is counted twice."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from builders import Event, annotation, kernel, launch, op, python_call, trace, traces, write_trace
from hypothesis import given
from shared import CORPUS, corpus_files, needs_corpus
from strategies import linked_ranks

import traceanalyzer as ta
from traceanalyzer.analyses.origins import origins
from traceanalyzer.analyses.unknown_origins import REASONS
from traceanalyzer.choices import NESTED, ORIGINS, Origin
from traceanalyzer.cli import main


def kernel_time(whole: ta.Trace) -> int:
    return int(whole.kernels.filter(pl.col("kind") == "kernel")["duration_ns"].sum())


def check_that_all_time_is_there_once(whole: ta.Trace, by: Origin) -> pl.DataFrame:
    rows = ta.top_kernels(whole, by=by)
    assert (rows["group"].is_null() == rows["reason"].is_not_null()).all()
    assert set(rows["reason"].drop_nulls()) <= set(REASONS)
    own = "self_ns" if by in NESTED else "total_ns"
    assert rows[own].sum() == kernel_time(whole)
    if by in NESTED:
        assert (rows["self_ns"] <= rows["total_ns"]).all()
        assert (rows["total_ns"] <= kernel_time(whole)).all()
    return rows


def table(rows: pl.DataFrame, *columns: str) -> dict[str | None, Any]:
    return {row[0]: row[1:] for row in rows.select("group", *columns).iter_rows()}


def linear(at: float, correlation: int, **args: Any) -> list[Event]:
    """aten::linear over aten::addmm, which launches one kernel of 10 µs."""
    return [
        op("aten::linear", at=at, dur=20),
        op("aten::addmm", at=at + 2, dur=15, **args),
        launch(at=at + 4, correlation=correlation),
        kernel("gemm", at=at + 50, dur=10, correlation=correlation),
    ]


def test_a_wrapper_has_a_total_and_nothing_of_its_own() -> None:
    rows = ta.top_kernels(trace([*linear(0, 1), *linear(100, 2), kernel("lost", at=300, dur=5)]), by="op")
    assert table(rows, "self_ns", "total_ns", "count", "share_of_kernel_time", "self_share") == {
        "aten::addmm": (20_000, 20_000, 2, 0.8, 0.8),
        "aten::linear": (0, 20_000, 2, 0.8, 0.0),
        None: (5_000, 5_000, 1, 0.2, 0.2),
    }
    assert rows["group"].to_list() == ["aten::addmm", None, "aten::linear"]
    assert rows["reason"].to_list() == [None, "no-correlation", None]


def test_groups_that_lie_in_each_other_are_ordered_by_what_is_their_own_or_by_all_that_is_in_them() -> None:
    whole = trace([op("aten::outer", at=0, dur=200), *linear(1, 1), *linear(100, 2), kernel("lost", at=300, dur=15)])
    by_self, by_total = ta.top_kernels(whole, by="op", sort="self"), ta.top_kernels(whole, by="op", sort="total")
    assert by_self["group"].to_list() == ["aten::addmm", None, "aten::linear", "aten::outer"]
    assert by_total["group"].to_list() == ["aten::addmm", "aten::linear", "aten::outer", None]
    assert by_self.equals(ta.top_kernels(whole, by="op"))


def test_a_kernel_counts_once_in_an_operator_that_calls_itself() -> None:
    events = [
        op("aten::copy_", at=0, dur=50), op("aten::to", at=1, dur=40), op("aten::copy_", at=2, dur=30),
        launch(at=5, correlation=1), kernel("k", at=60, dur=10, correlation=1),
    ]  # fmt: skip
    rows = ta.top_kernels(trace(events), by="op")
    assert table(rows, "self_ns", "total_ns", "count") == {
        "aten::copy_": (10_000, 10_000, 1), "aten::to": (0, 10_000, 1),
    }  # fmt: skip


def test_modules_are_called_by_their_path_without_instance_numbers() -> None:
    events: list[Event] = []
    for layer in (0, 1):
        at = layer * 100
        events += [
            python_call(f"nn.Module: Block_{layer}", at=at, dur=90),
            python_call("nn.Module: Linear_7", at=at + 1, dur=80),
            *linear(at + 2, layer + 1),
        ]
    rows = ta.top_kernels(trace([python_call("nn.Module: Net_0", at=0, dur=500), *events]), by="module")
    assert table(rows, "self_ns", "total_ns", "count") == {
        "Net > Block > Linear": (20_000, 20_000, 2), "Net > Block": (0, 20_000, 2), "Net": (0, 20_000, 2),
    }  # fmt: skip


def test_annotations_hold_what_was_launched_in_them() -> None:
    marks = [annotation("ProfilerStep#1", at=0, dur=90), annotation("forward", at=1, dur=50)]
    rows = ta.top_kernels(trace([*marks, *linear(2, 1), *linear(60, 2), *linear(200, 3)]), by="annotation")
    assert table(rows, "self_ns", "total_ns", "reason") == {
        "ProfilerStep#1": (10_000, 20_000, None), "forward": (10_000, 10_000, None), None: (10_000, 10_000, "outside"),
    }  # fmt: skip


def test_a_stack_is_the_lines_of_the_program_from_the_inside() -> None:
    frames = ["main.py(1): <module>", "model.py(9): forward", "torch/nn/modules/module.py(1): _call_impl",
              "mlp.py(4): forward", "torch/nn/functional.py(2): linear", "<built-in function linear>"]  # fmt: skip
    calls = [python_call(name, at=number, dur=100 - 2 * number) for number, name in enumerate(frames)]
    rows = ta.top_kernels(trace([*calls, *linear(20, 1)]), by="stack")
    assert rows["group"].to_list() == ["mlp.py(4): forward < model.py(9): forward < main.py(1): <module>"]
    assert "self_ns" not in rows.columns


def test_shapes_tell_calls_of_an_operator_apart() -> None:
    shapes: list[dict[str, Any]] = [{"Input Dims": [[4, n]], "Input type": ["float"]} for n in (8, 8, 16)]
    events = [event for number, args in enumerate(shapes) for event in linear(number * 100, number + 1, **args)]
    rows = ta.top_kernels(trace(events), by="shape")
    assert table(rows, "count") == {
        'aten::addmm [[4, 8]] ["float"]': (2,), 'aten::addmm [[4, 16]] ["float"]': (1,),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("by", "reason"),
    [("module", "no-modules"), ("annotation", "no-annotations"), ("stack", "no-python"), ("shape", "no-shapes")],
)
def test_what_was_not_recorded_is_said(by: Origin, reason: str) -> None:
    rows = ta.top_kernels(trace(linear(0, 1)), by=by)
    assert rows.select("group", "reason").rows() == [(None, reason)]


def graph(*names: str, at: float, correlation: int, nodes: list[int] | None = None) -> list[Event]:
    """A replay of a graph of these kernels of 1 µs each; where it says its nodes, their numbers."""
    args: list[dict[str, Any]] = [{"graph node id": node} for node in nodes] if nodes else [{} for _ in names]
    return [
        launch("cudaGraphLaunch", at=at, correlation=correlation),
        *(
            kernel(name, at=at + 10 + place, dur=1, correlation=correlation, grid=None, **more)
            for place, (name, more) in enumerate(zip(names, args, strict=True))
        ),
    ]


def capture_of(*calls: tuple[str, str | None]) -> ta.Trace:
    """A capture: operators, each with one call that launches a kernel of that name, if calls say theirs."""
    events: list[Event] = [launch("cudaStreamBeginCapture", at=0, correlation=900)]
    for number, (name, kernel_name) in enumerate(calls):
        call = launch(
            "hipLaunchKernel" if kernel_name else "cudaLaunchKernel", at=10 * number + 12, correlation=number + 1
        )
        call["args"] |= {"kernel": kernel_name} if kernel_name else {}
        shapes: dict[str, Any] = {"Input Dims": [[number]]}
        events += [op(name, at=10 * number + 10, dur=9, **shapes), call]
    return trace(events)


def test_a_capture_tells_the_operators_of_a_replay() -> None:
    replay = trace(
        [*graph("norm", "gemm", "norm", at=0, correlation=5), *graph("norm", "gemm", "norm", at=99, correlation=6)]
    )
    capture = capture_of(("aten::norm", "norm"), ("aten::mm", "gemm"), ("aten::layer_norm", "norm"))
    links = ta.link(replay, capture=capture)
    assert links["op_name"].to_list() == ["aten::norm", "aten::mm", "aten::layer_norm"] * 2
    assert set(links["evidence"]) == {"capture"}
    rows = ta.top_kernels(replay, by="shape", capture=capture)
    assert table(rows, "count") == {"aten::norm [[0]]": (2,), "aten::mm [[1]]": (2,), "aten::layer_norm [[2]]": (2,)}
    assert set(ta.top_kernels(replay, by="op")["reason"]) == {"graph-replay"}


def test_calls_that_do_not_name_their_kernel_are_taken_in_order_of_the_nodes() -> None:
    capture = capture_of(("first", None), ("second", None), ("third", None))
    replay = trace(graph("b", "c", "a", at=0, correlation=5, nodes=[11, 12, 10]))
    assert ta.link(replay, capture=capture)["op_name"].to_list() == ["second", "third", "first"]


def test_where_the_numbers_differ_nothing_is_claimed() -> None:
    replay = trace(graph("norm", "gemm", "gemm", at=0, correlation=5))
    capture = capture_of(("aten::norm", "norm"), ("aten::mm", "gemm"))
    links = ta.link(replay, capture=capture)
    assert links["op_name"].to_list() == ["aten::norm", None, None]
    assert links["reason"].to_list() == [None, "graph-replay", "graph-replay"]
    assert ta.link(replay, capture=capture_of(("one", None)))["op"].null_count() == 3


@pytest.mark.parametrize("by", ORIGINS)
@given(whole=linked_ranks())
def test_generated_traces_lose_no_time(by: Origin, whole: ta.Trace) -> None:
    check_that_all_time_is_there_once(whole, by)


@given(whole=linked_ranks(max_ranks=3))
def test_one_rank_at_a_time_is_all_at_once(whole: ta.Trace) -> None:
    together = ta.top_kernels(whole, by="op", sort="name").select("group", "reason", "self_ns", "total_ns", "count")
    alone = pl.concat([
        ta.top_kernels(ta.select(whole, ranks=rank), by="op").select("group", "reason", "self_ns", "total_ns", "count")
        for rank in whole.ranks["rank"]
    ])  # fmt: skip
    summed = alone.group_by("group", "reason").agg(pl.col("self_ns", "total_ns", "count").sum())
    assert together.equals(summed.sort("group", "reason", nulls_last=True))


@needs_corpus
@pytest.mark.parametrize("path", corpus_files())
def test_real_traces_lose_no_time(path: str) -> None:
    try:
        whole = ta.read(CORPUS / path, cache=False)
    except ta.UnreadableError:
        pytest.skip("is no trace")
    for by in ORIGINS:
        check_that_all_time_is_there_once(whole, by)


@needs_corpus
@pytest.mark.parametrize(
    ("capture", "replay", "kernels"),
    [
        ("tl-sglang-decode/bs_32_rank0.json.gz", "tl-sglang-decode/sglang_Qwen3-8B_decode.json.gz", 544),
        ("tl-vllm-decode/graph_capture_rank_0.1773709742341309550.pt.trace.json.gz",
         "tl-vllm-decode/graph_execution.json.gz", 421),
    ],
)  # fmt: skip
def test_real_captures_know_every_kernel_of_their_replay(capture: str, replay: str, kernels: int) -> None:
    whole, beside = (ta.read(CORPUS / path, cache=False) for path in (replay, capture))
    links = ta.link(whole, capture=beside)
    told = links.filter(pl.col("evidence") == "capture")
    assert told.height == kernels == links["in_graph"].sum()
    calls = beside.launches["kernel"].cast(pl.String)
    found = origins(whole, "op", capture=beside).own.join(told.select("kernel"), on="kernel")
    assert found["group"].null_count() == 0
    assert set(whole.kernels["name"].cast(pl.String).gather(told["kernel"])) <= set(calls)


@needs_corpus
def test_the_decode_of_tl_sglang_by_operator_and_shape() -> None:
    """Looked at by hand: 36 layers with 4 projections each and the head make 145 calls of aten::mm."""
    whole = ta.read(CORPUS / "tl-sglang-decode/sglang_Qwen3-8B_decode.json.gz", cache=False)
    capture = ta.read(CORPUS / "tl-sglang-decode/bs_32_rank0.json.gz", cache=False)
    first = ta.top_kernels(whole, by="op", capture=capture).row(0, named=True)
    assert (first["group"], first["count"], first["self_ns"]) == ("aten::mm", 145, 5_782_257)
    shape = ta.top_kernels(whole, by="shape", capture=capture).row(0, named=True)
    assert shape["group"].startswith("aten::mm [[32, 4096], [4096, 24576]]")
    assert shape["count"] == 36


def test_the_command_says_what_is_unknown_and_how_to_record_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(write_trace(tmp_path / "replay.json", graph("a", "b", at=0, correlation=5)))
    assert main(["top-kernels", path, "--by", "op", "--format", "json", "--no-cache"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [(row["group"], row["reason"], row["self_ns"]) for row in report["rows"]] == [(None, "graph-replay", 2_000)]
    assert [(note["code"], note["count"]) for note in report["notes"]] == [("unknown-op", 2)]
    assert "--capture FILE takes a trace of the capture of the graph" in report["notes"][0]["message"]
    assert main(["top-kernels", path, "--by", "op", "--no-cache"]) == 0
    table = capsys.readouterr().out
    assert "unknown: replayed from a graph" in table
    assert "replayed from a graph: --capture FILE takes a trace of the capture of the graph" in " ".join(table.split())
    assert main(["top-kernels", path, "--by", "name", "--capture", path]) == 2
    assert "--capture tells operators" in capsys.readouterr().err


def test_ranks_of_two_runs_are_grouped_apart() -> None:
    runs = traces(trace(linear(0, 1), run="a"), trace(linear(0, 1), run="b", rank=1))
    rows = ta.top_kernels(runs, by="op")
    assert rows.select("run", "group", "total_ns").rows() == [
        ("a", "aten::addmm", 10_000), ("a", "aten::linear", 10_000),
        ("b", "aten::addmm", 10_000), ("b", "aten::linear", 10_000),
    ]  # fmt: skip
