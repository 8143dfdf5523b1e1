"""The CUDA driver, through ctypes: machine code is loaded and launched without torch and without a toolkit."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from traceanalyzer.errors import NeedsGpuError
from traceanalyzer.kernels.common.build import compile_program
from traceanalyzer.kernels.common.errors import DriverError
from traceanalyzer.kernels.common.program import Argument, Launch, Program

#: Numbers of cuda.h.
_SMS, _THREADS_OF_SM, _MAJOR, _MINOR, _SHARED_BYTES_OF_SM = 16, 39, 75, 76, 81
_FUNCTION_SHARED_BYTES = 8
#: Shared memory a block gets without asking the driver first.
_SHARED_DEFAULT = 48 * 1024
_OLDEST = (8, 0)
#: The first that lets a kernel start while the one before it ends.
_OVERLAPS_FROM = (9, 0)
_ATTRIBUTE_OVERLAPS = 6
#: Launches that are kept ready; past these, all are prepared anew.
_MOST_READY = 4096


class _Attribute(ctypes.Structure):
    """CUlaunchAttribute."""

    _fields_ = (
        ("id", ctypes.c_int),
        ("padding", ctypes.c_char * 4),
        ("value", ctypes.c_int),
        ("rest", ctypes.c_char * 60),
    )


class _Config(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared_bytes", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_Attribute)),
        ("attribute_count", ctypes.c_uint),
    )


@dataclass(frozen=True)
class Function:
    """A kernel that is loaded on a device."""

    handle: ctypes.c_void_p
    driver: Driver
    can_overlap: bool = False

    def launch(self, launch: Launch, values: Sequence[ctypes._SimpleCData[Any]], stream: int = 0) -> None:
        """Put it into a stream and return at once. Neither waits nor allocates, so CUDA graphs can record it."""
        addresses = (ctypes.c_void_p * len(values))(*(ctypes.addressof(each) for each in values))
        if launch.overlaps and self.can_overlap:
            attribute = _Attribute(_ATTRIBUTE_OVERLAPS, b"", 1, b"")
            config = _Config(
                launch.grid, (launch.block, 1, 1), launch.shared_bytes, stream, ctypes.pointer(attribute), 1
            )
            self.driver.call("cuLaunchKernelEx", ctypes.byref(config), self.handle, addresses, None)
            return
        self.driver.call(
            "cuLaunchKernel",
            self.handle,
            *launch.grid,
            launch.block,
            1,
            1,
            launch.shared_bytes,
            ctypes.c_void_p(stream),
            addresses,
            None,
        )


class Driver:
    """libcuda, initialised."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        result = library.cuInit(0)
        if result:
            raise NeedsGpuError(f"no GPU can be used here: cuInit says {self._reason(result)}")

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function by name. Raises `DriverError` where it returns an error."""
        result = getattr(self._library, name)(*arguments)
        if result:
            raise DriverError(f"{name} says {self._reason(result)}")

    def _reason(self, result: int) -> str:
        text = ctypes.c_char_p()
        self._library.cuGetErrorString(result, ctypes.byref(text))
        return f"{text.value.decode() if text.value else 'an error'} ({result})"

    def count(self) -> int:
        """How many GPUs there are."""
        number = ctypes.c_int()
        self.call("cuDeviceGetCount", ctypes.byref(number))
        return number.value


@cache
def find_driver() -> Driver:
    """The driver of this machine. Raises `NeedsGpuError` where there is none, or no GPU."""
    for name in ("libcuda.so.1", "libcuda.so", "nvcuda.dll"):
        try:
            library = ctypes.CDLL(name)
        except OSError:
            continue
        driver = Driver(library)
        if driver.count() == 0:
            break
        return driver
    raise NeedsGpuError("no NVIDIA GPU was found here (the driver's library libcuda.so.1 is needed)")


class Gpu:
    """One GPU, as a backend, and as the place where other code's launches get their kernels.

    It works in the device's primary context, which torch uses too.
    """

    def __init__(self, ordinal: int = 0) -> None:
        self.driver = find_driver()
        if not 0 <= ordinal < self.driver.count():
            raise NeedsGpuError(f"there is no GPU {ordinal}, only {self.driver.count()}")
        self.ordinal = ordinal
        device = ctypes.c_int()
        self.driver.call("cuDeviceGet", ctypes.byref(device), ordinal)
        self._device = device
        name = ctypes.create_string_buffer(100)
        self.driver.call("cuDeviceGetName", name, len(name), device)
        self.name = name.value.decode()
        self.multiprocessors = self._attribute(_SMS)
        self.resident_threads = self.multiprocessors * self._attribute(_THREADS_OF_SM)
        self.shared_bytes_each = self._attribute(_SHARED_BYTES_OF_SM)
        self.capability = (self._attribute(_MAJOR), self._attribute(_MINOR))
        if self.capability < _OLDEST:
            raise NeedsGpuError(
                f"{self.name} has compute capability {self.architecture}; the kernels need sm_80 or later"
            )
        self._context = ctypes.c_void_p()
        self.driver.call("cuDevicePrimaryCtxRetain", ctypes.byref(self._context), device)
        self._functions: dict[Program, Function] = {}
        self._allowed: dict[Program, int] = {}
        self._ready: dict[Launch, Function] = {}

    @property
    def architecture(self) -> str:
        """Such as `sm_90`."""
        return f"sm_{self.capability[0]}{self.capability[1]}"

    def activate(self) -> None:
        """Make its context the one of this thread."""
        self.driver.call("cuCtxSetCurrent", self._context)

    def function(self, launch: Launch) -> Function:
        """The launch's kernel, compiled and loaded the first time, and allowed its shared memory."""
        function = self._ready.get(launch)
        if function is None:
            function = self._prepare(launch)
            if len(self._ready) >= _MOST_READY:
                self._ready.clear()
            self._ready[launch] = function
        return function

    def _prepare(self, launch: Launch) -> Function:
        program = launch.program
        if program not in self._functions:
            module, handle = ctypes.c_void_p(), ctypes.c_void_p()
            image = compile_program(program, self.architecture).image
            self.activate()
            self.driver.call("cuModuleLoadData", ctypes.byref(module), image)
            self.driver.call("cuModuleGetFunction", ctypes.byref(handle), module, program.entry.encode())
            self._functions[program] = Function(handle, self.driver, self.capability >= _OVERLAPS_FROM)
        function = self._functions[program]
        if launch.shared_bytes > self._allowed.get(program, _SHARED_DEFAULT):
            self.driver.call("cuFuncSetAttribute", function.handle, _FUNCTION_SHARED_BYTES, launch.shared_bytes)
            self._allowed[program] = launch.shared_bytes
        return function

    def run(self, launch: Launch, arguments: Sequence[Argument]) -> None:
        """Copy arrays there, run to the end, copy them back."""
        function = self.function(launch)
        self.activate()
        memory = [_Memory(self.driver, each) if isinstance(each, np.ndarray) else None for each in arguments]
        try:
            values = [value_of(block.address if block else each) for each, block in zip(arguments, memory, strict=True)]
            function.launch(launch, values)
            self.driver.call("cuCtxSynchronize")
            for block in memory:
                if block:
                    block.copy_back()
        finally:
            for block in memory:
                if block:
                    block.free()

    def _attribute(self, number: int) -> int:
        value = ctypes.c_int()
        self.driver.call("cuDeviceGetAttribute", ctypes.byref(value), number, self._device)
        return value.value


