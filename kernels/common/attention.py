"""What references of attention kernels share: softmax over selected keys in float64, and how near a result must be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from traceanalyzer.kernels.common.errors import MismatchError

Array = npt.NDArray[Any]

#: Of a result, relative to the weighted sum of the values' sizes and to itself: half a unit of bf16's last place each.
OUT_BOUND = 2.0**-8
#: Of the logarithm of the sum of exponentials: absolute, and relative to itself.
LSE_BOUND, LSE_RELATIVE_BOUND = 1e-5, 2e-6
#: Below the least normal number of bf16 (and float32) a result may be 0.
_LEAST_NORMAL = 2.0**-126


@dataclass(frozen=True)
class Expected:
    """What rows of attention must give."""

    out: Array
    """float64 [..., columns]."""
    lse: Array
    """float64 [...]: natural logarithm of the sum of exponentials; -inf where no key is seen."""
    weighted_sizes: Array
    """float64 [..., columns]: the weights times the absolute values, summed up."""
    broken: Array
    """bool [...]: a NaN or an infinity reaches the row, which must not be finite (see `attend`)."""
    doubtful: Array
    """bool [...]: infinities reach the row only as scores of -inf. It may be finite or not, and is not compared."""

    def reshaped(self, *shape: int) -> Expected:
        """The same with rows of this shape."""
        wide = (*shape, self.out.shape[-1])
        sums = self.weighted_sizes.reshape(wide)
        flags = self.broken.reshape(shape), self.doubtful.reshape(shape)
        return Expected(self.out.reshape(wide), self.lse.reshape(shape), sums, *flags)


def bf16_values(bits: Array) -> Array:
    """float64 values of bf16 bits (uint16)."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32).astype(np.float64)


def attend(queries: Array, keys: Array, columns: int, seen: Array, scale: float) -> Expected:
    """Rows of `softmax(scale * queries @ keys.T) @ keys[:, :columns]` over those keys that a row sees.

    `queries` is float64 [rows, dims], `keys` float64 [n, dims], `seen` bool [rows, n] (or [1, n]). A key that is not
    finite somewhere breaks rows that see it and no other; so does a query, where it sees any key.
    """
    seen = np.broadcast_to(seen, (len(queries), len(keys)))
    bad_keys, bad_queries = _bad_rows(keys), _bad_rows(queries)
    reached: Array = np.logical_or((seen & bad_keys).any(axis=1), bad_queries & seen.any(axis=1))
    broken = np.zeros(len(queries), bool)
    broken[reached] = _breaks(queries[reached], keys, columns, seen[reached], scale)
    keys, queries = _zeroed(keys, bad_keys), _zeroed(queries, bad_queries)
    scores = np.where(seen, float(np.float32(scale)) * (queries @ keys.T), -np.inf)
    most = scores.max(axis=1, keepdims=True, initial=-np.inf)
    weights = np.exp(scores - np.where(np.isfinite(most), most, 0.0))
    total = weights.sum(axis=1, keepdims=True)
    with np.errstate(divide="ignore"):
        lse = (most + np.log(total))[:, 0]
    weights /= np.where(total > 0, total, 1.0)
    values = keys[:, :columns]
    return Expected(weights @ values, lse, weights @ np.abs(values), broken, reached & ~broken)


def _breaks(queries: Array, keys: Array, columns: int, seen: Array, scale: float) -> Array:
    """Whether rows get a score of NaN or inf, or a value that is not finite, whatever its weight."""
    with np.errstate(invalid="ignore"):
        scores = scale * (queries @ keys.T)
    reached: Array = np.logical_and(seen, np.isnan(scores) | (scores == np.inf) | _bad_rows(keys[:, :columns]))
    return _any_in_row(reached)


def _bad_rows(rows: Array) -> Array:
    return _any_in_row(~np.isfinite(rows))


def _any_in_row(flags: Array) -> Array:
    found: Array = np.logical_or.reduce(flags, axis=1)
    return found


def _zeroed(rows: Array, which: Array) -> Array:
    return np.where(which[:, None], 0.0, rows) if which.any() else rows


def joined(parts: list[Expected]) -> Expected:
    """Rows of one after those of the other."""
    return Expected(
        np.concatenate([each.out for each in parts]),
        np.concatenate([each.lse for each in parts]),
        np.concatenate([each.weighted_sizes for each in parts]),
        np.concatenate([each.broken for each in parts]),
        np.concatenate([each.doubtful for each in parts]),
    )


def expect_close(out: Array, lse: Array, expected: Expected) -> float:
    """Raise `MismatchError` where a result (bf16 bits, and float32) is not within the bounds of what it must be.

    Returns the largest error that was found, in units of its bound.
    """
    if out.shape != expected.out.shape or lse.shape != expected.lse.shape:
        raise MismatchError(f"out is {list(out.shape)} and lse {list(lse.shape)}, not {list(expected.out.shape)}")
    values = bf16_values(out)
    _expect_broken(values, expected)
    whole = ~(expected.broken | expected.doubtful)
    bound = OUT_BOUND * (expected.weighted_sizes + np.abs(expected.out)) + _LEAST_NORMAL
    largest = _expect_within("out", values, expected.out, bound, whole)
    with np.errstate(invalid="ignore"):
        lse_bound = LSE_BOUND + LSE_RELATIVE_BOUND * np.abs(expected.lse)
    return max(largest, _expect_within("lse", lse.astype(np.float64), expected.lse, lse_bound, whole))


def _expect_broken(values: Array, expected: Expected) -> None:
    missed = np.argwhere(expected.broken & np.isfinite(values).all(axis=-1))
    if len(missed):
        raise MismatchError(
            f"out[{_where(missed[0])}] is finite, though its query or a key it sees is not ({len(missed)} such rows)"
        )


def _expect_within(what: str, values: Array, expected: Array, bound: Array, whole: Array) -> float:
    """The largest error in units of the bound, of the rows that are whole."""
    with np.errstate(invalid="ignore"):
        errors = np.where(values == expected, 0.0, np.abs(values - expected) / bound)
    errors[~whole] = 0.0
    wrong = np.argwhere(~(errors <= 1))  # NaN is wrong too
    if len(wrong):
        worst = tuple(wrong[np.argmax(np.nan_to_num(errors[tuple(wrong.T)], nan=np.inf))])
        raise MismatchError(
            f"{what}[{_where(worst)}] is {values[worst]:.6g}, not {expected[worst]:.6g}:"
            f" {errors[worst]:.3g} times the bound ({len(wrong)} of {errors.size} are beyond it)"
        )
    return float(errors.max(initial=0.0))


def _where(position: Any) -> str:
    return ", ".join(str(int(number)) for number in position)
