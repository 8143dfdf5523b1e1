"""The baseline: what it is compiled to, and on a GPU what it gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from traceanalyzer.kernels.common.attention import expect_close
from traceanalyzer.kernels.common.testing import needs_torch_and_gpu
from traceanalyzer.kernels.sparse_decode import reference
from traceanalyzer.kernels.sparse_decode.reference import Selection

pytest.importorskip("torch")
pytest.importorskip("triton")

_TYPES = {
    "q_start": "*bf16",
    "codes_start": "*fp8e4nv",
    "bytes_start": "*u8",
    "bf16_start": "*bf16",
    "floats_start": "*fp32",
    "indices_start": "*i32",
    "lengths_start": "*i32",
    "out_start": "*bf16",
    "lse_start": "*fp32",
    "scale": "fp32",
    **dict.fromkeys(("page_size", "page_bytes", "tail", "heads", "k", "k_rounded"), "i32"),
}
_LAYOUTS: dict[str, dict[str, int]] = {
    "v32": {"CODES": 512, "GROUP": 128, "RECORD_BYTES": 656, "RECORD_SCALES": 1},
    "dsv4": {"CODES": 448, "GROUP": 64, "RECORD_BYTES": 576, "RECORD_SCALES": 0},
}


@pytest.mark.parametrize("layout", _LAYOUTS)
@pytest.mark.parametrize("capability", [90, 120])
def test_it_is_compiled_without_tensor_cores(layout: str, capability: int) -> None:
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from traceanalyzer.kernels.sparse_decode import baseline

    constants = {**_LAYOUTS[layout], "HAS_LENGTHS": 1, "BLOCK_T": 16}
    signature = {**_TYPES, **dict.fromkeys(constants, "constexpr")}
    attributes = {
        (at,): [["tt.divisibility", 16]]
        for at, kind in enumerate(signature.values())
        if kind not in ("fp32", "constexpr")
    }
    source = ASTSource(triton.jit(baseline.walk), signature, constants, attributes)
    target = GPUTarget("cuda", capability, 32)
    ptx = triton.compile(source, target=target, options={"num_warps": 4, "num_stages": 2}).asm["ptx"]
    assert "fma.rn.f32" in ptx
    assert "mma" not in ptx.replace("fma", "")


@needs_torch_and_gpu
@pytest.mark.parametrize("layout", _LAYOUTS)
@pytest.mark.parametrize("others", ["", "lengths", "second cache and sink"])
def test_it_gives_what_the_reference_gives(layout: str, others: str) -> None:
    import torch

    from traceanalyzer.kernels.sparse_decode import baseline

    random = np.random.default_rng(3)
    q = reference.random_bf16(random, 4, 5, reference.FORMATS[layout].columns)
    lengths = np.array([0, 1, 33, 100], np.int32) if others == "lengths" else None
    first = Selection(reference.random_records(random, layout, 256), _indices(random, 256, 100), lengths)
    second = Selection(reference.random_records(random, layout, 128), _indices(random, 128, 33), None)
    both = others == "second cache and sink"
    sink = random.normal(size=5).astype(np.float32) if both else None
    extra = (_cache(second), torch.from_numpy(second.indices).cuda(), None, 64) if both else None
    out, lse = baseline.sparse_decode(
        torch.from_numpy(q.view(np.int16)).view(torch.bfloat16).cuda(),
        _cache(first),
        torch.from_numpy(first.indices).cuda(),
        scale=0.05,
        lengths=None if lengths is None else torch.from_numpy(lengths).cuda(),
        sink=None if sink is None else torch.from_numpy(sink).cuda(),
        page_size=64,
        extra=extra,
    )
    expected = reference.sparse_decode(q, [first, second] if both else [first], 0.05, sink)
    bits = out.float().cpu().numpy()
    if both:  # rounded to bf16 up to four times
        error = np.abs(bits - expected.out) / (2.0**-7 * (expected.weighted_sizes + np.abs(expected.out)))
        assert error.max() < 1
        return
    expect_close(out.view(torch.int16).cpu().numpy().view(np.uint16), lse.cpu().numpy(), expected)


def _indices(random: np.random.Generator, slots: int, k: int) -> npt.NDArray[Any]:
    return random.integers(-3, slots, (4, k), dtype=np.int32).clip(-1)


def _cache(selection: Selection) -> Any:
    import torch

    records = selection.records
    width = 656 if records.layout == "v32" else records.page_bytes
    return torch.from_numpy(records.memory.reshape(-1, width)).cuda()
