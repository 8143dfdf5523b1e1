"""Clocks: planted offsets and drifts are found, and nothing is corrected that the scatter may explain."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from traceanalyzer.analyses.ranks.clocks import Clock, Ends, Ints, clocks, fitted

BASE = 1_796_010_000_000_000_000


def ends(count: int, seed: int = 0) -> Ints:
    return np.array(BASE + np.cumsum(np.random.default_rng(seed).integers(200_000, 3_000_000, count)), np.int64)


def shifted(times: Ints, offset: float, drift: float) -> Ints:
    moved = np.round(offset + drift * (times - times[0])).astype(np.int64)
    return np.array(times + moved, np.int64)


def error(clock: Clock, truth: Ints, own: Ints) -> int:
    """The largest error of corrected times, ns."""
    return int(np.abs(clock.corrected(own) - truth).max())


@given(st.floats(-5e6, 5e6), st.floats(-5e-5, 5e-5), st.integers(0, 1000))
def test_planted_offset_and_drift_are_recovered_to_a_microsecond(offset: float, drift: float, seed: int) -> None:
    truth = ends(400, seed)
    random = np.random.default_rng(seed)
    own = shifted(truth, offset, drift) + np.round(random.normal(0, 1_500, 400)).astype(np.int64)
    clock = fitted(truth, own - truth, 400)
    if clock.applied:
        assert error(clock, truth, shifted(truth, offset, drift)) < 1_000
    else:  # an offset within the scatter is left alone
        assert abs(clock.offset_ns) <= 3 * (clock.residual_ns or 0)


def test_an_offset_within_the_scatter_is_shown_and_not_applied() -> None:
    truth = ends(100)
    noise = np.random.default_rng(1).normal(0, 2_000, 100).round().astype(np.int64)
    clock = fitted(truth, noise + 3_000, 100)
    assert clock.offset_ns == pytest.approx(3_000, abs=500)
    assert not clock.applied
    assert clock.corrected(truth).tolist() == truth.tolist()
    assert fitted(truth, noise + 30_000, 100).applied


def test_two_collectives_conclude_nothing() -> None:
    clock = fitted(ends(2), np.array([9_000_000, 9_000_000]), 2)
    assert (clock.offset_ns, clock.residual_ns, clock.applied) == (9_000_000, None, False)


def test_whole_microseconds_are_no_nearer_than_that() -> None:
    at = np.arange(10) * 1_000_000
    assert not fitted(at, np.full(10, 3_000), 10).applied
    assert fitted(at, np.full(10, 4_000), 10).applied


def test_outliers_move_nothing() -> None:
    truth = ends(200)
    apart = np.full(200, 50_000)
    apart[::7] = 90_000_000
    clock = fitted(truth, apart, 200)
    assert (clock.offset_ns, clock.residual_ns, clock.drift) == (50_000, 0, 0)


def test_clocks_are_known_by_way_of_other_groups() -> None:
    """Ranks 0-1 and 2-3 share groups, and 1-2 do: 3 is three groups away from 0."""
    truth = ends(60)
    offsets = [0, 40_000, -250_000, 900_000]
    own = [truth + offset for offset in offsets]
    numbers = np.arange(60)
    groups = [Ends(pair, [numbers] * 2, [own[pair[0]], own[pair[1]]]) for pair in ([0, 1], [2, 3], [1, 2])]
    found = clocks(5, groups)
    assert [round(clock.offset_ns) for clock in found] == [*offsets, 0]
    assert [clock.applied for clock in found] == [False, True, True, True, False]


def test_drifts_add_up_along_the_way() -> None:
    truth = ends(300)
    numbers = np.arange(300)
    own = [truth, shifted(truth, 70_000, 2e-5), shifted(truth, -400_000, -3e-5)]
    groups = [Ends(pair, [numbers] * 2, [own[pair[0]], own[pair[1]]]) for pair in ([0, 1], [1, 2])]
    found = clocks(3, groups)
    for clock, times in zip(found, own, strict=True):
        assert error(clock, truth, times) < 100
