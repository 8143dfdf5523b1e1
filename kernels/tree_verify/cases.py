"""Every kind of input, the ordinary and the odd, at sizes for the emulator; and full sizes for a GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from traceanalyzer.kernels.common.attention import bf16_values, expect_close
from traceanalyzer.kernels.common.case import Case
from traceanalyzer.kernels.common.mla_plan import Forced
from traceanalyzer.kernels.common.program import Backend
from traceanalyzer.kernels.gather_cast.reference import bf16_bits
from traceanalyzer.kernels.sparse_decode.reference import random_bf16
from traceanalyzer.kernels.tree_verify import reference
from traceanalyzer.kernels.tree_verify.launch import run
from traceanalyzer.kernels.tree_verify.reference import COLUMNS, VALUE_COLUMNS

Array = npt.NDArray[Any]
#: What results hold before.
_UNTOUCHED = 0x3DCC
_INFINITY, _NAN = 0x7F80, 0x7FC1
_RECORD_BYTES = 2 * COLUMNS


@dataclass(frozen=True)
class Poison:
    """Bits that are put into one column of a record: of a request's key, else of a slot."""

    column: int
    bits: int
    request: int | None = None
    key: int = 0
    """Among the request's: prefix, then nodes."""
    slot: int = 0


@dataclass(frozen=True)
class Inputs:
    """Sizes, the tree, what is odd about them, and the shape of the launch that is forced."""

    nodes: int = 9
    heads: int = 2
    prefixes: Sequence[int] = (70, 37)
    """Of each request; below 0: so many slots less than nodes."""
    kind: Literal["mask", "parents", "chain"] = "mask"
    tree: Callable[[int], Array] | None = None
    """Parents [nodes] of a request; else a random tree."""
    change_mask: Callable[[Array], None] | None = None
    slots: int = 150
    """Requests share some only where there are not enough."""
    first: int = 0
    """Slots before it are of NaN, and none is read."""
    change_indices: Callable[[Array], None] | None = None
    wide: bool = False
    row_stride: int = _RECORD_BYTES
    poison: Poison | None = None
    q: Callable[[Array], Array] | None = None
    scale: float = 0.05
    tiles: int | None = None
    splits: int | None = None
    compared: tuple[int, ...] | None = None
    """Requests that are compared with the reference; None: all."""
    seed: int = 3

    def check(self, backend: Backend) -> None:
        """Run the kernel and compare with the reference."""
        random = np.random.default_rng(self.seed)
        counts = [prefix + self.nodes for prefix in self.prefixes]
        indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
        indices = self._indices(random, counts)
        pool = self._pool(random, indptr, indices)
        requests = len(counts)
        q = random_bf16(random, requests, self.nodes, self.heads, COLUMNS)
        if self.q is not None:
            q = self.q(q)
        tree = self._tree(random, requests)
        out = np.full((*q.shape[:3], VALUE_COLUMNS), _UNTOUCHED, np.uint16)
        lse = np.full(q.shape[:3], 77, np.float32)
        mask, parents, stride, slots = *tree, self.row_stride, self.slots
        run(
            backend,
            q,
            pool,
            indptr,
            indices,
            out,
            lse,
            scale=self.scale,
            mask=mask,
            parents=parents,
            row_stride=stride,
            slots=slots,
            forced=Forced(self.tiles, self.splits),
        )
        compared = list(range(requests)) if self.compared is None else list(self.compared)
        expected = reference.tree_verify(
            q,
            pool,
            indptr,
            indices,
            self.scale,
            mask=mask,
            parents=parents,
            row_stride=stride,
            slots=slots,
            requests=compared,
        )
        expect_close(out[compared], lse[compared], expected)

    def _indices(self, random: np.random.Generator, counts: Sequence[int]) -> Array:
        kind = np.int64 if self.wide else np.int32
        indices = np.resize(self.first + random.permutation(self.slots - self.first), sum(counts)).astype(kind)
        if self.change_indices is not None:
            self.change_indices(indices)
        return indices

    def _pool(self, random: np.random.Generator, indptr: Array, indices: Array) -> Array:
        """Bytes behind each record are NaN."""
        pool = np.full((self.slots, self.row_stride // 2), 0xFFFF, np.uint16)
        for start in range(self.first, self.slots, 1 << 14):
            rows = pool[start : start + (1 << 14), :COLUMNS]
            rows[:] = random_bf16(random, *rows.shape)
        if self.poison is not None:
            slot = self.poison.slot
            if self.poison.request is not None:
                slot = int(indices[indptr[self.poison.request] + self.poison.key])
            pool[slot, self.poison.column] = self.poison.bits
        return pool.reshape(-1).view(np.uint8)

    def _tree(self, random: np.random.Generator, requests: int) -> tuple[Array | None, Array | None]:
        """Mask and parents."""
        if self.kind == "chain":
            return None, None
        tree = self.tree or (lambda nodes: reference.random_parents(random, nodes))
        parents = np.array([tree(self.nodes) for _ in range(requests)], np.int32).reshape(requests, self.nodes)
        if self.kind == "parents":
            return None, parents
        words = [reference.bits_of_seen(reference.seen_of_parents(each)) for each in parents]
        mask = np.array(words, np.int64).reshape(requests, self.nodes, -(-self.nodes // 64))
        if self.change_mask is not None:
            self.change_mask(mask)
        return mask, None


def _times(factor: float) -> Callable[[Array], Array]:
    """By a power of two, exactly."""
    return lambda q: bf16_bits(bf16_values(q) * factor)


def _times_in(node: int, head: int, factor: float) -> Callable[[Array], Array]:
    """The same for one head of one node alone."""

    def change(q: Array) -> Array:
        changed = q.copy()
        changed[:, node, head] = _times(factor)(q[:, node, head])
        return changed

    return change


def _with(request: int, node: int, head: int, bits: int) -> Callable[[Array], Array]:
    def change(q: Array) -> Array:
        q = q.copy()
        q[request, node, head, 300] = bits
        return q

    return change


def _zero_rows(mask: Array) -> None:
    mask[:, ::3] = 0


def _any_bits(mask: Array) -> None:
    """No tree, and bits of nodes that are not there."""
    mask[...] = np.random.default_rng(9).integers(-(2**63), 2**63 - 1, mask.shape)


def _only_the_last(mask: Array) -> None:
    """Every node sees the last node alone."""
    mask[...] = 0
    mask[..., -1] = np.int64(1) << np.int64(8)


def _some_nowhere(indices: Array) -> None:
    indices[::5] = -1
    indices[3] = 150
    indices[6] = np.iinfo(indices.dtype).max
    indices[7] = np.iinfo(indices.dtype).min


def _all_nowhere(indices: Array) -> None:
    indices[...] = -1


def _beyond_32_bits(indices: Array) -> None:
    indices[:3] = (2**32, 2**32 + 5, 2**62)


def _same_prefix(indices: Array) -> None:
    indices[79 : 79 + 37] = indices[:37]


def _padded(used: int) -> Callable[[int], Array]:
    return lambda nodes: reference.random_parents(np.random.default_rng(used), nodes, used)


def _fork(nodes: int) -> Array:
    """All below the root."""
    parents = np.zeros(nodes, np.int32)
    parents[0] = -1
    return parents


def _chain(nodes: int) -> Array:
    return np.arange(-1, nodes - 1, dtype=np.int32)


def cases() -> Iterator[Case]:
    """All cases; `full` ones are for a GPU."""
    for name, inputs in (*_trees(), *_keys(), *_values(), *_launches()):
        yield Case(name, inputs.check)
    for name, inputs in _full():
        yield Case(name, inputs.check, full=True)


def _trees() -> Iterator[tuple[str, Inputs]]:
    plain = Inputs()
    yield "plain", plain
    yield "parents", replace(plain, kind="parents")
    yield "chain", replace(plain, kind="chain")
    yield "1 node", replace(plain, nodes=1, heads=8)
    yield "1 node, chain", replace(plain, nodes=1, heads=8, kind="chain")
    yield "1 node, no prefix", replace(plain, nodes=1, heads=8, prefixes=(0, 0))
    yield "1 node, parents", replace(plain, nodes=1, heads=8, kind="parents")
    one = replace(plain, heads=1, prefixes=(20,))
    for nodes in (64, 65):
        yield f"{nodes} nodes", replace(one, nodes=nodes)
        yield f"{nodes} nodes, parents", replace(one, nodes=nodes, kind="parents")
        yield f"{nodes} nodes, chain", replace(one, nodes=nodes, kind="chain")
    yield "65 nodes, 5 tiles", replace(one, nodes=65, tiles=5, splits=2)
    yield "130 nodes, no prefix", replace(one, nodes=130, prefixes=(0,))
    yield "a chain as parents", replace(plain, kind="parents", tree=_chain)
    yield "a fork", replace(plain, tree=_fork)
    yield "a fork as parents", replace(plain, kind="parents", tree=_fork)
    yield "padding sees itself", replace(plain, tree=_padded(4))
    yield "padding sees itself, no prefix", replace(plain, tree=_padded(4), prefixes=(0, 3))
    yield "padding among parents", replace(plain, tree=_padded(4), kind="parents", prefixes=(0, 33))
    yield "rows of no bits", replace(plain, change_mask=_zero_rows)
    yield "rows of no bits, no prefix", replace(plain, change_mask=_zero_rows, prefixes=(0, 0))
    yield "any bits, also of nodes that are not there", replace(plain, change_mask=_any_bits)
    yield "any bits, 70 nodes", replace(one, nodes=70, change_mask=_any_bits)
    yield "all see the last alone, no prefix", replace(plain, change_mask=_only_the_last, prefixes=(0, 0))
    for heads in (1, 3, 8, 20):
        yield f"3 nodes, {heads} heads", replace(plain, nodes=3, heads=heads, prefixes=(30, 12))
    yield "128 heads", replace(plain, nodes=1, heads=128, prefixes=(40,))
    for seed in range(6):
        random = np.random.default_rng(100 + seed)
        nodes, heads = int(random.integers(1, 20)), int(random.integers(1, 6))
        prefixes = tuple(random.integers(0, 80, int(random.integers(1, 4))).tolist())
        kind: Literal["mask", "parents"] = "mask" if seed % 2 else "parents"
        yield f"random sizes {seed}", Inputs(nodes, heads, prefixes, kind, seed=seed, wide=seed % 3 == 0)


def _keys() -> Iterator[tuple[str, Inputs]]:
    plain = Inputs()
    yield "no prefix", replace(plain, prefixes=(0, 0))
    yield "ragged prefixes", replace(plain, nodes=4, prefixes=(0, 1, 31, 32, 60))
    for keys in (31, 32, 33, 64, 65):
        yield f"{keys} keys", replace(plain, nodes=5, prefixes=(keys - 5,))
    yield "fewer slots than nodes", replace(plain, prefixes=(-3, 20))
    yield "fewer slots than nodes, parents", replace(plain, prefixes=(-3, -8), kind="parents")
    yield "no slots at all", replace(plain, prefixes=(-9, 5))
    yield "int64", replace(plain, wide=True)
    yield "int64 beyond 32 bits", replace(plain, wide=True, change_indices=_beyond_32_bits)
    yield "slots of -1 and beyond the pool", replace(plain, change_indices=_some_nowhere)
    yield "int64 of -1 and beyond the pool", replace(plain, change_indices=_some_nowhere, wide=True)
    yield "all slots -1", replace(plain, change_indices=_all_nowhere)
    yield "two requests with one prefix", replace(plain, change_indices=_same_prefix)
    yield "a gap behind records", replace(plain, row_stride=_RECORD_BYTES + 32)


def _values() -> Iterator[tuple[str, Inputs]]:
    plain = Inputs()
    fork = replace(plain, tree=_fork)
    yield "NaN in one node's key", replace(fork, poison=Poison(5, _NAN, 0, 70 + 4))
    yield "NaN in one node's key, parents", replace(fork, kind="parents", poison=Poison(5, _NAN, 0, 70 + 4))
    alone = replace(fork, heads=1, splits=4, prefixes=(141, 3))
    yield "NaN in one node's key, splits without keys", replace(alone, poison=Poison(5, _NAN, 1, 7))
    yield "NaN in the columns without a value", replace(fork, poison=Poison(575, _NAN, 1, 37 + 8))
    yield "infinity in one node's key", replace(fork, poison=Poison(511, _INFINITY, 1, 37 + 1))
    yield "NaN in a node of a chain", replace(plain, kind="chain", poison=Poison(0, _NAN, 1, 37 + 6))
    yield "NaN in one prefix", replace(plain, poison=Poison(100, _NAN, 0, 33))
    yield "infinity below 0 in one prefix", replace(plain, poison=Poison(540, _INFINITY | 0x8000, 1, 2))
    unread = np.setdiff1d(np.arange(150), np.arange(75, 150))
    low = _offset(75)
    yield (
        "NaN in a slot that is not read",
        replace(plain, prefixes=(40, 60), change_indices=low, poison=Poison(9, _NAN, slot=int(unread[-1]))),
    )
    yield (
        "NaN in slot 0, slots of -1",
        replace(plain, prefixes=(40, 60), change_indices=_offset_and_nowhere, poison=Poison(9, _NAN, slot=0)),
    )
    yield (
        "NaN in the last slot, slots beyond it",
        replace(plain, prefixes=(40, 60), change_indices=_before_the_last, poison=Poison(9, _NAN, slot=149)),
    )
    yield "q of zeros", replace(plain, q=np.zeros_like)
    yield "NaN in q of one row", replace(plain, q=_with(1, 4, 1, _NAN))
    yield "infinity in q of one row", replace(plain, q=_with(0, 8, 0, _INFINITY))
    yield "scores of tens of thousands", replace(plain, q=_times(512), scale=1.0)
    late = replace(plain, prefixes=(290, 300), nodes=3, heads=8, tiles=3, splits=1, scale=1.0)
    for node, head in ((0, 5), (2, 1)):
        yield f"a maximum that grows late in row {node * 8 + head}", replace(late, q=_times_in(node, head, 512))
    yield "scores near 0", replace(plain, q=_times(2.0**-20))
    yield "large q and small scale", replace(plain, q=_times(2.0**40), scale=0.05 * 2.0**-40)
    yield "small q and large scale", replace(plain, q=_times(2.0**-60), scale=0.05 * 2.0**60)
    yield "scale below 0", replace(plain, scale=-0.05)


def _offset(by: int) -> Callable[[Array], None]:
    def change(indices: Array) -> None:
        indices[...] = by + indices % (150 - by)

    return change


def _offset_and_nowhere(indices: Array) -> None:
    indices[...] = 1 + indices % 149
    indices[::4] = -1


def _before_the_last(indices: Array) -> None:
    indices[...] = indices % 149
    indices[::4] = 150


def _launches() -> Iterator[tuple[str, Inputs]]:
    plain = Inputs()
    for splits in (1, 2, 3):
        yield f"{splits} splits", replace(plain, splits=splits)
    yield "more splits than tiles of keys", replace(plain, splits=9)
    yield "a split inside of the tree", replace(plain, nodes=40, heads=1, prefixes=(20, 12), splits=2)
    yield (
        "a split inside of the tree, parents",
        replace(plain, nodes=40, heads=1, prefixes=(20, 12), splits=2, kind="parents"),
    )
    yield (
        "a split inside of the tree, chain",
        replace(plain, nodes=70, heads=1, prefixes=(20, 5), splits=3, kind="chain"),
    )
    yield "3 splits, ragged", replace(plain, prefixes=(0, 1, 60, -9), splits=3)
    yield (
        "a node's NaN and 2 splits",
        replace(plain, tree=_fork, nodes=40, heads=1, prefixes=(20,), splits=2, poison=Poison(7, _NAN, 0, 20 + 30)),
    )
    for tiles in (1, 2, 3, 4, 5):
        yield f"{tiles} tiles, 41 rows", replace(plain, nodes=41, heads=1, prefixes=(10,), tiles=tiles, splits=1)
    for tiles in (1, 3, 5):  # long enough to go round every ring of stages twice
        yield f"150 keys and 9 nodes, {tiles} tiles", replace(plain, heads=4, prefixes=(150,), tiles=tiles, splits=1)
    yield "NaN in q where nothing is seen", replace(plain, change_indices=_all_nowhere, q=_with(1, 4, 1, _NAN))
    yield "3 tiles, 27 rows", replace(plain, heads=3, tiles=3, splits=2, prefixes=(50,))
    yield "5 tiles, 9 nodes of 8 heads", replace(plain, heads=8, tiles=5, prefixes=(60,))


def _full() -> Iterator[tuple[str, Inputs]]:
    long = 65_536
    large = Inputs(9, 8, (long,), slots=80_000)
    yield "9 nodes, 8 heads, 65,536 keys", large
    yield "9 nodes, 8 heads, 65,536 keys, parents", replace(large, kind="parents", seed=4)
    yield "9 nodes, 8 heads, 65,536 keys, chain, int64", replace(large, kind="chain", wide=True, seed=5)
    yield (
        "4 requests, 9 nodes, 8 heads, 65,536 keys",
        replace(large, prefixes=(long,) * 4, slots=300_000, compared=(1, 3)),
    )
    yield "33 nodes, 8 heads, 65,536 keys", replace(large, nodes=33)
    yield "16 requests, 1 node, 16 heads, 8,192 keys", Inputs(1, 16, (8_192,) * 16, "chain", slots=140_000)
    yield "prefixes of 1 and 131,072", Inputs(9, 8, (1, 131_072, 0, 4_000), slots=140_000)
    yield "130 nodes, 4 heads, 3,000 keys", Inputs(130, 4, (3_000, 0, 777), slots=4_000)
    yield "1 node, 128 heads, 10,000 keys", Inputs(1, 128, (10_000, 9_999), slots=20_000)
    yield "2 nodes, 127 heads, 5,000 keys", Inputs(2, 127, (5_000,), slots=20_000, row_stride=1184)
    for seed in range(8):
        random = np.random.default_rng(500 + seed)
        nodes, heads = int(random.integers(1, 70)), int(random.integers(1, 20))
        prefixes = tuple(random.integers(0, 9_000, int(random.integers(1, 9))).tolist())
        yield f"large random sizes {seed}", Inputs(nodes, heads, prefixes, slots=10_000, seed=seed, wide=seed % 2 == 0)
    yield "a pool beyond 2 GB", Inputs(9, 8, (20_000,), slots=2_000_000, first=1_970_000, wide=True)