class _Memory:
    """A copy of an array on the GPU."""

    def __init__(self, driver: Driver, array: np.ndarray) -> None:
        self._driver = driver
        self._array = array
        self._pointer = ctypes.c_uint64()
        driver.call("cuMemAlloc_v2", ctypes.byref(self._pointer), ctypes.c_size_t(max(array.nbytes, 1)))
        if array.nbytes:
            source = np.ascontiguousarray(array)
            driver.call(
                "cuMemcpyHtoD_v2", self._pointer, ctypes.c_void_p(source.ctypes.data), ctypes.c_size_t(source.nbytes)
            )

    @property
    def address(self) -> int:
        return self._pointer.value

    def copy_back(self) -> None:
        if self._array.nbytes and self._array.flags.writeable:
            copy = np.empty_like(self._array, order="C")
            target = ctypes.c_void_p(copy.ctypes.data)
            self._driver.call("cuMemcpyDtoH_v2", target, self._pointer, ctypes.c_size_t(copy.nbytes))
            self._array[...] = copy

    def free(self) -> None:
        self._driver.call("cuMemFree_v2", self._pointer)


_KINDS: dict[type, type[ctypes._SimpleCData[Any]]] = {
    np.int32: ctypes.c_int32,
    np.int64: ctypes.c_int64,
    np.float32: ctypes.c_float,
}


def value_of(argument: Argument | int) -> ctypes._SimpleCData[Any]:
    """An argument as the driver takes it: an address (an int; None is null), or a number of its exact type."""
    kind = _KINDS.get(type(argument))
    if kind:
        return kind(argument)
    if argument is None or isinstance(argument, int):
        return ctypes.c_void_p(argument)
    raise TypeError(f"a kernel cannot be given {argument!r}")
