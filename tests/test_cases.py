"""The small faults of the shared cases that reading, `info` and `top-kernels` answer, with their expected values."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import polars as pl
import pytest
from shared import CASES, needs_cases

import traceanalyzer as ta
from traceanalyzer.analyses.device_time import device_time
from traceanalyzer.analyses.top_kernels import top_kernels

pytestmark = needs_cases
#: Case, and what it may call a kernel's total.
BY_RANK = ["s04", "s05", "s06", "s07", "s08", "s09", "s11", "s12"]


def _load(case: str) -> tuple[dict[str, Any], ta.Trace]:
    folder = next(CASES.glob(f"{case}-*"))
    return json.loads((folder / "expect.json").read_text()), ta.read(folder / "in")


def _ns(microseconds: Any) -> int:
    return int(Decimal(str(microseconds)) * 1000)


def _totals(trace: ta.Trace) -> dict[str, int]:
    """ns by name, copies and sets included."""
    totals = trace.kernels.group_by(pl.col("name").cast(pl.String)).agg(pl.col("duration_ns").sum())
    return dict(totals.iter_rows())


def _one_rank(trace: ta.Trace, source: int) -> ta.Trace:
    return trace.replace(
        kernels=trace.kernels.filter(pl.col("source") == source),
        ranks=trace.ranks.filter(pl.col("source") == source),
    )


@pytest.mark.parametrize("case", BY_RANK)
def test_expected_values_hold(case: str) -> None:
    expected, trace = _load(case)
    ranks = expected.get("ranks") or expected["if_loaded"]["ranks"]
    assert trace.used.height == len(ranks)
    for source, wanted in enumerate(ranks):
        _check_rank(_one_rank(trace, source), wanted)


def _check_rank(trace: ta.Trace, wanted: dict[str, Any]) -> None:
    kernels = trace.kernels.filter(pl.col("kind") == "kernel")
    found: dict[str, Any] = {
        "kernel_count": kernels.height,
        "timed_kernel_count": kernels.height,
        "device_events": trace.kernels.height,
        "n_devices": trace.kernels["device"].n_unique(),
        "n_streams": trace.kernels.select("device", "stream").n_unique(),
        **{f"{kind}_count": trace.kernels.filter(pl.col("kind") == kind).height for kind in ("memcpy", "memset")},
    }
    for key in found.keys() & wanted.keys():
        assert found[key] == wanted[key], key
    if "rank" in wanted and trace.ranks["rank"].item() is not None:
        assert trace.ranks["rank"].item() == wanted["rank"]
    totals = _totals(trace)
    for key in ("kernel_total_us", "name_total_us"):
        for name, total in wanted.get(key, {}).items():
            assert totals[name] == _ns(total), name
    times = device_time(trace.kernels)
    for key in ("busy", "span", "idle"):
        if f"gpu_{key}_us" in wanted:
            assert times[f"{key}_ns"].item() == _ns(wanted[f"gpu_{key}_us"]), key


def test_s07_lost_records_and_negative_durations_are_counted() -> None:
    expected, trace = _load("s07")
    counts = dict(trace.notes.select("code", "count").iter_rows())
    assert counts["lost-record"] == expected["ranks"][0]["lost_kernel_records"]
    assert counts["negative-duration"] == expected["ranks"][0]["negative_duration_device_events"]


def test_s08_busy_percent_and_the_sum_of_durations() -> None:
    expected, trace = _load("s08")
    wanted = expected["ranks"][0]
    times = device_time(trace.kernels).row(0, named=True)
    assert 100 * times["busy_ns"] / times["span_ns"] == wanted["busy_percent"]
    assert trace.kernels["duration_ns"].sum() == _ns(wanted["sum_of_device_durations_us"])


def test_s11_every_kernel_of_a_replay_keeps_its_name_and_its_launch() -> None:
    expected, trace = _load("s11")
    wanted = expected["ranks"][0]
    links = trace.kernels.join(trace.launches, on=["source", "correlation"], suffix="_launch")
    assert trace.kernels.height - links.height == wanted["kernels_without_launch_call"]
    by_launch = links.group_by("correlation").agg(
        pl.col("name_launch").first().cast(pl.String), pl.len(), pl.col("duration_ns").sum()
    )
    found = {row[0]: row[1:] for row in by_launch.iter_rows()}
    for call in wanted["launch_calls"]:
        assert found[call["correlation"]] == (call["api"], call["kernels"], _ns(call["kernel_us"]))


def test_s12_correlation_zero_is_no_link() -> None:
    expected, trace = _load("s12")
    wanted = expected["ranks"][0]
    linked = trace.kernels.join(trace.launches, on=["source", "correlation"], how="semi").height
    assert linked == wanted["device_events_with_launch_call"]
    assert trace.kernels.height - linked == wanted["device_events_without_launch_call"]


def test_s12_copies_written_as_kernels_are_memory() -> None:
    _, trace = _load("s12")
    classes = dict(top_kernels(trace).select(pl.col("kernel").cast(pl.String), "class").iter_rows())
    assert classes["__amd_rocclr_copyBuffer"] == "memory"
    assert classes["__amd_rocclr_fillBufferAligned"] == "memory"
    assert classes["ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>)"] == "communication"


def test_s13_every_file_has_the_dimensions_of_its_name() -> None:
    expected, trace = _load("s13")
    folder = next(CASES.glob("s13-*")) / "in"
    rows = {row["path"]: row for row in trace.ranks.iter_rows(named=True)}
    for name, wanted in expected["from_file_name"].items():
        row = rows[str(folder / name)]
        if wanted.get("merged"):
            assert (row["used"], row["reason"]) == (False, "merged")
            continue
        assert {key: row[key] for key in wanted} == wanted
        if not wanted:
            assert row["rank"] is None
    sglang = trace.ranks.filter(pl.col("path").str.contains("/sglang/"))
    assert sglang["tp"].to_list() == expected["order_of_sglang_folder_by_tp"]


def test_s13_each_files_kernels_are_its_own() -> None:
    expected, _ = _load("s13")
    folder = next(CASES.glob("s13-*")) / "in"
    for name, totals in expected["kernel_total_us_by_file"].items():
        assert _totals(ta.read(folder / name)) == {kernel: _ns(total) for kernel, total in totals.items()}
