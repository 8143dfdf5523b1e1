"""Which kernels the time goes to: the figures one by one, and the laws they keep."""

from __future__ import annotations

import math
import random
from fractions import Fraction
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from builders import TEST_GPU, Event, kernel, memcpy, memset, trace, traces
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal
from strategies import traces_of_ranks

from traceanalyzer.analyses import overview
from traceanalyzer.analyses.device_time import device_time
from traceanalyzer.analyses.select import select
from traceanalyzer.analyses.top_kernels import top_kernels
from traceanalyzer.choices import BYS, SORTS, By
from traceanalyzer.classify.rules import load_rules
from traceanalyzer.errors import UsageError
from traceanalyzer.trace import Trace

CONTRACT = [
    "kernel", "short_name", "class", "count", "total_ns", "mean_ns", "p50_ns", "p99_ns", "min_ns", "max_ns",
    "share_of_kernel_time", "share_of_busy", "blocks", "grids", "sm_fill", "ranks",
]  # fmt: skip


def only(*events: Event, **options: Any) -> dict[str, Any]:
    """The first row for these events."""
    return top_kernels(trace(events), **options).row(0, named=True)


def repeated(*durations: float, **about: Any) -> list[Event]:
    """The same kernel so many times, one after another."""
    return [kernel("k", at=at * 1000, dur=dur, **about) for at, dur in enumerate(durations)]


def test_the_columns_are_those_of_the_contract() -> None:
    assert top_kernels(Trace.empty()).columns == ["run", *CONTRACT]
    assert top_kernels(trace([kernel("a", at=0, dur=1)]), by="class").columns == ["run", "group", *CONTRACT]
    assert top_kernels(Trace.empty(), explain=True).columns[4] == "rule"


def test_the_largest_total_comes_first_and_ties_are_in_order_of_name() -> None:
    events = [kernel("b", at=0, dur=5), kernel("a", at=10, dur=5), kernel("c", at=20, dur=9)]
    assert top_kernels(trace(events))["kernel"].to_list() == ["c", "a", "b"]


def test_totals_are_plain_sums_even_where_kernels_overlap() -> None:
    row = only(kernel("k", at=0, dur=20), kernel("k", at=10, dur=20, stream=8))
    assert (row["count"], row["total_ns"], row["share_of_busy"]) == (2, 40_000, 40 / 30)


def test_copies_and_sets_are_no_kernels_but_count_as_busy() -> None:
    events = [kernel("k", at=0, dur=10), memcpy(at=10, dur=30), memset(at=40, dur=60)]
    rows = top_kernels(trace(events))
    assert rows.select("kernel", "share_of_kernel_time", "share_of_busy").rows() == [("k", 1.0, 0.1)]


def test_copies_and_sets_are_the_class_memory() -> None:
    events = [kernel("gemm", at=0, dur=40), memcpy(at=40, dur=30), memset(at=70, dur=30)]
    rows = top_kernels(trace(events), by="class")
    found = rows.select("group", "class", "count", "total_ns", "share_of_kernel_time").rows()
    assert found == [("memory", "memory", 2, 60_000, 0.6), ("gemm", "gemm", 1, 40_000, 0.4)]


@pytest.mark.parametrize(
    ("durations", "mean"),
    [
        ((0.001, 0.002), 2),  # 1.5 -> the even 2
        ((0.002, 0.003), 2),  # 2.5 -> the even 2
        ((0.001, 0.001, 0.002), 1),  # 1.33
        ((0.001, 0.002, 0.002), 2),  # 1.67
    ],
)
def test_means_are_rounded_half_to_even(durations: tuple[float, ...], mean: int) -> None:
    assert only(*repeated(*durations))["mean_ns"] == mean


@pytest.mark.parametrize(
    ("count", "p50", "p99"),
    [
        (1, 1, 1),
        (2, 1, 2),  # half of two is one
        (3, 2, 3),
        (100, 50, 99),  # not 99.01
        (101, 51, 100),
        (200, 100, 198),
    ],
)
def test_percentiles_are_nearest_rank(count: int, p50: int, p99: int) -> None:
    durations = list(range(1, count + 1))
    random.Random(0).shuffle(durations)
    row = only(*repeated(*durations))
    assert (row["p50_ns"], row["p99_ns"]) == (p50 * 1000, p99 * 1000)


