"""`Kernel`: what is known of a bundled kernel without loading it, and where its parts are."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from traceanalyzer.kernels.common.case import Case
from traceanalyzer.kernels.common.program import SHARED_BYTES_LIMIT, Program

if TYPE_CHECKING:
    from traceanalyzer.kernels.common.bench import Bench
    from traceanalyzer.kernels.common.bench_result import Row
    from traceanalyzer.kernels.common.build import Resources


@dataclass(frozen=True)
class Build:
    """One program of a kernel, and what it may take."""

    program: Program
    register_budget: int
    shared_bytes: int = 0
    """The most that a launch asks for."""
    architectures: tuple[str, ...] = ()
    """Those that it is for; (): all of its kernel's."""

    def faults(self, found_there: Resources) -> list[str]:
        """What breaks the budget."""
        registers, shared = found_there.registers, self.shared_bytes + found_there.shared_bytes
        found = [(registers > self.register_budget, f"{registers} registers, {self.register_budget} are allowed")]
        found += [(found_there.spill_bytes > 0, f"{found_there.spill_bytes} bytes of registers spilled")]
        found += [(found_there.stack_bytes > 0, f"{found_there.stack_bytes} bytes of local memory")]
        found += [(shared > SHARED_BYTES_LIMIT, f"{shared} bytes of shared memory, {SHARED_BYTES_LIMIT} are allowed")]
        return [text for wrong, text in found if wrong]


@dataclass(frozen=True)
class Kernel:
    """A bundled kernel; `name` is its folder and its operator in `torch.ops.traceanalyzer`."""

    name: str
    title: str
    replaces: str
    architectures: tuple[str, ...] = ("sm_80", "sm_89", "sm_90", "sm_120")
    """What it is compiled for by the tests."""

    def builds(self) -> Iterable[Build]:
        """The programs that tests compile for all architectures: every layout that the source tells apart."""
        return cast(Iterable[Build], self._part("launch").builds())

    def cases(self) -> Iterator[Case]:
        """Inputs and checks."""
        return cast(Iterator[Case], self._part("cases").cases())

    def bench(self, bench: Bench) -> Iterator[Row]:
        """Baseline, replacement and peers, timed. Needs torch and a GPU."""
        return cast("Iterator[Row]", self._part("bench").rows(bench))

    def _part(self, name: str) -> Any:
        return importlib.import_module(f"traceanalyzer.kernels.{self.name}.{name}")
