"""How the kernel is launched: what it is compiled for and how large its grid is, from sizes alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from traceanalyzer.kernels.common.kernel import Build
from traceanalyzer.kernels.common.program import Argument, Backend, Launch, Program

SOURCE = Path(__file__).parent / "gather_cast.cu"
#: No, one, and one factor a group of columns.
PLAIN, ONE_FACTOR, GROUPS = 0, 1, 2
#: Threads of a block are near this where the width of a row allows.
_THREADS = 256
_MOST_THREADS = 512
#: Codes that one access can take; wider ones leave gaps between the lanes' stores.
_VECTORS = (8, 4, 1)
#: Groups of rows that one block may take. The least that lets all blocks run at once is best; else this.
_DEPTHS = (1, 2, 3, 4, 5, 6)
_DEPTH_OF_MANY = 3
#: Where the number of rows is only known on the GPU, the grid is no larger than this many times what runs at once, and
#: goes round: blocks without work cost time too.
_MOST_WAVES = 4


@dataclass(frozen=True)
class Layout:
    """What of the operands the program is compiled for."""

    columns: int
    vector: int
    wide_indices: bool = False
    scaling: int = PLAIN
    group: int = 1
    """Columns that share a factor."""
    page: int = 0
    """Rows of a page; 0 where the pool is one piece."""


def vector_for(columns: int, *addresses: int) -> int:
    """The widest access that divides the width of a row and all these addresses and strides (in bytes)."""
    return next(each for each in _VECTORS if not any(number % each for number in (columns, *addresses)))


@lru_cache(maxsize=1024)
def configure(layout: Layout, capacity: int, resident_threads: int, *, counted: bool = False) -> Launch:
    """The launch for up to `capacity` indices on a GPU that holds so many threads at once.

    `counted` says that the number of indices is read on the GPU.
    """
    width = layout.columns // layout.vector
    parts = next(each for each in range(1, width + 1) if width % each == 0 and width // each <= _MOST_THREADS)
    part = width // parts
    rows = max(1, round(_THREADS / part))
    at_once = max(1, resident_threads // (_to_warps(part * rows) * parts))

    def blocks(depth: int) -> int:
        return max(1, -(-capacity // (rows * depth)))

    depth = next((each for each in _DEPTHS if blocks(each) <= at_once), _DEPTH_OF_MANY)
    grid = min(blocks(depth), at_once * _MOST_WAVES) if counted else blocks(depth)
    defines = {
        "COLUMNS": layout.columns,
        "VECTOR": layout.vector,
        "PART": part,
        "ROWS": rows,
        "DEPTH": depth,
        "WIDE_INDICES": int(layout.wide_indices),
        "SCALING": layout.scaling,
        "GROUP": layout.group,
        "PAGE": layout.page,
    }
    return Launch(Program(SOURCE, "gather_cast", tuple(defines.items())), (grid, parts, 1), part * rows)


def _to_warps(threads: int) -> int:
    return -(-threads // 32) * 32


def run(
    backend: Backend,
    pool: npt.NDArray[Any],
    indices: npt.NDArray[Any],
    out: npt.NDArray[Any],
    *,
    columns: int,
    row_stride: int,
    rows: int,
    page: int = 0,
    page_stride: int = 0,
    count: npt.NDArray[Any] | None = None,
    factors: npt.NDArray[Any] | None = None,
) -> None:
    """Run on arrays of the CPU. `pool` is its bytes, `out` the bits [capacity, columns]; strides in bytes."""
    scaling = PLAIN if factors is None else GROUPS if factors.ndim == 2 else ONE_FACTOR
    group = columns // factors.shape[1] if factors is not None and factors.ndim == 2 else 1
    vector = vector_for(columns, row_stride, page_stride)
    while scaling == GROUPS and group % vector:
        vector = _VECTORS[_VECTORS.index(vector) + 1]
    wide = indices.dtype == np.int64
    layout = Layout(columns, vector, wide, scaling, group, page)
    arguments: list[Argument] = [
        pool,
        np.int32(row_stride),
        np.int64(page_stride),
        np.int64(rows) if wide else np.int32(rows),
        indices,
        count,
        np.int32(len(indices)),
        factors,
        np.int64(factors.shape[1] if scaling == GROUPS and factors is not None else 0),
        out,
    ]
    launch = configure(layout, len(indices), backend.resident_threads, counted=count is not None)
    backend.run(launch, arguments)


def builds() -> Iterator[Build]:
    """Every way of access, of scaling and of indices, for rows of 576 codes; and every depth."""
    scalings = (PLAIN, ONE_FACTOR, GROUPS)
    layouts = [Layout(576, vector, scaling=scaling, group=64) for vector in _VECTORS for scaling in scalings]
    layouts += [Layout(576, 8, wide_indices=True), Layout(576, 8, page=64)]
    for layout in layouts:
        yield Build(configure(layout, 1 << 20, 132 * 2048).program, register_budget=48)
    for depth in _DEPTHS:
        yield Build(configure(Layout(576, 8), 4 * depth * 100, 100 * 288).program, register_budget=48)
