"""The kernel on torch tensors, as `torch.ops.traceanalyzer.gather_cast` and as a function that checks its arguments."""

from __future__ import annotations

import numpy as np
import torch

from traceanalyzer.kernels.common import torch_launch
from traceanalyzer.kernels.common.check import check
from traceanalyzer.kernels.common.errors import ArgumentError
from traceanalyzer.kernels.gather_cast.launch import GROUPS, ONE_FACTOR, PLAIN, Layout, configure, vector_for

_CODES = (torch.float8_e4m3fn, torch.uint8)
_MOST_INDICES = 1 << 30
_MOST_STRIDE = (1 << 31) - 1


def gather_cast(
    pool: torch.Tensor,
    indices: torch.Tensor,
    *,
    count: torch.Tensor | None = None,
    scale: torch.Tensor | None = None,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Rows of an FP8 pool as BF16: out[i, :] = bf16(float(pool[indices[i], :]) * scale), bit for bit as torch casts.

    `pool` is float8_e4m3fn (or uint8, the same bits) [slots, columns] or [pages, page size, columns], with any stride
    between rows and between pages. `indices` is int32 or int64 [n]: slots, counted through the pages; a slot that is
    not in the pool (-1) gives a row of zeros. `count`, int32 [1] on the GPU, says how many of the indices count; rows
    of the result behind it are not written. `scale` is float32: [1] for all, or [slots, groups], where columns / groups
    neighbouring columns share a factor. `out`, bf16 [n, columns], is written and returned; without it, a new tensor.

    A launch neither waits nor allocates (with `out`), and fits into CUDA graphs. Raises `ArgumentError`.
    """
    _check(pool, indices, count, scale, out)
    if out is None:
        result: torch.Tensor = torch.ops.traceanalyzer.gather_cast(pool, indices, count, scale)
        return result
    torch.ops.traceanalyzer.gather_cast_out(pool, indices, count, scale, out)
    return out


def _check(
    pool: torch.Tensor,
    indices: torch.Tensor,
    count: torch.Tensor | None,
    scale: torch.Tensor | None,
    out: torch.Tensor | None,
) -> None:
    paged = isinstance(pool, torch.Tensor) and pool.ndim == 3
    check(
        "pool",
        pool,
        dtypes=_CODES,
        shape=("pages", "page size", "columns") if paged else ("slots", "columns"),
        contiguous=False,
    )
    check("indices", indices, dtypes=(torch.int32, torch.int64), shape=("n",), like=pool)
    columns, slots = pool.shape[-1], pool.numel() // max(pool.shape[-1], 1)
    if columns == 0:
        raise ArgumentError("pool: has no columns")
    if not 0 <= pool.stride(-2) <= _MOST_STRIDE:
        raise ArgumentError(f"pool: rows must be less than 2 GB apart; its strides are {list(pool.stride())}")
    if len(indices) > _MOST_INDICES:
        raise ArgumentError(f"indices: at most {_MOST_INDICES:,} are possible, not {len(indices):,}")
    if count is not None:
        check("count", count, dtypes=(torch.int32,), shape=(1,), like=pool)
    if scale is not None:
        groups = isinstance(scale, torch.Tensor) and scale.ndim == 2
        shape: tuple[int | str, ...] = (slots, "groups") if groups else (1,)
        check("scale", scale, dtypes=(torch.float32,), shape=shape, like=pool)
        if groups and (scale.shape[1] == 0 or columns % scale.shape[1]):
            raise ArgumentError(f"scale: {columns} columns cannot be divided into {scale.shape[1]} groups")
    if out is not None:
        check("out", out, dtypes=(torch.bfloat16,), shape=(len(indices), columns), like=pool)


def _launch(
    pool: torch.Tensor,
    indices: torch.Tensor,
    count: torch.Tensor | None,
    scale: torch.Tensor | None,
    out: torch.Tensor,
) -> None:
    columns = pool.shape[-1]
    paged = pool.ndim == 3
    slots = pool.shape[0] * pool.shape[1] if paged else pool.shape[0]
    wide = indices.dtype == torch.int64
    scaling = PLAIN if scale is None else GROUPS if scale.ndim == 2 else ONE_FACTOR
    group = columns // scale.shape[1] if scale is not None and scaling == GROUPS else 1
    row_stride, page_stride = pool.stride(-2), pool.stride(0) if paged else 0
    numbers = (row_stride, page_stride, pool.data_ptr(), out.data_ptr() // 2, group if scaling == GROUPS else 0)
    layout = Layout(columns, vector_for(columns, *numbers), wide, scaling, group, pool.shape[1] if paged else 0)
    index = np.int64 if wide else np.int32
    arguments = [
        pool,
        np.int32(row_stride),
        np.int64(page_stride),
        index(slots),
        indices,
        count,
        np.int32(len(indices)),
        scale,
        np.int64(scale.shape[1] if scale is not None and scaling == GROUPS else 0),
        out,
    ]
    resident = torch_launch.resident_threads(pool.device)
    shape = configure(layout, len(indices), resident, counted=count is not None)
    torch_launch.launch(shape, arguments, pool.device)


def _new(
    pool: torch.Tensor, indices: torch.Tensor, count: torch.Tensor | None, scale: torch.Tensor | None
) -> torch.Tensor:
    out = _empty(pool, indices)
    _launch(pool, indices, count, scale, out)
    return out


def _empty(pool: torch.Tensor, indices: torch.Tensor, *_: torch.Tensor | None) -> torch.Tensor:
    return pool.new_empty((indices.shape[0], pool.shape[-1]), dtype=torch.bfloat16)


def _nothing(
    pool: torch.Tensor,
    indices: torch.Tensor,
    count: torch.Tensor | None,
    scale: torch.Tensor | None,
    out: torch.Tensor,
) -> None:
    """Shapes of no outputs."""


torch_launch.register("gather_cast(Tensor pool, Tensor indices, Tensor? count, Tensor? scale) -> Tensor", _new, _empty)
torch_launch.register(
    "gather_cast_out(Tensor pool, Tensor indices, Tensor? count, Tensor? scale, Tensor(a!) out) -> ()",
    _launch,
    _nothing,
)
