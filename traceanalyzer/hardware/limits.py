"""How many blocks of a launch an SM can hold at once: NVIDIA's occupancy rules, recomputed.

The profiler's own figure is 0 for every kernel above 48 KiB of shared memory: it asks with the default limit of a block
although such kernels opt in to more. The rules here give what the CUDA runtime would answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from traceanalyzer.hardware import tables

WARP = 32  # threads; every compute capability in the table
#: A limit that does not bind, as a launch without registers or shared memory has it.
UNLIMITED = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Limits:
    """What an SM of one compute capability holds, and in which pieces it hands it out. Shared memory in bytes."""

    threads_per_block: int
    warps_per_sm: int
    blocks_per_sm: int
    registers_per_sm: int
    registers_per_block: int
    register_piece: int
    """Registers are handed out to warps in multiples of this."""
    partitions: int
    """Warps are spread over so many parts of an SM, each with its share of the registers."""
    shared_memory_per_sm: int
    shared_memory_per_block: int
    """The most that a block may opt in to."""
    shared_memory_reserved: int
    """What the system takes of every block's share."""
    shared_memory_piece: int


@dataclass(frozen=True, slots=True)
class Residency:
    """How many blocks fit on an SM by each resource (`UNLIMITED`: it does not bind)."""

    warps: int
    registers: int
    shared_memory: int
    blocks: int

    @property
    def resident_blocks(self) -> int:
        """Blocks that an SM holds at once; 0: not even one fits."""
        return min(self.warps, self.registers, self.shared_memory, self.blocks)

    @property
    def limited_by(self) -> tuple[str, ...]:
        """The resources that allow no more: several where they bind alike."""
        named = {
            "warps": self.warps,
            "registers": self.registers,
            "shared memory": self.shared_memory,
            "blocks per SM": self.blocks,
        }
        return tuple(name for name, limit in named.items() if limit == self.resident_blocks)


@cache
def limits_of(major: int, minor: int) -> Limits | None:
    """The limits of an NVIDIA compute capability; None where the table has none."""
    row = next((row for row in tables.rows("cc_limits.tsv") if row["cc"] == f"{major}.{minor}"), None)
    if row is None:
        return None
    return Limits(
        threads_per_block=int(row["max_threads_per_block"]),
        warps_per_sm=int(row["max_warps_per_sm"]),
        blocks_per_sm=int(row["max_blocks_per_sm"]),
        registers_per_sm=int(row["regs_per_sm"]),
        registers_per_block=int(row["regs_per_block"]),
        register_piece=int(row["reg_alloc_granularity_per_warp"]),
        partitions=int(row["sub_partitions"]),
        shared_memory_per_sm=int(row["smem_per_sm_bytes"]),
        shared_memory_per_block=int(row["smem_per_block_optin"]),
        shared_memory_reserved=int(row["smem_reserved_per_block"]),
        shared_memory_piece=int(row["smem_alloc_granularity"]),
    )


def residency(limits: Limits, *, threads: int, registers: int, shared_memory: int) -> Residency:
    """How many blocks of `threads` threads with `registers` each fit on an SM, by each resource.

    `shared_memory` is static plus dynamic, in bytes a block.
    """
    warps = -(-threads // WARP)
    return Residency(
        warps=limits.warps_per_sm // warps if threads <= limits.threads_per_block else 0,
        registers=_by_registers(limits, warps, registers),
        shared_memory=_by_shared_memory(limits, shared_memory),
        blocks=limits.blocks_per_sm,
    )


def _by_registers(limits: Limits, warps: int, registers: int) -> int:
    if not registers:
        return UNLIMITED
    per_warp = _pieces(registers * WARP, limits.register_piece)
    if per_warp * _pieces(warps, limits.partitions) > limits.registers_per_block:
        return 0
    warps_per_partition = limits.registers_per_sm // limits.partitions // per_warp
    return warps_per_partition * limits.partitions // warps


def _by_shared_memory(limits: Limits, shared_memory: int) -> int:
    taken = _pieces(shared_memory + limits.shared_memory_reserved, limits.shared_memory_piece)
    if not taken:
        return UNLIMITED
    if taken > limits.shared_memory_per_block + limits.shared_memory_reserved:
        return 0
    return limits.shared_memory_per_sm // taken


def _pieces(amount: int, piece: int) -> int:
    """The amount rounded up to whole pieces."""
    return -(-amount // piece) * piece