def test_durations_that_no_double_holds_stay_exact() -> None:
    one = trace([kernel("k", at=0, dur=1)])
    one = one.replace(kernels=one.kernels.with_columns(duration_ns=pl.lit(2**53 + 1)))
    row = top_kernels(one).row(0, named=True)
    assert row["max_ns"] == row["p99_ns"] == row["mean_ns"] == row["total_ns"] == 2**53 + 1


def test_blocks_are_known_only_where_all_launches_agree() -> None:
    same, other, unknown = (
        kernel("k", at=at, dur=1, grid=grid) for at, grid in enumerate([(64, 2, 1), (32, 1, 1), None])
    )
    assert (only(same, same)["blocks"], only(same, same)["grids"]) == (128, 1)
    assert (only(same, other)["blocks"], only(same, other)["grids"]) == (None, 2)
    assert (only(same, unknown)["blocks"], only(same, unknown)["grids"]) == (None, 1)
    assert (only(unknown)["blocks"], only(unknown)["grids"]) == (None, None)


def test_sm_fill_is_weighted_by_duration() -> None:
    row = only(kernel("k", at=0, dur=30, grid=(10, 1, 1)), kernel("k", at=50, dur=10, grid=(500, 1, 1)))
    assert row["sm_fill"] == (30 * 0.1 + 10 * 1.0) / 40


def test_sm_fill_of_a_replayed_kernel_without_grid_is_unknown_not_zero() -> None:
    assert only(kernel("k", at=0, dur=30, grid=None))["sm_fill"] is None


def test_sm_fill_rests_on_the_launches_that_say_their_grid() -> None:
    row = only(kernel("k", at=0, dur=30, grid=None), kernel("k", at=50, dur=10, grid=(50, 1, 1)))
    assert row["sm_fill"] == 0.5


def test_sm_fill_is_unknown_without_a_description_of_the_device() -> None:
    rows = top_kernels(trace([kernel("k", at=0, dur=1)], device_properties=[]))
    assert rows["sm_fill"].to_list() == [None]


def test_the_only_described_device_stands_for_one_under_another_number() -> None:
    one = top_kernels(trace([kernel("k", at=0, dur=1, device=3, grid=(25, 1, 1))]))
    assert one["sm_fill"].to_list() == [0.25]
    two = [TEST_GPU, {**TEST_GPU, "id": 1}]
    both = top_kernels(trace([kernel("k", at=0, dur=1, device=3)], device_properties=two))
    assert both["sm_fill"].to_list() == [None]


@pytest.mark.parametrize("unknown", [0, None])
def test_a_device_of_unknown_size_does_not_borrow_that_of_another(unknown: int | None) -> None:
    boards = [{**TEST_GPU, "numSms": 132}, {**TEST_GPU, "id": 1, "numSms": unknown}]
    event = kernel("k", at=0, dur=1, device=1, grid=(66, 1, 1))
    assert top_kernels(trace([event], device_properties=boards))["sm_fill"].to_list() == [None]
    assert top_kernels(trace([event], device_properties=boards[1:]))["sm_fill"].to_list() == [None]


def test_a_device_that_is_described_twice_is_one_device() -> None:
    event = kernel("k", at=0, dur=1, device=3, grid=(25, 1, 1))
    assert top_kernels(trace([event], device_properties=[TEST_GPU, TEST_GPU]))["sm_fill"].to_list() == [0.25]


def test_every_launch_is_held_against_the_sms_of_its_own_device() -> None:
    boards = [TEST_GPU, {**TEST_GPU, "id": 1, "numSms": 50}]
    events = [kernel("k", at=0, dur=1, device=device, grid=(25, 1, 1)) for device in (0, 1)]
    assert top_kernels(trace(events, device_properties=boards))["sm_fill"].to_list() == [0.375]


def test_ranks_are_counted() -> None:
    both = traces(*(trace([kernel("k", at=0, dur=1)], rank=rank) for rank in (0, 1)))
    assert top_kernels(both).select("count", "ranks").rows() == [(2, 2)]


