"""The benchmark: draft trees over long prefixes in a pool of bf16 keys, in pages of 64 anywhere in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch

from traceanalyzer.kernels.common.attention_check import Attention, Result, largest_error
from traceanalyzer.kernels.common.bench import Bench
from traceanalyzer.kernels.common.bench_result import Row
from traceanalyzer.kernels.tree_verify import baseline
from traceanalyzer.kernels.tree_verify.op import tree_verify
from traceanalyzer.kernels.tree_verify.reference import bits_of_seen, random_parents, seen_of_parents

_COLUMNS, _VALUES, _PAGE = 576, 512, 64
_SCALE = _COLUMNS**-0.5
#: The baseline rounds weights to bf16 relative to the largest yet.
_BASELINE_BOUND = 2.0


@dataclass(frozen=True)
class Shape:
    """One row."""

    requests: int
    nodes: int
    heads: int
    prefix: int
    chain: bool = False

    def __str__(self) -> str:
        nodes = f"{self.nodes} node{'s' * (self.nodes > 1)}{' of a chain' * (self.chain and self.nodes > 1)}"
        return f"{self.requests} request{'s' * (self.requests > 1)}, {nodes}, {self.heads} heads, {self.prefix:,} keys"

    @property
    def keys(self) -> int:
        """Of a request, with those of its nodes."""
        return self.prefix + self.nodes


_SHAPES = (
    Shape(1, 9, 8, 65_536),
    Shape(4, 9, 8, 65_536),
    Shape(1, 33, 8, 65_536),
    Shape(1, 9, 8, 65_536, chain=True),
    Shape(16, 1, 16, 8_192, chain=True),
)


@dataclass(frozen=True)
class Inputs:
    """A call's tensors, and what the baseline and peers take."""

    q: torch.Tensor
    pool: torch.Tensor
    indptr: torch.Tensor
    indices: torch.Tensor
    mask: torch.Tensor | None
    between: torch.Tensor
    """bool [requests, nodes, nodes]."""
    prefixes: torch.Tensor
    pages: torch.Tensor
    """int32 [requests, pages]."""


def rows(bench: Bench) -> Iterator[Row]:
    """One row for each shape."""
    for shape in _SHAPES:
        yield _row(bench, shape)


def _row(bench: Bench, shape: Shape) -> Row:
    inputs = make(shape, bench.device)
    masks = baseline.build_masks(inputs.between, inputs.prefixes)
    call = (inputs.q, inputs.pool, inputs.indptr, inputs.indices)

    def replacement() -> tuple[torch.Tensor, torch.Tensor]:
        result: tuple[torch.Tensor, torch.Tensor] = tree_verify(*call, scale=_SCALE, mask=inputs.mask)
        return result

    def by_triton() -> torch.Tensor:
        return baseline.tree_verify(*call, masks, scale=_SCALE)

    time = bench.on_gpu(replacement)
    peer, peer_call = _peer(shape, inputs)
    error = _error(inputs, *replacement())
    host = bench.timer.on_host(lambda: baseline.build_masks(inputs.between, inputs.prefixes))
    return Row(
        kernel="tree_verify",
        case=str(shape),
        baseline="Triton, serial over the prefix, a block for each request and head; the host builds a mask of bytes",
        baseline_ns=bench.on_gpu(by_triton).median_ns,
        baseline_host_ns=host.median_ns,
        replacement_ns=time.median_ns,
        replacement_p10_ns=time.p10_ns,
        replacement_p90_ns=time.p90_ns,
        replacement_clean_ns=bench.clean_ns(replacement),
        floor_ns=_floor_ns(bench, shape),
        agree=error <= 1 and _error(inputs, by_triton(), None) <= _BASELINE_BOUND,
        largest_error=error,
        peer=peer,
        peer_ns=bench.on_gpu(peer_call).median_ns,
    )


def _floor_ns(bench: Bench, shape: Shape) -> int:
    keys, rows = shape.requests * shape.keys, shape.nodes * shape.heads
    ends = shape.requests * rows * (2 * _COLUMNS + 2 * _VALUES + 4)
    return bench.floor_ns(keys * (2 * _COLUMNS + 4) + ends, 2 * rows * keys * (_COLUMNS + _VALUES))


