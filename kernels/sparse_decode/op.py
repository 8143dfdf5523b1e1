"""The kernel on torch tensors: `torch.ops.traceanalyzer.sparse_decode`, and a function that checks its arguments."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from traceanalyzer.kernels.common import mla_launch, mla_plan, torch_launch
from traceanalyzer.kernels.common.check import check, check_addresses
from traceanalyzer.kernels.common.errors import ArgumentError
from traceanalyzer.kernels.common.program import Argument
from traceanalyzer.kernels.sparse_decode.launch import DSV4, V32, configure, plan

_VALUES = mla_plan.VALUES
_COLUMNS = {576: V32, 512: DSV4}
_MOST_HEADS = 128
_MOST_REQUESTS = 65_535

#: A second cache: its bytes, indices, lengths and page size, as those of the first.
Extra = tuple[torch.Tensor, torch.Tensor, torch.Tensor | None, int | None]


def sparse_decode(
    q: torch.Tensor,
    cache: torch.Tensor,
    indices: torch.Tensor,
    *,
    scale: float,
    lengths: torch.Tensor | None = None,
    sink: torch.Tensor | None = None,
    page_size: int | None = None,
    extra: Extra | None = None,
    out: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """MLA attention of one token a request over the records of a cache that `indices` name.

    `q` is bf16 [requests, heads, 576] or [.., 512], and its last size says what records are. 576: 656 bytes (512 e4m3
    codes, 4 float32 scales, 64 bf16); `cache` is uint8 (or float8_e4m3fn, the same bytes) [slots, 656] or [pages, page
    size, 656]. 512: 584 bytes (448 codes and 64 bf16 side by side, 8 bytes of scales behind all of the page); `cache`
    is uint8 [pages, page bytes], and `page_size` is needed. `indices` is int32 [requests, k]: slots, counted through
    the pages; one that is no slot (-1) names nothing. `lengths`, int32 [requests] on the GPU, says how many of a row
    count. `sink` is float32 [heads]. `extra` is a second cache whose records share the softmax. `out` is bf16
    [requests, heads, 512]. At most 65,535 requests.

    Returns `out`, and the logarithms of sums float32 [requests, heads], without the sink. A row without records is 0,
    -inf. Scales below 2^-100 count as that, and one that is 2^16 times smaller than the largest of its record loses
    bits. A launch does not wait, and fits into CUDA graphs; what splits of the work leave is allocated as torch does.
    Raises `ArgumentError`.
    """
    requests, heads, layout = _check_queries(q)
    size = _check_cache("cache", cache, indices, lengths, page_size, layout, q)
    if sink is not None:
        check("sink", sink, dtypes=(torch.float32,), shape=(heads,), like=q)
    second: Extra = (None, None, None, None) if extra is None else extra
    second_size = 0
    if extra is not None:
        if not isinstance(extra, Sequence) or len(extra) != 4:
            raise ArgumentError("extra: must be a cache, its indices, lengths (or None) and page size (or None)")
        second_size = _check_cache("extra", extra[0], extra[1], extra[2], extra[3], layout, q)
    if out is None:
        out = q.new_empty((requests, heads, _VALUES))
    else:
        check("out", out, dtypes=(torch.bfloat16,), shape=(requests, heads, _VALUES), like=q)
    lse = torch.ops.traceanalyzer.sparse_decode(
        q, cache, indices, lengths, sink, size, *second[:3], second_size, float(scale), out
    )
    return out, lse


def _check_queries(q: torch.Tensor) -> tuple[int, int, str]:
    check("q", q, dtypes=(torch.bfloat16,), shape=("requests", "heads", "576 or 512"))
    requests, heads, columns = q.shape
    if columns not in _COLUMNS:
        raise ArgumentError(f"q: its last size must be 576 (records of 656 bytes) or 512 (of 584), not {columns}")
    if not 1 <= heads <= _MOST_HEADS:
        raise ArgumentError(f"q: must have 1 to {_MOST_HEADS} heads, not {heads}")
    if requests > _MOST_REQUESTS:
        raise ArgumentError(f"q: at most {_MOST_REQUESTS:,} requests are possible, not {requests:,}")
    return requests, heads, _COLUMNS[columns]


def _check_cache(
    name: str,
    cache: torch.Tensor,
    indices: torch.Tensor,
    lengths: torch.Tensor | None,
    page_size: int | None,
    layout: str,
    q: torch.Tensor,
) -> int:
    """The page size."""
    of = "" if name == "cache" else f"{name} "
    paged = isinstance(cache, torch.Tensor) and cache.ndim == 3
    if layout == DSV4:
        shape: tuple[int | str, ...] = ("pages", "page bytes")
    else:
        shape = ("pages", "page size", 656) if paged else ("slots", 656)
    check(name, cache, dtypes=(torch.uint8, torch.float8_e4m3fn), shape=shape, like=q, contiguous=False)
    if layout == DSV4:
        if not isinstance(page_size, int) or page_size < 1:
            raise ArgumentError(f"{of}page_size: must be given for records of 584 bytes, not {page_size!r}")
        if cache.shape[1] < page_size * 584:
            raise ArgumentError(
                f"{name}: {page_size} records need {page_size * 584} bytes a page, not {cache.shape[1]}"
            )
    elif page_size is not None and page_size != (cache.shape[1] if paged else 1):
        raise ArgumentError(
            f"{of}page_size: is {cache.shape[1] if paged else 1} by the shape of {name}, not {page_size}"
        )
    if layout == V32 and paged and cache.stride(1) != 656:
        raise ArgumentError(f"{name}: records of a page must lie side by side; its strides are {list(cache.stride())}")
    if cache.stride(0) % 16:
        raise ArgumentError(
            f"{name}: pages must begin at multiples of 16 bytes; its strides are {list(cache.stride())}"
        )
    check(f"{of}indices", indices, dtypes=(torch.int32,), shape=(q.shape[0], "k"), like=q)
    if lengths is not None:
        check(f"{of}lengths", lengths, dtypes=(torch.int32,), shape=(q.shape[0],), like=q)
    if layout == DSV4:
        assert isinstance(page_size, int)
        return page_size
    return int(cache.shape[1]) if paged else 1


def _cache_arguments(
    cache: torch.Tensor | None, indices: torch.Tensor | None, lengths: torch.Tensor | None, page_size: int
) -> list[torch.Tensor | Argument]:
    if cache is None or indices is None:
        return [None, np.int64(0), np.int32(1), np.int32(0), None, np.int32(0), None]
    slots = cache.shape[0] * page_size
    return [
        cache,
        np.int64(cache.stride(0)),
        np.int32(page_size),
        np.int32(slots),
        indices,
        np.int32(indices.shape[1]),
        lengths,
    ]


def _launch(
    q: torch.Tensor,
    cache: torch.Tensor,
    indices: torch.Tensor,
    lengths: torch.Tensor | None,
    sink: torch.Tensor | None,
    page_size: int,
    extra: torch.Tensor | None,
    extra_indices: torch.Tensor | None,
    extra_lengths: torch.Tensor | None,
    extra_page_size: int,
    scale: float,
    out: torch.Tensor,
) -> torch.Tensor:
    requests, heads, columns = q.shape
    lse = q.new_empty((requests, heads), dtype=torch.float32)
    if requests == 0:
        return lse
    check_addresses(q=q, cache=cache, extra=extra)
    check_addresses(4, out=out)
    layout = _COLUMNS[columns]
    width = indices.shape[1] + (extra_indices.shape[1] if extra_indices is not None else 0)
    chosen = plan(layout, heads, requests, width, torch_launch.gpu_of(q.device))
    arguments: list[torch.Tensor | Argument] = [
        q,
        *_cache_arguments(cache, indices, lengths, page_size),
        *_cache_arguments(extra, extra_indices, extra_lengths, extra_page_size),
        np.float32(scale),
        sink,
        np.int32(heads),
    ]
    main = configure(chosen, requests, 1 if extra is None else 2)
    for launch, given in mla_launch.launches_of(
        chosen, main, arguments, out, lse, sink, lse.new_empty, requests=requests, rows=heads, heads=heads
    ):
        torch_launch.launch(launch, given, q.device)
    return lse


def _empty(q: torch.Tensor, *_: object) -> torch.Tensor:
    return q.new_empty(q.shape[:2], dtype=torch.float32)


torch_launch.register(
    "sparse_decode(Tensor q, Tensor cache, Tensor indices, Tensor? lengths, Tensor? sink, int page_size, Tensor? extra,"
    " Tensor? extra_indices, Tensor? extra_lengths, int extra_page_size, float scale, Tensor(a!) out) -> Tensor",
    _launch,
    _empty,
)
