"""Blocks and plans of the kernels that stand on `mla_block.cuh` or `mla_pairs.cuh`."""

from __future__ import annotations

import pytest

from traceanalyzer.kernels.common import mla_plan
from traceanalyzer.kernels.common.program import SHARED_BYTES_LIMIT


@pytest.mark.parametrize(("records", "most_tiles"), [(mla_plan.BF16, 5), (mla_plan.V32, 8), (mla_plan.DSV4, 6)])
def test_every_block_fits_into_shared_memory(records: int, most_tiles: int) -> None:
    for size in mla_plan.SHARED_BYTES_OF_MULTIPROCESSORS:
        for tiles in range(1, most_tiles + 1):
            blocks = mla_plan.blocks_that_fit(records, tiles, size)
            assert [each.paired for each in blocks] == ([True] if tiles < 3 and records != mla_plan.BF16 else []) + [
                False
            ]
            for block in blocks:
                assert block.shared_bytes <= SHARED_BYTES_LIMIT
                assert block.resident * (block.shared_bytes + 1024) <= size
        assert mla_plan.blocks_that_fit(records, most_tiles + 1, size) == ()


@pytest.mark.parametrize("heads", [1, 8, 16, 64, 127, 128])
@pytest.mark.parametrize("requests", [1, 16, 64, 4096])
@pytest.mark.parametrize("width", [0, 1, 33, 512, 2048, 100_000])
def test_a_plan_covers_all_rows_and_fills_the_gpu_where_it_can(heads: int, requests: int, width: int) -> None:
    plan = mla_plan.plan(mla_plan.V32, heads, requests, width, 132, 233_472)
    assert plan.row_blocks * plan.block.tiles * 8 >= heads
    assert (plan.row_blocks - 1) * plan.block.tiles * 8 < heads
    assert 1 <= plan.splits <= max(1, -(-width // 32))
    blocks = plan.row_blocks * plan.splits * requests
    assert blocks >= min(64, requests * -(-heads // 64) * max(1, width // 64))


def test_work_of_one_request_is_split_and_that_of_many_is_not() -> None:
    def plan(requests: int, heads: int) -> mla_plan.Plan:
        return mla_plan.plan(mla_plan.V32, heads, requests, 2048, 132, 233_472)

    assert plan(1, 128).splits > 8
    assert plan(64, 128).splits == 1
    assert plan(64, 128).partial_floats(64) == (0, 0)
    with pytest.raises(ValueError, match="no block can have 9 tiles"):
        mla_plan.plan(mla_plan.V32, 8, 1, 64, 132, 233_472, mla_plan.Forced(tiles=9))


@pytest.mark.parametrize("shared_bytes_each", mla_plan.SHARED_BYTES_OF_MULTIPROCESSORS)
def test_few_heads_of_many_requests_go_in_pairs(shared_bytes_each: int) -> None:
    def block(requests: int, heads: int, keys: int = 2048) -> mla_plan.Block:
        return mla_plan.plan(mla_plan.V32, heads, requests, keys, 132, shared_bytes_each).block

    assert block(128, 8).paired
    assert block(128, 8).tiles == 1
    assert block(128, 16).paired
    assert block(128, 16).tiles == 2
    assert not block(1, 64, 512).paired
    assert not block(64, 128).paired


def test_contexts_that_grow_share_plans() -> None:
    plans = {id(mla_plan.plan(mla_plan.BF16, 72, 1, keys, 132, 233_472)) for keys in range(8_000, 9_000)}
    assert len(plans) < 5
    for keys in (0, 1, 31, 32, 33, 511, 65_545):
        assert keys <= mla_plan.rounded(keys) <= keys * 9 / 8 + 32
