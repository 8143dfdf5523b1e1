"""The kernel against its reference: on the CPU through the emulator, and where there is a GPU also there."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from traceanalyzer.kernels import find
from traceanalyzer.kernels.common.case import Case
from traceanalyzer.kernels.common.emulator import Emulator
from traceanalyzer.kernels.common.kernel import Build
from traceanalyzer.kernels.common.testing import (
    SEEDS,
    compilations,
    first_complaint,
    needs_compiler,
    needs_cxx,
    needs_gpu,
    needs_torch,
    needs_torch_and_gpu,
    operators_seen,
    over_budget,
    reduced,
    refusal,
    the_gpu,
)
from traceanalyzer.kernels.gather_cast import reference
from traceanalyzer.kernels.gather_cast.launch import Layout, configure, vector_for

KERNEL = find("gather_cast")
CASES = list(KERNEL.cases())


@needs_cxx
@pytest.mark.parametrize("case", reduced(CASES))
def test_the_emulator_gives_what_the_reference_gives(case: Case) -> None:
    for seed in SEEDS:
        case.check(Emulator(seed))


@needs_cxx
@pytest.mark.parametrize(
    ("case", "edit"),
    [
        ("-1, and beyond", ("slots[i] < (slot_t)pool_rows", "slots[i] + 1 < (slot_t)pool_rows + 1")),
        ("-1, and beyond", ("slots[i] < (slot_t)pool_rows", "slots[i] <= (slot_t)pool_rows")),
        ("unsorted", ("if (first + i * ROWS < rows) store_cast", "store_cast")),
        ("count above", ("min(max(load(count), 0), capacity)", "load(count)")),
        ("every code", ("0x7b807b80u, 0x80008000u", "0x7b807b80u, 0u")),
        (
            "every code",
            ("codes & 0x80008000u | codes >> 4 & 0x07f007f0u", "codes & 0x80008000u | codes >> 4 & 0x03f003f0u"),
        ),
        ("every code", ("nan |= nan_codes(codes.word[i])", "nan |= 0")),
        ("every code", ("(codes & 0x7f007f00u) + 0x01000100u", "(codes & 0x7f007f00u) + 0x02000200u")),
        ("a factor of each", ("column / GROUP", "column / (GROUP + 1)")),
        ("pages", ("slots[i] / PAGE", "slots[i] / (PAGE + 1)")),
        ("-1, and beyond", ("codes[i] = codes_t();", "")),
    ],
)
def test_a_broken_kernel_is_noticed(case: str, edit: tuple[str, str]) -> None:
    assert first_complaint(KERNEL, case, edit)


@needs_compiler
@pytest.mark.parametrize(("build", "architecture"), compilations(KERNEL))
def test_it_compiles_within_its_budget(build: Build, architecture: str) -> None:
    assert over_budget(build, architecture) == []


def test_the_values_of_codes_are_those_of_ml_dtypes() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    codes = np.arange(256, dtype=np.uint8)
    theirs = codes.view(ml_dtypes.float8_e4m3fn).astype(np.float64)
    np.testing.assert_array_equal(reference.VALUES, theirs)
    values = np.random.default_rng(1).normal(size=10_000).astype(np.float32) * np.float32(1e-38)
    np.testing.assert_array_equal(reference.bf16_bits(values), values.astype(ml_dtypes.bfloat16).view(np.uint16))


def test_the_widest_access_that_divides_everything_is_taken() -> None:
    assert vector_for(576, 576, 0) == 8
    assert vector_for(576, 580) == 4
    assert vector_for(576, 576, 4096 + 4) == 4
    assert vector_for(576, 577) == 1
    assert vector_for(577, 592) == 1


@pytest.mark.parametrize("capacity", [0, 1, 16, 17, 1024, 16_384, 131_072, 1 << 20])
def test_the_grid_covers_the_work_or_goes_round(capacity: int) -> None:
    resident = 132 * 2048
    launch = configure(Layout(576, 8), capacity, resident)
    defines = dict(launch.program.defines)
    assert launch.block == defines["PART"] * defines["ROWS"] == 288
    assert launch.grid[0] * defines["ROWS"] * defines["DEPTH"] >= capacity
    counted = configure(Layout(576, 8), capacity, resident, counted=True)
    assert 1 <= counted.grid[0] <= launch.grid[0]
    assert counted.grid[0] * counted.block <= 4 * resident
    assert counted.program == launch.program


def test_work_that_can_run_at_once_does() -> None:
    """16,384 rows of 72 accesses: 4 at once and 5 deep make 820 blocks of 288 threads, of which 132 SMs hold 938."""
    defines = dict(configure(Layout(576, 8), 16_384, 132 * 2048).program.defines)
    assert (defines["ROWS"], defines["DEPTH"]) == (4, 5)
    assert dict(configure(Layout(576, 8), 131_072, 132 * 2048).program.defines)["DEPTH"] == 3


@needs_gpu
@pytest.mark.parametrize("case", CASES)
def test_a_gpu_gives_what_the_reference_gives(case: Case) -> None:
    case.check(the_gpu())


@needs_torch
def test_the_reference_casts_as_torch_does() -> None:
    import torch

    codes = np.arange(256, dtype=np.uint8).reshape(1, 256)
    for factor in (None, np.array([0.37], np.float32), np.array([3e-39], np.float32)):
        wide = torch.from_numpy(codes).view(torch.float8_e4m3fn).float()
        theirs = (wide if factor is None else wide * torch.from_numpy(factor)).bfloat16().view(torch.int16).numpy()
        mine = reference.gather_cast(codes, np.array([0]), factor)
        assert reference.same_bits(theirs.view(np.uint16), mine)


@needs_torch
def test_wrong_arguments_are_named() -> None:
    import torch

    from traceanalyzer.kernels.gather_cast import gather_cast

    def cuda(*shape: int, dtype: torch.dtype = torch.float32, stride: tuple[int, ...] | None = None) -> torch.Tensor:
        if stride is not None:
            return torch.empty_strided(shape, stride, dtype=dtype, device="cuda")
        return torch.empty(shape, dtype=dtype, device="cuda")

    said = partial(refusal, gather_cast)
    with torch._subclasses.fake_tensor.FakeTensorMode():
        codes, int32 = torch.float8_e4m3fn, torch.int32
        pool, indices = cuda(100, 576, dtype=codes), cuda(7, dtype=int32)
        assert said(cuda(100, 576), indices) == "pool: must be float8_e4m3fn or uint8, not float32"
        assert said(cuda(576, dtype=codes), indices) == "pool: must have the shape [slots, columns], not [576]"
        turned = cuda(100, 576, dtype=codes, stride=(1, 100))
        assert said(turned, indices) == "pool: its last dimension must be contiguous; its strides are [1, 100]"
        assert said(pool, torch.empty(7, dtype=int32)) == "indices: must be on a CUDA device, not on cpu"
        assert said(pool, cuda(7)) == "indices: must be int32 or int64, not float32"
        assert said(pool, [1, 2]) == "indices: must be a torch tensor, not list"
        gaps = cuda(7, dtype=int32, stride=(2,))
        assert said(pool, gaps) == "indices: must be contiguous; its strides are [2]"
        groups = "scale: 576 columns cannot be divided into 7 groups"
        assert said(pool, indices, scale=cuda(100, 7)) == groups
        assert said(pool, indices, count=indices) == "count: must have the shape [1], not [7]"
        out = cuda(6, 576, dtype=torch.bfloat16)
        assert said(pool, indices, out=out) == "out: must have the shape [7, 576], not [6, 576]"


@needs_torch
def test_shapes_are_known_without_a_gpu() -> None:
    import torch

    from traceanalyzer.kernels.gather_cast import gather_cast

    with torch._subclasses.fake_tensor.FakeTensorMode():
        pool = torch.empty(10, 64, 576, dtype=torch.uint8, device="cuda")
        result = gather_cast(pool, torch.empty(7, dtype=torch.int64, device="cuda"))
    assert result.shape == (7, 576)
    assert result.dtype == torch.bfloat16


@needs_torch_and_gpu
def test_torch_tensors_graphs_and_compilation() -> None:
    import torch

    from traceanalyzer.kernels.gather_cast import gather_cast
    from traceanalyzer.kernels.gather_cast.baseline import cast_then_gather, gather_then_cast

    codes = torch.randint(0, 127, (5000, 592), dtype=torch.uint8, device="cuda")
    pool = codes.view(torch.float8_e4m3fn)[:, :576]  # a gap between rows
    indices = torch.randint(0, 5000, (999,), dtype=torch.int32, device="cuda")
    expected = cast_then_gather(pool, indices)
    assert torch.equal(gather_cast(pool, indices), expected)
    assert torch.equal(gather_then_cast(pool.contiguous(), indices), expected)
    shifted = codes[:, 3:579]
    by_torch = cast_then_gather(shifted.contiguous().view(torch.float8_e4m3fn), indices)
    assert torch.equal(gather_cast(shifted, indices.long()), by_torch)
    paged = pool.contiguous().view(50, 100, 576)
    assert torch.equal(gather_cast(paged, indices), expected)

    out = torch.empty_like(expected)
    count = torch.tensor([500], dtype=torch.int32, device="cuda")
    graph = torch.cuda.CUDAGraph()
    gather_cast(pool, indices, count=count, out=out)
    with torch.cuda.graph(graph):
        gather_cast(pool, indices, count=count, out=out)
    for number in (500, 999, 0, 1):
        count.fill_(number)
        indices.copy_(torch.randint(0, 5000, (999,), dtype=torch.int32, device="cuda"))
        out.zero_()
        graph.replay()
        replayed = out.clone()
        out.zero_()
        gather_cast(pool, indices, count=count, out=out)
        assert torch.equal(replayed, out)
        assert torch.equal(out[:number], cast_then_gather(pool, indices)[:number])
        assert not out[number:].any()

    compiled = torch.compile(lambda pool, indices: gather_cast(pool, indices) * 2, fullgraph=True)
    assert torch.equal(compiled(pool, indices), cast_then_gather(pool, indices) * 2)

    seen = operators_seen(gather_cast, pool, indices)
    assert "traceanalyzer::gather_cast" in seen
