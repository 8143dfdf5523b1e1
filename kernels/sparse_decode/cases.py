"""Every kind of input, the ordinary and the odd, at sizes for the emulator; and full sizes for a GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from traceanalyzer.kernels.common.attention import bf16_values, expect_close
from traceanalyzer.kernels.common.case import Case
from traceanalyzer.kernels.common.mla_plan import Forced
from traceanalyzer.kernels.common.program import Backend
from traceanalyzer.kernels.gather_cast.reference import bf16_bits
from traceanalyzer.kernels.sparse_decode import reference
from traceanalyzer.kernels.sparse_decode.launch import Cache, run
from traceanalyzer.kernels.sparse_decode.reference import FORMATS, ROPE, VALUE_COLUMNS, Records, Selection

Array = npt.NDArray[Any]
#: What results hold before.
_UNTOUCHED = 0x3DCC
_NAN_CODE = 0x7F
_INFINITY, _NAN = 0x7F80, 0x7FC1

Records_ = Callable[[Records, np.random.Generator], None]


@dataclass(frozen=True)
class Part:
    """One cache and what is selected of it."""

    k: int = 40
    slots: int = 90
    first: int = 0
    """Records before it are of NaN, and none is selected."""
    page_size: int = 64
    page_gap: int = 0
    """Bytes behind each page."""
    indices: Array | None = None
    """[requests, k] or [k]; else any, some of them -1."""
    lengths: tuple[int, ...] | None = None
    change: Records_ | None = None
    """Writes to the records."""

    def make(self, random: np.random.Generator, layout: str, requests: int) -> Selection:
        """Records, changed, and a selection of them."""
        page_bytes = FORMATS[layout].page_bytes(self.page_size) + self.page_gap
        records = reference.random_records(random, layout, self.slots, self.page_size, page_bytes, self.first)
        if self.change is not None:
            self.change(records, random)
        if self.indices is None:
            indices = random.integers(self.first - 2, self.slots, (requests, self.k))
            indices[indices < self.first] = -1
        else:
            indices = np.broadcast_to(self.indices, (requests, self.indices.shape[-1]))
        lengths = None if self.lengths is None else np.array(self.lengths, np.int32)
        return Selection(records, np.ascontiguousarray(indices, np.int32), lengths)


@dataclass(frozen=True)
class Inputs:
    """Sizes, layout, what is odd about them, and the shape of the launch that is forced."""

    requests: int = 2
    heads: int = 8
    layout: str = "v32"
    parts: tuple[Part, ...] = (Part(),)
    scale: float = 0.05
    q: Callable[[Array], Array] | None = None
    """Changes the queries (bits)."""
    sink: tuple[float, ...] | None = None
    """Repeated over the heads."""
    tiles: int | None = None
    splits: int | None = None
    paired: bool | None = None
    compared: int | None = None
    """How many requests are compared with the reference; None: all."""
    seed: int = 3

    def make(self) -> tuple[Array, list[Selection], Array | None]:
        """Queries, selections, sink."""
        random = np.random.default_rng(self.seed)
        selections = [part.make(random, self.layout, self.requests) for part in self.parts]
        q = reference.random_bf16(random, self.requests, self.heads, FORMATS[self.layout].columns)
        sink = None if self.sink is None else np.resize(np.array(self.sink, np.float32), self.heads)
        return (q if self.q is None else self.q(q)), selections, sink

    def check(self, backend: Backend) -> None:
        """Run the kernel and compare with the reference."""
        q, selections, sink = self.make()
        out = np.full((self.requests, self.heads, VALUE_COLUMNS), _UNTOUCHED, np.uint16)
        lse = np.full((self.requests, self.heads), 77, np.float32)
        caches = tuple(cache_of(each) for each in selections)
        run(
            backend,
            q,
            caches,
            out,
            lse,
            layout=self.layout,
            scale=self.scale,
            sink=sink,
            forced=Forced(self.tiles, self.splits, self.paired),
        )
        compared = list(range(self.requests))
        if self.compared is not None:
            compared = sorted(np.random.default_rng(self.seed).permutation(self.requests)[: self.compared].tolist())
        expected = reference.sparse_decode(q, selections, self.scale, sink, compared)
        expect_close(out[compared], lse[compared], expected)


def cache_of(selection: Selection) -> Cache:
    """A selection as the launch takes it."""
    records = selection.records
    return Cache(
        memory=records.memory,
        page_size=records.page_size,
        page_bytes=records.page_bytes,
        slots=records.slots,
        indices=selection.indices,
        lengths=selection.lengths,
    )


def _code(slot: int, column: int, code: int) -> Records_:
    def change(records: Records, _: np.random.Generator) -> None:
        records.memory[records.offsets(np.array([slot]))[0] + column] = code

    return change


def _rope(slot: int, column: int, bits: int) -> Records_:
    def change(records: Records, _: np.random.Generator) -> None:
        at = records.rope_offsets(np.array([slot]))[0] + 2 * column
        records.memory[at : at + 2] = np.array([bits], np.uint16).view(np.uint8)

    return change


def _scale(slot: int, group: int, scale: float) -> Records_:
    """For DSV4 a power of two, or NaN."""

    def change(records: Records, _: np.random.Generator) -> None:
        scales = _scales_as_stored(records, records.scales(np.array([slot])))
        scales[0, group] = _scales_as_stored(records, np.array([[scale]]))[0, 0]
        every = np.array([slot])
        records.write(every, records.codes(every), scales, records.rope(every))

    return change


def _scales(slot: int, scales: Sequence[float]) -> Records_:
    """All of a V32 record's."""

    def change(records: Records, _: np.random.Generator) -> None:
        every = np.array([slot])
        records.write(every, records.codes(every), np.array([scales], np.float32), records.rope(every))

    return change


