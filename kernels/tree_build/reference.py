"""What the kernel must give: the tree that a heap builds, with scores in float64."""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


@dataclass
class Tree:
    """One request's tree. Node 0 is the root; lists are by node."""

    tokens: list[int] = field(default_factory=lambda: [-1])
    parents: list[int] = field(default_factory=lambda: [-1])
    depths: list[int] = field(default_factory=lambda: [0])
    visible: list[int] = field(default_factory=lambda: [1])
    """Bit j of node i: j is i or above it."""
    first_child: list[int] = field(default_factory=lambda: [-1])
    next_sibling: list[int] = field(default_factory=lambda: [-1])


def build(log_probs: Sequence[Sequence[float]], token_ids: Sequence[Sequence[int]], budget: int) -> Tree:
    """The `budget` best prefixes of ranks, best first, of log-probabilities [depths][ranks], best first in each depth.

    A prefix counts the sum of its log-probabilities, added up on the way to it; among equal ones the prefix whose ranks
    come first in dictionary order is first. Sums that are not finite are left out, and what would follow from them.
    """
    tree = Tree()
    depths = len(log_probs)
    width = min(len(log_probs[0]), budget) if depths else 0
    heap: list[tuple[float, tuple[int, ...], int, int, int, float]] = []

    def push(score: float, ranks: tuple[int, ...], parent: int) -> None:
        if math.isfinite(score):
            heapq.heappush(heap, (-score, ranks, parent, len(ranks), ranks[-1], score))

    if width:
        push(log_probs[0][0], (0,), 0)
    while heap and len(tree.tokens) <= budget:
        _, ranks, parent, depth, rank, score = heapq.heappop(heap)
        node = _add(tree, token_ids[depth - 1][rank], parent)
        if rank + 1 < width:
            push(score - log_probs[depth - 1][rank] + log_probs[depth - 1][rank + 1], (*ranks[:-1], rank + 1), parent)
        if depth < depths:
            push(score + log_probs[depth][0], (*ranks, 0), node)
    return tree


def _add(tree: Tree, token: int, parent: int) -> int:
    node = len(tree.tokens)
    tree.tokens.append(token)
    tree.parents.append(parent)
    tree.depths.append(tree.depths[parent] + 1)
    tree.visible.append(tree.visible[parent] | 1 << node)
    tree.first_child.append(-1)
    tree.next_sibling.append(-1)
    sibling = tree.first_child[parent]
    if sibling < 0:
        tree.first_child[parent] = node
    else:
        while tree.next_sibling[sibling] >= 0:
            sibling = tree.next_sibling[sibling]
        tree.next_sibling[sibling] = node
    return node


#: Outputs in the order in which the kernel has them: name and type.
OUTPUTS: tuple[tuple[str, type[np.generic]], ...] = (
    ("tokens", np.int64),
    ("parents", np.int32),
    ("depths", np.int32),
    ("positions", np.int64),
    ("visible", np.int64),
    ("first_child", np.int32),
    ("next_sibling", np.int32),
    ("counts", np.int32),
)


def empty_outputs(requests: int, budget: int, fill: int = 0) -> dict[str, Array]:
    """Arrays for the outputs: [requests, budget + 1], the bits with 64 to a word behind, the counts [requests]."""
    nodes = budget + 1
    shapes = {"visible": (requests, nodes, -(-nodes // 64)), "counts": (requests,)}
    return {name: np.full(shapes.get(name, (requests, nodes)), fill, kind) for name, kind in OUTPUTS}


def tree_build(log_probs: Array, token_ids: Array, prefix_lengths: Array, budget: int) -> dict[str, Array]:
    """All outputs for [requests, depths, ranks] inputs, padded to budget + 1 nodes: token and parent -1, own bit."""
    requests = len(log_probs)
    outputs = empty_outputs(requests, budget)
    for request in range(requests):
        tree = build(log_probs[request].astype(np.float64).tolist(), token_ids[request].tolist(), budget)
        used = len(tree.tokens)
        for name in ("tokens", "parents", "depths", "first_child", "next_sibling"):
            outputs[name][request] = 0 if name == "depths" else -1
            outputs[name][request, :used] = getattr(tree, name)
        outputs["positions"][request] = prefix_lengths[request] + outputs["depths"][request].astype(np.int64)
        for node in range(budget + 1):
            bits = tree.visible[node] if node < used else 1 << node
            for word in range(outputs["visible"].shape[2]):
                outputs["visible"].view(np.uint64)[request, node, word] = bits >> 64 * word & (1 << 64) - 1
        outputs["counts"][request] = used - 1
    return outputs
