"""The launches of a kernel that stands on `mla_block.cuh` or `mla_pairs.cuh`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from traceanalyzer.kernels.common.kernel import Build
from traceanalyzer.kernels.common.mla_plan import MOST_SPLITS, MOST_TILES, STAGES, THREADS, VALUES, Block, Plan
from traceanalyzer.kernels.common.program import Argument, Launch, Program

_COMBINE = Path(__file__).parent / "mla_combine.cu"
#: An array of the CPU, or a torch tensor.
_Memory = TypeVar("_Memory")


def block_launch(source: Path, entry: str, chosen: Plan, requests: int, others: dict[str, int]) -> Launch:
    """The launch of the main kernel: blocks of rows x splits x requests."""
    block = chosen.block
    defines = {
        **block.defines(partial=chosen.splits > 1),
        "STAGES": STAGES,
        "SHARED_BYTES_EXPECTED": block.shared_bytes,
        "RESIDENT": block.resident,
        **others,
    }
    program = Program(source, entry, tuple(defines.items()))
    return Launch(program, (chosen.row_blocks, chosen.splits, requests), THREADS, block.shared_bytes)


@lru_cache(maxsize=4096)
def combine_launch(chosen: Plan, requests: int) -> Launch:
    """The launch that adds up what splits left."""
    teams = 1 if chosen.splits <= 8 else 2 if chosen.splits <= 24 else 4
    defines = chosen.block.defines(partial=True) | {"TEAMS": teams}
    program = Program(_COMBINE, "mla_combine", tuple(defines.items()))
    grid = (requests * chosen.row_blocks * chosen.block.tiles, VALUES // 64, 1)
    shared_bytes = (teams - 1) * 128 * 16 + chosen.splits * 64
    return Launch(program, grid, 128 * teams, shared_bytes, overlaps=True)


def launches_of(
    chosen: Plan,
    main: Launch,
    arguments: Sequence[_Memory | Argument],
    out: _Memory,
    lse: _Memory,
    sink: _Memory | None,
    new_floats: Callable[[int], _Memory],
    *,
    requests: int,
    rows: int,
    heads: int,
) -> Iterator[tuple[Launch, list[_Memory | Argument]]]:
    """The launches of a plan with their arguments: `main`, and where keys are split the one that adds up.

    `arguments` are those of `main` before its results `out` and `lse`. Each request has `rows` query rows, of `heads`
    heads in turn; `sink` is float32 [heads]. `new_floats` makes memory for so many float32, which splits leave.
    """
    sums, levels = map(new_floats, chosen.partial_floats(requests))
    yield main, [*arguments, out, lse, sums, levels]
    if chosen.splits > 1:
        numbers = [np.int32(each) for each in (heads, rows, chosen.row_blocks, chosen.splits)]
        yield combine_launch(chosen, requests), [sums, levels, out, lse, sink, *numbers]


def new_nans(size: int) -> npt.NDArray[np.float32]:
    """Memory of the CPU for what splits leave: whatever no split has written will be seen."""
    return np.full(size, np.nan, np.float32)


def builds_of(block: Block, architectures: tuple[str, ...], launches: Iterable[Launch]) -> Iterator[Build]:
    """Budgets of programs of a block, and of the one that adds up what its splits leave."""
    budget = 128 if block.resident > 1 else 255
    for launch in launches:
        yield Build(launch.program, budget, launch.shared_bytes, architectures)
    for splits in (2, 9, MOST_SPLITS) if block.tiles in (1, MOST_TILES[block.records]) else ():
        combine = combine_launch(Plan(block, 1, splits), 1)
        yield Build(combine.program, 128, combine.shared_bytes, architectures)