def test_runs_are_apart_in_natural_order_with_shares_of_their_own() -> None:
    runs = traces(*(trace([kernel("k", at=0, dur=10)], run=run) for run in ("run10", "run2")))
    found = top_kernels(runs).select("run", "count", "share_of_kernel_time", "share_of_busy").rows()
    assert found == [("run2", 1, 1.0, 1.0), ("run10", 1, 1.0, 1.0)]


def test_a_filter_removes_rows_and_leaves_the_shares_alone() -> None:
    events = [kernel("gemm_x", at=0, dur=30), kernel("norm", at=30, dur=10)]
    rows = top_kernels(trace(events), filter="^nor")
    assert rows.select("kernel", "share_of_kernel_time", "share_of_busy").rows() == [("norm", 0.25, 0.25)]


def test_a_filter_looks_at_full_names_before_they_are_grouped() -> None:
    events = [kernel("gemm_x", at=0, dur=30), kernel("gemm_y", at=30, dur=10)]
    rows = top_kernels(trace(events), by="class", filter="_y$")
    assert rows.select("group", "kernel", "count").rows() == [("gemm", "gemm_y", 1)]


def test_a_pattern_that_does_not_compile_is_wrong_use() -> None:
    with pytest.raises(UsageError, match=r"'\(' is no regular expression"):
        top_kernels(Trace.empty(), filter="(")


def test_classes_remove_rows_and_leave_the_shares_alone() -> None:
    events = [kernel("gemm_x", at=0, dur=30), kernel("norm", at=30, dur=10), memcpy(at=40, dur=40)]
    for classes in ("norm", ["norm"], ("norm", "attention")):
        rows = top_kernels(trace(events), classes=classes)
        assert rows.select("kernel", "share_of_kernel_time").rows() == [("norm", 0.25)]
    rows = top_kernels(trace(events), by="class", classes=["memory", "norm"])
    assert rows.select("group", "share_of_kernel_time").rows() == [("memory", 0.5), ("norm", 0.125)]


def test_rules_are_files_too(tmp_path: Path) -> None:
    rules = tmp_path / "rules.toml"
    rules.write_text('[[rule]]\nclass = "moe"\npattern = "^gemm_x$"\n')
    for form in (rules, str(rules), [rules], load_rules([rules])):
        assert top_kernels(trace([kernel("gemm_x", at=0, dur=1)]), rules=form)["class"].to_list() == ["moe"]


@pytest.mark.parametrize(
    ("function", "argument", "options", "message"),
    [
        (top_kernels, "run/", {}, "top_kernels takes a Trace, as read(PATH) gives it, not 'run/'"),
        (top_kernels, Path("run"), {}, "top_kernels takes a Trace, as read(PATH) gives it, not a PosixPath"),
        (top_kernels, Trace.empty().kernels, {}, "top_kernels takes a Trace, as read(PATH) gives it, not a Data"),
        (
            top_kernels,
            Trace.empty(),
            {"by": "clas"},
            "by: 'clas' is not one of name, short, class, op, module, annotation, stack, shape; did you mean",
        ),
        (
            top_kernels,
            Trace.empty(),
            {"sort": "mena"},
            "sort: 'mena' is not one of total, self, count, mean, p50, p99, ",
        ),
        (
            top_kernels,
            Trace.empty(),
            {"sort": "self"},
            "sort: 'self' goes with by op, module, annotation; by name all time is a row's own: sort by total",
        ),
        (top_kernels, Trace.empty(), {"classes": "nrm"}, "class: 'nrm' is not one of attention, moe, "),
        (top_kernels, Trace.empty(), {"filter": 7}, "7 is no regular expression"),
        (device_time, "run/", {}, "device_time takes a Trace, as read(PATH) gives it, or its kernels"),
        (select, "run/", {}, "select takes a Trace, as read(PATH) gives it, not 'run/'"),
        (overview.runs, "run/", {}, "runs takes a Trace"),
        (overview.devices, "run/", {}, "devices takes a Trace"),
        (overview.files, "run/", {}, "files takes a Trace"),
        (overview.events, "run/", {}, "events takes a Trace"),
        (Trace.empty().scan, "kernel", {}, "no table 'kernel'; there are kernels, launches, "),
    ],
)
def test_wrong_arguments_are_named_with_what_would_be_right(
    function: Any, argument: Any, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError) as caught:
        function(argument, **options)
    assert str(caught.value).startswith(message)


