"""Triton kernels of the small decoder that `record.py` traces.

Keys and values live in one FP8 pool: a row a token, 512 latent values and 64 rotary ones. The latent part
serves as key and as value (absorbed MLA). The softmax scale is folded into the query weights.
"""
# ruff: noqa: N803  (Triton's constants are upper case)

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

# Kernels write these out as literals: Triton reads no plain Python globals.
LATENT = 512
ROPE = 64
KEY = LATENT + ROPE
NEVER = tl.constexpr(-1.0e30)  # finite: -inf would turn a fully masked first tile into NaN

# One key after another: this is what the sparse runs are to show.
SPARSE_TILE = 1
SPARSE_WARPS = 2


@triton.jit
def _scores_of_tile(query_latent, query_rope, pool_ptr, index_ptr, start, TILE: tl.constexpr):
    """Scores of the next TILE keys, and the latent part of those keys."""
    latent = tl.arange(0, 512)
    rope = 512 + tl.arange(0, 64)
    slot = tl.load(index_ptr + start + tl.arange(0, TILE))
    valid = slot >= 0  # -1 pads a short list
    row = tl.where(valid, slot, 0).to(tl.int64)[:, None] * 576
    key_latent = tl.load(pool_ptr + row + latent[None, :]).to(tl.float32)
    key_rope = tl.load(pool_ptr + row + rope[None, :]).to(tl.float32)
    score = tl.sum(key_latent * query_latent[None, :], axis=1)
    score += tl.sum(key_rope * query_rope[None, :], axis=1)
    return tl.where(valid, score, NEVER), key_latent


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
    """The planted flaw: one block per (token, head) walks the whole top-k by itself, twice, on CUDA cores."""
    token = tl.program_id(0)
    row = token * HEADS + tl.program_id(1)
    latent = tl.arange(0, 512)
    query_latent = tl.load(query_ptr + row * 576 + latent).to(tl.float32)
    query_rope = tl.load(query_ptr + row * 576 + 512 + tl.arange(0, 64)).to(tl.float32)
    keys_ptr = index_ptr + token * TOPK
    best = -1.0e30
    for start in range(0, TOPK, TILE):
        score, _ = _scores_of_tile(query_latent, query_rope, pool_ptr, keys_ptr, start, TILE)
        best = tl.maximum(best, tl.max(score, axis=0))
    total = 0.0
    acc = tl.zeros([512], dtype=tl.float32)
    for start in range(0, TOPK, TILE):
        score, key_latent = _scores_of_tile(query_latent, query_rope, pool_ptr, keys_ptr, start, TILE)
        weight = tl.exp(score - best)
        total += tl.sum(weight, axis=0)
        acc += tl.sum(weight[:, None] * key_latent, axis=0)
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


@triton.jit
def _add_rms_norm_kernel(stream_ptr, delta_ptr, weight_ptr, out_ptr, width, TILE: tl.constexpr):
    row = tl.program_id(0)
    column = tl.arange(0, TILE)
    inside = column < width
    at = row * width + column
    value = tl.load(stream_ptr + at, mask=inside, other=0.0).to(tl.float32)
    value += tl.load(delta_ptr + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(stream_ptr + at, value.to(tl.bfloat16), mask=inside)
    scale = tl.rsqrt(tl.sum(value * value, axis=0) / width + 1.0e-6)
    weight = tl.load(weight_ptr + column, mask=inside, other=0.0).to(tl.float32)
    tl.store(out_ptr + at, (value * scale * weight).to(tl.bfloat16), mask=inside)


@triton.jit
def _write_pool_kernel(rows_ptr, slot_ptr, pool_ptr, row_stride, row_offset):
    token = tl.program_id(0)
    column = tl.arange(0, 1024)
    inside = column < 576
    value = tl.load(rows_ptr + token * row_stride + row_offset + column, mask=inside, other=0.0)
    slot = tl.load(slot_ptr + token).to(tl.int64)
    tl.store(pool_ptr + slot * 576 + column, value.to(tl.float8e4nv), mask=inside)


class _Launcher:
    """Launch a kernel by its compiled form from the second time on.

    Triton's own path costs several times the host time of a launch, and here the host must stay ahead of the GPU.
    Compiled kernels are told apart by grid and plain numbers alone: tensors of one call site never change type.
    """

    def __init__(self, kernel: Any) -> None:
        self._kernel = kernel
        self._compiled: dict[tuple[object, ...], Any] = {}

    def __call__(self, grid: tuple[int, ...], *arguments: Any, **options: int) -> None:
        key = (*grid, *(x for x in arguments if not isinstance(x, torch.Tensor)))
        launch = self._compiled.get(key)
        if launch is not None:
            launch(*arguments)
            return
        compiled = self._kernel[grid](*arguments, **options)
        self._compiled[key] = compiled[(*grid, 1, 1)[:3]]


_sparse_decode = _Launcher(_tiled_sparse_decode_kernel)
_grouped_decode = _Launcher(_grouped_decode_kernel)
_silu_and_mul = _Launcher(_silu_and_mul_kernel)
_add_rms_norm = _Launcher(_add_rms_norm_kernel)
_write_pool = _Launcher(_write_pool_kernel)


def sparse_decode(query: torch.Tensor, pool: torch.Tensor, index: torch.Tensor, out: torch.Tensor) -> None:
    """Attention of each token [tokens, heads, 576] over its own top-k pool rows, one block per head."""
    tokens, heads, _ = query.shape
    grid = (tokens, heads)
    _sparse_decode(grid, query, pool, index, out, heads, index.shape[1], SPARSE_TILE, num_warps=SPARSE_WARPS)


def grouped_decode(
    query: torch.Tensor,
    pool: torch.Tensor,
    index: torch.Tensor,
    out: torch.Tensor,
    mask: torch.Tensor | None,
    tokens_per_request: int,
) -> None:
    """The same on tensor cores; `mask` hides keys from the nodes of a draft tree."""
    tokens, heads, _ = query.shape
    # Many tokens fill the GPU even with all heads in one block; few need smaller groups of heads.
    group, tile, warps = (64, 64, 8) if tokens >= 128 else (16, 32, 4)
    stride = mask.shape[1] if mask is not None else 0
    numbers = (stride, tokens_per_request, heads, index.shape[1], mask is not None, group, tile)
    mask_or_any = mask if mask is not None else index
    _grouped_decode(
        (tokens, heads // group), query, pool, index, mask_or_any, out, *numbers, num_warps=warps, num_stages=2
    )


def silu_and_mul(gate_up: torch.Tensor, out: torch.Tensor) -> None:
    """silu(gate) * up of a fused [tokens, 2 * width] projection."""
    tokens, width = out.shape
    _silu_and_mul((tokens, triton.cdiv(width, 1024)), gate_up, out, width, 1024)


def add_rms_norm(stream: torch.Tensor, delta: torch.Tensor, weight: torch.Tensor, out: torch.Tensor) -> None:
    """Add `delta` to the residual stream in place; `out` becomes its RMS norm."""
    tokens, width = stream.shape
    _add_rms_norm((tokens,), stream, delta, weight, out, width, triton.next_power_of_2(width), num_warps=8)


def write_pool(rows: torch.Tensor, offset: int, slots: torch.Tensor, pool: torch.Tensor) -> None:
    """Store columns [offset, offset + 576) of `rows` as FP8 in the pool."""
    _write_pool((rows.shape[0],), rows, slots, pool, rows.stride(0), offset)
