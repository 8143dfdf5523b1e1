"""What the kernel replaces, written afresh in Triton, and the better way that torch has. Both need torch and Triton.

One block of threads for each request and head walks through all that is selected, some records at a time, and
multiplies and adds without tensor cores. With 64 heads and one request there are 64 blocks, whatever the GPU. A second
cache is a second launch; the two results and the sink are put together by operators of torch.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl

_V32_CODES, _DSV4_CODES, _ROPE = 512, 448, 64
_V32_BYTES, _DSV4_BYTES, _DSV4_TAIL = 656, 576, 8
_VALUES = 512

#: A cache, its indices, lengths (or none) and page size (of DSV4).
Extra = tuple[torch.Tensor, torch.Tensor, torch.Tensor | None, int | None]


def walk(  # type: ignore[no-untyped-def] # Triton reads annotations
    q_start,
    codes_start,
    bytes_start,
    bf16_start,
    floats_start,
    indices_start,
    lengths_start,
    out_start,
    lse_start,
    scale,
    page_size,
    page_bytes,
    tail,
    heads,
    k,
    k_rounded,  # noqa: ARG001 - what is tuned for
    CODES: tl.constexpr,  # noqa: N803
    GROUP: tl.constexpr,  # noqa: N803
    RECORD_BYTES: tl.constexpr,  # noqa: N803
    RECORD_SCALES: tl.constexpr,  # noqa: N803
    HAS_LENGTHS: tl.constexpr,  # noqa: N803
    BLOCK_T: tl.constexpr,  # noqa: N803
):
    """Attention of one request's head over BLOCK_T records at a time. RECORD_SCALES: 1 for V32, 0 for DSV4."""
    request, head = tl.program_id(0), tl.program_id(1)
    row = request * heads + head
    column, rope_column = tl.arange(0, 512), tl.arange(0, 64)
    is_code = column < CODES
    q_row = q_start + row * (CODES + 64)
    q_codes = tl.load(q_row + column, mask=is_code, other=0.0).to(tl.float32)
    q_rope = tl.load(q_row + CODES + rope_column).to(tl.float32)
    counted = k
    if HAS_LENGTHS:
        counted = tl.minimum(tl.load(lengths_start + request), k)

    most = float("-inf")
    total = 0.0
    sums = tl.zeros([512], dtype=tl.float32)
    rope_sums = tl.zeros([64], dtype=tl.float32)
    for first in range(0, k, BLOCK_T):
        at = first + tl.arange(0, BLOCK_T)
        slot = tl.load(indices_start + request * k + at, mask=at < counted, other=-1)
        selected = slot >= 0
        slot = tl.where(selected, slot, 0)
        page = (slot // page_size).to(tl.int64) * page_bytes
        in_page = slot % page_size
        record = page + in_page * RECORD_BYTES
        wanted = selected[:, None] & is_code[None, :]
        codes = tl.load(codes_start + record[:, None] + column[None, :], mask=wanted, other=0.0).to(tl.float32)
        if RECORD_SCALES:
            scales_at = (record + CODES) // 4
            factors = tl.load(floats_start + scales_at[:, None] + column[None, :] // GROUP, mask=wanted, other=0.0)
        else:
            scales_at = page + tail + in_page * 8
            exponents = tl.load(bytes_start + scales_at[:, None] + column[None, :] // GROUP, mask=wanted, other=127)
            factors = tl.exp2(exponents.to(tl.float32) - 127.0)
        values = codes * factors
        rope_at = (record + RECORD_BYTES - 128) // 2
        rope = tl.load(bf16_start + rope_at[:, None] + rope_column[None, :], mask=selected[:, None], other=0.0)
        rope = rope.to(tl.float32)

        scores = tl.sum(values * q_codes[None, :], axis=1) + tl.sum(rope * q_rope[None, :], axis=1)
        scores = tl.where(selected, scores * (scale * 1.4426950408889634), float("-inf"))
        new_most = tl.maximum(most, tl.max(scores, axis=0))
        base = tl.where(new_most == float("-inf"), 0.0, new_most)
        kept = tl.exp2(most - base)
        weights = tl.exp2(scores - base)
        total = total * kept + tl.sum(weights, axis=0)
        sums = sums * kept + tl.sum(weights[:, None] * values, axis=0)
        rope_sums = rope_sums * kept + tl.sum(weights[:, None] * rope, axis=0)
        most = new_most

    some = total > 0
    share = tl.where(some, 1.0 / total, 0.0)
    out_row = out_start + row * 512
    tl.store(out_row + column, (sums * share).to(tl.bfloat16), mask=is_code)
    if not RECORD_SCALES:  # bf16 columns of DSV4 are values too
        tl.store(out_row + CODES + rope_column, (rope_sums * share).to(tl.bfloat16))
    tl.store(lse_start + row, tl.where(some, (most + tl.log2(total)) * 0.6931471805599453, float("-inf")))


_CONFIGS = [
    triton.Config({"BLOCK_T": block}, num_warps=warps, num_stages=2) for block, warps in ((16, 4), (16, 8), (32, 8))
]
_walk = triton.autotune(configs=_CONFIGS, key=["k_rounded", "CODES"])(triton.jit(walk))


class Pages(NamedTuple):
    """How a cache lies in memory."""

    memory: torch.Tensor
    page_size: int
    page_bytes: int


def pages_of(cache: torch.Tensor, page_size: int | None, *, v32: bool) -> Pages:
    """V32: [slots, 656] or [pages, page size, 656]; DSV4: [pages, page bytes] and the page size."""
    if v32:
        size = cache.shape[1] if cache.ndim == 3 else 1
        return Pages(cache, size, size * _V32_BYTES)
    assert page_size is not None
    return Pages(cache, page_size, cache.shape[1])


def sparse_decode(
    q: torch.Tensor,
    cache: torch.Tensor,
    indices: torch.Tensor,
    *,
    scale: float,
    lengths: torch.Tensor | None = None,
    sink: torch.Tensor | None = None,
    page_size: int | None = None,
    extra: Extra | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Arguments as those of the kernel's operator: out (bf16 [requests, heads, 512]) and lse (float32)."""
    out, lse = _one_cache(q, cache, indices, lengths, page_size, scale)
    if extra is not None:
        others = _one_cache(q, extra[0], extra[1], extra[2], extra[3], scale)
        out, lse = _merged(out, lse, *others)
    if sink is not None:
        out = (out.float() * torch.sigmoid(lse - sink).unsqueeze(-1)).to(torch.bfloat16)
    return out, lse


def _one_cache(
    q: torch.Tensor,
    cache: torch.Tensor,
    indices: torch.Tensor,
    lengths: torch.Tensor | None,
    page_size: int | None,
    scale: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    requests, heads, columns = q.shape
    v32 = columns == _V32_CODES + _ROPE
    pages = pages_of(cache, page_size, v32=v32)
    flat = pages.memory.reshape(-1)
    out = torch.zeros((requests, heads, _VALUES), dtype=torch.bfloat16, device=q.device)
    lse = torch.full((requests, heads), -torch.inf, device=q.device)
    k = indices.shape[1]
    _walk[(requests, heads)](
        q,
        flat.view(torch.float8_e4m3fn),
        flat,
        flat.view(torch.bfloat16),
        flat.view(torch.float32),
        indices,
        indices if lengths is None else lengths,
        out,
        lse,
        scale,
        pages.page_size,
        pages.page_bytes,
        pages.page_size * _DSV4_BYTES,
        heads,
        k,
        triton.next_power_of_2(k),
        CODES=_V32_CODES if v32 else _DSV4_CODES,
        GROUP=128 if v32 else 64,
        RECORD_BYTES=_V32_BYTES if v32 else _DSV4_BYTES,
        RECORD_SCALES=int(v32),
        HAS_LENGTHS=int(lengths is not None),
    )
    return out, lse


def _merged(
    out: torch.Tensor, lse: torch.Tensor, other: torch.Tensor, other_lse: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    most = torch.maximum(lse, other_lse)
    weight = torch.where(lse > -1e20, torch.exp(lse - most), 0.0)
    other_weight = torch.where(other_lse > -1e20, torch.exp(other_lse - most), 0.0)
    total = (weight + other_weight).clamp(min=1e-20)
    sums = weight.unsqueeze(-1) * out.float() + other_weight.unsqueeze(-1) * other.float()
    return (sums / total.unsqueeze(-1)).to(torch.bfloat16), most + torch.log(total)


def gather_then_attend(
    q: torch.Tensor, cache: torch.Tensor, indices: torch.Tensor, *, scale: float, page_size: int | None = None
) -> torch.Tensor:
    """With operators of torch alone: selected records are made bf16, then multiplied by tensor cores."""
    keys = gathered(cache, indices, page_size, torch.bfloat16, v32=q.shape[-1] == _V32_CODES + _ROPE)
    scores = torch.matmul(q, keys.transpose(1, 2)).float() * scale
    weights = scores.masked_fill_((indices < 0)[:, None, :], -torch.inf).softmax(-1)
    return torch.matmul(weights.to(torch.bfloat16), keys[..., :_VALUES])


def gathered(
    cache: torch.Tensor, indices: torch.Tensor, page_size: int | None, dtype: torch.dtype, *, v32: bool
) -> torch.Tensor:
    """[..., columns] of records at indices [...]; an index below 0 reads the first. In float64 values are exact."""
    pages, slots = pages_of(cache, page_size, v32=v32), indices.clamp(min=0).long()
    codes, scales, rope = (_v32_records if v32 else _dsv4_records)(pages, slots)
    parts = codes.view(torch.float8_e4m3fn).to(dtype).unflatten(-1, (scales.shape[-1], -1))
    scaled = (parts * scales.to(dtype).unsqueeze(-1)).flatten(-2)
    return torch.cat([scaled, rope.view(torch.bfloat16).to(dtype)], dim=-1)


def _v32_records(pages: Pages, slots: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Codes, scales, bytes of bf16 columns."""
    records = pages.memory.view(-1, _V32_BYTES)[slots]
    codes, scales, rope = records.split([_V32_CODES, 16, 2 * _ROPE], dim=-1)
    return codes, scales.view(torch.float32), rope


def _dsv4_records(pages: Pages, slots: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    page, at = slots // pages.page_size, slots % pages.page_size
    data, tails = dsv4_parts(pages)
    codes, rope = data[page, at].split([_DSV4_CODES, 2 * _ROPE], dim=-1)
    return codes, torch.exp2(tails[page, at].float() - 127), rope


def dsv4_parts(pages: Pages) -> tuple[torch.Tensor, torch.Tensor]:
    """Views of records [pages, page size, 576] and of their exponents [pages, page size, 7]."""
    count, size = len(pages.memory), pages.page_size
    data = pages.memory.as_strided((count, size, _DSV4_BYTES), (pages.page_bytes, _DSV4_BYTES, 1))
    tails = pages.memory.as_strided((count, size, 7), (pages.page_bytes, _DSV4_TAIL, 1), size * _DSV4_BYTES)
    return data, tails
