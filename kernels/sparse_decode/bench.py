"""The benchmark: one token each of some requests, over records anywhere in a cache of more than 131,072."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch

from traceanalyzer.kernels.common.attention_check import Attention, Result, largest_error
from traceanalyzer.kernels.common.bench import Bench
from traceanalyzer.kernels.common.bench_result import Row
from traceanalyzer.kernels.sparse_decode import baseline
from traceanalyzer.kernels.sparse_decode.op import sparse_decode
from traceanalyzer.kernels.sparse_decode.shapes import DSV4_PAGE_BYTES, PAGE, SCALE, Inputs, Shape, make

#: The baseline rounds to bf16 more often than the kernel.
_BASELINE_BOUND = 2.0


_SHAPES = (
    Shape(1, 64, 512),
    Shape(1, 128, 2048),
    Shape(64, 128, 2048),
    Shape(16, 8, 2048),
    Shape(64, 16, 2048),
    Shape(128, 8, 2048),
    Shape(128, 16, 2048),
    Shape(1, 64, 512, v32=False),
    Shape(1, 64, 128, v32=False, extra=512),
)


def rows(bench: Bench) -> Iterator[Row]:
    """One row for each shape."""
    for shape in _SHAPES:
        yield _row(bench, shape)


def _row(bench: Bench, shape: Shape) -> Row:
    inputs = make(shape, bench.device)

    def replacement() -> tuple[torch.Tensor, torch.Tensor]:
        result: tuple[torch.Tensor, torch.Tensor] = sparse_decode(
            inputs.q, inputs.cache, inputs.indices, **inputs.options()
        )
        return result

    def by_triton() -> tuple[torch.Tensor, torch.Tensor]:
        return baseline.sparse_decode(inputs.q, inputs.cache, inputs.indices, **inputs.options())

    time = bench.on_gpu(replacement)
    peer, peer_call = _peer(shape, inputs)
    error = _error(shape, inputs, *replacement())
    return Row(
        kernel="sparse_decode",
        case=str(shape),
        baseline="Triton, a block for each request and head, no tensor cores",
        baseline_ns=bench.on_gpu(by_triton).median_ns,
        replacement_ns=time.median_ns,
        replacement_p10_ns=time.p10_ns,
        replacement_p90_ns=time.p90_ns,
        replacement_clean_ns=bench.clean_ns(replacement),
        floor_ns=_floor_ns(bench, shape),
        agree=error <= 1 and _error(shape, inputs, *by_triton()) <= _BASELINE_BOUND,
        largest_error=error,
        peer=peer,
        peer_ns=None if peer_call is None else bench.on_gpu(peer_call).median_ns,
    )


def _floor_ns(bench: Bench, shape: Shape) -> int:
    keys = shape.requests * (shape.k + shape.extra)
    ends = shape.requests * shape.heads * (2 * shape.columns + 2 * 512 + 4)
    return bench.floor_ns(
        keys * ((656 if shape.v32 else 584) + 4) + ends, 2 * shape.heads * keys * (shape.columns + 512)
    )


def _peer(shape: Shape, inputs: Inputs) -> tuple[str | None, Callable[[], object] | None]:
    """FlashMLA where it is installed and takes the shape, else operators of torch."""
    if shape.extra:
        return None, None
    if shape.heads in (64, 128):
        try:
            return "FlashMLA", _flash_mla(shape, inputs)
        except (ImportError, OSError, RuntimeError, AssertionError):  # not here, or not for this GPU
            pass
    return "torch: records made bf16, then multiplied", lambda: baseline.gather_then_attend(
        inputs.q, inputs.cache, inputs.indices, scale=SCALE, page_size=inputs.page_size
    )


def _flash_mla(shape: Shape, inputs: Inputs) -> Callable[[], object]:
    import flash_mla

    plan = flash_mla.get_mla_metadata()[0]
    cache = inputs.cache.view(torch.float8_e4m3fn)
    if shape.v32:
        paged = cache.view(-1, PAGE, 1, 656)
    else:
        paged = cache.as_strided((len(cache), PAGE, 1, 584), (DSV4_PAGE_BYTES, 584, 584, 1))

    def call() -> object:
        return flash_mla.flash_mla_with_kvcache(
            inputs.q.unsqueeze(1),
            paged,
            None,
            None,
            512,
            plan,
            softmax_scale=SCALE,
            is_fp8_kvcache=True,
            indices=inputs.indices.unsqueeze(1),
            use_legacy=True,
        )

    call()
    return call


def _error(shape: Shape, inputs: Inputs, out: torch.Tensor, lse: torch.Tensor) -> float:
    """The largest of all requests, in units of the bound."""

    def pairs() -> Iterator[tuple[Attention, Result]]:
        for request, queries in enumerate(inputs.q):
            keys = _keys(shape, inputs.cache, inputs.indices[request], inputs.page_size)
            mine, sums = out[request], lse[request]
            if inputs.extra is not None and inputs.sink is not None:
                keys = torch.cat([keys, _keys(shape, inputs.extra[0], inputs.extra[1][request], inputs.page_size)])
                mine = mine.double() / torch.sigmoid(sums.double() - inputs.sink.double())[:, None]
            yield Attention(queries, keys, SCALE), Result(mine, sums)

    return largest_error(pairs())


def _keys(shape: Shape, cache: torch.Tensor, indices: torch.Tensor, page_size: int | None) -> torch.Tensor:
    return baseline.gathered(cache, indices, page_size, torch.float64, v32=shape.v32)
