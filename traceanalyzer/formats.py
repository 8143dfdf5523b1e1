"""Numbers as people read them: one unit per column, aligned decimals, and no number that lies.

A rounded number never says something exact that is not so: what is not zero never prints as zero (`<0.1`), and
0 % and 100 % stand only where they are exact. Unknown prints as a dash, never as 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Decimal

#: What stands for a value that is not known.
UNKNOWN = "–"

#: Units of time and of size, with what one of each holds.
TIME_UNITS = (("ns", 1), ("µs", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000))
_SI_UNITS = (("B", 1), ("kB", 10**3), ("MB", 10**6), ("GB", 10**9), ("TB", 10**12), ("PB", 10**15))
_BYTE_UNITS = (("B", 1), ("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30), ("TiB", 1 << 40))


def count(value: int | None) -> str:
    """`1,204`."""
    return UNKNOWN if value is None else f"{value:,}"


def ns(value: int | None) -> str:
    """One time on its own, with three significant digits: `64.6 ms`."""
    if value is None:
        return UNKNOWN
    unit = _fitting(abs(value), TIME_UNITS)
    return f"{scaled(value, unit[1], _decimals(abs(value), unit[1]))} {unit[0]}"


def power_of_ten(exponent: int) -> str:
    """That many ns: `100 µs` for 5."""
    place = min(exponent // 3, len(TIME_UNITS) - 1)
    return f"{10 ** (exponent - 3 * place):,} {TIME_UNITS[place][0]}"


def size(value: int | None) -> str:
    """Bytes in binary units: `1.50 GiB`."""
    if value is None:
        return UNKNOWN
    unit = _fitting(abs(value), _BYTE_UNITS)
    return f"{scaled(value, unit[1], _decimals(abs(value), unit[1]))} {unit[0]}"


def si_size(value: int | None) -> str:
    """Bytes in decimal units, as rates are given in: `855 MB`."""
    if value is None:
        return UNKNOWN
    unit = _fitting(abs(value), _SI_UNITS)
    return f"{scaled(value, unit[1], _decimals(abs(value), unit[1]))} {unit[0]}"


def rate(value: float | None) -> str:
    """A number with three significant digits: `1,006`, `31.7`, `0.042`; what is not zero never prints as zero."""
    if value is None:
        return UNKNOWN
    if 0 < abs(value) < 0.001:
        return "<0.001" if value > 0 else ">-0.001"
    magnitude = abs(value)
    decimals = 0 if magnitude >= 100 or value == 0 else 1 if magnitude >= 10 else 2 if magnitude >= 1 else 3
    return f"{value:,.{decimals}f}"


def share(value: float | None, decimals: int = 1) -> str:
    """A share of 1 as a percentage: `63.1%`; `0.0%` and `100.0%` only where that is exact."""
    if value is None:
        return UNKNOWN
    smallest = Decimal(1).scaleb(-decimals)
    percent = (Decimal(value) * 100).quantize(smallest, ROUND_HALF_EVEN)
    if percent == 0 and value:
        return f"<{smallest}%" if value > 0 else f">-{smallest}%"
    if percent == 100 and value < 1:
        return f">{100 - smallest}%"
    if percent == 100 and value > 1:
        return f">{percent}%"
    return f"{percent}%"


@dataclass(frozen=True)
class Scale:
    """How the times of a column are written: in one unit, with one number of decimals."""

    unit: str
    per_unit: int
    decimals: int

    @classmethod
    def of(cls, values: Iterable[int | None]) -> Scale:
        """The scale in which the middle value has three digits or so.

        The middle, not the largest: a single long kernel must not turn all others into `0.00`. Yet no value may
        need more than seven digits before the point.
        """
        known = sorted(abs(value) for value in values if value)
        if not known:
            return cls("µs", 1_000, 0)
        half = known[len(known) // 2]
        largest = known[-1] // 9_999  # 9,998,999 of a unit are still that unit
        unit, per_unit = max((_fitting(value, TIME_UNITS) for value in (half, largest)), key=lambda unit: unit[1])
        return cls(unit, per_unit, _decimals(half, per_unit))

    def write(self, value: int | None) -> str:
        """One time of the column."""
        return UNKNOWN if value is None else scaled(value, self.per_unit, self.decimals)


def scaled(value: int, per_unit: int, decimals: int) -> str:
    """`value / per_unit` with so many decimals; `<0.1` where it would round to 0 and is not 0."""
    smallest = Decimal(1).scaleb(-decimals)
    rounded = (Decimal(value) / per_unit).quantize(smallest, ROUND_HALF_EVEN)
    if rounded == 0 and value:
        return f"<{smallest}" if value > 0 else f">-{smallest}"
    return f"{rounded:,}"


def _fitting(value: int, units: Sequence[tuple[str, int]]) -> tuple[str, int]:
    """The largest unit that the value holds at least once."""
    return next((unit for unit in reversed(units) if value >= unit[1]), units[0])


def _decimals(value: int, per_unit: int) -> int:
    """Decimals that show three significant digits of a value; whole numbers of the smallest unit need none."""
    if per_unit == 1:
        return 0
    return 2 if value < 10 * per_unit else 1 if value < 100 * per_unit else 0
