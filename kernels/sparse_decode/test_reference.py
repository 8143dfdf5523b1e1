"""The reference against a plain loop over single numbers, and against torch."""

from __future__ import annotations

import math
import struct
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from traceanalyzer.kernels.common.attention import expect_close
from traceanalyzer.kernels.common.errors import MismatchError
from traceanalyzer.kernels.gather_cast.reference import VALUES, bf16_bits, value_of_code
from traceanalyzer.kernels.sparse_decode import reference
from traceanalyzer.kernels.sparse_decode.reference import Records, Selection

Array = npt.NDArray[Any]


def one_record(records: Records, slot: int) -> list[float]:
    """By the words of the definition, number by number."""
    memory = records.memory.tobytes()
    page, at = divmod(slot, records.page_size)
    page *= records.page_bytes
    if records.layout == "v32":
        start = page + at * 656
        scales = struct.unpack_from("<4f", memory, start + 512)
        codes, group, rope = memory[start : start + 512], 128, start + 528
    else:
        start, behind = page + at * 576, page + records.page_size * 576 + at * 8
        scales = tuple(math.nan if byte == 255 else 2.0 ** (byte - 127) for byte in memory[behind : behind + 7])
        codes, group, rope = memory[start : start + 448], 64, start + 448
    values = [value_of_code(code) * scales[column // group] for column, code in enumerate(codes)]
    for column in range(64):
        (bits,) = struct.unpack_from("<H", memory, rope + 2 * column)
        values.append(struct.unpack("<f", struct.pack("<I", bits << 16))[0])
    return values


def by_loops(q: list[float], keys: list[list[float]], scale: float) -> tuple[list[float], float]:
    scores = [scale * sum(mine * theirs for mine, theirs in zip(q, key, strict=True)) for key in keys]
    total = sum(math.exp(score) for score in scores)
    out = [sum(math.exp(score) * key[column] for score, key in zip(scores, keys, strict=True)) for column in range(512)]
    return [value / total for value in out], math.log(total)


@pytest.mark.parametrize(
    ("layout", "page_size", "gap"), [("v32", 64, 0), ("v32", 1, 16), ("dsv4", 5, 0), ("dsv4", 1, 160)]
)
def test_it_gives_what_a_loop_over_numbers_gives(layout: str, page_size: int, gap: int) -> None:
    random = np.random.default_rng(page_size)
    page_bytes = reference.FORMATS[layout].page_bytes(page_size) + gap
    records = reference.random_records(random, layout, 13, page_size, page_bytes)
    other = reference.random_records(random, layout, 4, 2)
    q = reference.random_bf16(random, 2, 3, records.format.columns)
    indices = np.array([[3, -1, 12, 13, 3, 0], [-7, 2**31 - 1, 5, 6, 7, 8]], np.int32)
    first = Selection(records, indices, np.array([6, 4], np.int32))
    second = Selection(other, np.array([[3], [1]], np.int32), None)
    sink = np.array([0.5, -np.inf, 1.0], np.float32)
    found = reference.sparse_decode(q, [first, second], 0.0625, sink)
    wanted = [
        [(records, 3), (records, 12), (records, 3), (records, 0), (other, 3)],
        [(records, 5), (records, 6), (other, 1)],
    ]
    queries = (q.astype(np.uint32) << 16).view(np.float32).astype(float)
    for request in range(2):
        keys = [one_record(*each) for each in wanted[request]]
        for head in range(3):
            out, lse = by_loops(queries[request, head].tolist(), keys, 0.0625)
            share = 1 / (1 + math.exp(float(sink[head]) - lse))
            np.testing.assert_allclose(found.out[request, head], np.array(out) * share, rtol=1e-9, atol=1e-12)
            np.testing.assert_allclose(found.lse[request, head], lse, rtol=1e-12)
    assert not found.broken.any()


def test_nothing_selected_is_zero() -> None:
    random = np.random.default_rng(1)
    records = reference.random_records(random, "v32", 4)
    q = reference.random_bf16(random, 1, 2, 576)
    found = reference.sparse_decode(q, [Selection(records, np.full((1, 3), -1, np.int32), None)], 1.0, np.zeros(2))
    assert not found.out.any()
    assert np.isneginf(found.lse).all()


def test_what_is_written_is_read_and_codes_are_nearest() -> None:
    np.testing.assert_array_equal(reference.code_of_value(VALUES[:127]), np.arange(127))
    np.testing.assert_array_equal(reference.code_of_value(VALUES[129:255]), np.arange(129, 255))
    assert reference.code_of_value(np.array([1.04, 1e9])).tolist() == [0x38, 0x7E]
    for layout, found in reference.FORMATS.items():
        records = reference.random_records(np.random.default_rng(2), layout, 70)
        every = np.arange(70)
        keys = records.keys(every)
        assert keys.shape == (70, found.columns)
        assert 0.3 < np.abs(keys).mean() < 3
        scales = reference.random_scales(np.random.default_rng(3), layout, 70)
        records.write(every, records.codes(every), scales, records.rope(every))
        np.testing.assert_array_equal(records.keys(every)[:, found.codes :], keys[:, found.codes :])
        assert (records.scales(every) == (scales if layout == "v32" else 2.0 ** (scales.astype(int) - 127))).all()


def test_what_is_not_finite_breaks_the_rows_that_see_it() -> None:
    random = np.random.default_rng(4)
    records = reference.random_records(random, "v32", 8)
    records.memory[656 * 3 + 7] = 0x7F
    q = reference.random_bf16(random, 3, 2, 576)
    q[2, 1, 100] = 0xFF80
    indices = np.array([[1, 2, -1], [1, 3, 2], [1, 2, 4]], np.int32)
    found = reference.sparse_decode(q, [Selection(records, indices, None)], 0.05)
    assert found.broken.tolist() == [[False, False], [True, True], [False, True]]
    assert not found.doubtful.any()
    assert np.isfinite(found.out).all()


def test_a_score_of_minus_infinity_is_a_weight_of_zero_or_not() -> None:
    random = np.random.default_rng(6)
    records = reference.random_records(random, "v32", 8)
    records.memory[656 * 3 + 655] = 0x7F  # the last of the bf16 columns, which are no values
    records.memory[656 * 3 + 654] = 0x80
    q = reference.random_bf16(random, 1, 2, 576)
    q[0, :, 575] = (0xBF80, 0x3F80)
    indices = np.array([[1, 2, 3]], np.int32)
    found = reference.sparse_decode(q, [Selection(records, indices, None)], 0.05)
    assert found.doubtful.tolist() == [[True, False]]
    assert found.broken.tolist() == [[False, True]]
    nan, one = np.full((1, 2, 512), 0x7FFF, np.uint16), np.full((1, 2, 512), 0x3F80, np.uint16)
    one[0, 1] = 0x7F80
    for out in (nan, one):
        assert expect_close(out, np.zeros((1, 2), np.float32), found) == 0


def test_errors_are_noticed() -> None:
    random = np.random.default_rng(5)
    records = reference.random_records(random, "v32", 40)
    q = reference.random_bf16(random, 2, 2, 576)
    indices = random.integers(0, 40, (2, 30), dtype=np.int32)
    expected = reference.sparse_decode(q, [Selection(records, indices, None)], 0.04)
    out, lse = bf16_bits(expected.out), expected.lse.astype(np.float32)
    assert expect_close(out, lse, expected) < 0.6
    off = out.copy()
    off[1, 0, 7] = bf16_bits(np.array(expected.out[1, 0, 7] + 0.02 * expected.weighted_sizes[1, 0, 7]))
    with pytest.raises(MismatchError, match=r"out\[1, 0, 7\] is .*times the bound \(1 of 2048"):
        expect_close(off, lse, expected)
    off[1, 0, 7] = 0x7FFF
    with pytest.raises(MismatchError, match="is nan, not"):
        expect_close(off, lse, expected)
    with pytest.raises(MismatchError, match=r"lse\[0, 1\]"):
        expect_close(out, lse + np.array([[0, 1e-3], [0, 0]], np.float32), expected)
    records.memory[656 * indices[0, 0]] = 0x7F
    broken = reference.sparse_decode(q, [Selection(records, indices, None)], 0.04)
    with pytest.raises(MismatchError, match=r"out\[0, 0\] is finite"):
        expect_close(out, lse, broken)
