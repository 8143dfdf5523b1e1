"""`occupancy`: launches laid on the devices of small traces, the shared case and the corpus, and on other GPUs."""

from __future__ import annotations

import math
from typing import Any

import polars as pl
import pytest
from builders import TEST_GPU, kernel, memcpy, trace, traces
from hypothesis import given
from hypothesis import strategies as st
from shared import CASES, CORPUS, EXHAUSTIVE, corpus_files, needs_cases, needs_corpus

import traceanalyzer as ta
from traceanalyzer.analyses.occupancy import UNKNOWN, notes, occupancy
from traceanalyzer.choices import OCCUPANCY_SORTS, OccupancySort
from traceanalyzer.errors import UsageError

SHAPE: dict[str, Any] = {"block": (256, 1, 1), "registers": 64, "shared_memory": 0}


def row(rows: pl.DataFrame, name: str) -> dict[str, Any]:
    return rows.filter(kernel=name).row(0, named=True)


def test_a_launch_of_several_waves() -> None:
    """64 registers a thread: 32 warps of 64 fit on an SM, so 4 blocks; 100 SMs hold 400 at once, 1000 take 3 waves."""
    found = row(occupancy(trace([kernel("gemm", at=0, dur=30, grid=(10, 100, 1), **SHAPE)])), "gemm")
    assert (found["grid"], found["block"], found["registers"], found["shared_memory"]) == ("10x100x1", "256x1x1", 64, 0)
    assert (found["resident_blocks_per_sm"], found["limited_by"]) == (4, "registers")
    assert (found["theoretical_occupancy"], found["launch_occupancy"]) == (0.5, 0.5)
    assert (found["sm_fill"], found["waves"], found["wave_fill"]) == (1.0, 3, 1000 / 1200)
    assert (found["idle_sm_ns"], found["tail_waste_ns"]) == (0, 5_000)
    assert found["unknown"] is None


def test_a_launch_that_cannot_fill_the_gpu() -> None:
    found = row(occupancy(trace([kernel("attn", at=0, dur=30, grid=(1, 64, 1), **SHAPE)])), "attn")
    assert (found["sm_fill"], found["waves"], found["wave_fill"]) == (0.64, 1, 64 / 400)
    assert (found["idle_sm_ns"], found["tail_waste_ns"]) == (10_800, 0)
    assert found["theoretical_occupancy"] == 0.5  # of an SM that has enough blocks
    assert found["launch_occupancy"] == 64 * 8 / 6400


def test_the_claim_of_the_trace_stands_beside_and_is_not_used() -> None:
    claim: dict[str, Any] = {"est. achieved occupancy %": 0.0}
    found = row(
        occupancy(trace([kernel("fa", at=0, dur=9, block=(256, 1, 1), registers=168, shared_memory=51_200, **claim)])),
        "fa",
    )
    assert found["trace_occupancy"] == 0.0
    assert (found["resident_blocks_per_sm"], found["theoretical_occupancy"]) == (1, 8 / 64)
    assert found["limited_by"] == "registers"


def test_launches_are_grouped_by_shape_and_kernels_by_name() -> None:
    events = [
        kernel("k", at=0, dur=10, grid=(50, 1, 1), **SHAPE),
        kernel("k", at=20, dur=10, grid=(50, 1, 1), **SHAPE),
        kernel("k", at=40, dur=20, grid=(100, 1, 1), **SHAPE),
        memcpy(at=70, dur=5),
    ]
    launches = occupancy(trace(events), sort="total")
    assert launches.select("grid", "count", "total_ns", "sm_fill").rows() == [
        ("100x1x1", 1, 20_000, 1.0),
        ("50x1x1", 2, 20_000, 0.5),
    ]
    (found,) = occupancy(trace(events), by="kernel").to_dicts()
    assert (found["configurations"], found["count"], found["total_ns"], found["grid"]) == (2, 3, 40_000, None)
    assert (found["sm_fill"], found["idle_sm_ns"], found["theoretical_occupancy"]) == (0.75, 10_000, 0.5)
    assert found["share_of_kernel_time"] == 1.0


def test_ranks_with_other_devices_are_laid_on_their_own() -> None:
    half = {**TEST_GPU, "numSms": 50}
    both = traces(
        trace([kernel("k", at=0, dur=10, grid=(50, 1, 1), **SHAPE)], rank=0),
        trace([kernel("k", at=0, dur=10, grid=(50, 1, 1), **SHAPE)], rank=1, device_properties=[half]),
    )
    assert sorted(occupancy(both)["sm_fill"]) == [0.5, 1.0]
    assert occupancy(both, by="kernel")["sm_fill"].to_list() == [0.75]


AMD = {"id": 0, "name": "AMD Instinct MI300X", "computeMajor": 9, "computeMinor": 0, "numSms": 304, "warpSize": 64}


