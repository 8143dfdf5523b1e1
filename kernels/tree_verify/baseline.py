"""What the kernel replaces: a byte for each node and key, put together by a loop of Python; then attention in Triton.

One block of threads for each request, head and 32 nodes walks through the whole prefix. With one request and 8 heads
there are 8 blocks, whatever the GPU, and keys are read once for each head. Needs torch and Triton.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

_COLUMNS, _VALUES = 576, 512
_BLOCK_NODES = 32


def build_masks(between: torch.Tensor, prefixes: torch.Tensor) -> torch.Tensor:
    """Bytes of all requests, [nodes, prefix + nodes] each: all of the prefix, then what of the tree each node sees.

    `between` is bool [requests, nodes, nodes], `prefixes` int32 [requests], both on the GPU. For each request memory is
    taken and filled; `tolist` waits for the GPU.
    """
    nodes = between.shape[1]
    parts = []
    for request, prefix in enumerate(prefixes.tolist()):
        seen = torch.ones((nodes, prefix), dtype=torch.bool, device=between.device)
        parts.append(torch.cat([seen, between[request]], dim=1).flatten())
    return torch.cat(parts)


def unpacked(mask: torch.Tensor) -> torch.Tensor:
    """bool [requests, nodes, nodes] of bits (int64 [requests, nodes, words])."""
    node = torch.arange(mask.shape[1], device=mask.device)
    return (mask[..., node // 64] >> (node % 64) & 1).bool()


def walk(  # type: ignore[no-untyped-def] # Triton reads annotations
    q_start,
    pool_start,
    indptr_start,
    indices_start,
    mask_start,
    mask_offsets_start,
    out_start,
    scale,
    nodes,
    heads,
    BLOCK_NODES: tl.constexpr,  # noqa: N803
    BLOCK_KEYS: tl.constexpr,  # noqa: N803
):
    """Attention of one head of BLOCK_NODES nodes of a request over BLOCK_KEYS keys at a time."""
    request, head, block = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    first_index = tl.load(indptr_start + request)
    keys = tl.load(indptr_start + request + 1) - first_index
    prefix = keys - nodes
    mask_offset = tl.load(mask_offsets_start + request)
    node = block * BLOCK_NODES + tl.arange(0, BLOCK_NODES)
    is_node = node < nodes
    column, rope_column = tl.arange(0, 512), tl.arange(0, 64)
    q_row = q_start + ((request * nodes + node) * heads + head)[:, None] * 576
    q = tl.load(q_row + column[None, :], mask=is_node[:, None], other=0.0)
    q_rope = tl.load(q_row + 512 + rope_column[None, :], mask=is_node[:, None], other=0.0)

    sums = tl.zeros([BLOCK_NODES, 512], dtype=tl.float32)
    total = tl.zeros([BLOCK_NODES], dtype=tl.float32)
    most = tl.zeros([BLOCK_NODES], dtype=tl.float32) - float("inf")
    for start in range(0, keys, BLOCK_KEYS):
        at = start + tl.arange(0, BLOCK_KEYS)
        is_key = at < keys
        slot = tl.load(indices_start + first_index + at, mask=is_key, other=0).to(tl.int64)
        key = tl.load(pool_start + slot[None, :] * 576 + column[:, None], mask=is_key[None, :], other=0.0)
        scores = tl.dot(q, key)
        rope = tl.load(pool_start + slot[None, :] * 576 + 512 + rope_column[:, None], mask=is_key[None, :], other=0.0)
        scores += tl.dot(q_rope, rope)
        scores *= scale * 1.4426950408889634
        seen = is_node[:, None] & is_key[None, :]
        if start + BLOCK_KEYS > prefix:  # all of the prefix is seen
            byte = mask_offset + node[:, None].to(tl.int64) * keys + at[None, :]
            seen &= tl.load(mask_start + byte, mask=seen, other=0) != 0
        scores = tl.where(seen, scores, float("-inf"))
        new_most = tl.maximum(most, tl.max(scores, 1))
        base = tl.where(new_most == float("-inf"), 0.0, new_most)
        kept = tl.exp2(most - base)
        weights = tl.exp2(scores - base[:, None])
        total = total * kept + tl.sum(weights, 1)
        value = tl.load(pool_start + slot[:, None] * 576 + column[None, :], mask=is_key[:, None], other=0.0)
        sums = sums * kept[:, None] + tl.dot(weights.to(value.dtype), value)
        most = new_most

    share = tl.where(total > 0, 1.0 / total, 0.0)
    out_row = out_start + ((request * nodes + node) * heads + head)[:, None] * 512
    tl.store(out_row + column[None, :], (sums * share[:, None]).to(tl.bfloat16), mask=is_node[:, None])


_walk = triton.jit(walk)


def tree_verify(
    q: torch.Tensor,
    pool: torch.Tensor,
    indptr: torch.Tensor,
    indices: torch.Tensor,
    masks: torch.Tensor,
    *,
    scale: float,
) -> torch.Tensor:
    """The attention alone, with masks of `build_masks`: out (bf16 [requests, nodes, heads, 512]).

    Every request needs slots for all of its nodes. Tiles are 32 keys wide, and 64 on sm_90, as where this was met.
    """
    requests, nodes, heads, _ = q.shape
    out = torch.empty((requests, nodes, heads, _VALUES), dtype=torch.bfloat16, device=q.device)
    offsets = torch.zeros(requests + 1, dtype=torch.int64, device=q.device)
    torch.cumsum(nodes * (indptr[1:] - indptr[:-1]), 0, out=offsets[1:])
    hopper = torch.cuda.get_device_capability(q.device)[0] == 9
    _walk[(requests, heads, triton.cdiv(nodes, _BLOCK_NODES))](
        q,
        pool,
        indptr,
        indices,
        masks.view(torch.uint8),
        offsets,
        out,
        scale,
        nodes,
        heads,
        BLOCK_NODES=_BLOCK_NODES,
        BLOCK_KEYS=64 if hopper else 32,
        num_warps=8,
        num_stages=1,
    )
    return out