def _scales_as_stored(records: Records, scales: Array) -> Array:
    if records.layout == "v32":
        return scales.astype(np.float32)
    exponents = np.log2(np.where(np.isfinite(scales), scales, 1.0)) + 127
    return np.where(np.isfinite(scales), exponents, 255).astype(np.uint8)


def _powers(low: float, high: float, *, of_groups: bool = False) -> Records_:
    """Scales anywhere from 2^low to 2^high: of each key and group, or only of each group."""

    def change(records: Records, random: np.random.Generator) -> None:
        every = np.arange(records.slots)
        scales = reference.random_scales(random, records.layout, records.slots, low, high)
        if of_groups:
            scales = np.repeat(scales[:1], records.slots, axis=0)
        records.write(every, records.codes(every), scales, records.rope(every))

    return change


def _little_weight_great_value(records: Records, random: np.random.Generator) -> None:
    """Keys whose scores are down to 17 below the others', and whose values are greater by as much.

    With queries of `_rope_only` and scale 1/64 the first rope column alone makes the score.
    """
    every = np.arange(records.slots)
    below = np.round(random.uniform(0, 17, records.slots) * 4) / 4
    rope = np.zeros((records.slots, ROPE))
    rope[:, 0] = -below
    scales = np.exp2(np.round(below * np.log2(np.e)))[:, None] / 64
    stored = np.repeat(_scales_as_stored(records, scales), records.format.groups, axis=1)
    records.write(every, records.codes(every), stored, bf16_bits(rope))


def _steps_above_a_large_score(records: Records, random: np.random.Generator) -> None:
    """With queries of `_large_and_one` scores are a large number and 0 to 11 more, where floats are 1 to 8 apart."""
    every = np.arange(records.slots)
    rope = np.zeros((records.slots, ROPE))
    rope[:, 0] = 2.0**7
    rope[64:, 1] = random.integers(0, 12, records.slots - 64)  # later than the first tile
    scales = np.full((records.slots, records.format.groups), 2.0**-7)
    ones = np.full_like(records.codes(every), 0x38)
    records.write(every, ones, _scales_as_stored(records, scales), bf16_bits(rope))


def _large_and_one(large: float) -> Callable[[Array], Array]:
    def change(q: Array) -> Array:
        q = np.zeros_like(q)
        q[..., -ROPE] = bf16_bits(np.array(large))
        q[..., 1 - ROPE] = bf16_bits(np.array(1.0))
        return q

    return change


def _last_group_large(records: Records, random: np.random.Generator) -> None:
    """The power of a key is that of its last scale, 2^14 times the others."""
    every = np.arange(records.slots)
    scales = np.full((records.slots, records.format.groups), 2.0**-20)
    scales[:, -1] = 2.0 ** random.integers(-6, -3, records.slots)
    records.write(every, records.codes(every), _scales_as_stored(records, scales), records.rope(every))


