"""How the kernel is launched: its limits, its shared memory, its grid."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from traceanalyzer.kernels.common.program import Argument, Backend, Launch, Program
from traceanalyzer.kernels.tree_build.reference import OUTPUTS

SOURCE = Path(__file__).parent / "tree_build.cu"
#: The rank path of a candidate is 16 bytes of rank + 1.
MOST_DEPTHS, MOST_WIDTH, MOST_BUDGET = 16, 254, 1024
_THREADS = 128
_NODE_BYTES, _PATH_BYTES, _KEY_BYTES = 16, 16, 8


def program() -> Program:
    """There is one for all sizes."""
    return Program(SOURCE, "tree_build", (("THREADS", _THREADS),))


def shared_bytes(depths: int, width: int, budget: int) -> int:
    """As the kernel divides it: see `divide` there."""
    nodes, cells = budget + 1, depths * width
    read = -(-max(nodes * _NODE_BYTES, cells * 4) // 16) * 16
    return nodes * (_PATH_BYTES + _NODE_BYTES) + read + cells * 8 + nodes * (_KEY_BYTES + 4 + 4)


def configure(requests: int, depths: int, ranks: int, budget: int) -> Launch:
    """The launch for this many requests. Ranks that no tree of this budget can use are not read."""
    return Launch(program(), (max(requests, 1), 1, 1), _THREADS, shared_bytes(depths, min(ranks, budget), budget))


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
