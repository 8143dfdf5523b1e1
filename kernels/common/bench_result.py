"""What a benchmark run found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from traceanalyzer.kernels.common.gpu_state import GpuState


@dataclass(frozen=True)
class Ceilings:
    """What this GPU can do, measured in this run."""

    copy_bytes_per_s: float
    """Of a large copy on the device, bytes read and written."""
    mma_flop_per_s: float
    """Of `mma.sync` bf16 with float32 sums."""
    launch_ns: int
    """What the clock shows for a kernel that does next to nothing."""


@dataclass(frozen=True)
class Row:
    """One case of one kernel; times are medians with a cold L2."""

    kernel: str
    case: str
    baseline: str
    baseline_ns: int
    replacement_ns: int
    floor_ns: int
    """The least time that the bytes and operations leave, at the measured ceilings."""
    agree: bool
    """Whether baseline and replacement gave the same: bit for bit, or within bounds where `largest_error` is there."""
    peer: str | None = None
    peer_ns: int | None = None
    replacement_p10_ns: int | None = None
    replacement_p90_ns: int | None = None
    replacement_clean_ns: int | None = None
    """The median where L2 holds lines that need not be written to memory first (all other times: lines that must)."""
    baseline_host_ns: int | None = None
    """What the host does for the baseline besides, with what it waits for; not in `baseline_ns`."""
    largest_error: float | None = None
    """Of the replacement, in units of the bound that its README gives; None where every bit must be the same."""


@dataclass(frozen=True)
class Result:
    """All of a run."""

    device: str
    architecture: str
    torch: str
    cuda: str
    driver: str | None
    ceilings: Ceilings
    rows: Sequence[Row]
    states: Sequence[GpuState]
    """Read under load: before the first row and behind each."""
    warnings: Sequence[str]
