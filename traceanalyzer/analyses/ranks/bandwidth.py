"""Rates of collectives: bytes over transfer time, and what that asks of the links (as nccl-tests defines both)."""

from __future__ import annotations

import re
from collections.abc import Callable

#: Bytes of an element, by the names that torch writes.
_BYTES = {
    "float": 4, "float32": 4, "int": 4, "int32": 4, "uint32": 4, "double": 8, "float64": 8, "long": 8, "int64": 8,
    "uint64": 8, "complexfloat": 8, "half": 2, "float16": 2, "bfloat16": 2, "short": 2, "int16": 2, "byte": 1,
    "char": 1, "int8": 1, "uint8": 1, "bool": 1, "float8_e4m3fn": 1, "float8_e5m2": 1, "float8_e4m3fnuz": 1,
    "float8_e5m2fnuz": 1,
}  # fmt: skip
_In, _Out = "in", "out"
#: Collective, the side whose count is the message, and bus bytes per message byte on n ranks.
_KINDS: tuple[tuple[str, str, Callable[[int], float]], ...] = (
    (r"all_?reduce", _In, lambda n: 2 * (n - 1) / n),
    (r"reduce_?scatter", _In, lambda n: (n - 1) / n),
    (r"all_?gather", _Out, lambda n: (n - 1) / n),
    (r"all_?to_?all", _In, lambda n: (n - 1) / n),
    (r"broadcast", _In, lambda _: 1.0),
    (r"^reduce$", _In, lambda _: 1.0),
)


def message_bytes(
    collective: str | None, element_type: str | None, in_elements: int | None, out_elements: int | None
) -> int | None:
    """Bytes of the message of a rank, as rates are defined on it; None where not known."""
    kind = _kind(collective)
    size = _BYTES.get((element_type or "").lower().removeprefix("torch."))
    if kind is None or size is None:
        return None
    elements = in_elements if kind[1] == _In else out_elements
    return elements * size if elements else None


def bus_factor(collective: str | None, ranks: int) -> float | None:
    """Bus bytes for each byte of the message."""
    kind = _kind(collective)
    return None if kind is None or ranks < 2 else kind[2](ranks)


def _kind(collective: str | None) -> tuple[str, str, Callable[[int], float]] | None:
    name = (collective or "").lower().strip("_")
    return next((kind for kind in _KINDS if re.search(kind[0], name)), None)
