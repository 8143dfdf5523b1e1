"""NVIDIA's run-time compiler, found where users have it and called through ctypes."""

from __future__ import annotations

import ctypes
import glob
import importlib.util
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

from traceanalyzer.kernels.common.errors import CompilerError

#: A library (libnvrtc.so...) to use before all others.
VARIABLE = "TRACEANALYZE_NVRTC"
#: Folders of site-packages in which wheels put the library: those of CUDA 13 and of CUDA 12, and torch's own.
_WHEEL_FOLDERS = ("nvidia/cu13/lib", "nvidia/cuda_nvrtc/lib", "torch/lib")
_LIBRARY = "libnvrtc.so*"
_BUILTINS = "libnvrtc-builtins.so*"


class Nvrtc:
    """One loaded library."""

    def __init__(self, path: str) -> None:
        self.path = path
        for builtins in sorted(glob.glob(str(Path(path).parent / _BUILTINS))):
            if ".alt." not in builtins:
                ctypes.CDLL(builtins, mode=ctypes.RTLD_GLOBAL)  # NVRTC looks for it by name alone
        self._library = ctypes.CDLL(path)
        self._library.nvrtcGetErrorString.restype = ctypes.c_char_p
        major, minor = ctypes.c_int(), ctypes.c_int()
        self._check(self._library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)))
        self.version = (major.value, minor.value)

    def architectures(self) -> tuple[int, ...]:
        """Compute capabilities it compiles for: 90 is sm_90."""
        count = ctypes.c_int()
        self._check(self._library.nvrtcGetNumSupportedArchs(ctypes.byref(count)))
        numbers = (ctypes.c_int * count.value)()
        self._check(self._library.nvrtcGetSupportedArchs(numbers))
        return tuple(numbers)

    def compile(self, text: str, name: str, headers: Mapping[str, str], options: Sequence[str]) -> tuple[bytes, str]:
        """The machine code and the log. Raises `CompilerError` with the first lines of the log."""
        program = ctypes.c_void_p()
        names = (ctypes.c_char_p * len(headers))(*(each.encode() for each in headers))
        texts = (ctypes.c_char_p * len(headers))(*(each.encode() for each in headers.values()))
        self._check(
            self._library.nvrtcCreateProgram(
                ctypes.byref(program), text.encode(), name.encode(), len(headers), texts, names
            )
        )
        try:
            words = (ctypes.c_char_p * len(options))(*(each.encode() for each in options))
            result = self._library.nvrtcCompileProgram(program, len(options), words)
            log = self._bytes_of(program, "ProgramLog").rstrip(b"\0").decode(errors="replace")
            if result:
                raise CompilerError(f"{name} does not compile with {self.path}: {log[:1500] or self._reason(result)}")
            return self._bytes_of(program, "CUBIN"), log
        finally:
            self._library.nvrtcDestroyProgram(ctypes.byref(program))

    def _bytes_of(self, program: ctypes.c_void_p, what: str) -> bytes:
        size = ctypes.c_size_t()
        self._check(getattr(self._library, f"nvrtcGet{what}Size")(program, ctypes.byref(size)))
        buffer = ctypes.create_string_buffer(size.value)
        self._check(getattr(self._library, f"nvrtcGet{what}")(program, buffer))
        return buffer.raw

    def _check(self, result: int) -> None:
        if result:
            raise CompilerError(f"{self.path}: {self._reason(result)}")

    def _reason(self, result: int) -> str:
        text: bytes = self._library.nvrtcGetErrorString(result)
        return text.decode()


@cache
def find() -> Nvrtc | None:
    """The library that TRACEANALYZE_NVRTC names, else the first that loads: torch's, other wheels', a toolkit's."""
    named = os.environ.get(VARIABLE)
    if named:
        try:
            return Nvrtc(named)
        except (OSError, AttributeError) as error:
            raise CompilerError(f"{VARIABLE}={named}: {error}") from None
    for path in candidates():
        try:
            return Nvrtc(path)
        except (OSError, AttributeError, CompilerError):  # another platform's, or cut off
            continue
    return None


def candidates() -> Iterator[str]:
    """Where the library may lie, in the order in which places are tried."""
    roots = [path for path in dict.fromkeys(_site_folders()) if path]
    for root in roots:
        for folder in _WHEEL_FOLDERS:
            yield from _newest_first(Path(root) / folder)
    for toolkit in (os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda", *_toolkits()):
        if toolkit:
            yield from _newest_first(Path(toolkit) / "lib64")
            yield from _newest_first(Path(toolkit) / "targets/x86_64-linux/lib")
    yield from (f"libnvrtc.so.{major}" for major in (13, 12))


def _site_folders() -> Iterator[str]:
    """That of torch first, whose CUDA the kernels share a process with; then all of the path."""
    torch = importlib.util.find_spec("torch")
    if torch and torch.origin:
        yield str(Path(torch.origin).parent.parent)
    yield from sys.path


def _newest_first(folder: Path) -> list[str]:
    return sorted(
        (path for path in glob.glob(str(folder / _LIBRARY)) if ".alt." not in path), key=_version, reverse=True
    )


def _toolkits() -> list[str]:
    return sorted(glob.glob("/usr/local/cuda-*"), key=_version, reverse=True)


def _version(path: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", path)]
