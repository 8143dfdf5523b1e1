"""The reference against a plain loop over keys."""

from __future__ import annotations

import numpy as np
import pytest

from traceanalyzer.kernels.sparse_decode.reference import random_bf16
from traceanalyzer.kernels.tree_verify import reference


@pytest.mark.parametrize("kind", ["chain", "parents", "mask"])
def test_it_gives_what_a_loop_over_keys_gives(kind: str) -> None:
    random = np.random.default_rng(3)
    nodes, heads, stride, slots = 5, 2, 1168, 40
    pool = random.integers(0, 120, slots * stride, dtype=np.uint8)  # small bf16 numbers
    records = [random_bf16(random, 576) for _ in range(slots)]
    for slot, record in enumerate(records):
        pool[slot * stride : slot * stride + 1152] = record.view(np.uint8)
    indptr = np.array([0, 9, 9 + 5, 14 + 3], np.int32)
    indices = random.integers(0, slots, 17).astype(np.int64)
    indices[[2, 8, 16]] = (-1, slots, 2**40)
    q = random_bf16(random, 3, nodes, heads, 576)
    trees = [[-1, 0, 0, 1, 3], [-1, 0, 1, -1, -1], [-1, -1, -1, -1, -1]]
    seen = [
        [{0}, {0, 1}, {0, 2}, {0, 1, 3}, {0, 1, 3, 4}],
        [{0}, {0, 1}, {0, 1, 2}, {3}, {4}],
        [{0}, {1}, {2}, {3}, {4}],
    ]
    if kind == "chain":
        seen = [[set(range(node + 1)) for node in range(nodes)]] * 3
    words = np.array([[[sum(1 << bit for bit in bits)] for bits in of] for of in seen], np.int64)
    others = {"mask": words} if kind == "mask" else {"parents": np.array(trees, np.int32)} if kind == "parents" else {}
    found = reference.tree_verify(q, pool, indptr, indices, 0.03125, row_stride=stride, slots=slots, **others)
    assert found.out.shape == (3, nodes, heads, 512)

    def number(bits: np.ndarray) -> np.ndarray:
        return (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)

    for request in range(3):
        own = indices[indptr[request] : indptr[request + 1]]
        prefix = max(len(own) - nodes, 0)
        for node in range(nodes):
            keys = [
                number(records[slot])
                for at, slot in enumerate(own)
                if 0 <= slot < slots and (at < prefix or at - prefix in seen[request][node])
            ]
            for head in range(heads):
                if not keys:
                    assert not found.out[request, node, head].any()
                    assert np.isneginf(found.lse[request, node, head])
                    continue
                scores = [0.03125 * (number(q[request, node, head]) @ key) for key in keys]
                total = sum(np.exp(scores))
                out = sum(np.exp(score) * key[:512] for score, key in zip(scores, keys, strict=True)) / total
                np.testing.assert_allclose(found.out[request, node, head], out, rtol=1e-9, atol=1e-12)
                np.testing.assert_allclose(found.lse[request, node, head], np.log(total), rtol=1e-9)


@pytest.mark.parametrize("nodes", [1, 9, 64, 65, 130])
def test_bits_and_parents_tell_the_same(nodes: int) -> None:
    parents = reference.random_parents(np.random.default_rng(nodes), nodes, used=max(nodes - 3, 1))
    seen = reference.seen_of_parents(parents)
    words = reference.bits_of_seen(seen)
    assert words.shape == (nodes, -(-nodes // 64))
    np.testing.assert_array_equal(reference.seen_of_bits(words, nodes), seen)
    for node in range(nodes):
        path, at = set(), node
        while at >= 0:
            path.add(at)
            at = int(parents[at])
        assert set(np.flatnonzero(seen[node]).tolist()) == path
