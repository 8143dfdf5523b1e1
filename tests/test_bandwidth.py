"""Bytes, operations and rates of what ran on the device."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from builders import Event, kernel, launch, memcpy, memset, op, trace, write_trace
from hypothesis import given
from shared import CORPUS, corpus_folders, needs_corpus
from strategies import traces_of_ranks

import traceanalyzer as ta
from traceanalyzer.analyses.bandwidth import bandwidth, roofs
from traceanalyzer.cli import main
from traceanalyzer.errors import UsageError
from traceanalyzer.hardware.rates import Rates, load_rates, rates_of
from traceanalyzer.trace import Trace

SAMPLES = Path(__file__).parent.parent / "sample_traces"
H200 = {"id": 0, "name": "NVIDIA H200", "numSms": 132}
COPY: dict[str, Any] = {
    "Input Dims": [[1000, 1000], [1000, 1000], []],
    "Input type": ["c10::BFloat16", "float", "Scalar"],
}


def launched(name: str, number: int, *, at: float, dur: float, **arguments: Any) -> list[Event]:
    """An operator with its launch call and its kernel."""
    return [
        op(name, at=at, dur=5, **arguments),
        launch(at=at + 1, dur=1, correlation=number),
        kernel(f"{name}_kernel", at=at + 10, dur=dur, correlation=number),
    ]


def _on(events: list[Event], devices: list[dict[str, Any]]) -> Trace:
    return trace(events, device_properties=devices)


def only(events: list[Event], **options: Any) -> dict[str, Any]:
    (row,) = bandwidth(_on(events, [H200]), **options).to_dicts()
    return row


def test_a_cast_moves_what_its_shapes_say() -> None:
    """1,000,000 elements: 4 bytes read, 2 written each; 6 MB in 2 us are 3,000 GB/s, of 4,800."""
    row = only(launched("aten::copy_", 1, at=0, dur=2, **COPY))
    assert (row["bytes"], row["count"], row["total_ns"], row["gb_per_s"]) == (6_000_000, 1, 2000, 3000.0)
    assert (row["op"], row["source"], row["bound"], row["flops"]) == ("aten::copy_", "shapes: cast", "memory", None)
    assert row["share_of_roof"] == pytest.approx(3000 / 4800)


def test_a_product_is_bound_by_what_takes_longer() -> None:
    """4096 cubed: 137.4 GFLOP at 989 TFLOP/s take 139 us at least, its 100 MB 21 us."""
    shapes = {"Input Dims": [[4096, 4096]] * 2, "Input type": ["c10::BFloat16"] * 2}
    row = only(launched("aten::mm", 1, at=0, dur=200, **shapes))
    assert row["flops"] == 2 * 4096**3
    assert row["tflop_per_s"] == pytest.approx(2 * 4096**3 / 200e-6 / 1e12)
    assert (row["bound"], row["share_of_roof"]) == ("compute", pytest.approx(2 * 4096**3 / 989e12 / 200e-6))


def test_what_several_kernels_do_together_is_one_row() -> None:
    """A product in two kernels: its bytes move in the time of both, under the name of the longer."""
    shapes = {"Input Dims": [[64, 64]] * 2, "Input type": ["float"] * 2}
    events = launched("aten::mm", 1, at=0, dur=4, **shapes)
    events += [launch(at=3, dur=1, correlation=2), kernel("reduce", at=20, dur=6, correlation=2)]
    row = only(events)
    assert (row["kernel"], row["count"], row["total_ns"], row["bytes"]) == ("reduce", 1, 10_000, 3 * 64 * 64 * 4)


def test_copies_and_sets_have_the_size_that_they_say() -> None:
    within = memcpy("Memcpy DtoD (Device -> Device)", at=0, dur=1, bytes=4800)
    up = memcpy("Memcpy HtoD (Pinned -> Device)", at=10, dur=1, bytes=4800)
    rows = bandwidth(_on([within, up], [H200])).to_dicts()
    by_name = {row["kernel"][:11]: row for row in rows}
    assert by_name["Memcpy DtoD"]["bytes"] == 9600  # read and written
    assert by_name["Memcpy DtoD"]["share_of_roof"] == pytest.approx(9600 / 1000 / 4800)
    assert by_name["Memcpy HtoD"]["bytes"] == 4800
    assert by_name["Memcpy HtoD"]["share_of_roof"] is None  # another road than the device's memory
    assert only([memset(at=0, dur=1)])["source"] == "unknown: no size recorded"


@pytest.mark.parametrize(
    ("events", "source"),
    [
        ([kernel("k", at=0, dur=1)], "unknown: the record has no id of a launch call"),
        ([kernel("k", at=0, dur=1, correlation=5)], "unknown: no launch call recorded (ProfilerActivity.CPU)"),
        (launched("aten::mm", 1, at=0, dur=1), "unknown: no shapes recorded (record_shapes=True)"),
        (
            launched("my::op", 1, at=0, dur=1, **COPY),
            "unknown: bytes of this operator are not known from its shapes",
        ),
    ],
)
def test_what_is_unknown_says_why(events: list[Event], source: str) -> None:
    row = only(events)
    assert row["source"] == source
    assert [row[name] for name in ("bytes", "flops", "gb_per_s", "tflop_per_s", "share_of_roof", "bound")] == [None] * 6


def replayed(*kernels: tuple[str, float], at: float, number: int) -> list[Event]:
    """A replay of a graph of kernels that take so long."""
    call = launch("cudaGraphLaunch", at=at, dur=1, correlation=number)
    places = [at + 10 + 20 * place for place in range(len(kernels))]
    return [
        call,
        *(kernel(name, at=at, dur=dur, correlation=number) for at, (name, dur) in zip(places, kernels, strict=True)),
    ]


def capture_of(*operators: tuple[str, list[str], dict[str, Any]], says_names: bool = False) -> Trace:
    """A capture of operators that put these kernels into a graph, by calls that say so or do not."""
    events: list[Event] = [launch("cudaStreamBeginCapture", at=0, dur=1, correlation=900)]
    for place, (name, kernels, arguments) in enumerate(operators):
        at = 100 * (place + 1)
        events.append(op(name, at=at, dur=90, **arguments))
        for number, kernel_name in enumerate(kernels):
            call = launch("hipLaunchKernel", at=at + 1 + number, dur=0.5, correlation=at + number)
            call["args"] |= {"kernel": kernel_name} if says_names else {}
            events.append(call)
    return trace(events)


PRODUCT: dict[str, Any] = {"Input Dims": [[64, 64]] * 2, "Input type": ["float"] * 2}


def test_a_capture_tells_the_work_of_every_replay() -> None:
    """Two replays of a cast of 6 MB, in 2 us and in 4, and of a product of 49,152 bytes in two kernels."""
    graph = [("cast", 2.0), ("gemm", 3.0), ("splitk", 1.0)], [("cast", 4.0), ("gemm", 5.0), ("splitk", 1.0)]
    replays = _on([*replayed(*graph[0], at=0, number=1), *replayed(*graph[1], at=200, number=2)], [H200])
    capture = capture_of(("aten::copy_", ["cast"], COPY), ("aten::mm", ["gemm", "splitk"], PRODUCT))
    cast, product = bandwidth(replays, capture=capture).sort("kernel").to_dicts()
    assert (cast["op"], cast["count"], cast["bytes"], cast["total_ns"]) == ("aten::copy_", 2, 12_000_000, 6_000)
    assert (cast["gb_per_s"], cast["source"]) == (2000.0, "shapes: cast")
    assert cast["share_of_roof"] == pytest.approx(2000 / 4800)
    assert [product[name] for name in ("kernel", "count", "total_ns", "bytes")] == ["gemm", 2, 10_000, 2 * 49_152]
    shapes = bandwidth(replays, capture=capture, by_shape=True).sort("kernel")["shapes"].to_list()
    assert shapes == [json.dumps(COPY["Input Dims"]), json.dumps(PRODUCT["Input Dims"])]
    alone = bandwidth(replays)
    assert set(alone["source"]) == {"unknown: replayed by a graph (--capture FILE)"}
    assert alone["total_ns"].sum() == cast["total_ns"] + product["total_ns"]


def test_operators_beside_a_replay_keep_their_own_shapes() -> None:
    """Row 0 of the operators is one thing in the trace and another in the capture."""
    small = {**COPY, "Input Dims": [[10], [10], []]}
    mixed = _on([*launched("aten::add", 9, at=0, dur=1, **small), *replayed(("cast", 2.0), at=50, number=1)], [H200])
    rows = bandwidth(mixed, capture=capture_of(("aten::copy_", ["cast"], COPY)))
    assert {row["op"]: row["bytes"] for row in rows.to_dicts()} == {"aten::copy_": 6_000_000, "aten::add": 100}


def test_work_of_which_only_a_part_was_found_is_unknown() -> None:
    """The graph holds one kernel named splitk more than the capture: whose they are nobody knows."""
    replay = _on(replayed(("gemm", 3.0), ("splitk", 1.0), ("splitk", 1.0), ("cast", 2.0), at=0, number=1), [H200])
    operators = ("aten::mm", ["gemm", "splitk"], PRODUCT), ("aten::copy_", ["cast"], COPY)
    rows = bandwidth(replay, capture=capture_of(*operators, says_names=True))
    assert {row["kernel"]: (row["bytes"], row["source"]) for row in rows.to_dicts()} == {
        "gemm": (None, "unknown: replayed by a graph, and the capture does not know all kernels of the operator"),
        "splitk": (None, "unknown: replayed by a graph (--capture FILE)"),
        "cast": (6_000_000, "shapes: cast"),
    }
    assert rows["total_ns"].sum() == 7_000


@needs_corpus
def test_the_projections_of_tl_sglang() -> None:
    """36 layers multiply [32, 4096] by [4096, 24576] in BF16: 203 MB a time, 57 % of what an MI300X can move."""
    replay = ta.read(CORPUS / "tl-sglang-decode/sglang_Qwen3-8B_decode.json.gz", cache=False)
    capture = ta.read(CORPUS / "tl-sglang-decode/bs_32_rank0.json.gz", cache=False)
    rows = bandwidth(replay, by_shape=True, capture=capture)
    first = rows.row(0, named=True)
    assert (first["shapes"], first["count"]) == ("[[32, 4096], [4096, 24576]]", 36)
    assert first["bytes"] == 36 * 2 * (32 * 4096 + 4096 * 24576 + 32 * 24576)
    assert first["share_of_roof"] == pytest.approx(first["bytes"] / 5300 / first["total_ns"])
    assert rows["total_ns"].sum() == bandwidth(replay)["total_ns"].sum() == replay.kernels["duration_ns"].sum()


def test_the_command_takes_a_capture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    replay = write_trace(tmp_path / "replay.json", replayed(("cast", 2.0), at=0, number=1))
    calls = [
        launch("cudaStreamBeginCapture", at=0, dur=1, correlation=900),
        op("aten::copy_", at=100, dur=90, **COPY),
        launch(at=101, dur=1, correlation=7),
    ]
    capture = write_trace(tmp_path / "capture" / "graph.json", calls)
    assert main(["bandwidth", str(replay), "--capture", str(capture), "--format", "json", "--no-cache"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    assert (row["op"], row["bytes"], row["gb_per_s"]) == ("aten::copy_", 6_000_000, 3000.0)
    assert main(["bandwidth", str(replay), "--no-cache"]) == 0
    assert "100.0% of the time unknown: replayed by a graph (--capture FILE)" in capsys.readouterr().out


def test_a_device_that_nobody_knows_has_rates_but_no_roof() -> None:
    events = launched("aten::copy_", 1, at=0, dur=2, **COPY)
    (row,) = bandwidth(_on(events, [{"id": 0, "name": "Something new"}])).to_dicts()
    assert (row["gb_per_s"], row["share_of_roof"]) == (3000.0, None)
    assert roofs(_on(events, [{"id": 0, "name": "Something new"}])) == {"Something new": None}


def test_a_part_of_a_device_has_its_part_of_the_rates() -> None:
    events = launched("aten::copy_", 1, at=0, dur=2, **COPY)
    (row,) = bandwidth(_on(events, [{**H200, "numSms": 33}])).to_dicts()
    assert row["share_of_roof"] == pytest.approx(3000 / 1200)


def test_by_shape_tells_shapes_apart() -> None:
    small = {**COPY, "Input Dims": [[10], [10], []]}
    events = launched("aten::copy_", 1, at=0, dur=2, **COPY) + launched("aten::copy_", 2, at=50, dur=1, **small)
    assert bandwidth(trace(events)).height == 1
    assert bandwidth(trace(events), by_shape=True)["shapes"].to_list() == [
        json.dumps(COPY["Input Dims"]), "[[10], [10], []]",
    ]  # fmt: skip


@given(traces_of_ranks())
def test_all_device_time_is_in_a_row(ranks: Trace) -> None:
    assert_conserved(ranks)


def assert_conserved(trace: Trace) -> None:
    valid = trace.kernels.filter(pl.col("duration_ns") >= 0).join(trace.ranks.select("source", "run"), on="source")
    for by_shape in (False, True):
        rows = bandwidth(trace, by_shape=by_shape)
        wanted = dict(valid.group_by("run").agg(pl.col("duration_ns").sum()).iter_rows())
        assert dict(rows.group_by("run").agg(pl.col("total_ns").sum()).iter_rows()) == wanted
        unknown = rows["source"].str.starts_with("unknown")
        assert (rows["bytes"].is_null() == unknown).all()


@needs_corpus
@pytest.mark.parametrize("folder", corpus_folders())
def test_all_device_time_of_real_files_is_in_a_row(folder: str) -> None:
    try:
        trace = ta.read(CORPUS / folder, tables=["kernels", "launches", "ops", "collectives"], cache=False)
    except ta.UnreadableError:
        pytest.skip("no trace")
    assert_conserved(trace)


def test_the_cast_of_the_whole_pool() -> None:
    """495,000 x 576 FP8 to BF16 in each of 3 layers of 22 steps on 2 ranks: 855.36 MB a time, far below the roof."""
    rows = bandwidth(ta.read(SAMPLES / "cast-eager"))
    row = rows.row(0, named=True)
    assert (row["op"], row["count"], row["source"]) == ("aten::copy_", 132, "shapes: cast")
    assert row["bytes"] == 132 * 495_000 * 576 * 3
    assert 900 < row["gb_per_s"] < 1100
    assert row["share_of_roof"] == pytest.approx(row["gb_per_s"] / 4800)
    known = rows.filter(pl.col("bytes").is_not_null())["total_ns"].sum()
    assert int(known) > 0.99 * int(rows["total_ns"].sum())


def test_collectives_carry_what_their_links_must() -> None:
    """An all-reduce of 1024 x 4096 BF16 over 2 ranks: each sends it once."""
    rows = bandwidth(ta.read(SAMPLES / "straggler-eager")).filter(pl.col("source") == "message of the collective")
    assert set(rows["class"]) == {"communication"}
    assert rows["bytes"].sum() == rows["count"].sum() * 1024 * 4096 * 2
    assert rows["share_of_roof"].null_count() == rows.height


# ------------------------------------------------------------------------------------------ rates of devices


def test_the_longest_name_that_fits_is_meant() -> None:
    found = {name: rates_of(name) for name in ("NVIDIA H200 NVL", "NVIDIA H200", "NVIDIA A10G", "NVIDIA L40S")}
    assert {name: rates.gpu for name, rates in found.items() if rates} == {
        "NVIDIA H200 NVL": "H200 NVL 141GB", "NVIDIA H200": "H200 SXM 141GB", "NVIDIA A10G": "A10G",
        "NVIDIA L40S": "L40S",
    }  # fmt: skip
    assert rates_of("Voodoo 2") is None
    assert rates_of(None) is None
    assert rates_of("") is None


@pytest.mark.parametrize("name", ["NVIDIA A100X", "NVIDIA L40G", "NVIDIA GeForce RTX 4090 Laptop GPU"])
def test_another_product_is_not_taken(name: str) -> None:
    assert rates_of(name) is None


def test_what_nobody_published_is_missing() -> None:
    rates = rates_of("NVIDIA RTX PRO 6000 Blackwell Server Edition")
    assert rates is not None
    assert (rates.gb_per_s, rates.tflop_per_s) == (1597.0, {"fp32": 120.0})


def test_rates_of_a_users_own_count_first(tmp_path: Path) -> None:
    table = tmp_path / "own.tsv"
    table.write_text("gpu\ttrace_name_contains\tdram_gbps\tbf16_tflops\nOurs\tH200\t4300\t\n")
    assert rates_of("NVIDIA H200", load_rates(table)) == Rates("Ours", None, 4300.0, {})
    row = only(launched("aten::copy_", 1, at=0, dur=2, **COPY), rates=load_rates(table))
    assert row["share_of_roof"] == pytest.approx(3000 / 4300)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("gpu,trace_name_contains\n", "no column gpu, trace_name_contains"),
        ("", "no column gpu"),
        ("gpu\ttrace_name_contains\tdram_gbps\nX\tX\tfast\n", "X: dram_gbps is 'fast', which is no number"),
    ],
)
def test_a_table_that_cannot_be_used_is_said_in_one_line(tmp_path: Path, text: str, said: str) -> None:
    table = tmp_path / "own.tsv"
    table.write_text(text)
    with pytest.raises(UsageError, match=said):
        load_rates(table)
