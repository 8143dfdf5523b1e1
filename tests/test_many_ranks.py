"""A coherent run of many ranks, from files: clocks that are off and drift, recordings of different length, culprits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from coherent import ALL_REDUCE, BASE_NS, Plan, Slow, simulate, write_run

import traceanalyzer as ta


@pytest.mark.parametrize("metadata", [True, False])
@pytest.mark.parametrize("sequence", [True, False])
def test_planted_offsets_are_recovered_to_a_microsecond(tmp_path: Path, *, metadata: bool, sequence: bool) -> None:
    """Two hosts, clocks apart by up to 3 ms and 40 ppm; recordings begin and end up to six calls late and early."""
    plan = Plan(
        ranks=8, tp=8, ranks_per_host=4, steps=15, layers=3, offset_ns=3_000_000, drift_ppm=40, ragged=6,
        metadata=metadata, sequence=sequence,
    )  # fmt: skip
    truth = write_run(tmp_path, plan)
    found = ta.imbalance(ta.read(tmp_path, cache=False))
    length = max(int(each.end_ns.max()) for each in simulate(plan)) - BASE_NS
    middle = BASE_NS + length // 2
    for clock in found.clocks.iter_rows(named=True):
        rank = clock["rank"]
        planted = truth.clock(rank, np.array([middle]))[0] - truth.clock(0, np.array([middle]))[0]
        assert abs(clock["offset_ns"] - planted) < 1_000, rank
    pairing = "sequence" if metadata and sequence else "shifted"
    assert found.groups.select("pairing", "negative", "mismatched").rows() == [(pairing, 0, 0)]
    # what every rank recorded of every collective is on one clock again: transfers are those of the simulation
    assert found.collectives["transfer_ns"].is_between(24_000, 28_000).all()


def test_waits_over_groups_are_those_of_the_simulation(tmp_path: Path) -> None:
    plan = Plan(ranks=16, tp=4, steps=6, layers=2, slow=(Slow(9, host_ns=300_000),), offset_ns=500_000, drift_ppm=20)
    truth = write_run(tmp_path, plan)
    found = ta.imbalance_of(tmp_path, cache=False).imbalance
    waits = dict(found.ranks.select("rank", "wait_ns").iter_rows())
    calls = sum(each.name == ALL_REDUCE for each in simulate(plan))
    for rank, wait in truth.wait_ns.items():
        assert abs(waits[rank] - wait) < 500 * calls, rank
    assert found.culprits.select("rank", "because", "name").rows() == [(9, "idle", "host_busy: prepare_batch")]
    assert set(found.groups["axis"]) == {"tp", "dp"}
    assert found.groups.height == 4 + 4
    slow = found.ranks.filter(pl.col("rank") == 9)
    assert slow["own_behind_ns"].item() == pytest.approx(6 * 300_000, rel=0.1)
    # ranks 8, 10 and 11 come late to the data-parallel reduction for its sake
    others = found.ranks.filter(pl.col("rank").is_in([8, 10, 11]))
    assert (others["behind_ns"] > 1_000_000).all()
    assert (others["own_behind_ns"] < 200_000).all()
