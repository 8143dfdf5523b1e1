"""Every kind of input, the ordinary and the odd, at sizes for the emulator; and full sizes for a GPU."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from traceanalyzer.kernels.common.case import Case
from traceanalyzer.kernels.common.errors import MismatchError
from traceanalyzer.kernels.common.program import Backend
from traceanalyzer.kernels.gather_cast import reference
from traceanalyzer.kernels.gather_cast.launch import run

Array = npt.NDArray[Any]
#: What rows hold that the kernel must not write.
_UNTOUCHED = 0xDEAD


@dataclass(frozen=True)
class Inputs:
    """A pool of random codes and which rows of it are wanted."""

    slots: int
    columns: int
    indices: Sequence[int]
    stride: int = 0
    """Bytes from row to row; 0: no gaps."""
    page: int = 0
    page_gap: int = 0
    """Bytes behind each page."""
    wide: bool = False
    count: int | None = None
    factors: tuple[int, ...] = ()
    """Shape of the factors; (): none."""
    codes: int = 256
    """Codes below this are drawn: 256 holds NaN."""

    def check(self, backend: Backend) -> None:
        """Run the kernel and compare every bit with the reference."""
        random = np.random.default_rng(self.slots + self.columns)
        stride = self.stride or self.columns
        page = self.page or self.slots
        page_stride = page * stride + self.page_gap
        pages = -(-self.slots // page)
        pool = random.integers(0, self.codes, pages * page_stride, dtype=np.uint8)
        rows = np.arange(self.slots)
        starts = rows // page * page_stride + rows % page * stride
        codes = pool[starts[:, None] + np.arange(self.columns)]
        indices = np.array(self.indices, np.int64 if self.wide else np.int32)
        factors = _factors(random, self.factors)
        out = np.full((len(indices), self.columns), _UNTOUCHED, np.uint16)
        expected = reference.gather_cast(codes, indices.astype(np.int64), factors)
        if self.count is not None:
            expected[max(self.count, 0) :] = _UNTOUCHED
        run(
            backend,
            pool,
            indices,
            out,
            columns=self.columns,
            row_stride=stride,
            rows=self.slots,
            page=self.page,
            page_stride=page_stride if self.page else 0,
            count=None if self.count is None else np.array([self.count], np.int32),
            factors=factors,
        )
        if not reference.same_bits(out, expected):
            wrong = np.argwhere(out != expected)
            row, column = (int(number) for number in wrong[0])
            raise MismatchError(
                f"out[{row}, {column}] is {out[row, column]:#06x}, not {expected[row, column]:#06x}"
                f" ({len(wrong)} of {out.size} differ)"
            )


def _factors(random: np.random.Generator, shape: tuple[int, ...]) -> Array | None:
    """Factors of every size: some make results subnormal, some overflow, one is not finite."""
    if not shape:
        return None
    factors = (random.normal(size=shape) * 10.0 ** random.integers(-40, 36, shape)).astype(np.float32)
    if factors.size > 2:
        factors.reshape(-1)[:3] = (0.0, np.inf, 1.0)
    return factors


def cases() -> Iterator[Case]:
    """All cases; `full` ones are for a GPU."""
    for name, inputs in _reduced():
        yield Case(name, inputs.check)
    for name, inputs in _full():
        yield Case(name, inputs.check, full=True)


def _reduced() -> Iterator[tuple[str, Inputs]]:
    random = np.random.default_rng(7)
    some = random.integers(0, 50, 70).tolist()
    plain = Inputs(50, 576, some)
    yield "every code, no scale", replace(plain, slots=256, columns=256, indices=range(256))
    yield "unsorted and repeated", plain
    yield "no NaN among the codes", replace(plain, codes=127)
    yield "none", replace(plain, indices=[])
    yield "one", replace(plain, indices=[49])
    yield "-1, and beyond the pool", replace(plain, indices=[-1, 3, 50, 49, -(2**31), 2**31 - 1, -2])
    yield "all -1", replace(plain, indices=[-1] * 40)
    yield "int64", replace(plain, wide=True)
    yield "int64 beyond 32 bits", replace(plain, wide=True, indices=[2**32, 2**32 + 1, 1, -(2**40), -1, 2**62])
    yield "count below the capacity", replace(plain, count=33)
    yield "count 0", replace(plain, count=0)
    yield "count below 0", replace(plain, count=-5)
    yield "count above the capacity", replace(plain, count=1000)
    yield "one factor", replace(plain, factors=(1,))
    yield "a factor of each group", replace(plain, factors=(50, 9))
    yield "groups narrower than an access", replace(plain, columns=24, factors=(50, 6))
    yield "a gap between rows", replace(plain, stride=592)
    yield "rows at 4 bytes", replace(plain, stride=580)
    yield "rows at odd bytes", replace(plain, stride=577)
    yield "an odd number of columns", replace(plain, columns=37)
    yield "one column", replace(plain, columns=1)
    yield "pages", replace(plain, page=16)
    yield "pages with a gap behind them", replace(plain, page=16, page_gap=64, stride=656)
    yield "rows wider than a block", replace(plain, columns=8192, indices=[1, 49, 0, 1, -1])
    yield "a width without divisors", replace(plain, columns=521, indices=[1, 49, 0])


def _full() -> Iterator[tuple[str, Inputs]]:
    random = np.random.default_rng(11)
    for count in (1, 1_000, 16_384, 131_072):
        yield f"{count:,} of 495,000", Inputs(495_000, 576, random.integers(0, 495_000, count).tolist())
    yield "2^20 of 100,000", Inputs(100_000, 576, random.integers(-5, 100_010, 1 << 20).tolist())
    yield (
        "2^20, at most 100,003 counted, int64",
        Inputs(
            100_000, 512, random.integers(0, 100_000, 1 << 20).tolist(), wide=True, count=100_003, factors=(100_000, 4)
        ),
    )
    yield "pool beyond 2 GB", Inputs(3_900_000, 576, random.integers(3_700_000, 3_900_000, 5_000).tolist())
