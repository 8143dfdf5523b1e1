"""The interval algebra against a naive count of nanoseconds, and its rules one by one."""

from __future__ import annotations

from collections.abc import Iterable

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from traceanalyzer.analyses import intervals

Row = tuple[str | None, int, int]
SCHEMA = {"key": pl.String, "start_ns": pl.Int64, "end_ns": pl.Int64}
BY = ["key"]

rows = st.lists(
    st.tuples(st.sampled_from(["a", "b", None]), st.integers(0, 12), st.integers(-2, 5)).map(
        lambda row: (row[0], row[1], row[1] + row[2])  # some end before they start, some are points
    ),
    max_size=12,
)


def frame(rows: Iterable[Row]) -> pl.DataFrame:
    return pl.DataFrame(list(rows), schema=SCHEMA, orient="row")


def cells(rows: Iterable[Row]) -> dict[str | None, set[int]]:
    """Every nanosecond that is covered, one by one."""
    covered: dict[str | None, set[int]] = {}
    for key, start, end in rows:
        covered.setdefault(key, set()).update(range(start, end))
    return {key: found for key, found in covered.items() if found}


def cells_of(result: pl.DataFrame) -> dict[str | None, set[int]]:
    return cells(result.select("key", "start_ns", "end_ns").rows())


def difference(a: list[Row], b: list[Row]) -> dict[str | None, set[int]]:
    removed = cells(b)
    left = {key: found - removed.get(key, set()) for key, found in cells(a).items()}
    return {key: found for key, found in left.items() if found}


def assert_apart(result: pl.DataFrame) -> None:
    """Sorted, and neither overlapping nor touching within a key."""
    assert result.equals(result.sort("key", "start_ns"))
    before = pl.col("end_ns").shift(1).over("key")
    assert result.filter(pl.col("start_ns") <= before).is_empty()


@given(rows)
def test_merge_covers_the_same_nanoseconds(drawn: list[Row]) -> None:
    merged = intervals.merge(frame(drawn), BY)
    assert cells_of(merged) == cells(drawn)
    assert_apart(merged)


@given(rows)
def test_merging_twice_changes_nothing(drawn: list[Row]) -> None:
    merged = intervals.merge(frame(drawn), BY)
    assert_frame_equal(intervals.merge(merged, BY), merged)


@given(rows, st.randoms())
def test_order_of_rows_does_not_matter(drawn: list[Row], random: object) -> None:
    shuffled = list(drawn)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    for operation in (intervals.merge, intervals.hull, intervals.coverage, intervals.gaps, intervals.depth):
        assert_frame_equal(operation(frame(drawn), BY), operation(frame(shuffled), BY))


@given(rows)
def test_coverage_is_the_number_of_covered_nanoseconds(drawn: list[Row]) -> None:
    found = {key: length for key, length in intervals.coverage(frame(drawn), BY).rows() if length}
    assert found == {key: len(covered) for key, covered in cells(drawn).items()}


@given(rows, rows)
def test_subtract_and_intersect_cover_the_right_nanoseconds(a: list[Row], b: list[Row]) -> None:
    outside, inside = intervals.subtract(frame(a), frame(b), BY), intervals.intersect(frame(a), frame(b), BY)
    assert cells_of(outside) == difference(a, b)
    both = {key: covered & cells(b).get(key, set()) for key, covered in cells(a).items()}
    assert cells_of(inside) == {key: covered for key, covered in both.items() if covered}
    assert_apart(outside)
    assert_apart(inside)


@given(rows, rows)
def test_intersection_and_difference_make_up_the_whole(a: list[Row], b: list[Row]) -> None:
    def total(frame: pl.DataFrame) -> int:
        return int(intervals.coverage(frame)["covered_ns"].sum())

    one, other = frame(r for r in a if r[0] == "a"), frame(r for r in b if r[0] == "a")
    parts = total(intervals.subtract(one, other)) + total(intervals.intersect(one, other))
    assert parts == total(one)


