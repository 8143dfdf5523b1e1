"""Shapes that are measured, and random tensors for them. Needs torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from traceanalyzer.kernels.sparse_decode import baseline

_LEAST_SLOTS, PAGE = 131_072, 64
SCALE = 576**-0.5
#: Pages of DSV4 are a multiple of what a record takes without its scales.
DSV4_PAGE_BYTES = -(-PAGE * 584 // 576) * 576


@dataclass(frozen=True)
class Shape:
    """One row. Where `extra` is not 0, so many records of a second cache are read too, and there is a sink."""

    requests: int
    heads: int
    k: int
    v32: bool = True
    extra: int = 0

    def __str__(self) -> str:
        requests = f"{self.requests} request{'s' * (self.requests > 1)}, {self.heads} heads, k {self.k:,}"
        more = f" + {self.extra:,} of a second cache, sink" if self.extra else ""
        return f"{'' if self.v32 else 'DSV4, '}{requests}{more}"

    @property
    def columns(self) -> int:
        return 576 if self.v32 else 512


@dataclass(frozen=True)
class Inputs:
    """A call's tensors."""

    q: torch.Tensor
    cache: torch.Tensor
    indices: torch.Tensor
    page_size: int | None
    extra: baseline.Extra | None
    sink: torch.Tensor | None

    def options(self) -> dict[str, Any]:
        """What kernel and baseline take by name."""
        return {"scale": SCALE, "page_size": self.page_size, "extra": self.extra, "sink": self.sink}


def make(shape: Shape, device: torch.device) -> Inputs:
    """Random inputs; no record is read twice."""
    q = torch.randn(shape.requests, shape.heads, shape.columns, device=device).to(torch.bfloat16)
    cache, indices = _cache(shape.requests, shape.k, device, v32=shape.v32)
    page_size = None if shape.v32 else PAGE
    if not shape.extra:
        return Inputs(q, cache, indices, page_size, None, None)
    second, seconds = _cache(shape.requests, shape.extra, device, v32=shape.v32)
    sink = torch.randn(shape.heads, device=device)
    return Inputs(q, cache, indices, page_size, (second, seconds, None, page_size), sink)


def _cache(requests: int, k: int, device: torch.device, *, v32: bool) -> tuple[torch.Tensor, torch.Tensor]:
    slots = max(_LEAST_SLOTS, 2 * requests * k)
    chosen = torch.randperm(slots, device=device)[: requests * k].view(requests, k).to(torch.int32)
    return (_v32_cache if v32 else _dsv4_cache)(slots, device), chosen


def _codes(slots: int, columns: int, device: torch.device) -> torch.Tensor:
    return (torch.randn(slots, columns, device=device) * 110).clamp(-448, 448).to(torch.float8_e4m3fn).view(torch.uint8)


def _rope(slots: int, device: torch.device) -> torch.Tensor:
    return torch.randn(slots, 64, device=device).to(torch.bfloat16).view(torch.uint8)


def _v32_cache(slots: int, device: torch.device) -> torch.Tensor:
    scales = torch.exp2(-torch.rand(slots, 4, device=device) * 2 - 6)
    return torch.cat([_codes(slots, 512, device), scales.view(torch.uint8), _rope(slots, device)], dim=1)


def _dsv4_cache(slots: int, device: torch.device) -> torch.Tensor:
    cache = torch.zeros(slots // PAGE, DSV4_PAGE_BYTES, dtype=torch.uint8, device=device)
    data, tails = baseline.dsv4_parts(baseline.Pages(cache, PAGE, DSV4_PAGE_BYTES))
    data.copy_(torch.cat([_codes(slots, 448, device), _rope(slots, device)], dim=1).view(data.shape))
    tails.copy_(torch.randint(119, 122, tails.shape, device=device))
    return cache
