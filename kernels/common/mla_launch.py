"""How a block of `mla_block.cuh` is shaped, how many splits pay, and the launches of a kernel that stands on it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from traceanalyzer.kernels.common.kernel import Build
from traceanalyzer.kernels.common.program import SHARED_BYTES_LIMIT, Argument, Launch, Program

#: What records hold: as RECORDS in the source.
BF16, V32, DSV4 = 0, 1, 2
VALUES = 512
#: Numbers of a query.
DIMENSIONS = {BF16: 576, V32: 576, DSV4: 512}
MOST_SPLITS = 512
_COMBINE = Path(__file__).parent / "mla_combine.cu"
_PITCH = {BF16: 1168, V32: 656, DSV4: 592}
_GROUPS = {BF16: 1, V32: 4, DSV4: 8}
_BLOCK_KEYS = 32
_THREADS = 256
#: Tiles of eight rows that registers have room for.
_MOST_TILES = {BF16: 5, V32: 8, DSV4: 6}
#: Up to so many tiles, registers let two blocks live on a multiprocessor.
_MOST_TILES_OF_TWO = {BF16: 1, V32: 2, DSV4: 2}
_FEWEST_STAGES, _MOST_STAGES = 2, 4
#: Shared memory of a multiprocessor, and the architectures of that size which the kernels are compiled for.
SHARED_BYTES_OF_MULTIPROCESSORS = {102_400: ("sm_89", "sm_120"), 167_936: ("sm_80",), 233_472: ("sm_90",)}
#: Shared memory that the driver keeps for itself in each block.
_RESERVED_BYTES = 1024
#: An array of the CPU, or a torch tensor.
_Memory = TypeVar("_Memory")


@dataclass(frozen=True)
class Block:
    """What a block is compiled for."""

    records: int
    tiles: int
    """Of eight rows."""
    stages: int
    resident: int
    """Blocks on a multiprocessor."""

    @property
    def shared_bytes(self) -> int:
        """As the source has it, which checks that."""
        return _shared_bytes(self.records, self.tiles, self.stages)

    def defines(self, *, partial: bool) -> dict[str, int]:
        """Macros of the source."""
        return {
            "RECORDS": self.records,
            "TILES": self.tiles,
            "STAGES": self.stages,
            "PARTIAL": int(partial),
            "SHARED_BYTES_EXPECTED": self.shared_bytes,
        }


def _shared_bytes(records: int, tiles: int, stages: int) -> int:
    rows = 8 * tiles
    scores = 4 * rows * _BLOCK_KEYS * 4
    weights = (2 if records == DSV4 else 1) * rows * _BLOCK_KEYS * 2
    of_keys = _BLOCK_KEYS * (_GROUPS[records] * 2 + 8)
    of_stage = _BLOCK_KEYS * (_PITCH[records] + 12 + (16 if records == DSV4 else 8))
    parking = _THREADS * tiles // 2 * 8 if tiles == 8 else 0
    return stages * of_stage + scores + weights + rows * 8 + of_keys + parking


@lru_cache(maxsize=256)
def block_of(records: int, tiles: int, shared_bytes_each: int) -> Block | None:
    """The block of so many tiles, on a multiprocessor with so much shared memory; None where none fits."""
    if not 1 <= tiles <= _MOST_TILES[records]:
        return None
    for resident in (2, 1) if tiles <= _MOST_TILES_OF_TWO[records] else (1,):
        room = min(SHARED_BYTES_LIMIT, shared_bytes_each // resident - _RESERVED_BYTES)
        for stages in range(_MOST_STAGES, _FEWEST_STAGES - 1, -1):
            if _shared_bytes(records, tiles, stages) <= room:
                return Block(records, tiles, stages, resident)
    return None


def blocks_of(records: int, tiles: int) -> dict[Block, tuple[str, ...]]:
    """Those that a plan can choose, and the architectures on which it does."""
    found: dict[Block, tuple[str, ...]] = {}
    for size, architectures in SHARED_BYTES_OF_MULTIPROCESSORS.items():
        block = block_of(records, tiles, size)
        if block:
            found[block] = found.get(block, ()) + architectures
    return found


@dataclass(frozen=True)
class Plan:
    """The shape of the work: blocks of rows and splits of keys."""

    block: Block
    row_blocks: int
    splits: int

    def partial_floats(self, requests: int) -> tuple[int, int]:
        """Sizes of what splits leave: sums, and maxima with sums of rows."""
        if self.splits == 1:
            return 0, 0
        blocks = requests * self.row_blocks * self.splits
        return blocks * self.block.tiles * 8 * VALUES, blocks * self.block.tiles * 16


#: Clocks of a model of the kernel, measured on an H200 and near enough for others. A tile of keys costs some, and more
#: with each tile of rows; where two blocks share a multiprocessor each takes longer. A block has a start and an end,
#: and what splits leave must be added up.
_TILE_CLOCKS, _ROWS_CLOCKS, _SHARING, _BLOCK_CLOCKS, _COMBINE_CLOCKS = 1700, 330, 1.75, 6000, 3500
_BYTES_A_CLOCK = 16.0  # of one multiprocessor, from memory or L2


def plan(
    records: int,
    rows: int,
    requests: int,
    keys: int,
    multiprocessors: int,
    shared_bytes_each: int,
    tiles: int | None = None,
    splits: int | None = None,
) -> Plan:
    """The plan that should take least time for `requests` of `rows` query rows over about `keys` records each.

    `tiles` and `splits` are taken as they are where given. Numbers of keys that are near to each other share a plan,
    since to make one takes longer than most launches. Raises `ValueError` for tiles that no block can have.
    """
    return _plan(records, rows, requests, rounded(keys), multiprocessors, shared_bytes_each, tiles, splits)


def rounded(keys: int) -> int:
    """A number of keys, rounded up to whole tiles and to one of eight steps between powers of two."""
    tiles = max(1, -(-keys // _BLOCK_KEYS))
    step = 1 << max(0, tiles.bit_length() - 4)
    return -(-tiles // step) * step * _BLOCK_KEYS


@lru_cache(maxsize=4096)
def _plan(
    records: int,
    rows: int,
    requests: int,
    keys: int,
    multiprocessors: int,
    shared_bytes_each: int,
    tiles: int | None = None,
    splits: int | None = None,
) -> Plan:
    best: tuple[float, Plan] | None = None
    for candidate in _plans(records, rows, requests, keys, multiprocessors, shared_bytes_each, tiles, splits):
        time = _clocks(candidate, rows, requests, keys, multiprocessors)
        if best is None or time < best[0]:
            best = time, candidate
    if best is None:
        raise ValueError(f"no block can have {tiles} tiles of rows")
    return best[1]


def _plans(
    records: int,
    rows: int,
    requests: int,
    keys: int,
    multiprocessors: int,
    shared_bytes_each: int,
    tiles: int | None,
    splits: int | None,
) -> Iterator[Plan]:
    row_tiles = max(1, -(-rows // 8))
    for each in (tiles,) if tiles else range(_MOST_TILES[records], 0, -1):
        block = block_of(records, each, shared_bytes_each)
        if block is None:
            continue
        row_blocks = -(-row_tiles // each)
        key_tiles = max(1, -(-keys // _BLOCK_KEYS))
        if splits:
            yield Plan(block, row_blocks, splits)
            continue
        slots = multiprocessors * block.resident
        most = min(MOST_SPLITS, key_tiles)
        counts = {1, most, *(max(1, min(most, wave * slots // (requests * row_blocks))) for wave in (1, 2, 3, 4))}
        counts |= {max(1, min(most, slots // (2 * requests * row_blocks)))}
        for count in sorted(counts):
            yield Plan(block, row_blocks, count)


def _clocks(candidate: Plan, rows: int, requests: int, keys: int, multiprocessors: int) -> float:
    block = candidate.block
    key_tiles = -(-max(keys, 1) // _BLOCK_KEYS)
    blocks = requests * candidate.row_blocks * candidate.splits
    waves = -(-blocks // (multiprocessors * block.resident))
    shared = blocks > multiprocessors and block.resident > 1
    tile = (_TILE_CLOCKS + _ROWS_CLOCKS * block.tiles) * (_SHARING if shared else 1)
    time = waves * (_BLOCK_CLOCKS + -(-key_tiles // candidate.splits) * tile)
    if candidate.splits > 1:
        left = requests * rows * candidate.splits * VALUES * 8
        time += _COMBINE_CLOCKS + left / (_BYTES_A_CLOCK * multiprocessors)
    return time


def block_launch(source: Path, entry: str, chosen: Plan, requests: int, others: dict[str, int]) -> Launch:
    """The launch of a kernel that stands on `mla_block.cuh`: blocks of rows x splits x requests."""
    defines = chosen.block.defines(partial=chosen.splits > 1) | {"RESIDENT": chosen.block.resident} | others
    program = Program(source, entry, tuple(defines.items()))
    return Launch(program, (chosen.row_blocks, chosen.splits, requests), _THREADS, chosen.block.shared_bytes)


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
    sums, maxima = map(new_floats, chosen.partial_floats(requests))
    yield main, [*arguments, out, lse, sums, maxima]
    if chosen.splits > 1:
        numbers = [np.int32(each) for each in (heads, rows, chosen.row_blocks, chosen.splits)]
        yield combine_launch(chosen, requests), [sums, maxima, out, lse, sink, *numbers]


def new_nans(size: int) -> npt.NDArray[np.float32]:
    """Memory of the CPU for what splits leave: whatever no split has written will be seen."""
    return np.full(size, np.nan, np.float32)


def builds_of(block: Block, architectures: tuple[str, ...], launches: Iterable[Launch]) -> Iterator[Build]:
    """Budgets of programs of a block, and of the one that adds up what its splits leave."""
    budget = 128 if block.resident > 1 else 255
    for launch in launches:
        yield Build(launch.program, budget, launch.shared_bytes, architectures)
    for splits in (2, 9, MOST_SPLITS) if block.tiles in (1, _MOST_TILES[block.records]) else ():
        combine = combine_launch(Plan(block, 1, splits), 1)
        yield Build(combine.program, 128, combine.shared_bytes, architectures)
