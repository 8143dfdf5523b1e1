"""From a kernel's source to machine code: NVRTC, else nvcc; kept on disk."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

from traceanalyzer.kernels.common import cache as disk
from traceanalyzer.kernels.common import nvrtc
from traceanalyzer.kernels.common.errors import CompilerError
from traceanalyzer.kernels.common.program import INCLUDES, Program

_OPTIONS = ("-std=c++17", "-lineinfo")
_HEADER = "device.cuh"
#: Raised when what is kept beside the machine code changes.
_FORMAT = "1"


@dataclass(frozen=True)
class Resources:
    """What the compiler says a kernel takes."""

    registers: int
    """Of one thread."""
    spill_bytes: int
    """Stored and loaded, of one thread."""
    stack_bytes: int
    shared_bytes: int
    """Static; what a launch asks for comes on top."""


@dataclass(frozen=True)
class Binary:
    """Machine code of one program for one architecture."""

    image: bytes
    resources: Resources
    compiler: str


@dataclass(frozen=True)
class Compiler:
    """What compiles here: a loaded NVRTC, or the path of nvcc."""

    name: str
    library: nvrtc.Nvrtc | None = None
    nvcc: str = ""

    def compile(self, program: Program, architecture: str) -> tuple[bytes, str]:
        """Machine code and log of a program."""
        if self.library:
            _check_architecture(self.library, architecture)
            options = (f"--gpu-architecture={architecture}", *_OPTIONS, "--ptxas-options=-v")
            image, log = self._compile(self.library, program, options)
            # Newer libraries answer from a store of their own, without what ptxas said.
            if program.entry not in _resources_said(log):
                image, log = self._compile(self.library, program, (*options, "--no-cache"))
            return image, log
        return _run_nvcc(self.nvcc, program, architecture)

    @staticmethod
    def _compile(library: nvrtc.Nvrtc, program: Program, options: Sequence[str]) -> tuple[bytes, str]:
        return library.compile(program.text(), program.source.name, {_HEADER: _header()}, options)


def compile_program(program: Program, architecture: str) -> Binary:
    """Machine code of a program for an architecture such as `sm_90`, from disk where it was compiled before.

    Raises `CompilerError` where there is no compiler, or it refuses.
    """
    compiler = find_compiler()
    name = disk.key(_FORMAT, compiler.name, architecture, *_OPTIONS, _header(), program.entry, program.text())
    kept, about = disk.load(f"{name}.cubin"), disk.load(f"{name}.json")
    if kept and about:
        try:
            return Binary(kept, Resources(**json.loads(about)), compiler.name)
        except (ValueError, TypeError):  # cut off or changed on disk: compiled again
            pass
    image, log = compiler.compile(program, architecture)
    resources = parse_log(log, program.entry)
    disk.save(f"{name}.cubin", image)
    disk.save(f"{name}.json", json.dumps(asdict(resources)).encode())
    return Binary(image, resources, compiler.name)


@cache
def find_compiler() -> Compiler:
    """NVRTC of torch's install, of the wheel nvidia-cuda-nvrtc or of a toolkit, else nvcc. Raises `CompilerError`."""
    library = nvrtc.find()
    if library:
        return Compiler(f"NVRTC {library.version[0]}.{library.version[1]}", library=library)
    nvcc = shutil.which("nvcc")
    if nvcc:
        return Compiler(f"nvcc {_nvcc_version(nvcc)}", nvcc=nvcc)
    raise CompilerError(
        "no compiler for kernels: neither libnvrtc (of torch's install, of the wheel nvidia-cuda-nvrtc, or of a toolkit"
        f" in /usr/local/cuda or CUDA_HOME) nor nvcc was found; `pip install nvidia-cuda-nvrtc`, or name the library in"
        f" {nvrtc.VARIABLE}"
    )


def parse_log(log: str, entry: str) -> Resources:
    """Resources of a kernel from what ptxas printed with -v. Raises `CompilerError` where it printed nothing of it."""
    text = _resources_said(log).get(entry)
    if text is None:
        raise CompilerError(f"the compiler's log says nothing about {entry}: {log[:500]}")

    def number(pattern: str) -> int:
        found = re.search(pattern, text)
        return int(found[1]) if found else 0

    return Resources(
        registers=number(r"Used (\d+) registers"),
        spill_bytes=number(r"(\d+) bytes spill stores") + number(r"(\d+) bytes spill loads"),
        stack_bytes=number(r"(\d+) bytes stack frame"),
        shared_bytes=number(r"(\d+) bytes smem"),
    )


def _resources_said(log: str) -> dict[str, str]:
    """What ptxas printed of each kernel. (Warnings name files, and these kernels: a name alone says nothing.)"""
    parts = re.split(r"Compiling entry function '([^']+)'", log)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


@cache
def _header() -> str:
    return (INCLUDES / _HEADER).read_text(encoding="utf-8")


def _check_architecture(library: nvrtc.Nvrtc, architecture: str) -> None:
    known = library.architectures()
    found = re.match(r"sm_(\d+)", architecture)
    if found and int(found[1]) not in known:
        raise CompilerError(
            f"{library.path} does not know {architecture}, only sm_{known[0]} to sm_{known[-1]}"
            + ("; sm_120 needs CUDA 12.8 or later" if int(found[1]) > max(known) else "")
        )


def _run_nvcc(nvcc: str, program: Program, architecture: str) -> tuple[bytes, str]:
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / f"{program.source.stem}.cu", Path(folder) / "out.cubin"
        source.write_text(program.text(), encoding="utf-8")
        command = [nvcc, *_OPTIONS, "-cubin", f"-arch={architecture}", "-Xptxas=-v", f"-I{INCLUDES}", "-o", str(target)]
        done = subprocess.run(
            [*command, str(source)], capture_output=True, text=True, check=False, env=dict(os.environ)
        )
        log = done.stdout + done.stderr
        if done.returncode:
            raise CompilerError(f"{program.source.name} does not compile with {nvcc}: {log[:1500]}")
        return target.read_bytes(), log


def _nvcc_version(nvcc: str) -> str:
    said = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=False).stdout
    found = re.search(r"release ([\d.]+)", said)
    return found[1] if found else "of unknown version"
