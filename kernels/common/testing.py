"""What the tests of all kernels share: when they are skipped, and how a kernel is broken to see that it is noticed."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import numpy.typing as npt
import pytest

from traceanalyzer.errors import NeedsGpuError
from traceanalyzer.kernels.common import emulator, nvrtc
from traceanalyzer.kernels.common.build import compile_program
from traceanalyzer.kernels.common.case import Case
from traceanalyzer.kernels.common.driver import Gpu
from traceanalyzer.kernels.common.errors import ArgumentError, EmulatorError, MismatchError
from traceanalyzer.kernels.common.kernel import Build, Kernel
from traceanalyzer.kernels.common.program import Argument, Backend, Launch

if TYPE_CHECKING:
    import torch

needs_cxx = pytest.mark.skipif(emulator.find_compiler() is None, reason="no C++ compiler: the emulator cannot be built")
needs_nvrtc = pytest.mark.skipif(nvrtc.find() is None, reason="no NVRTC (pip install nvidia-cuda-nvrtc)")
needs_compiler = pytest.mark.skipif(
    nvrtc.find() is None and shutil.which("nvcc") is None,
    reason="neither NVRTC (pip install nvidia-cuda-nvrtc) nor nvcc",
)
needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")

#: Orders of threads: as they are; shuffled; one warp after the other. Odd ones let cp.async land at once. From 16 on a
#: barrier must put accesses to shared memory in order.
SEEDS = (0, 6, 7, 21)
#: For kernels that take long: shuffled with cp.async at once, and one warp after the other with cp.async late.
TWO_SEEDS = (21, 6)

_Test = TypeVar("_Test", bound=Callable[..., None])


@cache
def gpu() -> Gpu | None:
    """The first GPU, if there is one."""
    try:
        return Gpu()
    except NeedsGpuError:
        return None


def the_gpu() -> Gpu:
    """The first GPU, for tests that need one."""
    device = gpu()
    assert device
    return device


def torch_and_gpu() -> bool:
    """Whether torch is here and sees a GPU."""
    if importlib.util.find_spec("torch") is None or gpu() is None:
        return False
    import torch

    return bool(torch.cuda.is_available())


def needs_gpu(test: _Test) -> _Test:
    """Mark a test that runs on the first GPU, and skip it where there is none."""
    marked: _Test = pytest.mark.gpu(pytest.mark.skipif(gpu() is None, reason="no GPU")(test))
    return marked


def needs_torch_and_gpu(test: _Test) -> _Test:
    """Mark a test that runs on a GPU through torch, and skip it where torch sees none."""
    marked: _Test = pytest.mark.gpu(pytest.mark.skipif(not torch_and_gpu(), reason="no torch that sees a GPU")(test))
    return marked


def reduced(cases: Iterable[Case]) -> list[Case]:
    """Those that the emulator can run."""
    return [case for case in cases if not case.full]


def compilations(kernel: Kernel) -> list[tuple[Build, str]]:
    """The programs of a kernel, each with every architecture that it is for."""
    return [(build, each) for build in kernel.builds() for each in build.architectures or kernel.architectures]


def over_budget(build: Build, architecture: str) -> list[str]:
    """Compile a program and say what of its budget it breaks."""
    return build.faults(compile_program(build.program, architecture).resources)


def complaints(cases: Iterable[Case], backends: Iterable[Callable[[], Backend]]) -> Iterator[str]:
    """What the checks of the cases say on these backends."""
    kept = list(cases)
    for make in backends:
        for case in kept:
            try:
                case.check(make())
            except (MismatchError, EmulatorError) as error:
                yield f"{case.name}: {error}"


def first_complaint(kernel: Kernel, case: str, edit: tuple[str, str]) -> str | None:
    """What notices, in cases whose names begin so, that the kernel's source was changed; None where nothing does."""
    cases = [each for each in reduced(kernel.cases()) if each.name.startswith(case)]
    assert cases, f"no case begins with {case!r}"
    backends = [lambda seed=seed: emulator.Emulator(seed, edits=(edit,)) for seed in SEEDS]
    return next(complaints(cases, backends), None)


def refusal(function: Callable[..., object], *arguments: object, **others: object) -> str:
    """What an operator says against its arguments."""
    with pytest.raises(ArgumentError) as error:
        function(*arguments, **others)
    return str(error.value)


def operators_seen(function: Callable[..., object], *arguments: object, **others: object) -> set[str]:
    """Names of the operators that torch's profiler sees in a call."""
    import torch

    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        function(*arguments, **others)
    return {event.key for event in profile.key_averages()}


def run_tensors_on(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Let operators launch tensors of the CPU on a backend; the list takes up the kernels that are launched."""
    import torch

    from traceanalyzer.kernels.common import torch_launch

    launched: list[str] = []

    def argument(each: torch.Tensor | Argument) -> Argument:
        if not isinstance(each, torch.Tensor):
            return each
        numbers = each.view(torch.int16) if each.dtype == torch.bfloat16 else each
        extent = 1 + sum((size - 1) * stride for size, stride in zip(each.shape, each.stride(), strict=True))
        memory: Argument = numbers.as_strided((extent if each.numel() else 0,), (1,)).numpy()  # gaps of views as well
        return memory

    def launch(shape: Launch, arguments: Iterable[torch.Tensor | Argument], _: torch.device) -> None:
        launched.append(shape.program.entry)
        backend.run(shape, [argument(each) for each in arguments])

    monkeypatch.setattr(torch_launch, "gpu_of", lambda _: backend)
    monkeypatch.setattr(torch_launch, "launch", launch)
    return launched


def tensor_of_bf16(bits: npt.NDArray[np.uint16]) -> torch.Tensor:
    """A tensor of the CPU, whose memory is that of the array."""
    import torch

    return torch.from_numpy(bits.view(np.int16)).view(torch.bfloat16)
