"""The recorded inputs of an operator as tensors: shapes, types and strides out of their JSON texts.

torch writes one entry per input: `Input Dims` has a list of sizes, a list of such lists for a list of tensors, and an
empty list for what is no tensor; `Input type` names the element type, `Concrete Inputs` the values of scalars.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

#: Bytes of an element by the names that torch's profiler writes; sub-byte types are left out: their packing is unknown.
ELEMENT_BYTES = {
    "float": 4, "c10::BFloat16": 2, "c10::Half": 2, "double": 8,
    "c10::Float8_e4m3fn": 1, "c10::Float8_e5m2": 1, "c10::Float8_e4m3fnuz": 1, "c10::Float8_e5m2fnuz": 1,
    "c10::Float8_e8m0fnu": 1,
    "long int": 8, "long": 8, "long long": 8, "int": 4, "short": 2, "short int": 2,
    "signed char": 1, "unsigned char": 1, "char": 1, "bool": 1,
    "unsigned short": 2, "unsigned int": 4, "unsigned long": 8,
    "c10::complex<float>": 8, "c10::complex<double>": 16, "c10::complex<c10::Half>": 4,
}  # fmt: skip
#: Element types -> the name of the rate that a tensor unit works them at (columns of the GPU table).
PRECISIONS = {
    "float": "fp32", "c10::BFloat16": "bf16", "c10::Half": "fp16",
    "c10::Float8_e4m3fn": "fp8", "c10::Float8_e5m2": "fp8", "c10::Float8_e4m3fnuz": "fp8",
    "c10::Float8_e5m2fnuz": "fp8",
    "signed char": "int8", "unsigned char": "int8", "char": "int8",
}  # fmt: skip


@dataclass(frozen=True)
class Tensor:
    """One tensor among the inputs of an operator."""

    shape: tuple[int, ...]
    element: str
    """Name of the element type as recorded."""
    strides: tuple[int, ...] | None = None

    @property
    def elements(self) -> int:
        """How many elements it shows."""
        return prod(self.shape)

    @property
    def item_bytes(self) -> int:
        """Bytes of an element."""
        return ELEMENT_BYTES[self.element]

    @property
    def bytes(self) -> int:
        """Bytes of all elements that it shows."""
        return self.elements * self.item_bytes

    @property
    def stored_bytes(self) -> int:
        """Bytes that lie in memory: what is broadcast (stride 0) is there once."""
        if self.strides is None or len(self.strides) != len(self.shape):
            return self.bytes
        own = (size for size, stride in zip(self.shape, self.strides, strict=True) if stride != 0 or size == 0)
        return prod(own) * self.item_bytes


@dataclass(frozen=True)
class Call:
    """One operator with its recorded inputs."""

    name: str
    """Without its overload: `aten::add` of `aten::add.Tensor`."""
    inputs: tuple[Tensor | tuple[Tensor, ...] | None, ...]
    """A tensor, a list of tensors, or None for what is neither or of a type nobody knows."""
    values: tuple[str, ...]
    """The value of each scalar as text, empty for others."""

    def tensor(self, place: int) -> Tensor | None:
        """The tensor at a place; None where there is none."""
        value = self.inputs[place] if place < len(self.inputs) else None
        return value if isinstance(value, Tensor) else None

    def tensors(self, place: int) -> tuple[Tensor, ...]:
        """The list of tensors at a place."""
        value = self.inputs[place] if place < len(self.inputs) else None
        return value if isinstance(value, tuple) else ()

    def value(self, place: int) -> Any:
        """A scalar or a list of scalars; None where it is not recorded."""
        text = self.values[place] if place < len(self.values) else ""
        try:
            return json.loads(text.lower())
        except ValueError:
            return None

    @property
    def leading(self) -> tuple[Tensor, ...]:
        """All tensors that stand alone, in order."""
        return tuple(each for each in self.inputs if isinstance(each, Tensor))


def parse_call(
    name: str, dims: str | None, types: str | None, strides: str | None = None, values: str | None = None
) -> Call | None:
    """An operator from the texts of its columns `input_dims`, `input_types`, `input_strides` and `concrete_inputs`.

    None where no shapes were recorded, or where the texts are no lists.
    """
    shapes, elements = _list(dims), _list(types)
    if shapes is None or elements is None:
        return None
    steps = _list(strides) or []
    inputs = tuple(_input(shape, _at(elements, place), _at(steps, place)) for place, shape in enumerate(shapes))
    texts = tuple(str(value) for value in _list(values) or ())
    return Call(name.partition(".")[0], inputs, texts)


def _list(text: str | None) -> list[Any] | None:
    try:
        value = json.loads(text) if text else None
    except ValueError:
        return None
    return value if isinstance(value, list) else None


def _at(values: Sequence[Any], place: int) -> Any:
    return values[place] if place < len(values) else None


def _input(shape: Any, element: Any, strides: Any) -> Tensor | tuple[Tensor, ...] | None:
    if not isinstance(shape, list) or not isinstance(element, str):
        return None
    if shape and all(isinstance(each, list) for each in shape):
        # torch names the type of a list, not of its tensors
        return ()
    if element not in ELEMENT_BYTES or not all(isinstance(size, int) and size >= 0 for size in shape):
        return None
    steps = tuple(strides) if isinstance(strides, list) and all(isinstance(step, int) for step in strides) else None
    return Tensor(tuple(shape), element, steps)
