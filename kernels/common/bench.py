"""A benchmark run: first the GPU's ceilings, then each kernel's baseline, replacement, floor, peer. Needs torch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import torch

from traceanalyzer.errors import NeedsGpuError
from traceanalyzer.kernels.common import torch_launch
from traceanalyzer.kernels.common.bench_result import Ceilings, Result, Row
from traceanalyzer.kernels.common.gpu_state import GpuState, Monitor, clocks_moved
from traceanalyzer.kernels.common.kernel import Kernel
from traceanalyzer.kernels.common.program import Launch, Program
from traceanalyzer.kernels.common.timing import Timer, Timing

_CEILINGS = Path(__file__).parent / "ceilings.cu"
_COPY_BYTES = 1 << 31
_MMA_ROUNDS = 4096
#: Of one round of one warp: eight products of 16 x 8 x 16.
_MMA_FLOPS = 8 * 2 * 16 * 8 * 16


class Bench:
    """What rows are measured with."""

    def __init__(self, ordinal: int = 0) -> None:
        if not torch.cuda.is_available():
            raise NeedsGpuError("torch sees no GPU here (torch.cuda.is_available() is false)")
        self.device = torch.device("cuda", ordinal)
        torch.cuda.set_device(self.device)
        self.timer = Timer(self.device)
        self.ceilings = self._measure_ceilings()

    def on_gpu(self, work: Callable[[], object]) -> Timing:
        """See `Timer.on_gpu`."""
        return self.timer.on_gpu(work)

    def clean_ns(self, work: Callable[[], object]) -> int:
        """The median with clean lines in L2."""
        return self.timer.on_gpu(work, cold="read").median_ns

    def floor_ns(self, moved_bytes: float, flops: float = 0) -> int:
        """The time that this much work takes at the ceilings."""
        seconds = max(moved_bytes / self.ceilings.copy_bytes_per_s, flops / self.ceilings.mma_flop_per_s)
        return round(seconds * 1e9)

    def _measure_ceilings(self) -> Ceilings:
        source = torch.randint(0, 255, (_COPY_BYTES,), dtype=torch.uint8, device=self.device)
        target = torch.empty_like(source)
        copy = self.timer.on_gpu(lambda: target.copy_(source), rounds=20)
        blocks = torch_launch.resident_threads(self.device) // 512
        sums = torch.empty(blocks * 256, dtype=torch.float32, device=self.device)

        def multiply(rounds: int) -> Callable[[], None]:
            launch = Launch(Program(_CEILINGS, "multiply_only"), (blocks if rounds else 1, 1, 1), 256)
            return lambda: torch_launch.launch(launch, [np.int32(rounds), sums], self.device)

        mma = self.timer.on_gpu(multiply(_MMA_ROUNDS), rounds=20)
        return Ceilings(
            copy_bytes_per_s=2 * _COPY_BYTES / copy.median_ns * 1e9,
            mma_flop_per_s=blocks * 8 * _MMA_ROUNDS * _MMA_FLOPS / mma.median_ns * 1e9,
            launch_ns=self.timer.on_gpu(multiply(0)).median_ns,
        )


def run(kernels: Sequence[Kernel], ordinal: int = 0) -> Result:
    """Measure kernels on torch's cuda:ordinal. Raises `NeedsGpuError` without one."""
    bench = Bench(ordinal)
    warnings: list[str] = []
    monitor = _monitor(ordinal, warnings)
    rows, states = [], _read(monitor)
    for row in _rows(kernels, bench):
        rows.append(row)
        states += _read(monitor)
    moved = clocks_moved(states)
    properties = torch.cuda.get_device_properties(ordinal)
    return Result(
        device=properties.name,
        architecture=f"sm_{properties.major}{properties.minor}",
        torch=torch.__version__,
        cuda=str(torch.version.cuda),
        driver=monitor.driver_version if monitor else None,
        ceilings=bench.ceilings,
        rows=rows,
        states=states,
        warnings=[*warnings, *([moved] if moved else [])],
    )


def _rows(kernels: Sequence[Kernel], bench: Bench) -> Iterator[Row]:
    for kernel in kernels:
        yield from kernel.bench(bench)


def _monitor(ordinal: int, warnings: list[str]) -> Monitor | None:
    try:
        return Monitor(f"GPU-{torch.cuda.get_device_properties(ordinal).uuid}")
    except ImportError:
        warnings.append("clocks and power were not read: nvidia-ml-py is not installed")
    except OSError as error:
        warnings.append(f"clocks and power were not read: {error}")
    return None


def _read(monitor: Monitor | None) -> list[GpuState]:
    return [monitor.read()] if monitor else []