@pytest.mark.parametrize(
    ("event", "device", "why", "fill"),
    [
        (kernel("k", at=0, dur=9, grid=None, block=None), TEST_GPU, "no launch shape", None),
        (kernel("k", at=0, dur=9), TEST_GPU, "no registers", 1.0),
        (kernel("k", at=0, dur=9, registers=0, shared_memory=0), TEST_GPU, "no registers", 1.0),
        (kernel("k", at=0, dur=9, **SHAPE), {"id": 0}, "no device", None),
        (kernel("k", at=0, dur=9, **SHAPE), {**TEST_GPU, "computeMajor": 6}, "no limits", 1.0),
        (kernel("k", at=0, dur=9, grid=(304, 1, 1), **SHAPE), AMD, "no limits", 1.0),
        (kernel("k", at=0, dur=9, block=(1024, 1, 1), registers=255, shared_memory=0), TEST_GPU, "contradiction", 1.0),
    ],
)
def test_what_cannot_be_known_is_null_and_said(event: Any, device: Any, why: str, fill: float | None) -> None:
    rows = occupancy(trace([event], device_properties=[device]))
    found = row(rows, "k")
    assert (found["unknown"], found["sm_fill"]) == (why, fill)
    for figure in ("resident_blocks_per_sm", "theoretical_occupancy", "launch_occupancy", "limited_by", "waves"):
        assert found[figure] is None
    (note,) = notes(rows)
    assert (note.code, note.count) == ("occupancy-unknown", 1)
    assert note.message == f"occupancy unknown of 1 kernel, 100.0% of the time: {UNKNOWN[why]}"


def test_a_grid_of_no_blocks_is_no_launch_shape() -> None:
    found = row(occupancy(trace([kernel("k", at=0, dur=9, grid=(0, 1, 1), **SHAPE)])), "k")
    assert (found["unknown"], found["sm_fill"], found["waves"]) == ("no launch shape", None, None)
    assert found["theoretical_occupancy"] == 0.5  # of an SM, which the block alone decides


def test_the_limits_of_the_file_count_before_those_of_the_table() -> None:
    small = {**TEST_GPU, "maxThreadsPerMultiprocessor": 512}
    found = row(occupancy(trace([kernel("k", at=0, dur=9, **SHAPE)], device_properties=[small])), "k")
    assert (found["resident_blocks_per_sm"], found["limited_by"], found["theoretical_occupancy"]) == (2, "warps", 1.0)


def test_another_gpu() -> None:
    events = [
        kernel("sparse", at=0, dur=30, grid=(1, 64, 1), block=(64, 1, 1), registers=54, shared_memory=1024),
        kernel("wgmma", at=40, dur=10, grid=(132, 1, 1), block=(384, 1, 1), registers=168, shared_memory=225_652),
    ]
    rows = occupancy(trace(events), gpu="rtx pro 6000")
    assert {"idle_sm_ns", "tail_waste_ns"}.isdisjoint(rows.columns)
    sparse, wgmma = row(rows, "sparse"), row(rows, "wgmma")
    assert (sparse["sm_fill"], sparse["theoretical_occupancy"]) == (64 / 188, 0.75)
    assert (wgmma["resident_blocks_per_sm"], wgmma["unknown"]) == (0, "does not fit")
    assert wgmma["limited_by"] == "shared memory"
    assert (wgmma["sm_fill"], wgmma["theoretical_occupancy"]) == (None, None)
    assert row(occupancy(trace(events), gpu="rtx pro 6000", by="kernel"), "wgmma")["sm_fill"] is None
    assert row(occupancy(trace(events), gpu="MI300X"), "sparse")["sm_fill"] == 64 / 304
    with pytest.raises(UsageError, match="no GPU 'voodoo'"):
        occupancy(trace(events), gpu="voodoo")


@pytest.mark.parametrize("sort", OCCUPANCY_SORTS)
def test_orders(sort: OccupancySort) -> None:
    events = [
        kernel("a", at=0, dur=10, grid=(10, 1, 1), **SHAPE),
        kernel("b", at=20, dur=50, grid=(500, 1, 1), **SHAPE),
        kernel("c", at=80, dur=5, grid=(90, 1, 1), block=(256, 1, 1), registers=32, shared_memory=0),
        kernel("c", at=90, dur=5, grid=(90, 1, 1), block=(256, 1, 1), registers=32, shared_memory=0),
        kernel("d", at=100, dur=90, grid=None, block=None),
    ]
    wanted = {
        "idle": "acbd", "total": "dbac", "count": "cdba", "occupancy": "bacd", "sm_fill": "acbd", "tail": "bacd",
        "name": "abcd",
    }  # fmt: skip
    assert "".join(occupancy(trace(events), sort=sort)["kernel"]) == wanted[sort]


launches = st.builds(
    kernel,
    name=st.sampled_from(["a", "b", "c"]),
    at=st.integers(0, 1000),
    dur=st.integers(0, 50),
    grid=st.none() | st.tuples(st.integers(1, 300), st.integers(1, 3), st.just(1)),
    block=st.tuples(st.integers(1, 512), st.just(1), st.just(1)),
    registers=st.none() | st.integers(1, 255),
    shared_memory=st.integers(0, 100_000),
)


