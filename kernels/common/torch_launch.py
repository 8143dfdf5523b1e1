"""Launches on torch tensors, in torch's current stream, and the library in which the kernels are torch operators."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import torch

from traceanalyzer.kernels.common.driver import Gpu, value_of
from traceanalyzer.kernels.common.program import Argument, Launch

#: Operators are `torch.ops.traceanalyzer.NAME`; the name is what profilers show.
LIBRARY = torch.library.Library("traceanalyzer", "FRAGMENT")


@cache
def gpu(ordinal: int) -> Gpu:
    """The GPU that torch calls cuda:ordinal."""
    torch.cuda.init()
    return Gpu(ordinal)  # both count what CUDA_VISIBLE_DEVICES leaves


def gpu_of(device: torch.device) -> Gpu:
    """The GPU that is torch's device."""
    return gpu(torch.cuda.current_device() if device.index is None else device.index)


def resident_threads(device: torch.device) -> int:
    """How many threads torch's device holds at once."""
    return gpu_of(device).resident_threads


def launch(shape: Launch, arguments: Sequence[torch.Tensor | Argument], device: torch.device) -> None:
    """Put a kernel into torch's current stream of the device. Neither waits nor allocates."""
    current = torch.cuda.current_device()
    if device.index not in (None, current):
        with torch.cuda.device(device):
            launch(shape, arguments, device)
        return
    there = gpu(current)
    function = there.function(shape)
    there.activate()  # threads that torch was not used in have no context yet
    values = [value_of(each.data_ptr() if isinstance(each, torch.Tensor) else each) for each in arguments]
    function.launch(shape, values, torch.cuda.current_stream(current).cuda_stream)


def register(schema: str, implementation: Any, fake: Any) -> Any:
    """Make a function a torch operator for CUDA tensors; `fake` gives its outputs' shapes for torch.compile."""
    name = schema.split("(")[0]
    LIBRARY.define(schema)
    LIBRARY.impl(name, implementation, "CUDA")
    torch.library.register_fake(f"traceanalyzer::{name}", fake, lib=LIBRARY)
    return getattr(torch.ops.traceanalyzer, name)