def _many_of_little_weight(records: Records, _: np.random.Generator) -> None:
    """Four keys, and many of 2^-9 of their weight, all of ones; one scale is 2^-12 of the others.

    The products of those weights and that scale lie between numbers of f16 unless they are lifted.
    """
    every = np.arange(records.slots)
    scales = np.ones((records.slots, records.format.groups))
    scales[:, 1] = 2.0**-12
    rope = np.zeros((records.slots, ROPE))
    rope[:, 0] = -6.1875
    rope[:64:16, 0] = 0  # one of each pair of warps
    ones = np.full_like(records.codes(every), 0x38)
    records.write(every, ones, _scales_as_stored(records, scales), bf16_bits(rope))


def _rope_only(q: Array) -> Array:
    q = np.zeros_like(q)
    q[..., -ROPE] = bf16_bits(np.array(64.0))
    return q


def _times(factor: float) -> Callable[[Array], Array]:
    """By a power of two, exactly."""
    return lambda q: bf16_bits(bf16_values(q) * factor)


def _times_in(head: int, factor: float) -> Callable[[Array], Array]:
    """The same for one head alone."""

    def change(q: Array) -> Array:
        changed = q.copy()
        changed[:, head] = _times(factor)(q[:, head])
        return changed

    return change


def _with(request: int, head: int, column: int, bits: int) -> Callable[[Array], Array]:
    def change(q: Array) -> Array:
        q = q.copy()
        q[request, head, column] = bits
        return q

    return change


def cases() -> Iterator[Case]:
    """All cases; `full` ones are for a GPU."""
    for layout in ("v32", "dsv4"):
        yield from _of_either_block((f"{layout}: {name}", inputs) for name, inputs in _of_both(Inputs(layout=layout)))
    yield from _of_either_block((*_of_v32(), *_of_dsv4(), *_of_two_caches()))
    for name, inputs in _of_pairs():
        yield Case(name, replace(inputs, paired=True).check)
    for name, inputs in _full():
        yield Case(name, inputs.check, full=True)


def _of_either_block(those: Iterable[tuple[str, Inputs]]) -> Iterator[Case]:
    """Those of `mla_block.cuh`, and where rows are few enough those of `mla_pairs.cuh` as well."""
    for name, inputs in those:
        yield Case(name, replace(inputs, paired=False).check)
        if inputs.tiles is None or inputs.tiles <= 2:
            layout, rest = name.split(": ", 1)
            yield Case(f"{layout} in pairs: {rest}", replace(inputs, paired=True).check)


def _of_both(plain: Inputs) -> Iterator[tuple[str, Inputs]]:
    """For either layout."""
    for those in (_selections, _odd_records, _odd_numbers, _launches):
        yield from those(plain)


def _part(plain: Inputs, **changes: Any) -> Inputs:
    return replace(plain, parts=(Part(**changes),))


def _indices(*wanted: int) -> Array:
    return np.array(wanted, np.int32)


def _selections(plain: Inputs) -> Iterator[tuple[str, Inputs]]:
    """What is chosen of a cache, and how it lies there."""
    long = _part(plain, k=70)
    yield "plain", long
    yield "all -1", _part(plain, indices=np.full(40, -1))
    yield "lengths 0 and 70", _part(plain, k=70, lengths=(0, 70))
    yield "lengths beyond k and below 0", _part(plain, lengths=(1000, -5))
    yield "ragged lengths", replace(_part(plain, lengths=(0, 1, 33, 64), k=66), requests=4)
    yield "indices beyond the cache", _part(plain, indices=_indices(89, 90, 95, 2**31 - 1, -(2**31), -2, 0, 1, 2))
    yield "one index 40 times", _part(plain, indices=np.full(40, 17))
    yield "repeated", _part(plain, indices=np.tile(_indices(5, 9, 5), 20))
    yield "k 1", _part(plain, k=1, indices=_indices(11))
    yield "k 33", _part(plain, k=33)
    yield "1 head", replace(plain, heads=1)
    yield "20 heads", replace(plain, heads=20)
    yield "pages of 1", _part(plain, page_size=1)
    yield "pages of 16", _part(plain, page_size=16)
    yield "a gap behind pages", _part(plain, page_size=16, page_gap=304)


