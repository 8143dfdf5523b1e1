"""Triton kernels of the small decoder that `record.py` traces.

Keys and values live in one FP8 pool: a row a token, 512 latent values and 64 rotary ones. The latent part
serves as key and as value (absorbed MLA). The softmax scale is folded into the query weights.
"""
# ruff: noqa: N803  (Triton's constants are upper case)

from __future__ import annotations

import torch
import triton
import triton.language as tl

# Kernels write these out as literals: Triton reads no plain Python globals.
LATENT = 512
ROPE = 64
KEY = LATENT + ROPE
NEVER = tl.constexpr(-1.0e30)  # finite: -inf would turn a fully masked first tile into NaN

# Small tiles make the serial walk long: this is what the sparse runs are to show.
SPARSE_TILE = 4
SPARSE_WARPS = 4


@triton.jit
def _tiled_sparse_decode_kernel(
    query_ptr,
    pool_ptr,
    index_ptr,
    out_ptr,
    HEADS: tl.constexpr,
    TOPK: tl.constexpr,
    TILE: tl.constexpr,
):
    """The planted flaw: one block per (token, head) walks the whole top-k by itself, on CUDA cores."""
    token = tl.program_id(0)
    row = token * HEADS + tl.program_id(1)
    latent = tl.arange(0, 512)
    rope = 512 + tl.arange(0, 64)
    query_latent = tl.load(query_ptr + row * 576 + latent).to(tl.float32)
    query_rope = tl.load(query_ptr + row * 576 + rope).to(tl.float32)
    best = -1.0e30
    total = 0.0
    acc = tl.zeros([512], dtype=tl.float32)
    for start in range(0, TOPK, TILE):
        slot = tl.load(index_ptr + token * TOPK + start + tl.arange(0, TILE))
        valid = slot >= 0
        base = tl.where(valid, slot, 0).to(tl.int64)[:, None] * 576
        key_latent = tl.load(pool_ptr + base + latent[None, :]).to(tl.float32)
        key_rope = tl.load(pool_ptr + base + rope[None, :]).to(tl.float32)
        score = tl.sum(key_latent * query_latent[None, :], axis=1)
        score += tl.sum(key_rope * query_rope[None, :], axis=1)
        score = tl.where(valid, score, NEVER)
        new_best = tl.maximum(best, tl.max(score, axis=0))
        weight = tl.exp(score - new_best)
        shrink = tl.exp(best - new_best)
        total = total * shrink + tl.sum(weight, axis=0)
        acc = acc * shrink + tl.sum(weight[:, None] * key_latent, axis=0)
        best = new_best
    tl.store(out_ptr + row * 512 + latent, (acc / total).to(tl.bfloat16))


@triton.jit
def _grouped_decode_kernel(
    query_ptr,
    pool_ptr,
    index_ptr,
    mask_ptr,
    out_ptr,
    mask_stride,
    tokens_per_request,
    HEADS: tl.constexpr,
    TOPK: tl.constexpr,
    MASKED: tl.constexpr,
    GROUP: tl.constexpr,
    TILE: tl.constexpr,
):
    """The sane counterpart: one block per (token, group of heads) on the tensor cores."""
    token = tl.program_id(0)
    request = token // tokens_per_request
    rows = token * HEADS + tl.program_id(1) * GROUP + tl.arange(0, GROUP)
    latent = tl.arange(0, 512)
    rope = 512 + tl.arange(0, 64)
    query_latent = tl.load(query_ptr + rows[:, None] * 576 + latent[None, :])
    query_rope = tl.load(query_ptr + rows[:, None] * 576 + rope[None, :])
    best = tl.full([GROUP], NEVER, dtype=tl.float32)
    total = tl.zeros([GROUP], dtype=tl.float32)
    acc = tl.zeros([GROUP, 512], dtype=tl.float32)
    for start in range(0, TOPK, TILE):
        slot = tl.load(index_ptr + request * TOPK + start + tl.arange(0, TILE))
        valid = slot >= 0
        safe = tl.where(valid, slot, 0).to(tl.int64)
        if MASKED:
            # One byte per (node, key) of the request's whole context; slots are positions (one request).
            node = token % tokens_per_request
            valid = valid & (tl.load(mask_ptr + node * mask_stride + safe) != 0)
        key_latent = tl.load(pool_ptr + safe[:, None] * 576 + latent[None, :]).to(tl.bfloat16)
        key_rope = tl.load(pool_ptr + safe[:, None] * 576 + rope[None, :]).to(tl.bfloat16)
        score = tl.dot(query_latent, tl.trans(key_latent)) + tl.dot(query_rope, tl.trans(key_rope))
        score = tl.where(valid[None, :], score, NEVER)
        new_best = tl.maximum(best, tl.max(score, axis=1))
        weight = tl.exp(score - new_best[:, None])
        shrink = tl.exp(best - new_best)
        total = total * shrink + tl.sum(weight, axis=1)
        acc = acc * shrink[:, None] + tl.dot(weight.to(tl.bfloat16), key_latent)
        best = new_best
    out = (acc / total[:, None]).to(tl.bfloat16)
    tl.store(out_ptr + rows[:, None] * 512 + latent[None, :], out)


@triton.jit
def _silu_and_mul_kernel(gate_up_ptr, out_ptr, width, TILE: tl.constexpr):
    row = tl.program_id(0)
    column = tl.program_id(1) * TILE + tl.arange(0, TILE)
    inside = column < width
    gate = tl.load(gate_up_ptr + row * 2 * width + column, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(gate_up_ptr + row * 2 * width + width + column, mask=inside, other=0.0).to(tl.float32)
    tl.store(out_ptr + row * width + column, (gate * tl.sigmoid(gate) * up).to(tl.bfloat16), mask=inside)


def sparse_decode(query: torch.Tensor, pool: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """Attention of each token [tokens, heads, 576] over its own top-k pool rows, one block per head."""
    tokens, heads, _ = query.shape
    out = torch.empty(tokens, heads, LATENT, dtype=torch.bfloat16, device=query.device)
    _tiled_sparse_decode_kernel[(tokens, heads)](
        query, pool, index, out, HEADS=heads, TOPK=index.shape[1], TILE=SPARSE_TILE, num_warps=SPARSE_WARPS
    )
    return out


def grouped_decode(
    query: torch.Tensor, pool: torch.Tensor, index: torch.Tensor, mask: torch.Tensor | None, tokens_per_request: int
) -> torch.Tensor:
    """The same on tensor cores, 16 heads a block; `mask` hides keys from the nodes of a draft tree."""
    tokens, heads, _ = query.shape
    out = torch.empty(tokens, heads, LATENT, dtype=torch.bfloat16, device=query.device)
    _grouped_decode_kernel[(tokens, heads // 16)](
        query,
        pool,
        index,
        mask if mask is not None else index,
        out,
        mask.shape[1] if mask is not None else 0,
        tokens_per_request,
        HEADS=heads,
        TOPK=index.shape[1],
        MASKED=mask is not None,
        GROUP=16,
        TILE=32,
        num_warps=4,
        num_stages=2,
    )
    return out


def silu_and_mul(gate_up: torch.Tensor) -> torch.Tensor:
    """silu(gate) * up of a fused [tokens, 2 * width] projection."""
    tokens, width = gate_up.shape[0], gate_up.shape[1] // 2
    out = torch.empty(tokens, width, dtype=torch.bfloat16, device=gate_up.device)
    _silu_and_mul_kernel[(tokens, triton.cdiv(width, 1024))](gate_up, out, width, TILE=1024)
    return out