@given(rows)
def test_gaps_and_coverage_make_up_the_hull(drawn: list[Row]) -> None:
    length = pl.col("end_ns") - pl.col("start_ns")
    hull = intervals.hull(frame(drawn), BY).select("key", hull=length)
    covered = intervals.coverage(frame(drawn), BY)
    missing = intervals.gaps(frame(drawn), BY).group_by("key").agg(gap=length.sum())
    both = hull.join(covered, on="key", nulls_equal=True).join(missing, on="key", how="left", nulls_equal=True)
    assert both.height == hull.height
    assert both.filter(pl.col("hull") != pl.col("covered_ns") + pl.col("gap").fill_null(0)).is_empty()


@given(rows)
def test_gaps_cover_no_covered_nanosecond(drawn: list[Row]) -> None:
    missing = cells_of(intervals.gaps(frame(drawn), BY))
    assert all(not (found & cells(drawn).get(key, set())) for key, found in missing.items())


@given(rows)
def test_depth_counts_the_intervals_over_each_nanosecond(drawn: list[Row]) -> None:
    found = {
        (key, at): count
        for key, start, end, count in intervals.depth(frame(drawn), BY).rows()
        for at in range(start, end)
    }
    naive: dict[tuple[str | None, int], int] = {}
    for key, start, end in drawn:
        for at in range(start, end):
            naive[key, at] = naive.get((key, at), 0) + 1
    assert found == naive


@given(rows)
def test_one_key_at_a_time_gives_the_same(drawn: list[Row]) -> None:
    for operation in (intervals.merge, intervals.gaps, intervals.depth):
        apart = [operation(frame(r for r in drawn if r[0] == key), BY) for key in (None, "a", "b")]
        assert_frame_equal(operation(frame(drawn), BY), pl.concat(apart))


def one_key(*pairs: tuple[int, int]) -> pl.DataFrame:
    return frame(("a", *pair) for pair in pairs)


def pairs(result: pl.DataFrame) -> list[tuple[int, ...]]:
    return result.drop("key", strict=False).rows()


def test_touching_intervals_merge() -> None:
    assert pairs(intervals.merge(one_key((0, 5), (5, 9), (10, 12)), BY)) == [(0, 9), (10, 12)]


def test_a_long_interval_holds_the_short_ones_after_it() -> None:
    assert pairs(intervals.merge(one_key((0, 20), (5, 7), (8, 9), (21, 22)), BY)) == [(0, 20), (21, 22)]


def test_a_lone_point_is_kept_and_covers_nothing() -> None:
    lone = one_key((0, 2), (5, 5), (8, 9))
    assert pairs(intervals.merge(lone, BY)) == [(0, 2), (5, 5), (8, 9)]
    assert pairs(intervals.coverage(lone, BY)) == [(3,)]
    assert pairs(intervals.gaps(lone, BY)) == [(2, 5), (5, 8)]


def test_points_at_the_rim_widen_the_hull() -> None:
    assert pairs(intervals.hull(one_key((0, 0), (3, 4), (9, 9)), BY)) == [(0, 9)]


def test_backward_intervals_say_nothing() -> None:
    assert intervals.merge(one_key((5, 3)), BY).is_empty()
    assert intervals.hull(one_key((5, 3)), BY).is_empty()


def test_gaps_within_a_window_start_at_the_window() -> None:
    window = one_key((0, 10))
    assert pairs(intervals.gaps(one_key((2, 4), (9, 15)), BY, within=window)) == [(0, 2), (4, 9)]


def test_pieces_of_equal_depth_are_joined() -> None:
    assert pairs(intervals.depth(one_key((0, 4), (4, 8), (6, 8)), BY)) == [(0, 6, 1), (6, 8, 2)]


def test_absolute_times_stay_exact() -> None:
    start = 1_767_225_605_123_456_789  # does not fit a double
    merged = intervals.merge(one_key((start, start + 1), (start + 2, start + 3)), BY)
    assert pairs(merged) == [(start, start + 1), (start + 2, start + 3)]


@pytest.mark.parametrize("by", [[], BY])
def test_no_rows_give_no_rows(by: list[str]) -> None:
    none = frame([])
    for operation in (intervals.merge, intervals.hull, intervals.coverage, intervals.gaps, intervals.depth):
        assert operation(none, by).is_empty()
    assert intervals.subtract(none, none, by).is_empty()


def test_events_with_negative_duration_are_left_out() -> None:
    events = pl.DataFrame({"start_ns": [0, 5, 9], "duration_ns": [2, -1, 0]})
    assert intervals.of_events(events).rows() == [(0, 2), (9, 9)]