def _odd_records(plain: Inputs) -> Iterator[tuple[str, Inputs]]:
    """NaN and infinity in records that are seen and in others."""
    some = _indices(3, -1, 5, 3, 7, 60, -1, 61)
    yield (
        "NaN code, selected by one request",
        _part(plain, indices=np.stack([some, _indices(1, 2, 4, 6, 8, 9, 10, 11)]), change=_code(60, 100, _NAN_CODE)),
    )
    yield (
        "NaN code of the other sign, behind the length",
        _part(plain, indices=some, lengths=(8, 5), change=_code(60, 447, _NAN_CODE | 0x80)),
    )
    yield "NaN code, not selected", _part(plain, indices=some, change=_code(4, 0, _NAN_CODE))
    yield (
        "NaN code in the last record, indices beyond it",
        _part(plain, indices=_indices(90, 3, 91, -1), change=_code(89, 0, _NAN_CODE)),
    )
    yield "NaN code in record 0, padding -1", _part(plain, indices=some, change=_code(0, 5, _NAN_CODE))
    yield "infinity in record 0, padding -1", _part(plain, indices=some, change=_rope(0, 5, _INFINITY))
    yield "infinity among the bf16 columns", _part(plain, indices=some, change=_rope(61, 63, _INFINITY))
    yield (
        "negative infinity among the bf16 columns",
        _part(plain, indices=some, change=_rope(61, 0, _INFINITY | 0x8000)),
    )
    yield "NaN among the bf16 columns", _part(plain, indices=some, change=_rope(61, 7, _NAN))
    yield "NaN as a scale", _part(plain, indices=some, change=_scale(7, 2, np.nan))
    yield "NaN as a scale, not selected", _part(plain, indices=some, change=_scale(8, 2, np.nan))


def _odd_numbers(plain: Inputs) -> Iterator[tuple[str, Inputs]]:
    """Queries and scales of any size, and what is not finite."""
    yield "q of zeros", replace(plain, q=np.zeros_like)
    yield "NaN in q of one head", replace(plain, q=_with(1, 3, 200, _NAN))
    yield "infinity in q of one head", replace(plain, q=_with(0, 7, 0, _INFINITY))
    ragged = replace(_part(plain, k=70, lengths=(70, 20)), splits=2)
    yield "NaN in q of one head, a split without keys", replace(ragged, q=_with(1, 4, 9, _NAN))
    yield "infinity in q of one head, a split without keys", replace(ragged, q=_with(1, 4, 9, _INFINITY))
    yield "infinity in the last column of q", replace(plain, q=_with(0, 7, -1, _INFINITY | 0x8000))
    yield "scores of tens of thousands", replace(plain, q=_times(512), scale=1.0)
    late = replace(plain, requests=1, heads=20, parts=(Part(k=290),), tiles=3, splits=1, scale=1.0)
    for head in (5, 17):
        yield f"a maximum that grows late in row {head}", replace(late, q=_times_in(head, 512))
    yield "scores near 0", replace(plain, q=_times(2.0**-20))
    yield "large q and small scale", replace(plain, q=_times(2.0**20), scale=0.05 * 2.0**-20)
    yield "small q and large scale", replace(plain, q=_times(2.0**-30), scale=0.05 * 2.0**30)
    yield "scale below 0", replace(plain, scale=-0.05)
    far = _powers(-12, 12)
    yield "scales from 2^-12 to 2^12", replace(_part(plain, change=far), scale=0.05 / 2**17)
    yield (
        "groups from 2^-12 to 2^12",
        replace(_part(plain, change=_powers(-12, 12, of_groups=True)), scale=0.05 / 2**17),
    )
    yield "tiny scales", _part(plain, change=_powers(-100, -98))
    yield "huge scales", replace(_part(plain, change=_powers(60, 62)), q=_times(2.0**-66))
    yield (
        "little weight, great value",
        replace(_part(plain, change=_little_weight_great_value), q=_rope_only, scale=1 / 64),
    )

    yield "a last scale that is far above the others", _part(plain, k=70, change=_last_group_large)
    many = _part(plain, k=1200, slots=1200, indices=np.arange(1200), change=_many_of_little_weight)
    yield (
        "many keys of little weight, and a small scale",
        replace(many, requests=1, q=_rope_only, scale=1 / 64, splits=1),
    )


