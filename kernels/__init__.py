"""Replacement kernels: GPU code for bottlenecks that traces show. See README.md beside this file.

>>> from traceanalyzer.kernels.gather_cast import gather_cast
>>> rows = gather_cast(pool, indices)  # FP8 rows as BF16, without casting the whole pool

Importing this package loads neither torch nor a compiler.
"""

from __future__ import annotations

from traceanalyzer.errors import UsageError
from traceanalyzer.kernels.common.kernel import Kernel

KERNELS = (
    Kernel(
        "gather_cast",
        "gather FP8 rows, then cast them to BF16",
        "aten::copy_ (pool.to(bfloat16)) over a whole FP8 KV pool of which few rows are read",
    ),
    Kernel(
        "tree_build",
        "build draft trees from top-k log-probabilities",
        "a heap on the CPU with copies to and from the GPU in every decode step",
    ),
    Kernel(
        "sparse_decode",
        "MLA attention of one token over selected FP8 records",
        "_tiled_sparse_decode_kernel, a Triton fallback without tensor cores, in a block for each request and head",
    ),
    Kernel(
        "tree_verify",
        "MLA attention of draft trees over a paged KV cache",
        "attention that walks a whole prefix in one block for each request and head, and a mask that Python builds",
    ),
)


def find(name: str) -> Kernel:
    """The kernel of a name, with - or _. Raises `UsageError` naming what there is."""
    for kernel in KERNELS:
        if kernel.name == name.replace("-", "_"):
            return kernel
    raise UsageError(f"no kernel {name!r}; there are {', '.join(kernel.name for kernel in KERNELS)}")
