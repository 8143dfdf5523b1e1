"""What the kernel replaces: log-probabilities copied to the CPU, a heap for each request, and the trees copied back."""

from __future__ import annotations

import heapq
import math

import numpy as np
import torch

from traceanalyzer.kernels.tree_build.op import Trees
from traceanalyzer.kernels.tree_build.reference import OUTPUTS, empty_outputs


def tree_build(log_probs: torch.Tensor, token_ids: torch.Tensor, prefix_lengths: torch.Tensor, budget: int) -> Trees:
    """As serving code has it; arguments and result as those of the kernel."""
    outputs = empty_outputs(len(log_probs), budget, fill=-1)
    outputs["depths"][:] = 0
    outputs["visible"][:] = _own_bits(budget + 1)
    all_scores, all_ids = log_probs.tolist(), token_ids.tolist()  # each waits for the GPU
    for request, (scores, ids) in enumerate(zip(all_scores, all_ids, strict=True)):
        tokens, parents, depths = _grow(scores, ids, budget)
        used = len(tokens)
        outputs["tokens"][request, :used] = tokens
        outputs["parents"][request, :used] = parents
        outputs["depths"][request, :used] = depths
        outputs["counts"][request] = used - 1
        _link(parents, outputs["first_child"][request], outputs["next_sibling"][request])
        visible = outputs["visible"][request]
        for node in range(1, used):
            visible[node] |= visible[parents[node]]
    outputs["positions"][:] = prefix_lengths.cpu().numpy()[:, None] + outputs["depths"]
    return Trees(*(torch.from_numpy(outputs[name]).to(log_probs.device) for name, _ in OUTPUTS))


def _own_bits(nodes: int) -> np.ndarray:
    bits = np.zeros((nodes, -(-nodes // 64)), np.uint64)
    every = np.arange(nodes)
    bits[every, every // 64] = np.uint64(1) << (every % 64).astype(np.uint64)
    return bits.view(np.int64)


def _grow(scores: list[list[float]], ids: list[list[int]], budget: int) -> tuple[list[int], list[int], list[int]]:
    tokens, parents, depths = [-1], [-1], [0]
    width = min(len(scores[0]), budget) if scores else 0
    heap: list[tuple[float, tuple[int, ...], int, int, int, float]] = []
    if width and math.isfinite(scores[0][0]):
        heap = [(-scores[0][0], (0,), 0, 1, 0, scores[0][0])]
    while heap and len(tokens) <= budget:
        _, ranks, parent, depth, rank, score = heapq.heappop(heap)
        node = len(tokens)
        tokens.append(ids[depth - 1][rank])
        parents.append(parent)
        depths.append(depth)
        of_depth = scores[depth - 1]
        if rank + 1 < width:
            sibling = score - of_depth[rank] + of_depth[rank + 1]
            if math.isfinite(sibling):
                heapq.heappush(heap, (-sibling, (*ranks[:-1], rank + 1), parent, depth, rank + 1, sibling))
        if depth < len(scores):
            child = score + scores[depth][0]
            if math.isfinite(child):
                heapq.heappush(heap, (-child, (*ranks, 0), node, depth + 1, 0, child))
    return tokens, parents, depths


def _link(parents: list[int], first_child: np.ndarray, next_sibling: np.ndarray) -> None:
    last: dict[int, int] = {}
    for node, parent in enumerate(parents):
        if parent in last:
            next_sibling[last[parent]] = node
        elif parent >= 0:
            first_child[parent] = node
        last[parent] = node