def _launches(plain: Inputs) -> Iterator[tuple[str, Inputs]]:
    """Splits, tiles of rows, sinks."""
    long = _part(plain, k=70)
    yield "more splits than tiles", replace(long, splits=9)
    for splits in (1, 2, 3):
        yield f"{splits} splits", replace(long, splits=splits)
    yield "3 splits, ragged", replace(_part(plain, k=70, lengths=(0, 1, 33, 70)), splits=3, requests=4)
    yield "2 splits, one of them of -1", replace(_part(plain, indices=_indices(*range(32), *[-1] * 32)), splits=2)
    for tiles in (1, 2, 4, 5, 6):
        yield f"{tiles} tiles, 41 heads", replace(plain, requests=1, heads=41, tiles=tiles, splits=1)
    yield "6 tiles, 127 heads, 2 splits", replace(long, requests=1, heads=127, tiles=6, splits=2)
    for tiles in (2, 3, 5, 6):  # long enough to go round every ring of stages twice
        round_and_round = replace(long, requests=1, heads=8 * tiles - 3, parts=(Part(k=290),), tiles=tiles, splits=1)
        yield f"k 290, {tiles} tiles", round_and_round
    nothing = replace(_part(plain, indices=np.full(40, -1)), q=_with(1, 3, 200, _NAN))
    yield "NaN in q where nothing is selected", nothing
    yield "NaN in q where nothing is selected, 2 splits", replace(nothing, splits=2)
    yield "128 heads", replace(plain, requests=1, heads=128)
    yield "a sink", replace(plain, sink=(0.5, 3.0, -2.0))
    yield "sinks of -inf, inf and far away", replace(plain, sink=(-np.inf, 1e4, -1e4, np.inf, 60.0))
    yield "a sink and nothing selected", replace(_part(plain, lengths=(0, 2)), sink=(1.0, -np.inf, np.inf))
    yield "a sink and 2 splits", replace(plain, sink=(5.0,), splits=2)


def _of_v32() -> Iterator[tuple[str, Inputs]]:
    some = np.array([3, -1, 5, 3, 7, 60, -1, 61])
    plain = Inputs()
    long = replace(plain, requests=1, parts=(Part(k=70),))
    for splits in (1, 2):
        yield f"v32: 8 tiles, 127 heads, {splits} splits", replace(long, heads=127, tiles=8, splits=splits)
    for tiles in (7, 8):
        round_and_round = replace(long, heads=8 * tiles - 3, parts=(Part(k=290),), tiles=tiles, splits=1)
        yield f"v32: k 290, {tiles} tiles", round_and_round
    far = Part(k=1, indices=np.array([11]), change=_scales(11, (1.0, 2.0**-16, 2.0**-8, 2.0**-15)))
    yield "v32: scales of one record as far apart as they may be", replace(plain, parts=(far,))
    apart = replace(
        _part(plain, k=200, slots=200, indices=np.arange(200), change=_steps_above_a_large_score), scale=1.0, splits=1
    )
    for exponent in (24, 25, 26):
        above = replace(apart, q=_large_and_one(2.0 ** (exponent - 7)))
        yield f"v32: scores of 2^{exponent} and a little more", above
    yield "v32: 0 as a scale", replace(plain, parts=(Part(indices=some, change=_scale(7, 1, 0.0)),))
    yield "v32: a scale below 0", replace(plain, parts=(Part(indices=some, change=_scale(7, 1, -0.02)),))
    yield "v32: infinity as a scale", replace(plain, parts=(Part(indices=some, change=_scale(7, 3, np.inf)),))


def _of_dsv4() -> Iterator[tuple[str, Inputs]]:
    plain = Inputs(layout="dsv4")
    endless = Part(k=128, indices=np.arange(3, 131) % 80, change=_rope(3, 5, _INFINITY))
    for splits in (1, 4):
        weightless = replace(plain, requests=1, parts=(endless,), q=_times(512), scale=1.0, splits=splits, seed=4)
        yield f"dsv4: infinity as a value that weighs next to nothing, {splits} splits", weightless
    yield (
        "dsv4: pages of 5, padded to 576",
        replace(plain, parts=(Part(page_size=5, page_gap=5 * 576 - 2928 + 576),)),
    )
    yield "dsv4: pages of 256", replace(plain, parts=(Part(page_size=256, slots=300),))
    yield "dsv4: the least exponents beside others", replace(plain, parts=(Part(change=_least_exponents),))
    yield "dsv4: the least powers that count", replace(plain, parts=(Part(change=_powers(-100, -96)),))


