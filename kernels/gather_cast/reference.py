"""What the kernel must give, worked out on the CPU in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


def value_of_code(code: int) -> float:
    """The number that an e4m3 code stands for (float8_e4m3fn: no infinities, s.1111.111 is NaN)."""
    sign = -1.0 if code & 0x80 else 1.0
    exponent, mantissa = code >> 3 & 15, code & 7
    if exponent == 15 and mantissa == 7:
        return float("nan")
    if exponent == 0:
        return sign * mantissa * 2.0**-9
    return sign * (1 + mantissa / 8) * 2.0 ** (exponent - 7)


VALUES = np.array([value_of_code(code) for code in range(256)])


def bf16_bits(values: Array) -> Array:
    """Bits (uint16) of float32 values rounded to the nearest bf16, ties to even; NaN is 0x7fff."""
    bits = values.astype(np.float32).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1))) >> np.uint32(16)
    return np.where(np.isnan(values), np.uint16(0x7FFF), rounded.astype(np.uint16))


def gather_cast(pool: Array, indices: Array, factors: Array | None = None) -> Array:
    """Bits (uint16) of [n, columns] bf16 from codes (uint8) [slots, columns] and indices [n].

    `factors` (float32) is [1], or [slots, groups] with one for each columns / groups columns. A product is rounded to
    float32 (it is exact in float64), then to bf16. A slot outside the pool gives zeros.
    """
    columns = pool.shape[1]
    inside = (indices >= 0) & (indices < pool.shape[0])
    slots = np.where(inside, indices, 0)
    values = VALUES[pool[slots]]
    if factors is not None:
        each = factors[slots] if factors.ndim == 2 else factors.reshape(1, 1)
        with np.errstate(over="ignore", invalid="ignore"):
            values = (values * np.repeat(each, columns // each.shape[1], axis=1).astype(np.float64)).astype(np.float32)
    result = bf16_bits(values)
    result[~inside] = 0
    return result


def same_bits(result: Array, expected: Array) -> bool:
    """Whether two arrays of bf16 bits are equal; any NaN is as good as another."""
    nan = (expected & 0x7FFF) > 0x7F80
    return bool((((result & 0x7FFF) > 0x7F80) == nan).all() and (result == expected)[~nan].all())
