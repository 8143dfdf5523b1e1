"""The bundled real traces show what was planted in them, in every mode they were recorded in."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

import traceanalyzer as ta

SAMPLES = Path(__file__).parent.parent / "sample_traces"
MODES = ("eager", "gpu-only", "graph")
in_every_mode = pytest.mark.parametrize("mode", MODES)


def load(name: str) -> ta.Trace:
    return ta.read(SAMPLES / name, cache=False)


def idle_share(trace: ta.Trace) -> float:
    times = ta.device_time(trace.kernels)
    return float(sum(times["idle_ns"].to_list()) / sum(times["span_ns"].to_list()))


@pytest.mark.parametrize("folder", sorted(path.name for path in SAMPLES.iterdir() if path.is_dir()))
def test_every_run_is_two_whole_ranks(folder: str) -> None:
    trace = load(folder)
    assert trace.ranks.select("rank", "world_size", "used", "whole").rows() == [(0, 2, True, True), (1, 2, True, True)]
    assert trace.ranks["run"].unique().to_list() == [folder]
    assert trace.notes.filter(pl.col("level") != "info").height == 0
    assert trace.devices["sms"].unique().to_list() == [132]
    assert max(path.stat().st_size for path in (SAMPLES / folder).glob("*.gz")) <= 200_000


@in_every_mode
def test_sparse_is_one_kernel_of_64_blocks_that_fills_half_the_gpu(mode: str) -> None:
    top = ta.top_kernels(load(f"sparse-{mode}")).row(0, named=True)
    assert (top["kernel"], top["class"], top["blocks"]) == ("_tiled_sparse_decode_kernel", "attention", 64)
    assert top["share_of_kernel_time"] > 0.6
    assert top["sm_fill"] == pytest.approx(64 / 132)


@in_every_mode
def test_cast_is_the_whole_pool_in_every_layer(mode: str) -> None:
    trace = load(f"cast-{mode}")
    top = ta.top_kernels(trace).row(0, named=True)
    assert "unrolled_elementwise_kernel" in top["kernel"]
    assert (top["class"], top["sm_fill"]) == ("copy_cast", 1.0)
    classes = ta.top_kernels(trace, by="class").row(0, named=True)
    assert classes["group"] == "copy_cast"
    assert classes["share_of_kernel_time"] > 0.65


@in_every_mode
def test_mask_leaves_the_gpu_idle_the_more_the_longer_the_context(mode: str) -> None:
    shares = [idle_share(load(f"mask-{context}-{mode}")) for context in ("4k", "16k", "64k")]
    assert shares == sorted(shares)
    assert shares[0] < 0.35
    assert shares[2] > 0.6


@in_every_mode
def test_the_straggler_shows_the_least_communication(mode: str) -> None:
    trace = load(f"straggler-{mode}")
    shares = []
    for rank in (0, 1):
        classes = ta.top_kernels(ta.select(trace, ranks=[rank]), by="class")
        shares.append(classes.filter(pl.col("group") == "communication")["share_of_kernel_time"].item())
    assert shares[0] > 3 * shares[1]


@in_every_mode
def test_healthy_is_busy_and_well_filled(mode: str) -> None:
    trace = load(f"healthy-{mode}")
    assert idle_share(trace) < 0.02
    worth_naming = ta.top_kernels(trace).filter(
        (pl.col("share_of_kernel_time") >= 0.05) & (pl.col("class") != "communication")
    )
    assert all(fill > 0.5 for fill in worth_naming["sm_fill"])


@pytest.mark.parametrize("folder", ["sparse-eager", "cast-graph", "mask-64k-eager", "healthy-graph"])
def test_the_span_is_the_truth_of_the_same_profiled_run(folder: str) -> None:
    """All steps but the first, by CUDA events around each: within 2 % of the trace's own span."""
    truth = json.loads((SAMPLES / folder / "truth.json").read_text())
    trace = load(folder)
    spans = ta.device_time(trace.kernels).sort("rank")["span_ns"].to_list()
    for span, rank in zip(spans, truth["ranks"], strict=True):
        steps = rank["profiled"]["cuda_event_step_ns"]
        assert sum(steps[1:]) < span * 1.02
        assert sum(steps) > span * 0.98
