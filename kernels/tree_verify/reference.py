"""What the kernel must give, worked out on the CPU in float64; trees and what their nodes see."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from traceanalyzer.kernels.common.attention import Expected, attend, bf16_values, joined

Array = npt.NDArray[Any]

#: Columns of a key, and those of them that are its value.
COLUMNS, VALUE_COLUMNS = 576, 512


def tree_verify(
    q: Array,
    pool: Array,
    indptr: Array,
    indices: Array,
    scale: float,
    *,
    mask: Array | None = None,
    parents: Array | None = None,
    row_stride: int = 2 * COLUMNS,
    slots: int | None = None,
    requests: Sequence[int] | None = None,
) -> Expected:
    """Attention of q (bf16 bits [requests, nodes, heads, 576]) over each request's prefix and what its nodes see.

    `pool` is bytes (uint8), a key's bf16 columns `row_stride` bytes behind those before it. `mask` (int64 [requests,
    nodes, words]) and `parents` (int32 [requests, nodes]) are as the kernel takes them; without them a chain. Rows are
    [requests, nodes, heads]; `requests` names those that are wanted.
    """
    nodes, heads = q.shape[1:3]
    slots = len(pool) // row_stride if slots is None else slots
    parts = []
    for request in range(len(q)) if requests is None else requests:
        own = indices[indptr[request] : indptr[request + 1]].astype(np.int64)
        between = _between(nodes, mask, parents, request)
        prefix = max(len(own) - nodes, 0)
        seen = np.concatenate([np.ones((nodes, prefix), bool), between[:, : len(own) - prefix]], axis=1)
        there = (own >= 0) & (own < slots)
        keys = _keys(pool, own[there], row_stride)
        rows = bf16_values(q[request].reshape(nodes * heads, COLUMNS))
        parts.append(attend(rows, keys, VALUE_COLUMNS, np.repeat(seen[:, there], heads, axis=0), scale))
    return joined(parts).reshaped(len(parts), nodes, heads)


def _between(nodes: int, mask: Array | None, parents: Array | None, request: int) -> Array:
    """bool [nodes, nodes]: which nodes each node sees."""
    if mask is not None:
        return seen_of_bits(mask[request], nodes)
    if parents is not None:
        return seen_of_parents(parents[request])
    return np.tri(nodes, dtype=bool)


def seen_of_bits(words: Array, nodes: int) -> Array:
    """bool [rows, nodes] of int64 [rows, words]: bit j % 64 of word j / 64."""
    columns = np.arange(nodes)
    bits = words.view(np.uint64)[:, columns // 64] >> (columns % 64).astype(np.uint64)
    return (bits & np.uint64(1)).astype(bool)


def bits_of_seen(seen: Array) -> Array:
    """int64 [rows, words] of bool [rows, nodes]."""
    words = np.zeros((len(seen), -(-seen.shape[1] // 64)), np.uint64)
    for node in range(seen.shape[1]):
        words[:, node // 64] |= seen[:, node].astype(np.uint64) << np.uint64(node % 64)
    return words.view(np.int64)


def seen_of_parents(parents: Array) -> Array:
    """bool [nodes, nodes]: each node sees itself and those above it. -1: the root, or padding."""
    seen = np.eye(len(parents), dtype=bool)
    for node, parent in enumerate(parents):
        if parent >= 0:
            seen[node] |= seen[parent]
    return seen


def random_parents(random: np.random.Generator, nodes: int, used: int | None = None) -> Array:
    """int32 [nodes]: a tree whose root is node 0, of the first `used` nodes; the others are padding."""
    parents = np.array([random.integers(0, max(node, 1)) for node in range(nodes)], np.int32)
    parents[0] = -1
    parents[nodes if used is None else used :] = -1
    return parents


def _keys(pool: Array, slots: Array, row_stride: int) -> Array:
    """float64 [n, 576]."""
    every = pool[: len(pool) // row_stride * row_stride].reshape(-1, row_stride)[:, : 2 * COLUMNS]
    return bf16_values(np.ascontiguousarray(every[slots]).view(np.uint16))
