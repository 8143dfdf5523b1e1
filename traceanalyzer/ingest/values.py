"""From the values of a JSON text to those of a column: exact nanoseconds, ids, labels, canonical JSON.

The JSON is decoded with `ExactDecoder`, so that nothing passes a double.
"""

from __future__ import annotations

import json
from decimal import ROUND_HALF_EVEN, Context, Decimal, InvalidOperation
from math import isinf
from typing import Any

from traceanalyzer.schema import ArgKind

#: Times beyond these are damage (a start after 2096, a length of 31 years); within them, the sum of a base, a start and
#: a length fits 64 bits.
LATEST_NS = 4 * 10**18
LONGEST_NS = 10**18
_EXACT = Context(prec=60, rounding=ROUND_HALF_EVEN)
_LARGEST_EXPONENT = 18
_SIGNED_64 = 1 << 63


class ExactDecoder(json.JSONDecoder):
    """Keeps every digit, and reads as None what is no number (NaN, Infinity) or one that nothing can hold: whole
    numbers of thousands of digits, exponents beyond Decimal's. One so close to 0 that nothing can hold it is 0.

    It accepts control characters in strings, unless it is `strict`.
    """

    def __init__(self, *, strict: bool = False) -> None:
        self._constants: list[str] = []
        keywords: dict[str, Any] = {"parse_constant": self._constants.append, "strict": strict}
        super().__init__(parse_float=Decimal, **keywords)
        self._tolerant = json.JSONDecoder(parse_float=_decimal_or_none, parse_int=_int_or_none, **keywords)

    def raw_decode(self, s: str, idx: int = 0) -> tuple[Any, int]:
        """The value at a place, and where it ends. Raises `JSONDecodeError` and `RecursionError`."""
        self._constants.clear()
        try:
            return super().raw_decode(s, idx)
        except json.JSONDecodeError:
            raise
        except (ValueError, ArithmeticError):
            self._constants.clear()
            return self._tolerant.raw_decode(s, idx)

    @property
    def constants(self) -> int:
        """How many NaN and Infinity the last value held."""
        return len(self._constants)


def _int_or_none(digits: str) -> int | None:
    try:
        return int(digits)
    except ValueError:
        return None


def _decimal_or_none(digits: str) -> Decimal | None:
    try:
        return Decimal(digits)
    except InvalidOperation:
        mantissa, _, exponent = digits.lower().partition("e")
        return Decimal(0) if exponent.startswith("-") or not mantissa.strip("-0.") else None


def to_decimal(value: Any) -> Decimal | None:
    """The number that a value holds, a string that spells one included, of a size that ids and times have; None for
    anything else."""
    number = _finite(value)
    if number is None or number.is_zero():
        return None if number is None else Decimal(0)
    return number if type(value) is int or number.adjusted() <= _LARGEST_EXPONENT else None


def _finite(value: Any) -> Decimal | None:
    if isinstance(value, bool) or not isinstance(value, (int, str, Decimal)):
        return None
    try:
        number = Decimal(value.strip() if isinstance(value, str) else value)
    except InvalidOperation:
        return None
    return number if number.is_finite() else None


def to_ns(microseconds: Any, limit: int = LATEST_NS) -> int | None:
    """Microseconds as recorded -> whole nanoseconds, half to even; None for what is no usable time."""
    if type(microseconds) is int:
        nanoseconds = microseconds * 1000
    else:
        number = to_decimal(microseconds)
        if number is None:
            return None
        nanoseconds = int(_EXACT.to_integral_value(_EXACT.multiply(number, 1000)))
    return nanoseconds if -limit <= nanoseconds <= limit else None


def to_integer(value: Any) -> int | None:
    """A whole number, from a number or a string that spells one (hexadecimal too)."""
    if type(value) is int:
        return value
    if isinstance(value, str) and value[:2].lower() == "0x":
        try:
            return int(value, 16)
        except ValueError:
            return None
    number = to_decimal(value)
    return int(number) if number is not None and number == number.to_integral_value() else None


def to_signed_64(value: int | None) -> int | None:
    """An id of up to 64 bits as a signed number; larger ones cannot be kept."""
    if value is None or -_SIGNED_64 <= value < _SIGNED_64:
        return value
    return value - 2 * _SIGNED_64 if _SIGNED_64 <= value < 2 * _SIGNED_64 else None


def to_label(value: Any) -> str | None:
    """A name that may be written as a number: 7 and "7" are the same stream."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool) or not isinstance(value, (int, Decimal)):
        return None
    return str(value)


def to_dim3(value: Any) -> tuple[int, int, int] | None:
    """[x, y, z] of whole numbers, or None."""
    if isinstance(value, list) and len(value) == 3:
        x, y, z = map(to_integer, value)
        if x is not None and y is not None and z is not None:
            return x, y, z
    return None


def to_number(value: Any) -> float | None:
    """A double, from a number or a string that spells one."""
    number = _finite(value)
    double = None if number is None else float(number)
    return None if double is None or isinf(double) else double


def to_text(value: Any) -> str | None:
    """A string; a value of any other type is not one."""
    return value if isinstance(value, str) else None


def printable(text: str) -> str:
    """Text that can be written as UTF-8: names of files need not be, nor are all strings that JSON can spell."""
    try:
        return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    except UnicodeEncodeError:  # half a character
        return text.encode("utf-8", "replace").decode("utf-8")


def canonical_json(value: Any) -> str | None:
    """JSON text with one spelling for equal values. A string stands for itself: some writers quote whole lists."""
    if value is None or isinstance(value, str):
        return value
    return without_half_characters(json.dumps(value, ensure_ascii=False, default=float))


def without_half_characters(text: str) -> str:
    """Text that can be stored: halves of surrogate pairs, which JSON can spell, become replacement characters."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def all_without_half_characters(value: Any) -> Any:
    """The same for every text of a decoded value."""
    if isinstance(value, str):
        return without_half_characters(value)
    if isinstance(value, list):
        return [all_without_half_characters(each) for each in value]
    if isinstance(value, dict):
        return {without_half_characters(key): all_without_half_characters(each) for key, each in value.items()}
    return value


CONVERTERS = {
    "integer": to_integer,
    "number": to_number,
    "label": to_label,
    "text": to_text,
    "json": canonical_json,
    "dim3": to_dim3,
}


def convert(kind: ArgKind, value: Any) -> Any:
    """A value of `args` as the column's kind wants it; None where it is of another type."""
    return None if value is None else CONVERTERS[kind](value)