@given(st.lists(launches, max_size=30))
def test_nothing_is_lost_and_every_figure_is_in_its_bounds(events: list[Any]) -> None:
    recorded = trace(events)
    rows, kernels = occupancy(recorded), occupancy(recorded, by="kernel")
    for each in (rows, kernels):
        assert each["count"].sum() == len(events)
        assert each["total_ns"].sum() == recorded.kernels["duration_ns"].sum()
        for share in ("theoretical_occupancy", "launch_occupancy", "sm_fill", "wave_fill"):
            assert each[share].drop_nulls().is_between(0, 1 + 1e-12).all()
        assert (each["theoretical_occupancy"].drop_nulls() > 0).all()
        assert (each["idle_sm_ns"].drop_nulls() <= each.drop_nulls("idle_sm_ns")["total_ns"]).all()
    assert rows["idle_sm_ns"].sum() == kernels["idle_sm_ns"].sum()
    assert sum(note.count or 0 for note in notes(rows)) == rows.filter(pl.col("unknown").is_not_null())["count"].sum()


@needs_cases
def test_the_case_of_kernels_without_a_grid() -> None:
    """Fills as expected; the mean over the known time, and the unknown kernel apart."""
    recorded = ta.read(next(CASES.glob("s15-*")) / "in", cache=False)
    rows = occupancy(recorded)
    fills = dict(rows.select("kernel", "sm_fill").iter_rows())
    assert fills == {
        "attn_decode": pytest.approx(32 / 132),
        "mlp_gemm": 1.0,
        "splitk_reduce": 0.5,
        "one_block_scan": pytest.approx(1 / 132),
        "graph_kernel_without_grid": None,
    }
    known = rows.drop_nulls("sm_fill")
    assert known["total_ns"].sum() == 170_000
    assert 1 - known["idle_sm_ns"].sum() / 170_000 == pytest.approx(0.704545, abs=1e-4)
    assert row(rows, "graph_kernel_without_grid")["unknown"] == "no launch shape"


@needs_corpus
def test_no_kernel_that_ran_has_an_occupancy_of_0() -> None:
    """In five of these the trace's own figure is 0 for a large part of the kernel time."""
    claimed = 0
    for path in corpus_files():
        try:
            rows = occupancy(ta.read(CORPUS / path, cache=False))
        except ta.UnreadableError:
            continue
        assert (rows["theoretical_occupancy"].drop_nulls() > 0).all(), path
        assert (rows["resident_blocks_per_sm"].drop_nulls() > 0).all(), path
        assert (rows["theoretical_occupancy"].is_null() == rows["unknown"].is_not_null()).all(), path
        assert "contradiction" not in rows["unknown"].to_list(), path
        large = rows.filter((pl.col("trace_occupancy") == 0) & (pl.col("shared_memory") > 49_152))
        claimed += large.height
        assert large["unknown"].drop_nulls().is_in(["no device", "no limits"]).all(), path
    assert claimed > (50 if EXHAUSTIVE else 0)


@needs_corpus
def test_where_the_claim_of_the_trace_is_right_ours_is_the_same() -> None:
    """Up to 48 KiB of shared memory Kineto's own figure is sound: resident blocks, but not more than blocks a SM, as
    threads of all that an SM may hold, in whole percent. Ours gives the same for every launch shape of the corpus."""
    compared = 0
    for path in corpus_files():
        try:
            recorded = ta.read(CORPUS / path, cache=False)
        except ta.UnreadableError:
            continue
        sound = pl.col("unknown").is_null() & pl.col("trace_occupancy").is_not_null()
        rows = occupancy(recorded).filter(sound & (pl.col("shared_memory") <= 49_152))
        devices = recorded.devices.select("sms", "max_threads_per_sm").unique()
        if rows.is_empty() or devices.height != 1:
            continue
        sms, most = devices.row(0)
        for each in rows.iter_rows(named=True):
            blocks, threads = (math.prod(map(int, each[axes].split("x"))) for axes in ("grid", "block"))
            ours = 100 * min(each["resident_blocks_per_sm"], blocks / sms) * threads / (most or 2048)
            assert abs(ours - 100 * each["trace_occupancy"]) <= 0.51, (path, each)
            compared += 1
    assert compared > (4_000 if EXHAUSTIVE else 0)


@needs_corpus
@pytest.mark.parametrize(
    ("path", "known"),
    [
        ("tl-b200/eager_trace.json.gz", 1.0),
        ("tl-sgl-dsr1-b300/1782843274.7730265-TP-0-DECODE.trace.json.gz", 1.0),
        ("tl-sgl-qwen3moe-mi300/1782859605.7198358-TP-0-DECODE.trace.json.gz", 0.0),
        ("tl-vllm-decode/graph_execution.json.gz", 0.0),
    ],
)
def test_what_is_known_of_real_traces(path: str, known: float) -> None:
    rows = occupancy(ta.read(CORPUS / path, cache=False))
    found = int(rows.filter(pl.col("unknown").is_null())["total_ns"].sum()) / int(rows["total_ns"].sum())
    assert found == known
