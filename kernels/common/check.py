"""Checks of torch tensors that are given to a kernel. Every message begins with the argument's name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from traceanalyzer.kernels.common.errors import ArgumentError

if TYPE_CHECKING:
    import torch


def check(
    name: str,
    tensor: object,
    *,
    dtypes: Sequence[torch.dtype],
    shape: Sequence[int | str],
    like: torch.Tensor | None = None,
    contiguous: bool = True,
) -> None:
    """Raise `ArgumentError` unless `tensor` is a CUDA tensor of one of these types and of this shape.

    `shape` holds a size for each dimension, or a word where any size will do. `like` is a tensor on whose device it
    must be. Where it need not be contiguous its last dimension must be.
    """
    import torch

    if not isinstance(tensor, torch.Tensor):
        raise ArgumentError(f"{name}: must be a torch tensor, not {type(tensor).__name__}")
    wanted = f"[{', '.join(str(size) for size in shape)}]"
    if tensor.dtype not in dtypes:
        raise ArgumentError(
            f"{name}: must be {' or '.join(_short(each) for each in dtypes)}, not {_short(tensor.dtype)}"
        )
    sizes = list(tensor.shape)
    if len(sizes) != len(shape) or any(
        isinstance(want, int) and want != size for want, size in zip(shape, sizes, strict=True)
    ):
        raise ArgumentError(f"{name}: must have the shape {wanted}, not {sizes}")
    if tensor.device.type != "cuda":
        raise ArgumentError(f"{name}: must be on a CUDA device, not on {tensor.device}")
    if like is not None and tensor.device != like.device:
        raise ArgumentError(f"{name}: must be on {like.device} as the others, not on {tensor.device}")
    if contiguous and not tensor.is_contiguous():
        raise ArgumentError(f"{name}: must be contiguous; its strides are {list(tensor.stride())}")
    if not contiguous and sizes and sizes[-1] > 1 and tensor.stride(-1) != 1:
        raise ArgumentError(f"{name}: its last dimension must be contiguous; its strides are {list(tensor.stride())}")


def check_addresses(multiple: int = 16, **tensors: torch.Tensor | None) -> None:
    """Raise `ArgumentError` unless all tensors that are there begin at a multiple of so many bytes.

    Operators call this, since torch.compile cannot look at addresses.
    """
    for name, tensor in tensors.items():
        if tensor is not None and tensor.data_ptr() % multiple:
            raise ArgumentError(f"{name}: must begin at a multiple of {multiple} bytes")


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
