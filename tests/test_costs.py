"""Bytes and operations of operators, by hand from their shapes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from traceanalyzer.analyses.costs import Cost, cost_of, parse_call
from traceanalyzer.analyses.costs.operators import _RULES
from traceanalyzer.analyses.costs.tensors import ELEMENT_BYTES

BF16, FP8, FLOAT, LONG = "c10::BFloat16", "c10::Float8_e4m3fn", "float", "long int"


def cost(name: str, dims: Any, types: Any, values: Any = None, strides: Any = None) -> Cost | None:
    texts = [json.dumps(each) if each is not None else None for each in (dims, types, strides, values)]
    call = parse_call(name, *texts)
    return None if call is None else cost_of(call)


MIB = 1 << 20
#: name, dims, types, values, strides -> read, written, flops, precision, family
BY_HAND: list[tuple[str, Any, Any, Any, Any, tuple[int, int, int | None, str | None, str]]] = [
    # the cast of the whole pool: 495,000 x 576, one byte read and two written an element, 855 MB in all
    ("aten::copy_", [[495000, 576], [495000, 576], []], [BF16, FP8, "Scalar"], None, None,
     (285_120_000, 570_240_000, None, None, "cast")),
    ("aten::copy_", [[8], [8], []], [LONG, LONG, "Scalar"], None, None, (64, 64, None, None, "copy")),
    # a source that is one row, shown 1,000 times
    ("aten::copy_", [[1000, 64], [1000, 64], []], [FLOAT, FLOAT, "Scalar"], None, [[64, 1], [0, 1], []],
     (256, 256_000, None, None, "copy")),
    ("aten::fill_", [[8, 7168], []], [BF16, "Scalar"], None, None, (0, 114_688, None, None, "fill")),
    ("aten::cat", [[[3, 4], [5, 4]], [], [8, 4]], ["TensorList", "Scalar", FLOAT], ["", "0", ""], None,
     (128, 128, None, None, "copy")),
    ("aten::index_select", [[495000, 576], [], [4096], [4096, 576]], [BF16, "Scalar", LONG, BF16], ["", "0", "", ""],
     None, (4096 * 576 * 2 + 4096 * 8, 4096 * 576 * 2, None, None, "gather")),
    ("aten::gather", [[495000, 576], [], [4096, 576], []], [BF16, "Scalar", LONG, "Scalar"], ["", "0", "", "False"],
     [[576, 1], [], [1, 0], []], (4096 * 576 * 2 + 4096 * 8, 4096 * 576 * 2, None, None, "gather")),
    ("aten::embedding", [[32768, 7168], [8], [], [], []], [BF16, LONG, "Scalar", "Scalar", "Scalar"], None, None,
     (8 * 7168 * 2 + 64, 8 * 7168 * 2, None, None, "gather")),
    ("aten::add", [[16, 128, 512], [512], []], [FLOAT, FLOAT, "Scalar"], None, None,
     (4 * MIB + 2048, 4 * MIB, None, None, "elementwise")),
    ("aten::add", [[4, 8], [4, 8], [], [4, 8]], [FLOAT, FLOAT, "Scalar", FLOAT], None, None,
     (256, 128, None, None, "elementwise")),
    ("aten::mul_", [[6288, 768], []], [BF16, "double"], None, None,
     (6288 * 768 * 2 + 8, 6288 * 768 * 2, None, None, "elementwise")),
    ("aten::add", [[4, 4], [4, 4], []], [LONG, BF16, "Scalar"], None, None, (160, 32, None, None, "elementwise")),
    ("aten::eq", [[256], [256]], [FLOAT, FLOAT], None, None, (2048, 256, None, None, "elementwise")),
    ("aten::where", [[4, 1], [4, 8], [8]], ["bool", FLOAT, FLOAT], None, None,
     (4 + 128 + 32, 128, None, None, "elementwise")),
    ("aten::sum", [[5, 128], [], [], []], [FLOAT, "ScalarList", "Scalar", ""], None, None,
     (2560, 0, None, None, "reduction")),
    ("aten::_softmax", [[8, 64, 512], [], [], [8, 64, 512]], [BF16, "Scalar", "Scalar", BF16], None, None,
     (524_288, 524_288, None, None, "softmax")),
    ("aten::native_layer_norm", [[16, 128, 512], [], [512], [512], []], [FLOAT, "ScalarList", FLOAT, FLOAT, "Scalar"],
     None, None, (4 * MIB + 4096, 4 * MIB, None, None, "norm")),
    # gradient and input of 32 x 64 x 56 x 56 are read, one is written
    ("aten::cudnn_batch_norm_backward", [[32, 64, 56, 56]] * 2 + [[64]] * 5 + [[], [0]],
     [FLOAT] * 7 + ["Double", "unsigned char"], None, None,
     (2 * 32 * 64 * 3136 * 4 + 5 * 256, 32 * 64 * 3136 * 4, None, None, "norm")),
    ("aten::mm", [[8, 7168], [7168, 2112], [8, 2112]], [BF16, BF16, BF16], None, None,
     (8 * 7168 * 2 + 7168 * 2112 * 2, 8 * 2112 * 2, 2 * 8 * 7168 * 2112, "bf16", "gemm")),
    ("aten::addmm", [[10], [32, 128], [128, 10], [], []], [FLOAT, FLOAT, FLOAT, "Scalar", "Scalar"], None, None,
     (40 + 4 * 32 * 128 + 4 * 128 * 10, 4 * 32 * 10, 2 * 32 * 128 * 10, "fp32", "gemm")),
    ("aten::bmm", [[128, 128, 64], [128, 64, 128]], [FLOAT, FLOAT], None, None,
     (2 * 4 * MIB, 8 * MIB, 2 * 128 * 128 * 64 * 128, "fp32", "gemm")),
    ("aten::_int_mm", [[128, 128], [128, 128]], ["signed char"] * 2, None, None,
     (2 * 128 * 128, 4 * 128 * 128, 2 * 128**3, "int8", "gemm")),
    ("aten::max", [[64], [64]], [FLOAT] * 2, None, None, (512, 256, None, None, "reduction")),
    ("aten::_scaled_mm", [[16, 32], [32, 64], [], [], [], [], []], [FP8, FP8, FLOAT, FLOAT, "", "", "Scalar"], None,
     None, (16 * 32 + 32 * 64, 16 * 64 * 2, 2 * 16 * 32 * 64, "fp8", "gemm")),
    # 3 x 3, padding 1, stride 1: 32 x 32 stays
    ("aten::cudnn_convolution", [[32, 3, 32, 32], [16, 3, 3, 3]] + [[]] * 7, [FLOAT, FLOAT, *["ScalarList"] * 7],
     ["", "", "[1, 1]", "[1, 1]", "[1, 1]", "1", "False", "False", "True"], None,
     (4 * (32 * 3 * 1024 + 16 * 27), 4 * 32 * 16 * 1024, 2 * 32 * 16 * 1024 * 27, "fp32", "convolution")),
    # 7 x 7, padding 3, stride 2 on 224: 112
    ("aten::miopen_convolution", [[512, 3, 224, 224], [64, 3, 7, 7]] + [[]] * 7, [BF16, BF16, *["ScalarList"] * 7],
     ["", "", "", "[3, 3]", "[2, 2]", "[1, 1]", "1", "False", "False"], None,
     (2 * (512 * 3 * 224 * 224 + 64 * 147), 2 * 512 * 64 * 112 * 112, 2 * 512 * 64 * 112 * 112 * 147, "bf16",
      "convolution")),
    ("aten::_scaled_dot_product_flash_attention", [[1, 12, 197, 64]] * 3 + [[]] * 4, [BF16] * 3 + ["Scalar"] * 4,
     ["", "", "", "0.", "False", "False", "0.125"], None,
     (3 * 12 * 197 * 64 * 2, 12 * 197 * 64 * 2, 4 * 12 * 197 * 197 * 64, "bf16", "attention")),
    ("aten::_flash_attention_forward", [[1, 197, 12, 64]] * 3 + [[]] * 8, [BF16] * 3 + ["Scalar"] * 8,
     ["", "", "", "", "", "197", "197", "0.", "True", "False", "0.125"], None,
     (3 * 12 * 197 * 64 * 2, 12 * 197 * 64 * 2, 4 * 12 * (197 * 198 // 2) * 64, "bf16", "attention")),
    ("triton_poi_fused__to_copy_t_8", [[3072, 768], [768, 3072], []], [FLOAT, BF16, "Scalar"], None, None,
     (3072 * 768 * 6, 0, None, None, "pointwise arguments")),
]  # fmt: skip


@pytest.mark.parametrize(("name", "dims", "types", "values", "strides", "expected"), BY_HAND)
def test_costs_by_hand(
    name: str, dims: Any, types: Any, values: Any, strides: Any, expected: tuple[int, int, int | None, str | None, str]
) -> None:
    found = cost(name, dims, types, values, strides)
    assert found is not None
    assert (found.read, found.written, found.flops, found.precision, found.family) == expected
    assert found.bytes == found.read + found.written


@pytest.mark.parametrize(
    ("name", "dims", "types"),
    [
        ("aten::mm", [[8, 4], [5, 8]], [FLOAT, FLOAT]),  # inner sizes that do not fit
        ("aten::add", [[4, 3], [4, 2]], [FLOAT, FLOAT]),  # no broadcast
        ("aten::copy_", [[4], []], [FLOAT, ""]),  # a source that is no tensor
        ("aten::copy_", [[4], [4]], ["c10::Float4_e2m1fn_x2", FLOAT]),  # packing unknown
        ("aten::cat", [[[3, 4], [5, 4]], []], ["TensorList", "Scalar"]),  # type of the list not recorded
        ("aten::convolution", [[1, 3, 8, 8], [4, 3, 3, 3]], [FLOAT, FLOAT]),  # no padding, stride, ... recorded
        ("my::op", [[4]], [FLOAT]),
        ("triton_poi_fused_embedding_add_3", [[1000, 64], [8]], [FLOAT, LONG]),  # picks rows, nobody knows how many
    ],
)
def test_what_shapes_do_not_tell_has_no_cost(name: str, dims: Any, types: Any) -> None:
    assert cost(name, dims, types) is None


@pytest.mark.parametrize("text", [None, "", "{}", "[[", "3", "null"])
def test_texts_that_are_no_lists_are_no_call(text: str | None) -> None:
    assert parse_call("aten::mm", text, text) is None


def test_overloads_are_one_operator() -> None:
    assert cost("aten::add.Tensor", [[4], [4], []], [FLOAT, FLOAT, "Scalar"]) == cost(
        "aten::add", [[4], [4], []], [FLOAT, FLOAT, "Scalar"]
    )


_dims = st.recursive(st.integers(-2, 9), lambda inner: st.lists(inner, max_size=4), max_leaves=12)
_values = st.lists(st.sampled_from(["", "0", "1", "-1", "9", "[1]", "[0, 0]", "[1, 1]", "True", "False", "x"]))


@given(
    st.sampled_from([*_RULES, "triton_poi_fused_x"]),
    st.lists(_dims, max_size=6),
    st.lists(st.sampled_from([*ELEMENT_BYTES, "", "Scalar"]), max_size=6),
    _values,
    st.lists(_dims, max_size=6),
)
def test_any_shapes_give_a_cost_that_can_be_or_none(
    name: str, dims: Any, types: Any, values: Any, strides: Any
) -> None:
    found = cost(name, dims, types, values, strides)
    assert found is None or (found.read >= 0 and found.written >= 0 and (found.flops is None or found.flops >= 0))
