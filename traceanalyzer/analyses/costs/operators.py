"""Bytes and floating-point operations of operators, from the shapes of their inputs.

Bytes are the least that has to move: every element that is read once, every element of the result once. A cache may
serve some of it, a kernel may read it several times; so a rate made of it is what was achieved for the user, not what a
counter of the memory would show. Operations count a multiply and an add as two. Where a figure cannot be known from
the shapes it is None; an operator that no rule knows has no cost at all.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod

from traceanalyzer.analyses.costs.tensors import PRECISIONS, Call, Tensor

Rule = Callable[[Call], "Cost | None"]


@dataclass(frozen=True)
class Cost:
    """What one call of an operator needs."""

    read: int
    """Bytes that have to be read."""
    written: int
    """Bytes that have to be written."""
    flops: int | None = None
    """Floating-point operations that tensor units or FMA pipes do; None where they are not what takes the time."""
    precision: str | None = None
    """What the operations are done in: bf16, fp16, fp8, fp32, int8."""
    family: str = ""
    """The rule that gave it: copy, cast, fill, elementwise, gemm, convolution, attention, gather, norm, ..."""

    @property
    def bytes(self) -> int:
        """Bytes that have to move."""
        return self.read + self.written


def cost_of(call: Call) -> Cost | None:
    """The cost of a call; None where no rule knows the operator or its shapes do not fit the rule."""
    rule = _RULES.get(call.name) or _rule_by_pattern(call.name)
    if rule is None:
        return None
    family, function = rule
    cost = function(call)
    return None if cost is None else replace(cost, family=cost.family or family)


def _rule_by_pattern(name: str) -> tuple[str, Rule] | None:
    return next((rule for pattern, *rule in _PATTERNS if pattern.match(name)), None)  # type: ignore[return-value]


# ---------------------------------------------------------------------------------------------------- memory


def _copy(call: Call) -> Cost | None:
    """`copy_(destination, source)`: a source that is broadcast is read once."""
    target, source = call.tensor(0), call.tensor(1)
    if target is None or source is None:
        return None
    family = "copy" if target.element == source.element else "cast"
    return Cost(source.stored_bytes, target.bytes, family=family)


def _fill(call: Call) -> Cost | None:
    target = call.tensor(0)
    return None if target is None else Cost(0, target.bytes)


def _concatenate(call: Call) -> Cost | None:
    """Only where the result is recorded: torch does not say of what type the tensors of a list are."""
    result = call.leading[-1] if call.leading else None
    return None if result is None or result.elements == 0 else Cost(result.bytes, result.bytes)


def _gather_rows(call: Call, table: int, index: int) -> Cost | None:
    """Rows of a table by an index: only what is picked moves."""
    rows, places = call.tensor(table), call.tensor(index)
    if rows is None or places is None or not rows.shape:
        return None
    picked = places.elements * prod(rows.shape[1:]) * rows.item_bytes
    return Cost(picked + places.bytes, picked)


def _index_select(call: Call) -> Cost | None:
    """`index_select(table, dim, index)` along any dimension."""
    table, index, dim = call.tensor(0), call.tensor(2), call.value(1)
    if table is None or index is None or not table.shape or not isinstance(dim, int):
        return None
    along = table.shape[dim] if -len(table.shape) <= dim < len(table.shape) else 0
    if not along:
        return None
    picked = table.bytes // along * index.elements
    return Cost(picked + index.bytes, picked)


def _gather(call: Call) -> Cost | None:
    """`gather(table, dim, index)`: as many elements as the index shows; an index that is broadcast is read once."""
    table, index = call.tensor(0), call.tensor(2)
    if table is None or index is None:
        return None
    picked = index.elements * table.item_bytes
    return Cost(picked + index.stored_bytes, picked)


# ---------------------------------------------------------------------------------------------------- elementwise


def _broadcast(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...] | None:
    """The shape that these make together; None where they do not fit."""
    length = max((len(shape) for shape in shapes), default=0)
    padded = [(1,) * (length - len(shape)) + shape for shape in shapes]
    sizes = []
    for column in zip(*padded, strict=True):
        wide = {size for size in column if size != 1}
        if len(wide) > 1:
            return None
        sizes.append(wide.pop() if wide else 1)
    return tuple(sizes)


_FLOATING = ("c10::", "float", "double")


def _promoted_bytes(tensors: Sequence[Tensor]) -> int:
    """Bytes of an element of the result: floating types win over whole numbers, tensors over single values."""
    wide = [tensor for tensor in tensors if tensor.shape] or list(tensors)
    floating = [tensor for tensor in wide if tensor.element.startswith(_FLOATING)]
    return max(tensor.item_bytes for tensor in (floating or wide))


def _elementwise(operands: int, result_bytes: int | None = None) -> Rule:
    """One result element for each place of the broadcast first `operands` inputs; `result_bytes` where its type is not
    theirs. Further inputs are scalars, or the place for the result."""

    def rule(call: Call) -> Cost | None:
        tensors = [tensor for place in range(operands) if (tensor := call.tensor(place)) is not None]
        shape = _broadcast([tensor.shape for tensor in tensors])
        if shape is None or call.tensor(0) is None:
            return None
        target = call.tensor(0)
        if call.name.endswith("_") and target is not None:
            written = target.bytes
        else:
            written = prod(shape) * (result_bytes or _promoted_bytes(tensors))
        return Cost(sum(tensor.stored_bytes for tensor in tensors), written)

    return rule


def _reduce(call: Call) -> Cost | None:
    """Reads all of the first input; what it writes is small beside it and not recorded."""
    source = call.tensor(0)
    if call.tensor(1) is not None and call.name in ("aten::max", "aten::min"):
        return _elementwise(2)(call)  # of two tensors, place by place
    return None if source is None else Cost(source.stored_bytes, 0)


def _same_shape(call: Call) -> Cost | None:
    """Normalisations and softmax: reads all that stands alone, writes one result as large as the first input."""
    tensors = call.leading
    first = call.tensor(0)
    if first is None:
        return None
    inputs = tensors[:-1] if len(tensors) > 1 and _is_result(call, tensors[-1], first) else tensors
    return Cost(sum(tensor.stored_bytes for tensor in inputs), first.bytes)


def _is_result(call: Call, last: Tensor, first: Tensor) -> bool:
    """Whether the last tensor is the place for the result: `_softmax(x, dim, half_to_float, out)`."""
    return call.name in _WITH_RESULT and last.shape == first.shape


_WITH_RESULT = {"aten::_softmax", "aten::_log_softmax"}


# ---------------------------------------------------------------------------------------------------- matrix products


def _gemm(a: int, b: int, c: int | None = None) -> Rule:
    """`a [..., m, k]` times `b [..., k, n]`, plus `c` where there is one."""

    def rule(call: Call) -> Cost | None:
        left, right = call.tensor(a), call.tensor(b)
        if left is None or right is None or len(left.shape) < 2 or len(left.shape) != len(right.shape):
            return None
        *batch, m, k = left.shape
        *other, k2, n = right.shape
        if k != k2 or batch != other:
            return None
        added = None if c is None else call.tensor(c)
        result = call.leading[-1]
        item = result.item_bytes if result.shape == (*batch, m, n) else left.item_bytes
        read = left.stored_bytes + right.stored_bytes + (added.stored_bytes if added is not None else 0)
        precision = PRECISIONS.get(left.element)
        return Cost(read, prod(batch) * m * n * item, 2 * prod(batch) * m * n * k, precision)

    return rule


def _scaled_gemm(call: Call) -> Cost | None:
    """`_scaled_mm(a, b, scale_a, scale_b, ...)`: the result is of a 16-bit type unless it is recorded."""
    cost = _gemm(0, 1)(call)
    left, right = call.tensor(0), call.tensor(1)
    if cost is None or left is None or right is None:
        return None
    result = call.leading[-1]
    shape = (left.shape[0], right.shape[1])
    item = result.item_bytes if result.shape == shape and len(call.leading) > 4 else 2
    return replace(cost, written=prod(shape) * item)


def _int_gemm(call: Call) -> Cost | None:
    """`_int_mm(a, b)` of 8-bit numbers has a result of 32-bit ones."""
    cost, left, right = _gemm(0, 1)(call), call.tensor(0), call.tensor(1)
    if cost is None or left is None or right is None:
        return None
    return replace(cost, written=left.shape[0] * right.shape[1] * 4)


def _convolution(padding: int, stride: int, dilation: int, groups: int, transposed: int | None = None) -> Rule:
    """`input [n, c, ...]` with `weight [out, c / groups, ...]`; the places are those of the scalar arguments."""

    def rule(call: Call) -> Cost | None:
        image, weight = call.tensor(0), call.tensor(1)
        if image is None or weight is None or len(image.shape) < 3 or len(image.shape) != len(weight.shape):
            return None
        if transposed is not None and call.value(transposed) is not False:
            return None
        rank = len(image.shape) - 2
        pads, steps, gaps = (_per_axis(call.value(place), rank) for place in (padding, stride, dilation))
        if pads is None or steps is None or gaps is None or not isinstance(call.value(groups), int):
            return None
        out = []
        for size, kernel, pad, step, gap in zip(image.shape[2:], weight.shape[2:], pads, steps, gaps, strict=True):
            out.append((size + 2 * pad - gap * (kernel - 1) - 1) // step + 1 if step > 0 else 0)
        if min(out) <= 0:
            return None
        results = image.shape[0] * weight.shape[0] * prod(out)
        flops = 2 * results * prod(weight.shape[1:])
        read = image.stored_bytes + weight.stored_bytes
        return Cost(read, results * image.item_bytes, flops, PRECISIONS.get(image.element))

    return rule


def _per_axis(value: object, rank: int) -> list[int] | None:
    if not isinstance(value, list) or not all(isinstance(each, int) for each in value):
        return None
    return value * rank if len(value) == 1 else (value if len(value) == rank else None)


# ---------------------------------------------------------------------------------------------------- attention


def _attention(*, heads_first: bool, causal: int) -> Rule:
    """Queries, keys and values as the first three inputs. Of a causal mask the half above the diagonal is not done."""

    def rule(call: Call) -> Cost | None:
        query, key, value = (call.tensor(place) for place in range(3))
        if query is None or key is None or value is None or {len(each.shape) for each in (query, key, value)} != {4}:
            return None
        order = (0, 1, 2, 3) if heads_first else (0, 2, 1, 3)
        batch, heads, length, width = (query.shape[axis] for axis in order)
        context, depth = key.shape[order[2]], value.shape[3]
        is_causal = call.value(causal)
        if not isinstance(is_causal, bool):
            return None
        pairs = length * context
        if is_causal:  # of query i are the keys up to i; both begin at 0
            diagonal = min(length, context)
            pairs = diagonal * (diagonal + 1) // 2 + max(length - context, 0) * context
        flops = 2 * batch * heads * pairs * (width + depth)
        read = query.stored_bytes + key.stored_bytes + value.stored_bytes
        written = batch * heads * length * depth * query.item_bytes
        return Cost(read, written, flops, PRECISIONS.get(query.element))

    return rule


# ---------------------------------------------------------------------------------------------------- generated kernels


def _pointwise_arguments(call: Call) -> Cost | None:
    """A generated pointwise kernel touches every element of the tensors it is given, results included, about once.

    Which of them are results is not recorded, so all that moves stands under `read`.
    """
    return Cost(sum(tensor.stored_bytes for tensor in call.leading), 0) if call.leading else None


_UNARY = (
    "relu", "gelu", "silu", "sigmoid", "tanh", "exp", "log", "neg", "abs", "sqrt", "rsqrt", "square", "reciprocal",
    "sin", "cos", "erf", "clamp", "clamp_min", "clamp_max", "threshold", "leaky_relu", "elu", "hardtanh", "softplus",
    "hardswish", "mish", "floor", "ceil", "round", "bitwise_not", "logical_not", "pow", "sign", "trunc",
)  # fmt: skip
_BINARY = (
    "add", "sub", "rsub", "mul", "div", "true_divide", "maximum", "minimum", "fmod", "remainder", "bitwise_and",
    "bitwise_or", "bitwise_xor", "threshold_backward", "sigmoid_backward", "tanh_backward", "gelu_backward",
    "silu_backward", "floor_divide", "masked_fill",
)  # fmt: skip
_TERNARY = ("addcmul", "addcdiv", "lerp", "where")
_COMPARISONS = (
    "eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_xor", "isnan", "isinf", "isfinite",
)  # fmt: skip
_REDUCTIONS = ("sum", "mean", "max", "min", "amax", "amin", "any", "all", "argmax", "argmin", "norm", "var", "std")

_RULES: dict[str, tuple[str, Rule]] = {
    "aten::copy_": ("copy", _copy),
    "aten::fill_": ("fill", _fill),
    "aten::zero_": ("fill", _fill),
    "aten::cat": ("copy", _concatenate),
    "aten::index_select": ("gather", _index_select),
    "aten::embedding": ("gather", lambda call: _gather_rows(call, 0, 1)),
    "aten::gather": ("gather", _gather),
    **{
        f"aten::{name}{in_place}": ("elementwise", _elementwise(operands))
        for operands, names in ((1, _UNARY), (2, _BINARY), (3, _TERNARY))
        for name in names
        for in_place in ("", "_")
    },
    **{f"aten::{name}": ("elementwise", _elementwise(2, result_bytes=1)) for name in _COMPARISONS},
    **{f"aten::{name}": ("reduction", _reduce) for name in _REDUCTIONS},
    "aten::_softmax": ("softmax", _same_shape),
    "aten::_log_softmax": ("softmax", _same_shape),
    "aten::native_layer_norm": ("norm", _same_shape),
    "aten::_fused_rms_norm": ("norm", _same_shape),
    **{
        f"aten::{vendor}_batch_norm{backward}": ("norm", _same_shape)
        for vendor in ("native", "cudnn", "miopen")
        for backward in ("", "_backward")
    },
    "aten::rms_norm": ("norm", _same_shape),
    "aten::mm": ("gemm", _gemm(0, 1)),
    "aten::bmm": ("gemm", _gemm(0, 1)),
    "aten::_int_mm": ("gemm", _int_gemm),
    "aten::addmm": ("gemm", _gemm(1, 2, 0)),
    "aten::baddbmm": ("gemm", _gemm(1, 2, 0)),
    "aten::addmm_": ("gemm", _gemm(1, 2, 0)),
    "aten::_scaled_mm": ("gemm", _scaled_gemm),
    "aten::cudnn_convolution": ("convolution", _convolution(padding=2, stride=3, dilation=4, groups=5)),
    "aten::miopen_convolution": ("convolution", _convolution(padding=3, stride=4, dilation=5, groups=6)),
    "aten::convolution": ("convolution", _convolution(padding=4, stride=3, dilation=5, groups=8, transposed=6)),
    "aten::_convolution": ("convolution", _convolution(padding=4, stride=3, dilation=5, groups=8, transposed=6)),
    "aten::_scaled_dot_product_flash_attention": ("attention", _attention(heads_first=True, causal=4)),
    "aten::_scaled_dot_product_efficient_attention": ("attention", _attention(heads_first=True, causal=6)),
    "aten::_scaled_dot_product_cudnn_attention": ("attention", _attention(heads_first=True, causal=6)),
    "aten::_flash_attention_forward": ("attention", _attention(heads_first=False, causal=8)),
}
_PATTERNS: list[tuple[re.Pattern[str], str, Rule]] = [
    # kernels that pick parts of their arguments touch who knows how much of them
    (
        re.compile(r"triton_poi_fused_(?!.*(?:embedding|index|gather|slice|split|select|cat|stack|unbind|scatter))"),
        "pointwise arguments",
        _pointwise_arguments,
    ),
]
