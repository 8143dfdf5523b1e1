"""Runs the cases of kernels on a backend and says of each how it went."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from traceanalyzer.errors import UsageError
from traceanalyzer.kernels.common.driver import Gpu
from traceanalyzer.kernels.common.emulator import Emulator
from traceanalyzer.kernels.common.errors import DriverError, EmulatorError, MismatchError
from traceanalyzer.kernels.common.kernel import Kernel
from traceanalyzer.kernels.common.program import Backend

#: Order of threads of the emulator: one warp after the other, cp.async at once.
_SEED = 7


@dataclass(frozen=True)
class Outcome:
    """How one case went."""

    kernel: str
    case: str
    on: str
    """Name of the GPU, or `emulator`."""
    fault: str | None
    """What is wrong; None where result and reference are the same."""
    duration_ns: int
    """Of the whole check, with reference, copies and compilation."""


def backend(where: str, ordinal: int = 0) -> Backend:
    """`gpu` or `emulator`. Raises `NeedsGpuError` without a GPU."""
    if where == "gpu":
        return Gpu(ordinal)
    if where == "emulator":
        return Emulator(_SEED)
    raise UsageError(f"kernels run on gpu or emulator, not on {where!r}")


def run(kernels: Sequence[Kernel], on: Backend, *, full: bool) -> Iterator[Outcome]:
    """Run all cases, those of full size only where asked for. A fault of the driver ends the run."""
    for kernel in kernels:
        for case in kernel.cases():
            if case.full and not full:
                continue
            start = time.perf_counter_ns()
            fault = _fault(case.check, on)
            yield Outcome(kernel.name, case.name, on.name, fault, time.perf_counter_ns() - start)


def _fault(check: Callable[[Backend], None], on: Backend) -> str | None:
    try:
        check(on)
    except (MismatchError, EmulatorError) as error:
        return str(error)
    except DriverError as error:
        raise DriverError(f"{error}; the GPU cannot be used further by this process") from None
    return None
