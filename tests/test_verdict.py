"""Who is called slow: planted culprits of 2 to 1,024 ranks are, and nobody is where ranks differ by chance."""

from __future__ import annotations

import pytest
from coherent import ATTENTION, Plan, Slow, members

from traceanalyzer.analyses.ranks.reduce import reduce_run
from traceanalyzer.analyses.ranks.verdict import Slow as Found
from traceanalyzer.analyses.ranks.verdict import at_least, slow_ranks


def found(plan: Plan) -> list[Found]:
    return slow_ranks(reduce_run(members(plan)))


@pytest.mark.parametrize(("ranks", "tp"), [(2, 2), (3, 3), (4, 2), (8, 8), (64, 8), (256, 8), (1024, 8)])
def test_one_slow_rank_is_found_and_no_other(ranks: int, tp: int) -> None:
    """Ranks of its tensor-parallel group come late to the data-parallel reduction for its sake: that is no fault."""
    slow = ranks * 5 // 8
    steps, layers = (12, 3) if ranks < 1024 else (6, 2)
    (one,) = found(Plan(ranks=ranks, tp=tp, steps=steps, layers=layers, slow=(Slow(slow, factor=1.5),)))
    assert (one.member, one.steps) == (slow, ())
    # half of an up-projection longer in each layer
    assert one.behind_ns == pytest.approx(0.5 * 90_000 * layers * steps, rel=0.1)


@pytest.mark.parametrize("ranks", [2, 8, 64])
def test_two_slow_ranks_that_alternate_are_both_found(ranks: int) -> None:
    one, other = 0, ranks - 1
    slow = (Slow(one, factor=2.5, steps=range(0, 20, 2)), Slow(other, factor=2.5, steps=range(1, 20, 2)))
    verdict = found(Plan(ranks=ranks, tp=min(ranks, 8), steps=20, slow=slow))
    assert {each.member for each in verdict} == {one, other}


def test_a_culprit_that_goes_around_is_found_in_its_steps() -> None:
    """A different rank of eight in each step: nobody is last more often than by chance."""
    slow = tuple(Slow(step % 8, factor=2.0, kernel=ATTENTION, steps=(step,)) for step in range(16))
    verdict = found(Plan(ranks=8, steps=16, slow=slow))
    assert sorted((each.member, each.steps) for each in verdict) == [(rank, (rank, rank + 8)) for rank in range(8)]


def test_one_bad_step_is_found() -> None:
    (one,) = found(Plan(ranks=16, tp=8, steps=12, slow=(Slow(9, host_ns=6_000_000, steps=(7,)),)))
    assert (one.member, one.steps) == (9, (7,))


@pytest.mark.parametrize("noise", [0.01, 0.05])
@pytest.mark.parametrize(("ranks", "tp", "runs"), [(2, 2, 12), (4, 4, 12), (8, 8, 12), (64, 8, 3)])
def test_chance_is_nobodys_fault(ranks: int, tp: int, runs: int, noise: float) -> None:
    """Kernels scatter by up to 5 %, the host by 20 us a step of 1.6 ms."""
    for seed in range(runs):
        plan = Plan(ranks=ranks, tp=tp, steps=20, layers=3, noise=noise, host_noise_ns=20_000, seed=seed)
        assert found(plan) == [], seed


def test_the_chance_of_being_last_so_often() -> None:
    assert at_least(0, 10, 0.5) == 1
    assert at_least(10, 10, 0.5) == pytest.approx(2**-10)
    assert at_least(5, 8, 1 / 8) == pytest.approx(0.00123, abs=1e-5)
    assert at_least(129, 132, 0.5) < 1e-30