def test_names_that_shorten_alike_are_one_group_and_share_no_kernel_name() -> None:
    long = "void flash::kernel_with_a_name<Traits<{}, false>, at::Half, 64, 128>(Params<{}>, int)"
    names = [long.format(number, number) for number in (1, 1)] + ["norm"]
    events = [kernel(name, at=at, dur=1) for at, name in enumerate(names)]
    rows = top_kernels(trace(events), by="short")
    assert rows["count"].sum() == 3
    assert rows["group"].n_unique() == rows.height


@pytest.mark.parametrize("sort", [sort for sort in SORTS if sort != "self"])
def test_every_sort_puts_the_largest_first_but_names_in_order(sort: Any) -> None:
    events = [kernel("a", at=0, dur=9, grid=None), *(kernel("b", at=at, dur=2) for at in (10, 20))]
    first = top_kernels(trace(events), sort=sort)["kernel"][0]
    assert first == ("b" if sort in ("count", "sm_fill") else "a")


def test_a_kernel_without_a_name_is_counted() -> None:
    nameless = trace([kernel("k", at=0, dur=5)])
    nameless = nameless.replace(kernels=nameless.kernels.with_columns(name=pl.lit(None, pl.Categorical)))
    for by in BYS:
        rows = top_kernels(nameless, by=by)
        assert rows.select("kernel", "total_ns", "share_of_kernel_time").rows() == [(None, 5_000, 1.0)]


def test_the_only_kernel_has_all_of_the_time_exactly() -> None:
    for duration in (49, 93, 107):  # n * (1 / n) is not 1 for these
        row = only(kernel("k", at=0, dur=duration, grid=(200, 1, 1)))
        assert (row["share_of_kernel_time"], row["share_of_busy"], row["sm_fill"]) == (1.0, 1.0, 1.0)


# ------------------------------------------------------------------------------------------------ laws


@given(traces_of_ranks(), st.sampled_from(BYS))
def test_nothing_is_lost_or_counted_twice(drawn: Trace, by: By) -> None:
    counted = drawn.kernels if by == "class" else drawn.kernels.filter(pl.col("kind") == "kernel")
    rows = top_kernels(drawn, by=by)
    assert rows["total_ns"].sum() == counted["duration_ns"].sum()
    assert rows["count"].sum() == counted.height
    if rows["total_ns"].sum():
        assert math.isclose(rows["share_of_kernel_time"].sum(), 1.0)


@given(traces_of_ranks(), st.sampled_from(BYS), st.randoms())
def test_the_order_of_rows_and_files_does_not_show(drawn: Trace, by: By, rng: random.Random) -> None:
    order = list(range(drawn.kernels.height))
    rng.shuffle(order)
    shuffled = drawn.replace(kernels=drawn.kernels[order], ranks=drawn.ranks.reverse(), devices=drawn.devices.reverse())
    assert_frame_equal(top_kernels(shuffled, by=by), top_kernels(drawn, by=by), check_exact=True)


@given(traces_of_ranks())
def test_one_rank_at_a_time_adds_up_to_all_at_once(drawn: Trace) -> None:
    apart = [
        top_kernels(drawn.replace(kernels=drawn.kernels.filter(pl.col("source") == source)))
        for source in drawn.ranks["source"]
    ]
    sums = pl.concat(apart).group_by("kernel").agg(pl.col("count", "total_ns", "ranks").sum())
    whole = top_kernels(drawn).select(sums.columns)
    assert_frame_equal(whole, sums, check_row_order=False)


@given(traces_of_ranks())
def test_figures_agree_with_a_naive_count(drawn: Trace) -> None:
    kernels = drawn.kernels.filter(pl.col("kind") == "kernel")
    for row in top_kernels(drawn).iter_rows(named=True):
        durations = sorted(kernels.filter(pl.col("name") == row["kernel"])["duration_ns"].to_list())
        assert row["p50_ns"] == durations[math.ceil(len(durations) * 0.5) - 1]
        assert row["mean_ns"] == round(Fraction(sum(durations), len(durations)))
        assert (row["min_ns"], row["max_ns"]) == (durations[0], durations[-1])
        assert row["sm_fill"] is None or 0 < row["sm_fill"] <= 1