def _least_exponents(records: Records, random: np.random.Generator) -> None:
    every = np.arange(records.slots)
    scales = reference.random_scales(random, "dsv4", records.slots)
    scales[random.random(scales.shape) < 0.5] = 0
    scales[0] = random.integers(118, 122, 7)
    records.write(every, records.codes(every), scales, records.rope(every))


def _of_pairs() -> Iterator[tuple[str, Inputs]]:
    """Long enough to go round both stages of every pair twice, and maxima that grow late in each row of a lane."""
    for layout in ("v32", "dsv4"):
        for tiles in (1, 2):
            long = Inputs(requests=1, heads=8 * tiles - 3, layout=layout, parts=(Part(k=330),), tiles=tiles, splits=1)
            yield f"{layout} in pairs: k 330, {tiles} tiles", long
            yield f"{layout} in pairs: k 330, {tiles} tiles, 2 splits", replace(long, splits=2)
            for head in (2, 8 * tiles - 5):
                late = replace(long, scale=1.0, q=_times_in(head, 512))
                yield f"{layout} in pairs: a maximum that grows late in row {head} of {8 * tiles - 3}", late


def _of_two_caches() -> Iterator[tuple[str, Inputs]]:
    for layout in ("v32", "dsv4"):
        first = Part(page_size=16)
        second = Part(k=36, slots=40, page_size=2, lengths=(36, 7))
        plain = Inputs(layout=layout, parts=(first, second))
        nothing = replace(first, indices=np.full(40, -1))
        yield f"{layout}: two caches", plain
        yield f"{layout}: two caches, 3 splits", replace(plain, splits=3)
        yield f"{layout}: two caches, 1 split", replace(plain, splits=1)
        yield f"{layout}: two caches, the first of -1", replace(plain, parts=(nothing, second))
        yield (
            f"{layout}: two caches, no length",
            replace(plain, parts=(replace(first, lengths=(0, 3)), replace(second, lengths=(9, 0)))),
        )
        yield (
            f"{layout}: two caches, neither selected",
            replace(plain, parts=(replace(first, lengths=(0, 3)), replace(second, lengths=(0, 40)))),
        )
        yield f"{layout}: two caches and a sink, 20 heads", replace(plain, heads=20, sink=(0.5, -1.0, 4.0))
        yield (
            f"{layout}: two caches, NaN in what the second does not select",
            replace(plain, parts=(first, replace(second, indices=np.arange(36), change=_code(38, 3, _NAN_CODE)))),
        )
        yield (
            f"{layout}: two caches, NaN in the second",
            replace(plain, parts=(first, replace(second, indices=np.arange(36), change=_code(9, 3, _NAN_CODE)))),
        )


def _full() -> Iterator[tuple[str, Inputs]]:
    def of(requests: int, heads: int, k: int, layout: str = "v32", **others: Any) -> Inputs:
        part = Part(k=k, slots=max(2 * k, 40_000), page_size=64)
        return Inputs(requests, heads, layout, (part,), compared=min(requests, 8), **others)

    for layout in ("v32", "dsv4"):
        for requests, heads, k in ((1, 64, 512), (1, 128, 2048), (64, 128, 2048), (16, 8, 2048), (64, 16, 2048)):
            yield f"{layout}: {requests} requests, {heads} heads, k {k:,}", of(requests, heads, k, layout)
        random = np.random.default_rng(5)
        ragged = Part(k=2048, slots=40_000, lengths=tuple(random.integers(0, 2049, 64).tolist()))
        yield f"{layout}: 64 ragged requests, 20 heads", Inputs(64, 20, layout, (ragged,), compared=24)
        for heads in (1, 24, 33, 40, 57, 72, 96, 127):
            part = Part(k=1000, slots=3000)
            yield f"{layout}: 3 requests, {heads} heads, k 1,000", Inputs(3, heads, layout, (part,), seed=heads)
        both = (Part(k=128, slots=20_000), Part(k=1100, slots=5000, page_size=2, lengths=(1100, 3, 0, 600)))
        yield f"{layout}: two caches and a sink, 64 heads", Inputs(4, 64, layout, both, sink=(0.5, 3.0, -2.0))
        yield f"{layout}: k 32,768, 16 heads", of(2, 16, 32_768, layout)
    large = Part(k=2048, slots=4_000_000, first=3_960_000)
    yield "v32: a cache beyond 2 GB", Inputs(2, 16, "v32", (large,))
