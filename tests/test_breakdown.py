"""`breakdown`: every instant once, on small cases, against an oracle that looks at each, and on the whole corpus."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from typing import Any

import polars as pl
import pytest
from builders import Event, kernel, memcpy, trace, traces
from hypothesis import given
from hypothesis import strategies as st
from oracles.naive_breakdown import Activity
from oracles.naive_breakdown import breakdown as naive
from polars.testing import assert_frame_equal
from shared import CASES, CORPUS, EXHAUSTIVE, corpus_files, needs_cases, needs_corpus
from strategies import linked_ranks, traces_of_ranks

import traceanalyzer as ta
from traceanalyzer.analyses.breakdown import STATES, breakdown, per_run
from traceanalyzer.analyses.device_time import device_time
from traceanalyzer.analyses.idle import CAUSES, idle_gaps
from traceanalyzer.analyses.labels import label
from traceanalyzer.classify.rules import CLASSES
from traceanalyzer.trace import Trace

GEMM, ATTENTION, NCCL = "gemm_a", "attn_fwd", "ncclDevKernel_AllReduce_Sum_bf16_RING_LL"


def parts(*events: Event) -> dict[str | None, int]:
    """Class of compute, or state, and its time in ns, of one device."""
    rows = breakdown(trace(events))
    return {class_ or state: total for state, class_, total in rows.select("state", "class", "total_ns").iter_rows()}


def hidden(*events: Event) -> int | None:
    rows = breakdown(trace(events)).filter(state="communication")
    return rows["hidden_communication_ns"].item() if rows.height else None


def test_of_two_compute_kernels_the_one_that_started_first_has_the_time() -> None:
    assert parts(kernel(GEMM, at=0, dur=10), kernel(ATTENTION, at=5, dur=10, stream=8)) == {
        "gemm": 10_000, "attention": 5_000, "idle": 0,
    }  # fmt: skip


def test_a_long_kernel_has_what_shorter_ones_run_in_it() -> None:
    events = [kernel(GEMM, at=0, dur=100), *(kernel(ATTENTION, at=at, dur=5, stream=8) for at in (10, 50))]
    assert parts(*events) == {"gemm": 100_000, "attention": 0, "idle": 0}


def test_behind_a_kernel_the_next_that_started_has_the_time() -> None:
    """a from 0 to 10, b from 1 to 4, c from 2 to 12: c has 10 to 12, b nothing."""
    events = kernel(GEMM, at=0, dur=10), kernel("_norm_kernel", at=1, dur=3), kernel(ATTENTION, at=2, dur=10)
    assert parts(*events) == {"gemm": 10_000, "attention": 2_000, "norm": 0, "idle": 0}


def test_of_kernels_that_start_together_the_shorter_is_first() -> None:
    assert parts(kernel(GEMM, at=0, dur=10), kernel(ATTENTION, at=0, dur=4, stream=8)) == {
        "attention": 4_000, "gemm": 6_000, "idle": 0,
    }  # fmt: skip


def test_communication_behind_compute_is_hidden() -> None:
    events = kernel(NCCL, at=0, dur=20, stream=9), kernel(GEMM, at=5, dur=10), kernel(NCCL, at=12, dur=10, stream=10)
    assert parts(*events) == {"gemm": 10_000, "communication": 12_000, "idle": 0}
    assert hidden(*events) == 10_000


def test_communication_that_is_all_hidden_has_a_row() -> None:
    events = kernel(GEMM, at=0, dur=10), kernel(NCCL, at=2, dur=3, stream=9)
    assert parts(*events) == {"gemm": 10_000, "communication": 0, "idle": 0}
    assert hidden(*events) == 3_000
    assert hidden(kernel(GEMM, at=0, dur=10)) is None


def test_copies_have_what_nothing_else_runs_in_and_so_have_kernels_that_are_copies() -> None:
    events = (
        memcpy(at=0, dur=10, stream=8), kernel(NCCL, at=4, dur=2, stream=9), kernel(GEMM, at=8, dur=4),
        kernel("__amd_rocclr_copyBuffer", at=20, dur=5),
    )  # fmt: skip
    assert parts(*events) == {"gemm": 4_000, "communication": 2_000, "memory": 11_000, "idle": 8_000}


def test_shares_are_of_the_span() -> None:
    rows = breakdown(trace([kernel(GEMM, at=0, dur=30), kernel(ATTENTION, at=35, dur=5)]))
    assert rows.select("state", "class", "share").rows() == [
        ("compute", "gemm", 0.75), ("compute", "attention", 0.125), ("idle", None, 0.125),
    ]  # fmt: skip
    assert breakdown(trace([kernel(GEMM, at=0, dur=0)]))["share"].to_list() == [None, None]


def test_devices_and_ranks_are_apart_and_runs_are_added_up() -> None:
    both = traces(
        trace([kernel(GEMM, at=0, dur=10), kernel(NCCL, at=10, dur=10)], rank=0),
        trace([kernel(GEMM, at=0, dur=5), kernel(GEMM, at=35, dur=5)], rank=1),
    )
    rows = breakdown(both)
    assert rows.select("run", "rank", "device", "state", "total_ns").rows() == [
        ("run", 0, "0", "compute", 10_000), ("run", 0, "0", "communication", 10_000), ("run", 0, "0", "idle", 0),
        ("run", 1, "0", "compute", 10_000), ("run", 1, "0", "idle", 30_000),
    ]  # fmt: skip
    assert per_run(rows).select("state", "total_ns", "share", "least_share", "most_share").rows() == [
        ("compute", 20_000, 20 / 60, 0.25, 0.5),
        ("communication", 10_000, 10 / 60, 0.0, 0.5),
        ("idle", 30_000, 0.5, 0.0, 0.75),
    ]


def test_durations_that_cannot_be_have_clipped_figures_beside() -> None:
    events = [kernel(GEMM, at=0, dur=5_000), *(kernel(ATTENTION, at=at, dur=10) for at in (100, 200))]
    rows = breakdown(trace(events))
    assert rows.select("state", "class", "total_ns", "clipped_total_ns").rows() == [
        ("compute", "gemm", 5_000_000, 100_000), ("compute", "attention", 0, 20_000), ("idle", None, 0, 90_000),
    ]  # fmt: skip
    assert "clipped_total_ns" not in breakdown(trace(events[1:])).columns


def test_a_trace_without_activity_has_no_rows() -> None:
    rows = breakdown(trace())
    assert rows.is_empty()
    assert rows.columns == [
        "run", "rank", "device", "state", "class", "cause", "total_ns", "share", "hidden_communication_ns"
    ]  # fmt: skip
    assert per_run(rows).is_empty()


def test_rules_of_ones_own_count(tmp_path: Any) -> None:
    path = tmp_path / "ours.toml"
    path.write_text("[[rule]]\nclass = 'communication'\npattern = '^gemm_a$'\n")
    rows = breakdown(trace([kernel(GEMM, at=0, dur=10)]), rules=path)
    assert rows["state"].to_list() == ["communication", "idle"]


# -- conservation


def check_conservation(recorded: Trace) -> None:
    """The parts of every device add up to its span, idle is idle, and the shares to 1."""
    rows = breakdown(recorded)
    times = device_time(recorded).with_columns(pl.col("device").cast(pl.String))
    files = recorded.ranks.select("source", "run")
    wanted = times.join(files, on="source").select("run", "rank", "device", "span_ns", "idle_ns", "busy_ns")
    idle = pl.col("state") == "idle"
    found = rows.group_by("run", "rank", "device").agg(
        span_ns=pl.col("total_ns").sum(),
        idle_ns=pl.col("total_ns").filter(idle).sum(),
        busy_ns=pl.col("total_ns").filter(~idle).sum(),
    )
    # Files whose rank is unknown share their key; so do ranks that a file holds twice.
    key = ["run", "rank", "device"]
    summed = wanted.group_by(key).agg(pl.col("span_ns", "idle_ns", "busy_ns").sum())
    assert_frame_equal(found.sort(key), summed.sort(key), check_row_order=False)
    assert (rows["total_ns"] >= 0).all()
    assert rows["hidden_communication_ns"].drop_nulls().ge(0).all()
    assert set(rows["state"]) <= set(STATES)
    summed_shares = rows.group_by(key).agg(pl.col("share").sum(), known=pl.col("share").is_not_null().any())
    if wanted.select(key).n_unique() == wanted.height:
        assert all(share == pytest.approx(1) for share in summed_shares.filter("known")["share"])


@given(traces_of_ranks())
def test_the_parts_add_up_to_the_span(recorded: Trace) -> None:
    check_conservation(recorded)


@given(linked_ranks())
def test_idle_is_cut_by_cause_as_in_idle_gaps(recorded: Trace) -> None:
    check_conservation(recorded)
    rows = breakdown(recorded)
    found = (
        rows.filter(state="idle").group_by("run", "cause").agg(pl.col("total_ns").sum()).filter(pl.col("total_ns") > 0)
    )
    gaps = idle_gaps(recorded)
    for run, cause, total in found.iter_rows():
        assert total == gaps.filter(run=run)[f"{cause}_ns"].sum()
    assert found["total_ns"].sum() == sum(int(gaps[f"{cause}_ns"].sum()) for cause in CAUSES)


@given(traces_of_ranks())
def test_every_instant_goes_where_one_that_looks_at_it_says(recorded: Trace) -> None:
    classes = {
        (kind, name): class_
        for kind, name, class_ in label(recorded.kernels).select("kind", "name", "class").iter_rows()
    }
    by_device: defaultdict[tuple[Any, str], list[Activity]] = defaultdict(list)
    for row in recorded.kernels.iter_rows(named=True):
        start = row["start_ns"] // 1000
        one = Activity(start, start + row["duration_ns"] // 1000, classes[row["kind"], row["name"]])
        by_device[row["rank"], row["device"]].append(one)
    rows = breakdown(recorded)
    assert set(rows.select("rank", "device").iter_rows()) == set(by_device)
    for (rank, device), activity in by_device.items():
        own = rows.filter(rank=rank, device=device)
        found = Counter(
            {
                (state, class_): total // 1000
                for state, class_, total in own.select("state", "class", "total_ns").iter_rows()
            }
        )
        expected, behind = naive(sorted(activity, key=lambda each: CLASSES.index(each.kernel_class)))
        assert +found == expected
        communication = own.filter(state="communication")["hidden_communication_ns"].to_list()
        assert communication in ([behind * 1000], [])
        assert communication or not behind


@given(traces_of_ranks(max_ranks=1), st.integers(1, 60))
def test_stretches_that_tile_a_trace_add_up_to_it(recorded: Trace, cut_us: int) -> None:
    whole = breakdown(recorded)
    lengths = recorded.ranks.select(pl.col("last_ns") - pl.col("first_ns")).to_series().drop_nulls()
    if lengths.is_empty() or cut_us * 1000 >= lengths.min():  # type: ignore[operator]
        return
    halves = [ta.select(recorded, between_ns=between) for between in ((None, cut_us * 1000), (cut_us * 1000, None))]
    for half in halves:
        check_conservation(half)
    key = ["rank", "device", "state", "class"]
    figures = pl.col("total_ns", "hidden_communication_ns").sum()
    summed = pl.concat([breakdown(half) for half in halves]).group_by(key).agg(figures)
    assert_frame_equal(
        summed.filter(pl.col("total_ns") > 0).sort(key),
        whole.group_by(key).agg(figures).filter(pl.col("total_ns") > 0).sort(key),
    )


@given(traces_of_ranks())
def test_one_rank_at_a_time_is_all_ranks_at_once(recorded: Trace) -> None:
    alone = [breakdown(ta.select(recorded, ranks=[rank])) for rank in recorded.used["rank"]]
    assert_frame_equal(pl.concat(alone), breakdown(recorded))


@given(traces_of_ranks(max_ranks=1), st.randoms(use_true_random=False))
def test_the_order_of_rows_does_not_matter(recorded: Trace, random: Any) -> None:
    order = list(range(recorded.kernels.height))
    random.shuffle(order)
    assert_frame_equal(breakdown(recorded.replace(kernels=recorded.kernels[order])), breakdown(recorded))


@needs_corpus
def test_the_parts_add_up_in_every_trace_of_the_corpus() -> None:
    checked = 0
    for path in corpus_files():
        try:
            recorded = ta.read(CORPUS / path, cache=False)
        except ta.UnreadableError:
            continue
        check_conservation(recorded)
        checked += not recorded.kernels.is_empty()
    assert checked > (80 if EXHAUSTIVE else 12)


@needs_corpus
def test_communication_of_the_b200_trace() -> None:
    """2.14 ms of communication kernels: what is exposed and what is hidden are all of it, but for their own overlap."""
    rows = breakdown(ta.read(CORPUS / "tl-b200", cache=False)).filter(state="communication")
    exposed, behind = rows.select("total_ns", "hidden_communication_ns").row(0)
    assert exposed + behind <= 2_141_501
    assert exposed + behind > 2_100_000


@needs_cases
def test_the_case_of_sum_against_union() -> None:
    """Of 200 µs of communication 150 are behind compute; what copies have for themselves is 10 µs."""
    folder = next(CASES.glob("s08-*"))
    (wanted,) = json.loads((folder / "expect.json").read_text())["ranks"]
    recorded = ta.read(folder / "in", cache=False)
    check_conservation(recorded)
    rows = breakdown(recorded)
    totals = dict(rows.group_by("state").agg(pl.col("total_ns").sum()).iter_rows())
    assert {state: total / 1000 for state, total in totals.items()} == {
        "compute": wanted["compute_union_us"],
        "communication": wanted["comm_exposed_us"],
        "memory": wanted["memcpy_not_overlapped_by_kernels_us"],
        "idle": wanted["gpu_idle_us"],
    }
    assert rows["hidden_communication_ns"].sum() / 1000 == wanted["comm_overlapped_by_compute_us"]


@needs_cases
def test_copies_of_rocm_that_are_kernels_are_memory() -> None:
    rows = breakdown(ta.read(next(CASES.glob("s12-*")) / "in", cache=False))
    assert rows.filter(state="memory")["total_ns"].item() == 25_000
