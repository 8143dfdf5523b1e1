"""Runs a kernel's source on the CPU, through a C++ compiler; see `emulator.hpp` for what it is strict about."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from traceanalyzer.kernels.common import cache as disk
from traceanalyzer.kernels.common.errors import CompilerError, EmulatorError
from traceanalyzer.kernels.common.program import INCLUDES, SHARED_BYTES_LIMIT, Argument, Launch, Program

_FLAGS = (
    "-O1",
    "-std=c++17",
    "-shared",
    "-fPIC",
    "-w",
    "-ffp-contract=off",
    "-fno-strict-aliasing",
    "-U_FORTIFY_SOURCE",
)
_GUARD = 256
_GUARD_BYTE = 0xA5


@dataclass(frozen=True)
class Counts:
    """What the threads of a launch did, all together."""

    block_barriers: int
    warp_operations: int
    matrix_loads: int
    multiplications: int
    async_copies: int


class Emulator:
    """A backend without a GPU. `seed` shuffles the threads (0: in order); see `emulator.hpp` for its lowest bits.

    It holds few threads at once, so that grids smaller than the work are run as well.
    """

    name = "emulator"

    def __init__(self, seed: int = 0, resident_threads: int = 1024, edits: tuple[tuple[str, str], ...] = ()) -> None:
        self.seed = seed
        self.resident_threads = resident_threads
        self.multiprocessors = max(1, resident_threads // 256)
        self.shared_bytes_each = SHARED_BYTES_LIMIT + 1024
        self.edits = edits
        """Changes of the source that are made before it is compiled: how tests break a kernel."""
        self.counts: Counts | None = None
        """Of the last launch."""

    def run(self, launch: Launch, arguments: Sequence[Argument]) -> None:
        """Run a launch; arrays are changed in place. Raises `EmulatorError` for what a GPU leaves undefined."""
        if launch.shared_bytes > SHARED_BYTES_LIMIT:
            raise EmulatorError(f"{launch.program.entry} asks for {launch.shared_bytes} bytes of shared memory")
        program = launch.program
        edits = tuple(edit for edit in self.edits if edit[0] in program.text())  # of one of a kernel's programs
        if edits:
            program = Program(program.source, program.entry, program.defines, edits)
        entry = _entry(program)
        guarded = [_Guarded(each) if isinstance(each, np.ndarray) else None for each in arguments]
        values = [_value(each, guard) for each, guard in zip(arguments, guarded, strict=True)]
        addresses = (ctypes.c_void_p * len(values))(*(ctypes.addressof(each) for each in values))
        bounds = [bound for guard in guarded if guard is not None for bound in (guard.address, guard.memory_end)]
        regions = (ctypes.c_ulong * len(bounds))(*bounds)
        message = ctypes.create_string_buffer(256)
        counts = (ctypes.c_long * 5)()
        failed = entry(
            (ctypes.c_uint * 3)(*launch.grid),
            ctypes.c_int(launch.block),
            ctypes.c_ulong(launch.shared_bytes),
            ctypes.c_uint(self.seed),
            addresses,
            regions,
            ctypes.c_int(len(bounds) // 2),
            message,
            ctypes.c_int(len(message)),
            counts,
        )
        self.counts = Counts(*counts)
        if failed:
            raise EmulatorError(f"{program.entry}: {message.value.decode()}")
        for number, guard in enumerate(guarded):
            if guard is not None:
                guard.give_back(f"{program.entry}, argument {number}")


class _Guarded:
    """A copy of an array between guards, which a kernel must leave as they are."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array
        self.memory = np.full(array.nbytes + 3 * _GUARD, _GUARD_BYTE, np.uint8)
        self.start = _GUARD + -(self.memory.ctypes.data + _GUARD) % _GUARD  # aligned as memory of a GPU is
        self.end = self.start + array.nbytes
        self.memory[self.start : self.end] = np.frombuffer(array.tobytes(), np.uint8)

    @property
    def address(self) -> int:
        return int(self.memory.ctypes.data) + self.start

    @property
    def memory_end(self) -> int:
        return int(self.memory.ctypes.data) + self.end

    def give_back(self, what: str) -> None:
        if (self.memory[: self.start] != _GUARD_BYTE).any() or (self.memory[self.end :] != _GUARD_BYTE).any():
            raise EmulatorError(f"{what}: written outside the array")
        if self.array.flags.writeable:
            self.array[...] = self.memory[self.start : self.end].view(self.array.dtype).reshape(self.array.shape)


def _value(argument: Argument, guard: _Guarded | None) -> ctypes.Array[ctypes.c_char]:
    """The bytes of an argument as the kernel takes it: an address, or a number."""
    if isinstance(argument, np.generic):
        data = argument.tobytes()
    else:
        data = (guard.address if guard else 0).to_bytes(8, "little")
    return ctypes.create_string_buffer(data, len(data))


def find_compiler() -> str | None:
    """The C++ compiler: CXX, else g++ or clang++; None where there is none."""
    named = os.environ.get("CXX")
    return next((path for each in (named, "g++", "clang++") if each and (path := shutil.which(each))), None)


def _entry(program: Program) -> ctypes._FuncPointer:
    compiler = find_compiler()
    if compiler is None:
        raise EmulatorError("the emulator needs a C++ compiler: neither CXX nor g++ nor clang++ was found")
    source = f'#define EMULATED\n#include "device.cuh"\n{program.text()}\nEMULATED_KERNEL({program.entry})\n'
    return _load(compiler, source, program.source.name)


@cache
def _load(compiler: str, source: str, what: str) -> ctypes._FuncPointer:
    headers = [(INCLUDES / name).read_text(encoding="utf-8") for name in ("device.cuh", "emulator.hpp")]
    name = disk.key(compiler, *_FLAGS, *headers, source) + ".so"
    if disk.load(name) is None:
        disk.save(name, _compile(compiler, source, what))
    return ctypes.CDLL(str(disk.folder() / name)).emulate


def _compile(compiler: str, source: str, what: str) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        file, target = Path(folder) / "kernel.cpp", Path(folder) / "out.so"
        file.write_text(source, encoding="utf-8")
        done = subprocess.run(
            [compiler, *_FLAGS, f"-I{INCLUDES}", "-o", str(target), str(file)],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise CompilerError(f"{what} does not compile with {compiler}: {done.stderr[:1500]}")
        return target.read_bytes()
