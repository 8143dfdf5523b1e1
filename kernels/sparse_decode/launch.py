"""How the kernel is launched: what it is compiled for, how large its grid is, and its run on arrays of the CPU."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from traceanalyzer.kernels.common import mla_launch, mla_plan
from traceanalyzer.kernels.common.kernel import Build
from traceanalyzer.kernels.common.mla_plan import Forced, Plan
from traceanalyzer.kernels.common.program import Argument, Backend, Launch

SOURCE = Path(__file__).parent / "sparse_decode.cu"
V32, DSV4 = "v32", "dsv4"
_RECORDS = {V32: mla_plan.V32, DSV4: mla_plan.DSV4}
Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Cache:
    """A paged cache and what requests choose of it."""

    memory: Array
    """Its bytes, uint8 [all]."""
    page_size: int
    """Records in a page."""
    page_bytes: int
    """From page to page; a multiple of 16."""
    slots: int
    """Records in all."""
    indices: Array
    """int32 [requests, width]; one that is no slot chooses nothing."""
    lengths: Array | None = None
    """int32 [requests]: how many of a row count."""


@lru_cache(maxsize=1024)
def configure(chosen: Plan, requests: int, caches: int) -> Launch:
    """The launch of the main kernel."""
    others = {"CACHES": caches, "PAIRED": int(chosen.block.paired)}
    return mla_launch.block_launch(SOURCE, "sparse_decode", chosen, requests, others)


def plan(
    layout: str,
    heads: int,
    requests: int,
    width: int,
    backend: Any,
    forced: Forced = Forced(),  # noqa: B008
) -> Plan:
    """Blocks and splits for so many heads, requests and records a request on a GPU (or what stands for one)."""
    records = _RECORDS[layout]
    return mla_plan.plan(records, heads, requests, width, backend.multiprocessors, backend.shared_bytes_each, forced)


def run(
    backend: Backend,
    q: Array,
    caches: Sequence[Cache],
    out: Array,
    lse: Array,
    *,
    layout: str,
    scale: float,
    sink: Array | None = None,
    forced: Forced = Forced(),  # noqa: B008
) -> None:
    """Run on arrays of the CPU.

    `q` is the bits of bf16 [requests, heads, 576 or 512], `out` those of [requests, heads, 512], `lse` float32.
    """
    requests, heads = q.shape[:2]
    width = sum(each.indices.shape[1] for each in caches)
    chosen = plan(layout, heads, requests, width, backend, forced)
    arguments: list[Argument] = [q]
    for cache in (*caches, None)[:2]:
        arguments += cache_arguments(cache)
    arguments += [np.float32(scale), sink, np.int32(heads)]
    main = configure(chosen, requests, len(caches))
    for launch, given in mla_launch.launches_of(
        chosen, main, arguments, out, lse, sink, mla_launch.new_nans, requests=requests, rows=heads, heads=heads
    ):
        backend.run(launch, given)


def cache_arguments(cache: Cache | None) -> list[Argument]:
    """Seven arguments for a cache, or for none."""
    if cache is None:
        return [None, np.int64(0), np.int32(1), np.int32(0), None, np.int32(0), None]
    return [
        cache.memory,
        np.int64(cache.page_bytes),
        np.int32(cache.page_size),
        np.int32(cache.slots),
        cache.indices,
        np.int32(cache.indices.shape[1]),
        cache.lengths,
    ]


def builds() -> Iterator[Build]:
    """Every block that a plan can choose, in turns with and without splits, for one cache and for two."""
    for records in _RECORDS.values():
        for tiles in range(1, mla_plan.MOST_TILES[records] + 1):
            for block, architectures in mla_plan.blocks_of(records, tiles).items():
                ways = [(1, 2)] if tiles % 2 else [(2, 1)]
                if tiles == 8:  # registers are shortest there, and of pairs
                    ways = [(1, 1), (2, 1)]
                if block.paired:
                    ways = [(1, 1), (2, 2)]
                launches = [configure(Plan(block, 1, splits), 1, caches) for splits, caches in ways]
                yield from mla_launch.builds_of(block, architectures, launches)
