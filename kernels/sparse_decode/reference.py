"""What the kernel must give, worked out on the CPU in float64; and caches of random records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from traceanalyzer.kernels.common.attention import Expected, attend, bf16_values, joined
from traceanalyzer.kernels.gather_cast.reference import VALUES, bf16_bits

Array = npt.NDArray[Any]

#: Columns of a result.
VALUE_COLUMNS = 512
ROPE = 64


class Format(NamedTuple):
    """How a key lies in memory: e4m3 codes that share a scale in groups, then bf16 columns."""

    codes: int
    group: int
    record_bytes: int
    """Codes and bf16 columns, and the scales where they lie in between."""
    tail_bytes: int
    """Bytes of scales of a record behind all records of its page."""

    @property
    def columns(self) -> int:
        return self.codes + ROPE

    @property
    def groups(self) -> int:
        return self.codes // self.group

    def page_bytes(self, page_size: int) -> int:
        """The least that a page takes: a multiple of 16."""
        return -(-page_size * (self.record_bytes + self.tail_bytes) // 16) * 16


#: 512 codes, 4 scales (float32), 64 bf16.
V32 = Format(512, 128, 656, 0)
#: 448 codes, 64 bf16; behind the page's records 8 bytes each: 7 exponents (2^(byte - 127), 255 is NaN), 1 of no use.
DSV4 = Format(448, 64, 576, 8)
FORMATS = {"v32": V32, "dsv4": DSV4}


@dataclass(frozen=True)
class Records:
    """A paged cache."""

    layout: str
    memory: Array
    """uint8, flat."""
    page_size: int
    page_bytes: int
    slots: int

    @property
    def format(self) -> Format:
        return FORMATS[self.layout]

    def offsets(self, slots: Array) -> Array:
        """Where records begin."""
        starts: Array = slots // self.page_size * self.page_bytes + slots % self.page_size * self.format.record_bytes
        return starts

    def codes(self, slots: Array) -> Array:
        """uint8 [n, codes]."""
        return self._at(self._all_codes(), slots)

    def scales(self, slots: Array) -> Array:
        """float64 [n, groups]."""
        stored = self._at(self._all_scales(), slots)
        if self.format is V32:
            return stored.view(np.float32).astype(np.float64)
        return np.where(stored == 255, np.nan, np.exp2(stored.astype(np.float64) - 127))

    def rope(self, slots: Array) -> Array:
        """bf16 bits (uint16) [n, 64]."""
        return self._at(self._all_rope(), slots).view(np.uint16)

    def keys(self, slots: Array) -> Array:
        """float64 [n, columns]: what records stand for, exactly."""
        with np.errstate(invalid="ignore"):
            scaled = VALUES[self.codes(slots)] * np.repeat(self.scales(slots), self.format.group, axis=1)
        return np.concatenate([scaled, bf16_values(self.rope(slots))], axis=1)

    def write(self, slots: Array, codes: Array, scales: Array, rope: Array) -> None:
        """Put records there: codes, scales (float32, or exponents as uint8), bf16 bits of the other columns."""
        page, at = slots // self.page_size, slots % self.page_size
        self._all_codes()[page, at] = codes
        self._all_scales()[page, at] = np.ascontiguousarray(scales).view(np.uint8)
        self._all_rope()[page, at] = np.ascontiguousarray(rope).view(np.uint8)

    def rope_offsets(self, slots: Array) -> Array:
        """Where the bf16 columns of records begin."""
        return self.offsets(slots) + self.format.record_bytes - 2 * ROPE

    def _all_codes(self) -> Array:
        return self._each(0, self.format.record_bytes, self.format.codes)

    def _all_scales(self) -> Array:
        if self.format is V32:
            return self._each(V32.codes, V32.record_bytes, 4 * V32.groups)
        return self._each(self.page_size * DSV4.record_bytes, DSV4.tail_bytes, DSV4.groups)

    def _all_rope(self) -> Array:
        return self._each(self.format.record_bytes - 2 * ROPE, self.format.record_bytes, 2 * ROPE)

    def _each(self, start: int, step: int, width: int) -> Array:
        """A view [pages, page size, width] of what lies so far behind the start of pages."""
        shape = (len(self.memory) // self.page_bytes, self.page_size, width)
        view: Array = np.lib.stride_tricks.as_strided(self.memory[start:], shape, (self.page_bytes, step, 1))
        return view

    def _at(self, each: Array, slots: Array) -> Array:
        return np.ascontiguousarray(each[slots // self.page_size, slots % self.page_size])


class Selection(NamedTuple):
    """Which records of a cache each request reads."""

    records: Records
    indices: Array
    """int32 [requests, k]; one below 0 or not below the number of slots selects nothing."""
    lengths: Array | None
    """int32 [requests]: how many of the k count."""


def sparse_decode(
    q: Array,
    selections: Sequence[Selection],
    scale: float,
    sink: Array | None = None,
    requests: Sequence[int] | None = None,
) -> Expected:
    """Attention of q (bf16 bits [requests, heads, columns]) over all selected records; rows are [requests, heads].

    `sink` (float32 [heads]) multiplies results by 1 / (1 + exp(sink - lse)); lse stays as it is. `requests` names
    those that are wanted.
    """
    wanted = range(len(q)) if requests is None else requests
    heads = q.shape[1]
    rows = joined([_request(q, selections, scale, request) for request in wanted])
    if sink is not None:
        rows = _with_sink(rows, np.tile(sink.astype(np.float64), len(wanted)))
    return rows.reshaped(len(wanted), heads)


def selected_slots(selection: Selection, request: int) -> Array:
    """int64: the records that a request reads, one that is named twice twice."""
    indices = selection.indices[request].astype(np.int64)
    if selection.lengths is not None:
        indices = indices[: max(int(selection.lengths[request]), 0)]
    found: Array = indices[(indices >= 0) & (indices < selection.records.slots)]
    return found


def _request(q: Array, selections: Sequence[Selection], scale: float, request: int) -> Expected:
    keys = np.concatenate([each.records.keys(selected_slots(each, request)) for each in selections])
    return attend(bf16_values(q[request]), keys, VALUE_COLUMNS, np.ones((1, len(keys)), bool), scale)


def _with_sink(rows: Expected, sink: Array) -> Expected:
    """A row that sees nothing is 0 and stays so."""
    with np.errstate(over="ignore", invalid="ignore"):
        share = np.where(np.isneginf(rows.lse), 0.0, 1 / (1 + np.exp(sink - rows.lse)))[:, None]
    return Expected(rows.out * share, rows.lse, rows.weighted_sizes * share, rows.broken, rows.doubtful)


def code_of_value(values: Array) -> Array:
    """e4m3 codes (uint8) nearest to values; beyond 448 that of 448."""
    positive = VALUES[:127]
    nearest = np.searchsorted((positive[1:] + positive[:-1]) / 2, np.abs(values))
    return (nearest | np.where(np.signbit(values), 0x80, 0)).astype(np.uint8)


#: Codes of normal values of which the largest is near 448, to draw from.
_NORMAL_CODES = code_of_value(np.random.default_rng(1).normal(size=1 << 14) * 110)
_NORMAL_BF16 = bf16_bits(np.random.default_rng(2).normal(size=1 << 14))


def random_bf16(random: np.random.Generator, *shape: int) -> Array:
    """bf16 bits of values with a normal distribution."""
    return _NORMAL_BF16[random.integers(0, len(_NORMAL_BF16), shape)]


def random_records(
    random: np.random.Generator,
    layout: str,
    slots: int,
    page_size: int = 64,
    page_bytes: int | None = None,
    first: int = 0,
) -> Records:
    """A cache of records whose values are near 1. All other bytes, also of records before `first`, are NaN."""
    found = FORMATS[layout]
    page_bytes = found.page_bytes(page_size) if page_bytes is None else page_bytes
    memory = np.full(-(-slots // page_size) * page_bytes, 0xFF, np.uint8)
    records = Records(layout, memory, page_size, page_bytes, slots)
    for start in range(first, slots, 1 << 14):
        every = np.arange(start, min(start + (1 << 14), slots))
        codes = _NORMAL_CODES[random.integers(0, len(_NORMAL_CODES), (len(every), found.codes))]
        records.write(every, codes, random_scales(random, layout, len(every)), random_bf16(random, len(every), ROPE))
    return records


def random_scales(random: np.random.Generator, layout: str, count: int, low: float = -7.5, high: float = -6.0) -> Array:
    """Scales from 2^low to 2^high: float32 [count, groups], or exponents (uint8)."""
    powers = random.uniform(low, high, (count, FORMATS[layout].groups))
    if layout == "v32":
        return np.exp2(powers).astype(np.float32)
    return (np.round(powers) + 127).astype(np.uint8)
