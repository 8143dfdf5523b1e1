"""How the kernel is launched: its limits, its shared memory, its grid."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from traceanalyzer.kernels.common.kernel import Build
from traceanalyzer.kernels.common.program import Argument, Backend, Launch, Program
from traceanalyzer.kernels.tree_build.reference import OUTPUTS

SOURCE = Path(__file__).parent / "tree_build.cu"
#: A rank has 8 bits, a depth 4, the number of a node that has children 10: see `Node` in the source.
MOST_DEPTHS, MOST_WIDTH, MOST_BUDGET = 16, 256, 1024
_THREADS = 128
_LANES = 32


def program(budget: int) -> Program:
    """The one with room for this many candidates: a power of two for each lane."""
    slots = 1
    while slots * _LANES < budget:
        slots *= 2
    return Program(SOURCE, "tree_build", (("THREADS", _THREADS), ("SLOTS", slots)))


def shared_bytes(depths: int, width: int, budget: int) -> int:
    """As the kernel divides it: see `divide` there."""
    nodes, cells = budget + 1, depths * width
    return _to_16(cells * 8) + _to_16(max(nodes * 16, cells * 4)) + 3 * nodes * 4 + 4


def _to_16(size: int) -> int:
    return -(-size // 16) * 16


@lru_cache(maxsize=256)
def configure(requests: int, depths: int, ranks: int, budget: int) -> Launch:
    """The launch for this many requests. Ranks that no tree of this budget can use are not read."""
    shared = shared_bytes(depths, min(ranks, budget), budget)
    return Launch(program(budget), (max(requests, 1), 1, 1), _THREADS, shared)


def run(
    backend: Backend,
    log_probs: npt.NDArray[np.float32],
    token_ids: npt.NDArray[np.int64],
    prefix_lengths: npt.NDArray[np.int32],
    budget: int,
    outputs: dict[str, npt.NDArray[Any]],
) -> None:
    """Run on arrays of the CPU, which `reference.tree_build` describes; `outputs` are written."""
    requests, depths, ranks = log_probs.shape
    arguments: list[Argument] = [
        log_probs,
        token_ids,
        prefix_lengths,
        np.int32(depths),
        np.int32(ranks),
        np.int32(min(ranks, budget)),
        np.int32(budget),
        *(outputs[name] for name, _ in OUTPUTS),
    ]
    backend.run(configure(requests, depths, ranks, budget), arguments)


def builds() -> Iterator[Build]:
    """The programs of all budgets, with the shared memory of the largest tree of each."""
    for budget, registers in ((32, 64), (64, 64), (128, 72), (256, 96), (512, 128), (1024, 192)):
        shared = shared_bytes(MOST_DEPTHS, min(MOST_WIDTH, budget), budget)
        yield Build(program(budget), register_budget=registers, shared_bytes=shared)
