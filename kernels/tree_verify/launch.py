"""How the kernel is launched: what it is compiled for, how large its grid is, and its run on arrays of the CPU."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from traceanalyzer.kernels.common import mla_launch, mla_plan
from traceanalyzer.kernels.common.kernel import Build
from traceanalyzer.kernels.common.mla_plan import Forced, Plan
from traceanalyzer.kernels.common.program import Argument, Backend, Launch

SOURCE = Path(__file__).parent / "tree_verify.cu"
#: How a node's sight is given: it is a chain's, by bits, by parents.
CHAIN, BITS, PARENTS = 0, 1, 2
Array = npt.NDArray[Any]


@lru_cache(maxsize=1024)
def configure(chosen: Plan, requests: int, masking: int, *, wide_indices: bool) -> Launch:
    """The launch of the main kernel."""
    others = {"WIDE_INDICES": int(wide_indices), "MASKING": masking}
    return mla_launch.block_launch(SOURCE, "tree_verify", chosen, requests, others)


def plan(rows: int, requests: int, keys: int, backend: Any, forced: Forced = Forced()) -> Plan:  # noqa: B008
    """Blocks and splits for so many rows and about so many keys a request on a GPU (or what stands for one)."""
    return mla_plan.plan(
        mla_plan.BF16, rows, requests, keys, backend.multiprocessors, backend.shared_bytes_each, forced
    )


def run(
    backend: Backend,
    q: Array,
    pool: Array,
    indptr: Array,
    indices: Array,
    out: Array,
    lse: Array,
    *,
    scale: float,
    mask: Array | None = None,
    parents: Array | None = None,
    row_stride: int = 1152,
    slots: int,
    forced: Forced = Forced(),  # noqa: B008
) -> None:
    """Run on arrays of the CPU.

    `q` is the bits of bf16 [requests, nodes, heads, 576], `pool` bytes, `out` the bits of [.., 512], `lse` float32.
    """
    requests, nodes, heads = q.shape[:3]
    chosen = plan(nodes * heads, requests, -(-len(indices) // max(requests, 1)), backend, forced)
    masking = BITS if mask is not None else PARENTS if parents is not None else CHAIN
    wide = indices.dtype == np.int64
    arguments: list[Argument] = [
        q,
        pool,
        np.int64(row_stride),
        np.int64(slots) if wide else np.int32(slots),
        indptr,
        indices,
        mask,
        np.int32(mask.shape[2] if mask is not None else 0),
        parents,
        np.float32(scale),
        np.int32(nodes),
        np.int32(heads),
    ]
    main = configure(chosen, requests, masking, wide_indices=wide)
    for launch, given in mla_launch.launches_of(
        chosen, main, arguments, out, lse, None, mla_launch.new_nans, requests=requests, rows=nodes * heads, heads=heads
    ):
        backend.run(launch, given)


def builds() -> Iterator[Build]:
    """Every block that a plan can choose; with and without splits, and every way to give sight and indices."""
    for tiles in range(1, 6):
        for block, architectures in mla_plan.blocks_of(mla_plan.BF16, tiles).items():
            ways = ((CHAIN, 2), (BITS, 1), (PARENTS, 2))
            chosen = ways if tiles == 5 else (ways[tiles % 3],)
            yield from mla_launch.builds_of(
                block,
                architectures,
                [configure(Plan(block, 1, splits), 1, way, wide_indices=way == PARENTS) for way, splits in chosen],
            )
