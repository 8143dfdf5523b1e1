"""A kernel's source with what it is compiled for, and one launch of it. Neither knows where it will run."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

#: Folder of `device.cuh`, which every source includes.
INCLUDES = Path(__file__).parent
#: Shared memory that one block can have on sm_120 (and sm_89); no kernel may ask for more.
SHARED_BYTES_LIMIT = 101_376


@dataclass(frozen=True)
class Program:
    """One source file, compiled for given values of its macros."""

    source: Path
    entry: str
    """Name of the kernel in the source."""
    defines: tuple[tuple[str, int], ...] = ()
    edits: tuple[tuple[str, str], ...] = ()
    """Texts of the source and what stands there instead: how tests break a kernel. Each must occur exactly once."""

    def text(self) -> str:
        """The whole source, with the parts that kernels share and without `device.cuh`.

        Raises `ValueError` for an edit whose text is not there once.
        """
        text = _with_shared_parts(self.source.read_text(encoding="utf-8"))
        for old, new in self.edits:
            if text.count(old) != 1:
                raise ValueError(f"{self.source.name} holds {text.count(old)} times {old!r}")
            text = text.replace(old, new)
        return "".join(f"#define {name} {value}\n" for name, value in self.defines) + text


def _with_shared_parts(text: str) -> str:
    """Each `#include "PART.cuh"` but that of `device.cuh` replaced by the part, so that edits and keys cover it."""

    def part(found: re.Match[str]) -> str:
        return (INCLUDES / found[1]).read_text(encoding="utf-8")

    return re.sub(r'^#include "((?!device\.cuh)\w+\.cuh)"$', part, text, flags=re.MULTILINE)


@dataclass(frozen=True, eq=False)
class Launch:
    """A program and the shape of its grid. The grid is fixed by sizes that the host knows, never by data.

    A launch is equal to itself alone, so that what was prepared for it is found at once.
    """

    program: Program
    grid: tuple[int, int, int]
    block: int
    """Threads of a block."""
    shared_bytes: int = 0
    overlaps: bool = False
    """It may start while the kernel before it ends, for whose results it waits by itself (from sm_90 on)."""


#: An argument of a kernel: an array it gets the address of (None: a null pointer), or a number of that exact type.
Argument = npt.NDArray[Any] | np.generic | None


class Backend(Protocol):
    """Where a launch can run: a GPU or the emulator. Arrays are changed in place."""

    name: str
    resident_threads: int
    """Threads that it holds at once, from which grids are sized."""
    multiprocessors: int
    shared_bytes_each: int
    """Shared memory of a multiprocessor."""

    def run(self, launch: Launch, arguments: Sequence[Argument]) -> None:
        """Run to the end."""
