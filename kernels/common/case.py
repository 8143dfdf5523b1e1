"""Cases of a kernel: inputs and what must come out, to be run on any backend."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from traceanalyzer.kernels.common.errors import MismatchError
from traceanalyzer.kernels.common.program import Backend


@dataclass(frozen=True)
class Case:
    """One set of inputs. `check` runs the kernel on a backend and raises `MismatchError` where it is wrong."""

    name: str
    check: Callable[[Backend], None]
    full: bool = False
    """Too large for the emulator."""


def expect_equal(what: str, result: npt.NDArray[Any], expected: npt.NDArray[Any]) -> None:
    """Raise `MismatchError` with the first difference of two arrays."""
    if result.shape != expected.shape:
        raise MismatchError(f"{what} is {list(result.shape)}, not {list(expected.shape)}")
    wrong = np.argwhere(result != expected)
    if len(wrong):
        first = tuple(wrong[0])
        where = ", ".join(str(number) for number in first)
        raise MismatchError(f"{what}[{where}] is {result[first]}, not {expected[first]} ({len(wrong)} differ)")
