"""Which span holds which: the fast way agrees with a stack, on trees, on spans that end late, and on what overlaps."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from traceanalyzer.analyses.nesting import NONE, Ints, nearest, nest, nest_by_stack, outermost

Row = tuple[int, int, int]


def columns(rows: list[Row]) -> tuple[Ints, Ints, Ints]:
    table = np.array(rows, np.int64).reshape(-1, 3)
    return table[:, 0].copy(), table[:, 1].copy(), (table[:, 1] + table[:, 2]).copy()


def walked(rows: list[Row], tolerance_ns: int) -> list[int]:
    """Every thread with the stack, whatever its spans are like."""
    holders = [NONE] * len(rows)
    for thread in {row[0] for row in rows}:
        order = sorted(
            (start, -length, number) for number, (on, start, length) in enumerate(rows) if on == thread
        )  # fmt: skip
        numbers = [number for _, _, number in order]
        starts = [start for start, _, _ in order]
        found = nest_by_stack(starts, [start - length for start, length, _ in order], tolerance_ns)
        for number, holder in zip(numbers, found, strict=True):
            holders[number] = NONE if holder == NONE else numbers[holder]
    return holders


def held(rows: list[Row], tolerance_ns: int = 0) -> list[int]:
    return [int(each) for each in nest(*columns(rows), tolerance_ns=tolerance_ns)]


rows = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 40), st.integers(0, 15)), max_size=25)


@given(rows, st.integers(0, 4))
def test_the_fast_way_and_the_stack_agree_on_anything(table: list[Row], tolerance_ns: int) -> None:
    assert held(table, tolerance_ns) == walked(table, tolerance_ns)


@given(rows, st.integers(-(2**40), 2**61))
def test_times_may_be_far_from_zero_and_from_each_other(table: list[Row], shift: int) -> None:
    moved = [(thread, start + (shift if thread == 1 else 0), length) for thread, start, length in table]
    assert held(moved) == held(table)


@given(rows)
def test_the_order_of_rows_decides_only_between_equals(table: list[Row]) -> None:
    table = list(dict.fromkeys(table))
    turned = table[::-1]
    there = {table[row]: table[holder] if holder != NONE else None for row, holder in enumerate(held(table))}
    back = {turned[row]: turned[holder] if holder != NONE else None for row, holder in enumerate(held(turned))}
    assert there == back


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        ([], []),
        ([(0, 0, 10), (0, 2, 3), (0, 3, 1), (0, 6, 4)], [NONE, 0, 1, 0]),
        ([(0, 0, 10), (1, 2, 3)], [NONE, NONE]),
        ([(0, 0, 10), (0, 10, 3)], [NONE, NONE]),
        ([(0, 5, 3), (0, 5, 9)], [1, NONE]),
        ([(0, 5, 3), (0, 5, 3)], [NONE, 0]),
        ([(0, 0, 10), (0, 4, 0), (0, 4, 2)], [NONE, 2, 0]),
        ([(0, 0, 10), (0, 10, 0)], [NONE, NONE]),
    ],
    ids=["nothing", "tree", "threads", "touching", "same start", "equal", "point", "point at the end"],
)
def test_what_holds_what(table: list[Row], expected: list[int]) -> None:
    assert held(table) == expected


def test_a_span_that_ends_a_little_late_is_held_and_cut() -> None:
    late = [(0, 0, 100), (0, 10, 92), (0, 101, 9), (0, 102, 1)]
    assert held(late, 2) == [NONE, 0, NONE, 2]
    assert held(late, 1) == [NONE, NONE, NONE, 2]


def test_a_span_that_overlaps_is_held_by_what_holds_both() -> None:
    assert held([(0, 0, 100), (0, 10, 20), (0, 20, 40), (0, 25, 3), (0, 50, 5)]) == [NONE, 0, 0, 2, 2]


def test_top_and_nearest_of_a_chain() -> None:
    holders = np.array([NONE, 0, 1, 2, NONE])
    assert outermost(holders).tolist() == [0, 0, 0, 0, 4]
    wanted = np.array([False, True, False, False, False])
    assert nearest(holders, wanted).tolist() == [NONE, 1, 1, 1, NONE]
