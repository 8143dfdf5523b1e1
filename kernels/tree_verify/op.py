"""The kernel on torch tensors, as `torch.ops.traceanalyzer.tree_verify` and as a function that checks its arguments."""

from __future__ import annotations

import numpy as np
import torch

from traceanalyzer.kernels.common import mla_launch, mla_plan, torch_launch
from traceanalyzer.kernels.common.check import check, check_addresses
from traceanalyzer.kernels.common.errors import ArgumentError
from traceanalyzer.kernels.common.program import Argument
from traceanalyzer.kernels.tree_verify.launch import BITS, CHAIN, PARENTS, configure, plan

_COLUMNS, _VALUES = 576, mla_plan.VALUES
_MOST_REQUESTS = 65_535


def tree_verify(
    q: torch.Tensor,
    pool: torch.Tensor,
    indptr: torch.Tensor,
    indices: torch.Tensor,
    *,
    scale: float,
    mask: torch.Tensor | None = None,
    parents: torch.Tensor | None = None,
    out: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """MLA attention of the nodes of each request's draft tree over its prefix and over the nodes that it descends from.

    `q` is bf16 [requests, nodes, heads, 576]; one node is plain decode. `pool` is bf16 [slots, 576], with any stride of
    16 bytes between rows. The slots of request b are indices[indptr[b]:indptr[b + 1]]: those of its prefix, then those
    of its nodes; `indptr` is int32 [requests + 1], ascending and within `indices`, which is int32 or int64; a slot that
    is not in the pool (-1) is not seen. `mask` is int64 [requests, nodes, words] as `tree_build` makes it: bit j % 64
    of word j / 64 says that a node sees node j. Or `parents`, int32 [requests, nodes], each before its children, -1 for
    none: a node sees itself and those above it. With neither the nodes are a chain, and each sees those before it.
    `out` is bf16 [requests, nodes, heads, 512]. At most 65,535 requests.

    Returns `out`, and the logarithms of sums float32 [requests, nodes, heads]. A row that sees nothing is 0, -inf. A
    launch does not wait, and fits into CUDA graphs; what splits of the work leave is allocated as torch does. Raises
    `ArgumentError`.
    """
    check("q", q, dtypes=(torch.bfloat16,), shape=("requests", "nodes", "heads", _COLUMNS))
    requests, nodes, heads = q.shape[:3]
    if requests > _MOST_REQUESTS:
        raise ArgumentError(f"q: at most {_MOST_REQUESTS:,} requests are possible, not {requests:,}")
    check("pool", pool, dtypes=(torch.bfloat16,), shape=("slots", _COLUMNS), like=q, contiguous=False)
    if pool.stride(0) % 8:
        raise ArgumentError(f"pool: rows must begin at multiples of 16 bytes; its strides are {list(pool.stride())}")
    check("indptr", indptr, dtypes=(torch.int32,), shape=(requests + 1,), like=q)
    check("indices", indices, dtypes=(torch.int32, torch.int64), shape=("n",), like=q)
    if mask is not None and parents is not None:
        raise ArgumentError("mask: cannot be given together with parents")
    if mask is not None:
        check("mask", mask, dtypes=(torch.int64,), shape=(requests, nodes, -(-nodes // 64)), like=q)
    if parents is not None:
        check("parents", parents, dtypes=(torch.int32,), shape=(requests, nodes), like=q)
    if out is None:
        out = q.new_empty((requests, nodes, heads, _VALUES))
    else:
        check("out", out, dtypes=(torch.bfloat16,), shape=(requests, nodes, heads, _VALUES), like=q)
    lse = torch.ops.traceanalyzer.tree_verify(q, pool, indptr, indices, mask, parents, float(scale), out)
    return out, lse


def _launch(
    q: torch.Tensor,
    pool: torch.Tensor,
    indptr: torch.Tensor,
    indices: torch.Tensor,
    mask: torch.Tensor | None,
    parents: torch.Tensor | None,
    scale: float,
    out: torch.Tensor,
) -> torch.Tensor:
    requests, nodes, heads = q.shape[:3]
    lse = _empty(q)
    if lse.numel() == 0:
        return lse
    check_addresses(q=q, pool=pool)
    check_addresses(4, out=out)
    wide = indices.dtype == torch.int64
    chosen = plan(nodes * heads, requests, -(-len(indices) // requests), torch_launch.gpu_of(q.device))
    masking = BITS if mask is not None else PARENTS if parents is not None else CHAIN
    arguments: list[torch.Tensor | Argument] = [
        q,
        pool,
        np.int64(pool.stride(0) * 2),
        np.int64(len(pool)) if wide else np.int32(len(pool)),
        indptr,
        indices,
        mask,
        np.int32(mask.shape[2] if mask is not None else 0),
        parents,
        np.float32(scale),
        np.int32(nodes),
        np.int32(heads),
    ]
    main = configure(chosen, requests, masking, wide_indices=wide)
    for launch, given in mla_launch.launches_of(
        chosen, main, arguments, out, lse, None, lse.new_empty, requests=requests, rows=nodes * heads, heads=heads
    ):
        torch_launch.launch(launch, given, q.device)
    return lse


def _empty(q: torch.Tensor, *_: object) -> torch.Tensor:
    return q.new_empty(q.shape[:3], dtype=torch.float32)


torch_launch.register(
    "tree_verify(Tensor q, Tensor pool, Tensor indptr, Tensor indices, Tensor? mask, Tensor? parents, float scale,"
    " Tensor(a!) out) -> Tensor",
    _launch,
    _empty,
)