def make(shape: Shape, device: torch.device) -> Inputs:
    """Random inputs; no page is read by two requests."""
    random = np.random.default_rng(shape.nodes)
    trees = [random_parents(random, shape.nodes) for _ in range(shape.requests)]
    seen = [np.tri(shape.nodes, dtype=bool) if shape.chain else seen_of_parents(tree) for tree in trees]
    mask = None if shape.chain else torch.from_numpy(np.stack([bits_of_seen(each) for each in seen])).to(device)
    each = -(-shape.keys // _PAGE)
    count = max(2 * shape.requests * each, 2048)
    pages = torch.randperm(count, device=device)[: shape.requests * each].view(shape.requests, each).to(torch.int32)
    slots = pages[..., None] * _PAGE + torch.arange(_PAGE, device=device, dtype=torch.int32)
    starts = torch.arange(shape.requests + 1, device=device, dtype=torch.int32)
    return Inputs(
        q=torch.randn(shape.requests, shape.nodes, shape.heads, _COLUMNS, device=device).to(torch.bfloat16),
        pool=torch.randn(count * _PAGE, _COLUMNS, device=device, dtype=torch.bfloat16),
        indptr=starts * shape.keys,
        indices=slots.flatten(1)[:, : shape.keys].flatten().contiguous(),
        mask=mask,
        between=torch.from_numpy(np.stack(seen)).to(device),
        prefixes=torch.full((shape.requests,), shape.prefix, dtype=torch.int32, device=device),
        pages=pages,
    )


def _peer(shape: Shape, inputs: Inputs) -> tuple[str, Callable[[], object]]:
    """FlashMLA where it is installed, which can only take the tree for a chain; else operators of torch."""
    try:
        return "FlashMLA, dense, of a chain as long", _flash_mla(shape, inputs)
    except (ImportError, OSError, RuntimeError, AssertionError):  # not here, or not for this GPU
        return "torch: keys gathered, multiplied, masked", lambda: _by_torch(shape, inputs)


def _flash_mla(shape: Shape, inputs: Inputs) -> Callable[[], object]:
    import flash_mla

    plan = flash_mla.get_mla_metadata()[0]
    paged = inputs.pool.view(-1, _PAGE, 1, _COLUMNS)
    lengths = torch.full_like(inputs.prefixes, shape.keys)

    def call() -> object:
        return flash_mla.flash_mla_with_kvcache(
            inputs.q, paged, inputs.pages, lengths, _VALUES, plan, softmax_scale=_SCALE, causal=True, use_legacy=True
        )

    call()
    return call


def _by_torch(shape: Shape, inputs: Inputs) -> torch.Tensor:
    keys = inputs.pool[inputs.indices].view(shape.requests, shape.keys, _COLUMNS)
    scores = torch.matmul(inputs.q.flatten(1, 2), keys.transpose(1, 2)).float() * _SCALE
    hidden = ~inputs.between.repeat_interleave(shape.heads, dim=1)
    scores[..., shape.prefix :].masked_fill_(hidden, -torch.inf)
    return torch.matmul(scores.softmax(-1).to(torch.bfloat16), keys[..., :_VALUES])


def _error(inputs: Inputs, out: torch.Tensor, lse: torch.Tensor | None) -> float:
    """The largest of all requests, in units of the bound."""
    requests, nodes, heads, _ = inputs.q.shape
    every = inputs.indices.view(requests, -1)

    def pairs() -> Iterator[tuple[Attention, Result]]:
        for request in range(requests):
            keys = inputs.pool[every[request]].double()
            prefix = torch.ones(nodes, len(keys) - nodes, dtype=torch.bool, device=keys.device)
            seen = torch.cat([prefix, inputs.between[request]], dim=1).repeat_interleave(heads, dim=0)
            sums = None if lse is None else lse[request].flatten()
            mine = Result(out[request].flatten(0, 1), sums)
            yield Attention(inputs.q[request].flatten(0, 1), keys, _SCALE, seen), mine

    return largest_error(pairs())
