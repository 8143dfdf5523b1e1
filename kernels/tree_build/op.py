"""The kernel on torch tensors, as `torch.ops.traceanalyzer.tree_build` and as a function that checks its arguments."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch

from traceanalyzer.kernels.common import torch_launch
from traceanalyzer.kernels.common.check import check
from traceanalyzer.kernels.common.errors import ArgumentError
from traceanalyzer.kernels.tree_build.launch import MOST_BUDGET, MOST_DEPTHS, MOST_WIDTH, configure
from traceanalyzer.kernels.tree_build.reference import OUTPUTS


class Trees(NamedTuple):
    """Draft trees of several requests, `budget` + 1 nodes each, node 0 the root; unused nodes are padding."""

    tokens: torch.Tensor
    """int64 [requests, nodes]; -1 for the root and padding."""
    parents: torch.Tensor
    """int32 [requests, nodes]; -1 for the root and padding."""
    depths: torch.Tensor
    """int32 [requests, nodes]; 0 for the root and padding."""
    positions: torch.Tensor
    """int64 [requests, nodes]: prefix length + depth."""
    visible: torch.Tensor
    """int64 [requests, nodes, words]: bit j % 64 of word j / 64 is set where node j is the node itself or above it."""
    first_child: torch.Tensor
    """int32 [requests, nodes]; -1 where there is none."""
    next_sibling: torch.Tensor
    """int32 [requests, nodes]; -1 where there is none."""
    counts: torch.Tensor
    """int32 [requests]: nodes besides the root."""


def tree_build(
    log_probs: torch.Tensor,
    token_ids: torch.Tensor,
    prefix_lengths: torch.Tensor,
    budget: int,
    *,
    out: Trees | None = None,
) -> Trees:
    """The draft tree of each request: its `budget` best prefixes by the sum of log-probabilities, as a heap pops them.

    `log_probs` is float32 [requests, depths, ranks], best first in each depth; `token_ids` is int64 of the same shape;
    `prefix_lengths` is int32 [requests]. At most 16 depths, a budget of 0 to 1024, and no more than 256 ranks that a
    tree of this budget can use. Sums are added up in float64; equal ones are ordered by their ranks; sums that are not
    finite are left out. `out` is written and returned; without it, new tensors.

    A launch neither waits nor allocates (with `out`), and fits into CUDA graphs. Raises `ArgumentError`.
    """
    check("log_probs", log_probs, dtypes=(torch.float32,), shape=("requests", "depths", "ranks"))
    check("token_ids", token_ids, dtypes=(torch.int64,), shape=tuple(log_probs.shape), like=log_probs)
    check("prefix_lengths", prefix_lengths, dtypes=(torch.int32,), shape=(log_probs.shape[0],), like=log_probs)
    depths, ranks = log_probs.shape[1:]
    if not isinstance(budget, int) or not 0 <= budget <= MOST_BUDGET:
        raise ArgumentError(f"budget: must be a whole number from 0 to {MOST_BUDGET}, not {budget!r}")
    if depths > MOST_DEPTHS:
        raise ArgumentError(f"log_probs: at most {MOST_DEPTHS} depths are possible, not {depths}")
    if min(ranks, budget) > MOST_WIDTH:
        raise ArgumentError(
            f"log_probs: at most {MOST_WIDTH} ranks are possible, not {ranks}; give the first {MOST_WIDTH}"
        )
    if out is None:
        return Trees(*torch.ops.traceanalyzer.tree_build(log_probs, token_ids, prefix_lengths, budget))
    _check_out(out, log_probs, budget)
    torch.ops.traceanalyzer.tree_build_out(log_probs, token_ids, prefix_lengths, budget, *out)
    return out


def _check_out(out: Trees, log_probs: torch.Tensor, budget: int) -> None:
    requests, nodes = log_probs.shape[0], budget + 1
    shapes = {"visible": (requests, nodes, -(-nodes // 64)), "counts": (requests,)}
    for (name, kind), tensor in zip(OUTPUTS, out, strict=True):
        dtype = torch.int64 if kind is np.int64 else torch.int32
        check(f"out.{name}", tensor, dtypes=(dtype,), shape=shapes.get(name, (requests, nodes)), like=log_probs)


def _empty(log_probs: torch.Tensor, budget: int) -> Trees:
    requests, nodes = log_probs.shape[0], budget + 1

    def of(dtype: torch.dtype, *shape: int) -> torch.Tensor:
        return log_probs.new_empty((requests, *shape), dtype=dtype)

    return Trees(
        tokens=of(torch.int64, nodes),
        parents=of(torch.int32, nodes),
        depths=of(torch.int32, nodes),
        positions=of(torch.int64, nodes),
        visible=of(torch.int64, nodes, -(-nodes // 64)),
        first_child=of(torch.int32, nodes),
        next_sibling=of(torch.int32, nodes),
        counts=of(torch.int32),
    )


def _launch(
    log_probs: torch.Tensor, token_ids: torch.Tensor, prefix_lengths: torch.Tensor, budget: int, trees: Trees
) -> None:
    requests, depths, ranks = log_probs.shape
    if requests == 0:
        return
    numbers = (np.int32(depths), np.int32(ranks), np.int32(min(ranks, budget)), np.int32(budget))
    shape = configure(requests, depths, ranks, budget)
    torch_launch.launch(shape, [log_probs, token_ids, prefix_lengths, *numbers, *trees], log_probs.device)


def _new(
    log_probs: torch.Tensor, token_ids: torch.Tensor, prefix_lengths: torch.Tensor, budget: int
) -> tuple[torch.Tensor, ...]:
    trees = _empty(log_probs, budget)
    _launch(log_probs, token_ids, prefix_lengths, budget, trees)
    return tuple(trees)


def _fake(log_probs: torch.Tensor, _: torch.Tensor, __: torch.Tensor, budget: int) -> tuple[torch.Tensor, ...]:
    return tuple(_empty(log_probs, budget))


_OUTPUTS = ", ".join(["Tensor"] * len(Trees._fields))
torch_launch.register(
    f"tree_build(Tensor log_probs, Tensor token_ids, Tensor prefix_lengths, int budget) -> ({_OUTPUTS})", _new, _fake
)
_MUTATED = ", ".join(f"Tensor({chr(97 + number)}!) {name}" for number, name in enumerate(Trees._fields))
torch_launch.register(
    f"tree_build_out(Tensor log_probs, Tensor token_ids, Tensor prefix_lengths, int budget, {_MUTATED}) -> ()",
    lambda log_probs, token_ids, prefix_lengths, budget, *trees: _launch(
        log_probs, token_ids, prefix_lengths, budget, Trees(*trees)
    ),
    lambda *_: None,
)
