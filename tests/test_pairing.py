"""Which calls of several ranks are one collective: by number, by order, from another first call on, by time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from traceanalyzer.analyses.ranks.pairing import Calls, Ints, pair


def calls(ends: Ints, kernels: Ints, sizes: Ints | None = None, sequence: Ints | None = None) -> Calls:
    return Calls(sequence, kernels, np.full(len(kernels), -1, np.int64) if sizes is None else sizes, ends - 1_000, ends)


def program(length: int, seed: int = 1) -> tuple[Ints, Ints]:
    """Ends and kernels of a program that repeats itself every seven calls, at uneven distances."""
    random = np.random.default_rng(seed)
    return np.cumsum(random.integers(200_000, 900_000, length)), np.arange(length) % 7 % 3


def test_recorded_numbers_pair_whatever_the_order_says() -> None:
    ends, kernels = program(6)
    first = calls(ends, kernels, sequence=np.array([1, 2, 3, 4, 5, 6]))
    second = calls(ends[[0, 2, 3, 5]], kernels[[0, 2, 3, 5]], sequence=np.array([1, 3, 4, 6]))
    found = pair([first, second])
    assert (found.method, found.count, found.unpaired, found.mismatched) == ("sequence", 4, 2, 0)
    assert found.places[0].tolist() == [0, -1, 1, 2, -1, 3]
    assert found.places[1].tolist() == [0, 1, 2, 3]


def test_the_same_calls_are_paired_in_order() -> None:
    ends, kernels = program(40)
    found = pair([calls(ends, kernels), calls(ends + 5_000_000, kernels)])
    assert (found.method, found.count, found.unpaired, found.ambiguous) == ("order", 40, 0, 0)
    assert [each.tolist() for each in found.places] == [list(range(40))] * 2


@pytest.mark.parametrize(("first", "last"), [(0, 61), (7, 70), (14, 70), (7, 63), (3, 68)])
def test_recordings_that_begin_and_end_elsewhere_are_shifted(first: int, last: int) -> None:
    """Multiples of seven fit by kernels alone: there the ends tell."""
    ends, kernels = program(70)
    noise = np.random.default_rng(2).integers(-3_000, 3_000, 70)
    part = slice(first, last)
    found = pair([calls(ends, kernels), calls((ends + noise)[part] + 40_000, kernels[part])])
    assert (found.places[0][part] == found.places[1]).all()
    assert found.count == last - first
    assert found.unpaired == 70 - (last - first)
    assert found.ambiguous == 0


def test_both_may_hold_calls_that_the_other_lacks() -> None:
    ends, kernels = program(70)
    found = pair([calls(ends[:60], kernels[:60]), calls(ends[21:], kernels[21:])])
    assert (found.method, found.count) == ("shifted", 39)
    assert (found.places[0][21:] == found.places[1][:39]).all()


def test_a_lost_record_in_the_middle_does_not_shift_what_follows() -> None:
    ends, kernels = program(70)
    kept = np.delete(np.arange(70), 33)
    found = pair([calls(ends, kernels), calls(ends[kept] + 2_000, kernels[kept])])
    assert (found.method, found.count, found.unpaired) == ("time", 69, 1)
    assert (found.places[0][kept] == found.places[1]).all()


def test_sizes_tell_calls_of_one_kernel_apart() -> None:
    ends = np.arange(1, 21) * 1_000_000
    kernels, sizes = np.zeros(20, np.int64), np.arange(20) % 5
    found = pair([calls(ends, kernels, sizes), calls(ends[3:], kernels[3:], sizes[3:])])
    assert (found.places[0][3:] == found.places[1]).all()


def test_calls_that_have_nothing_to_do_with_each_other_are_not_paired() -> None:
    ends, kernels = program(40)
    strange = program(40, seed=9)[0] * 3
    found = pair([calls(ends, kernels), calls(strange, kernels + 10)])
    assert (found.method, found.count, found.unpaired) == ("none", 0, 80)


def test_pairs_that_differ_in_kernel_or_size_are_counted() -> None:
    ends, kernels = program(100)
    other = kernels.copy()
    other[50] = 9
    assert pair([calls(ends, kernels), calls(ends, other)]).mismatched == 1
    numbered = np.arange(100)
    found = pair([calls(ends, kernels, kernels, numbered), calls(ends, kernels, kernels + 1, numbered)])
    assert (found.count, found.mismatched) == (100, 100)


def test_shifts_that_fit_alike_are_said() -> None:
    """A program that repeats itself to the nanosecond tells no shift; the one of the smallest offset is taken."""
    ends, kernels = np.arange(1, 51) * 1_000_000, np.arange(50) % 2
    found = pair([calls(ends, kernels), calls(ends[4:46] + 100, kernels[4:46])])
    assert found.ambiguous == 1
    assert (found.places[0][4:46] == found.places[1]).all()


@given(st.integers(2, 6), st.integers(0, 2**32 - 1))
def test_any_windows_of_one_program_are_paired_rightly(ranks: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    ends, kernels = program(120, seed)
    windows = [(int(random.integers(0, 30)), int(random.integers(90, 121))) for _ in range(ranks)]
    offsets = random.integers(-50_000, 50_000, ranks)
    found = pair([
        calls(ends[a:b] + offset + random.integers(-2_000, 2_000, b - a), kernels[a:b])
        for (a, b), offset in zip(windows, offsets, strict=True)
    ])  # fmt: skip
    whole = np.full((ranks, 120), -1)
    for row, ((a, b), places) in enumerate(zip(windows, found.places, strict=True)):
        whole[row, a:b] = places
    for column in whole.T:
        assert len(set(column[column >= 0].tolist())) <= 1
    seen = sum((np.arange(120) >= a) & (np.arange(120) < b) for a, b in windows)
    assert found.count == int((np.asarray(seen) >= 2).sum())
