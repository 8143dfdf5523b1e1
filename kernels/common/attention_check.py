"""The bounds of `attention.py` for results on a GPU, where benchmarks work attention out in float64. Needs torch."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import torch

from traceanalyzer.kernels.common.attention import LSE_BOUND, LSE_RELATIVE_BOUND, OUT_BOUND


class Attention(NamedTuple):
    """Rows that see the same keys, or some of them."""

    queries: torch.Tensor
    """[rows, dims]."""
    keys: torch.Tensor
    """[n, dims], float64."""
    scale: float
    seen: torch.Tensor | None = None
    """bool [rows, n]; None: all."""


class Result(NamedTuple):
    """What such rows gave."""

    out: torch.Tensor
    """[rows, columns]."""
    lse: torch.Tensor | None = None
    """[rows]."""


def largest_error(pairs: Iterable[tuple[Attention, Result]]) -> float:
    """The largest error of any result, in units of its bound; infinite where one is not finite."""
    return max((_largest(attention, result) for attention, result in pairs), default=0.0)


def _largest(attention: Attention, result: Result) -> float:
    scores = attention.queries.double() @ attention.keys.T * attention.scale
    if attention.seen is not None:
        scores = scores.masked_fill(~attention.seen, -torch.inf)
    lse = scores.logsumexp(-1)
    weights = (scores - lse[:, None]).exp()
    values = attention.keys[:, : result.out.shape[-1]]
    expected = weights @ values
    bound = OUT_BOUND * (weights @ values.abs() + expected.abs())
    errors = [((result.out.double() - expected).abs() / bound).max()]
    if result.lse is not None:
        errors.append(((result.lse.double() - lse).abs() / (LSE_BOUND + LSE_RELATIVE_BOUND * lse.abs())).max())
    worst = torch.stack(errors).nan_to_num(torch.inf).max()
    return float(worst)
