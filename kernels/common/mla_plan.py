"""How blocks of `mla_block.cuh` and `mla_pairs.cuh` are shaped, and which of them pay, in how many splits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from traceanalyzer.kernels.common.program import SHARED_BYTES_LIMIT

#: What records hold: as RECORDS in the source.
BF16, V32, DSV4 = 0, 1, 2
VALUES = 512
MOST_SPLITS = 512
#: Tiles of keys in shared memory. More made nothing faster, and blocks of few tiles slower.
STAGES = 2
_PITCH = {BF16: 1168, V32: 656, DSV4: 592}
_GROUPS = {BF16: 1, V32: 4, DSV4: 8}
_BLOCK_KEYS = 32
THREADS = 256
_WARPS = THREADS // 32
#: Of blocks whose warps go in pairs: the teams, the keys of a team's tile, and the bytes that a warp has of each.
_TEAMS, _TEAM_KEYS, _TEAM_PITCH = _WARPS // 2, 16, 336
#: Tiles of eight rows that registers have room for.
MOST_TILES = {BF16: 5, V32: 8, DSV4: 6}
#: Up to so many tiles, registers let two blocks live on a multiprocessor.
_MOST_TILES_OF_TWO = {BF16: 2, V32: 2, DSV4: 2}
#: Up to so many tiles of FP8 records, warps go in pairs.
_MOST_TILES_OF_PAIRS = 2
#: Shared memory of a multiprocessor, and the architectures of that size which the kernels are compiled for.
SHARED_BYTES_OF_MULTIPROCESSORS = {102_400: ("sm_89", "sm_120"), 167_936: ("sm_80",), 233_472: ("sm_90",)}
#: Shared memory that the driver keeps for itself in each block.
_RESERVED_BYTES = 1024


@dataclass(frozen=True)
class Block:
    """What a block is compiled for."""

    records: int
    tiles: int
    """Of eight rows."""
    resident: int
    """Blocks on a multiprocessor."""
    paired: bool = False
    """As of `mla_pairs.cuh`, else of `mla_block.cuh`."""

    @property
    def shared_bytes(self) -> int:
        """As the source has it, which checks that."""
        if self.paired:
            return _shared_bytes_of_pairs(self.tiles)
        return _shared_bytes(self.records, self.tiles)

    @property
    def keys_a_turn(self) -> int:
        """Records that the block goes through at a time."""
        return _TEAMS * _TEAM_KEYS if self.paired else _BLOCK_KEYS

    def defines(self, *, partial: bool) -> dict[str, int]:
        """Macros of `mla_common.cuh`."""
        return {"RECORDS": self.records, "TILES": self.tiles, "PARTIAL": int(partial)}


def _shared_bytes(records: int, tiles: int) -> int:
    rows = 8 * tiles
    scores = 4 * rows * _BLOCK_KEYS * 4
    weights = (2 if records == DSV4 else 1) * rows * _BLOCK_KEYS * 2
    of_keys = _BLOCK_KEYS * (_GROUPS[records] * 2 + 8)
    of_stage = _BLOCK_KEYS * (_PITCH[records] + 12 + (16 if records == DSV4 else 8))
    parking = THREADS * tiles // 2 * 8 if tiles == 8 else 0
    return STAGES * of_stage + scores + weights + rows * 8 + of_keys + parking


def _shared_bytes_of_pairs(tiles: int) -> int:
    rows, of_tiles = 8 * tiles, tiles * 32 * 16
    stages = STAGES * _TEAM_KEYS * (_TEAM_PITCH + 4)
    exchanges, steps_away = (2, 0) if tiles == 1 else (1, 4)
    queries_away = 2 * steps_away * tiles * 32 * 8
    loop = _WARPS * (stages + exchanges * of_tiles + _TEAM_KEYS * 8 + rows * 4) + queries_away
    end = _WARPS * (_TEAMS - 1) * 4 * of_tiles + (2 + 2 * _TEAMS) * rows * 4
    return max(loop, end)


@lru_cache(maxsize=256)
def blocks_that_fit(records: int, tiles: int, shared_bytes_each: int) -> tuple[Block, ...]:
    """The blocks of so many tiles that a multiprocessor with so much shared memory can have."""
    found = []
    if records != BF16 and 1 <= tiles <= _MOST_TILES_OF_PAIRS:
        found.append(Block(records, tiles, 1, paired=True))
    if 1 <= tiles <= MOST_TILES[records]:
        found += _plain_blocks(records, tiles, shared_bytes_each)
    return tuple(found)


def _plain_blocks(records: int, tiles: int, shared_bytes_each: int) -> list[Block]:
    """The one of which most fit."""
    for resident in (2, 1) if tiles <= _MOST_TILES_OF_TWO[records] else (1,):
        if _shared_bytes(records, tiles) <= min(SHARED_BYTES_LIMIT, shared_bytes_each // resident - _RESERVED_BYTES):
            return [Block(records, tiles, resident)]
    return []


def blocks_of(records: int, tiles: int) -> dict[Block, tuple[str, ...]]:
    """Those that a plan can choose, and the architectures on which it does."""
    found: dict[Block, tuple[str, ...]] = {}
    for size, architectures in SHARED_BYTES_OF_MULTIPROCESSORS.items():
        for block in blocks_that_fit(records, tiles, size):
            found[block] = found.get(block, ()) + architectures
    return found


@dataclass(frozen=True)
class Plan:
    """The shape of the work: blocks of rows and splits of keys."""

    block: Block
    row_blocks: int
    splits: int

    def partial_floats(self, requests: int) -> tuple[int, int]:
        """Sizes of what splits leave: sums, and levels with sums of rows."""
        if self.splits == 1:
            return 0, 0
        blocks = requests * self.row_blocks * self.splits
        return blocks * self.block.tiles * 8 * VALUES, blocks * self.block.tiles * 16


#: Clocks of a model of the kernel, measured on an H200 and near enough for others. A tile of keys costs some, and a
#: block has a start and an end; both more with each tile of rows. Two blocks on a multiprocessor take longer each.
_TILE_CLOCKS, _ROWS_CLOCKS, _SHARING = 1700, 330, 1.5
_BLOCK_CLOCKS, _BLOCK_ROWS_CLOCKS = 3500, 1800
#: The same of blocks in pairs, for a turn of all teams.
_TURN_CLOCKS, _TURN_ROWS_CLOCKS = 2250, 650
_PAIRED_CLOCKS, _PAIRED_ROWS_CLOCKS = 2000, 5000
#: Bytes of records that come to a multiprocessor in a clock while all of them ask: for one block, and for two.
_BYTES_FOR_ONE, _BYTES_FOR_TWO = 12.5, 14.0
#: Of the kernel that adds up: its start, more with each split and row, and the bytes a multiprocessor reads in a clock.
_COMBINE_CLOCKS, _SPLIT_CLOCKS, _ROW_CLOCKS, _BYTES_OF_SUMS = 2500, 45, 5, 42


class Forced(NamedTuple):
    """What a plan must have, where given."""

    tiles: int | None = None
    splits: int | None = None
    paired: bool | None = None


@dataclass(frozen=True)
class Work:
    """What is planned for: `requests` of `rows` query rows over about `keys` records each, on a GPU."""

    records: int
    rows: int
    requests: int
    keys: int
    multiprocessors: int
    shared_bytes_each: int
    """Of a multiprocessor."""


def plan(
    records: int,
    rows: int,
    requests: int,
    keys: int,
    multiprocessors: int,
    shared_bytes_each: int,
    forced: Forced = Forced(),  # noqa: B008 - it cannot be changed
) -> Plan:
    """The plan that should take least time for such `Work`.

    Numbers of keys that are near to each other share a plan, since to make one takes longer than most launches. Raises
    `ValueError` for tiles that no block can have.
    """
    return _plan(records, rows, requests, rounded(keys), multiprocessors, shared_bytes_each, forced)


def rounded(keys: int) -> int:
    """A number of keys, rounded up to whole tiles and to one of eight steps between powers of two."""
    tiles = max(1, -(-keys // _BLOCK_KEYS))
    step = 1 << max(0, tiles.bit_length() - 4)
    return -(-tiles // step) * step * _BLOCK_KEYS


@lru_cache(maxsize=4096)
def _plan(
    records: int, rows: int, requests: int, keys: int, multiprocessors: int, shared_bytes_each: int, forced: Forced
) -> Plan:
    work = Work(records, rows, requests, keys, multiprocessors, shared_bytes_each)
    best = min(_plans(work, forced), key=lambda candidate: _clocks(candidate, work), default=None)
    if best is None:
        raise ValueError(f"no block can have {forced.tiles} tiles of rows")
    return best


def _plans(work: Work, forced: Forced) -> Iterator[Plan]:
    row_tiles = max(1, -(-work.rows // 8))
    for tiles in (forced.tiles,) if forced.tiles else range(MOST_TILES[work.records], 0, -1):
        row_blocks = -(-row_tiles // tiles)
        for block in blocks_that_fit(work.records, tiles, work.shared_bytes_each):
            if forced.paired not in (None, block.paired):
                continue
            for splits in (forced.splits,) if forced.splits else _numbers_of_splits(work, block, row_blocks):
                yield Plan(block, row_blocks, splits)


def _numbers_of_splits(work: Work, block: Block, row_blocks: int) -> list[int]:
    """Those that are worth a look."""
    slots = work.multiprocessors * block.resident
    most = min(MOST_SPLITS, max(1, -(-work.keys // block.keys_a_turn)))
    counts = {1, most, *(wave * slots // (work.requests * row_blocks) for wave in (0.5, 1, 2, 3, 4))}
    return sorted({max(1, min(most, int(count))) for count in counts})


def _clocks(candidate: Plan, work: Work) -> float:
    block = candidate.block
    turns = -(-max(work.keys, 1) // block.keys_a_turn // candidate.splits)
    blocks = work.requests * candidate.row_blocks * candidate.splits
    waves = -(-blocks // (work.multiprocessors * block.resident))
    shared = blocks > work.multiprocessors and block.resident > 1
    if block.paired:
        start = _PAIRED_CLOCKS + _PAIRED_ROWS_CLOCKS * block.tiles
        turn = float(_TURN_CLOCKS + _TURN_ROWS_CLOCKS * block.tiles)
    else:
        start = _BLOCK_CLOCKS + _BLOCK_ROWS_CLOCKS * block.tiles
        turn = (_TILE_CLOCKS + _ROWS_CLOCKS * block.tiles) * (_SHARING if shared else 1)
        asking = min(blocks / work.multiprocessors, block.resident)
        turn = max(turn, asking * _BLOCK_KEYS * _PITCH[block.records] / (_BYTES_FOR_TWO if shared else _BYTES_FOR_ONE))
    time = waves * (start + turns * turn)
    return time + _combine_clocks(candidate, work)


def _combine_clocks(candidate: Plan, work: Work) -> float:
    if candidate.splits == 1:
        return 0
    rows = work.requests * work.rows
    left = rows * candidate.splits * VALUES * 8  # bytes, written and read
    time = _COMBINE_CLOCKS + _SPLIT_CLOCKS * candidate.splits + _ROW_CLOCKS * rows
    return time + left / (_BYTES_OF_SUMS * work.multiprocessors)
