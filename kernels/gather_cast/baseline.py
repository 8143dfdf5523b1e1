"""What the kernel replaces, and the better way that torch has. Both need torch."""

from __future__ import annotations

import torch


def cast_then_gather(pool: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
    """As the trace shows it: the whole pool (float8_e4m3fn [slots, columns]) is cast, then rows are read."""
    return pool.to(torch.bfloat16)[indices]


def gather_then_cast(pool: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
    """Two kernels of torch, with the codes of the rows written and read in between."""
    return pool.view(torch.uint8)[indices].view(torch.float8_e4m3fn).to(torch.bfloat16)
