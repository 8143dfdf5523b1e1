"""The kernel against its reference: on the CPU through the emulator, and where there is a GPU also there."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from traceanalyzer.kernels import find
from traceanalyzer.kernels.common.attention import expect_close
from traceanalyzer.kernels.common.case import Case
from traceanalyzer.kernels.common.emulator import Emulator
from traceanalyzer.kernels.common.kernel import Build
from traceanalyzer.kernels.common.testing import (
    TWO_SEEDS,
    compilations,
    first_complaint,
    needs_compiler,
    needs_cxx,
    needs_gpu,
    needs_torch,
    needs_torch_and_gpu,
    over_budget,
    reduced,
    refusal,
    run_tensors_on,
    tensor_of_bf16,
    the_gpu,
)
from traceanalyzer.kernels.sparse_decode.reference import random_bf16
from traceanalyzer.kernels.tree_verify import reference

KERNEL = find("tree_verify")
CASES = list(KERNEL.cases())


@needs_cxx
@pytest.mark.parametrize("case", reduced(CASES))
def test_the_emulator_gives_what_the_reference_gives(case: Case) -> None:
    for seed in TWO_SEEDS:
        case.check(Emulator(seed))


@needs_cxx
@pytest.mark.parametrize(
    ("case", "edit"),
    [
        ("plain", ("    copy_async_wait<STAGES - 2>();\n", "")),
        ("plain", ("    block_barrier();  // this tile is there, and nobody reads the one before\n", "")),
        ("plain", ("    block_barrier();  // the scores of all warps are there\n", "")),
        ("plain", (">> (node % 64) & 1", ">> ((node + 1) % 64) & 1")),
        ("65 nodes", ("by * words + node / 64", "by * words")),
        ("64 nodes", ("by >= nodes || node >= nodes", "by >= nodes")),
        ("chain", ("return node <= by;", "return node < by;")),
        ("parents", ("while (above > node) {", "if (above > node) {")),
        ("NaN in one node", ("    if (warp_ballot(!finite) >>", "    if (0 && warp_ballot(!finite) >>")),
        ("NaN in one node", ("[slot_of_stage * BLOCK_KEYS + at.thread / SHARERS] = NOT_A_NUMBER;", "[0] = 0;")),
        ("slots of -1", ("index >= 0 && index < slots", "index < slots")),
        ("a gap behind", ("(int64_t)index * row_stride", "(int64_t)index * 1152")),
        (
            "150 keys and 9 nodes, 1",
            ("_record = ring.record_of(slot);", "_record = ring.record_of(slot_before);"),
        ),
        ("fewer slots", ("max(keys.count - nodes, 0)", "keys.count - nodes")),
    ],
)
def test_a_broken_kernel_is_noticed(case: str, edit: tuple[str, str]) -> None:
    assert first_complaint(KERNEL, case, edit)


@needs_compiler
@pytest.mark.parametrize(("build", "architecture"), compilations(KERNEL))
def test_it_compiles_within_its_budget(build: Build, architecture: str) -> None:
    assert over_budget(build, architecture) == []


@needs_gpu
@pytest.mark.parametrize("case", CASES)
def test_a_gpu_gives_what_the_reference_gives(case: Case) -> None:
    case.check(the_gpu())


@needs_torch
def test_wrong_arguments_are_named() -> None:
    import torch

    from traceanalyzer.kernels.tree_verify import tree_verify

    def cuda(*shape: int, dtype: torch.dtype = torch.int32) -> torch.Tensor:
        return torch.empty(shape, dtype=dtype, device="cuda")

    said = partial(refusal, tree_verify, scale=0.1)
    with torch._subclasses.fake_tensor.FakeTensorMode():
        bf16, int64 = torch.bfloat16, torch.int64
        q, pool, indptr, indices = cuda(2, 9, 8, 576, dtype=bf16), cuda(100, 576, dtype=bf16), cuda(3), cuda(50)
        shape = "q: must have the shape [requests, nodes, heads, 576], not [9, 8, 576]"
        assert said(cuda(9, 8, 576, dtype=bf16), pool, indptr, indices) == shape
        assert said(q, cuda(100, 576), indptr, indices) == "pool: must be bfloat16, not int32"
        odd = torch.empty_strided((100, 576), (577, 1), dtype=bf16, device="cuda")
        assert said(q, odd, indptr, indices).startswith("pool: rows must begin at multiples of 16 bytes")
        assert said(q, pool, cuda(2), indices) == "indptr: must have the shape [3], not [2]"
        assert said(q, pool, indptr, cuda(50, dtype=bf16)) == "indices: must be int32 or int64, not bfloat16"
        mask, parents = cuda(2, 9, 1, dtype=int64), cuda(2, 9)
        both = "mask: cannot be given together with parents"
        assert said(q, pool, indptr, indices, mask=mask, parents=parents) == both
        wide = cuda(2, 9, 2, dtype=int64)
        assert said(q, pool, indptr, indices, mask=wide) == "mask: must have the shape [2, 9, 1], not [2, 9, 2]"
        assert said(q, pool, indptr, indices, parents=cuda(2, 8)) == "parents: must have the shape [2, 9], not [2, 8]"


@needs_torch
def test_shapes_are_known_without_a_gpu() -> None:
    import torch

    from traceanalyzer.kernels.tree_verify import tree_verify

    with torch._subclasses.fake_tensor.FakeTensorMode():
        q = torch.empty(2, 9, 8, 576, dtype=torch.bfloat16, device="cuda")
        pool = torch.empty(64, 576, dtype=torch.bfloat16, device="cuda")
        indptr, indices = (torch.empty(size, dtype=torch.int32, device="cuda") for size in (3, 40))
        out, lse = tree_verify(q, pool, indptr, indices, scale=0.1)
    assert out.shape == (2, 9, 8, 512)
    assert out.dtype == torch.bfloat16
    assert lse.shape == (2, 9, 8)
    assert lse.dtype == torch.float32


@needs_torch
@needs_cxx
@pytest.mark.parametrize("sight", ["a chain", "bits", "parents"])
@pytest.mark.parametrize(("prefix", "kernels"), [(5, ["tree_verify"]), (700, ["tree_verify", "mla_combine"])])
def test_the_operator_gives_what_the_reference_gives(
    sight: str, prefix: int, kernels: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    from traceanalyzer.kernels.tree_verify import op

    launched = run_tensors_on(Emulator(5), monkeypatch)
    random = np.random.default_rng(prefix)
    indptr = np.cumsum([0, prefix + 5, prefix // 2 + 5], dtype=np.int32)
    indices = random.integers(-1, 200, indptr[-1])
    pool, q = random_bf16(random, 200, 584), random_bf16(random, 2, 5, 3, 576)
    trees = np.stack([reference.random_parents(random, 5) for _ in range(2)])
    parents = trees if sight == "parents" else None
    mask = None
    if sight == "bits":
        mask = np.stack([reference.bits_of_seen(reference.seen_of_parents(each)) for each in trees])
    out = tensor_of_bf16(np.zeros((2, 5, 3, 512), np.uint16))
    lse = op._launch(
        tensor_of_bf16(q),
        tensor_of_bf16(pool)[:, :576],
        torch.from_numpy(indptr),
        torch.from_numpy(indices),
        None if mask is None else torch.from_numpy(mask),
        None if parents is None else torch.from_numpy(parents),
        0.05,
        out,
    )
    assert launched == kernels
    memory = pool.reshape(-1).view(np.uint8)
    expected = reference.tree_verify(q, memory, indptr, indices, 0.05, mask=mask, parents=parents, row_stride=1168)
    expect_close(out.view(torch.int16).numpy().view(np.uint16), lse.numpy(), expected)


@needs_torch_and_gpu
def test_graphs_and_compilation_give_what_eager_gives() -> None:
    import torch

    from traceanalyzer.kernels.tree_build import tree_build
    from traceanalyzer.kernels.tree_verify import tree_verify

    def random_trees() -> tuple[torch.Tensor, torch.Tensor]:
        log_probs = torch.randn(2, 4, 8, device="cuda").log_softmax(-1).sort(-1, descending=True).values
        ids = torch.randint(0, 1000, (2, 4, 8), device="cuda")
        trees = tree_build(log_probs, ids, torch.zeros(2, dtype=torch.int32, device="cuda"), 8)
        return trees.visible, trees.parents

    q = torch.randn(2, 9, 8, 576, dtype=torch.bfloat16, device="cuda")
    pool = torch.randn(3000, 576, dtype=torch.bfloat16, device="cuda")
    indices = torch.randperm(3000, dtype=torch.int32, device="cuda")[:2000]
    indptr = torch.tensor([0, 700, 2000], dtype=torch.int32, device="cuda")
    mask, parents = random_trees()
    out = torch.empty(2, 9, 8, 512, dtype=torch.bfloat16, device="cuda")
    by_mask, sums = tree_verify(q, pool, indptr, indices, scale=0.02, mask=mask)
    by_parents, _ = tree_verify(q, pool, indptr, indices, scale=0.02, parents=parents)
    assert torch.equal(by_mask, by_parents)

    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        _, sums = tree_verify(q, pool, indptr, indices, scale=0.02, mask=mask, out=out)
    for middle in (700, 9, 1991):
        indptr.copy_(torch.tensor([0, middle, 2000], dtype=torch.int32))
        mask.copy_(random_trees()[0])
        q.normal_()
        out.fill_(float("nan"))
        graph.replay()
        replayed, replayed_sums = out.clone(), sums.clone()
        eager, eager_sums = tree_verify(q, pool, indptr, indices, scale=0.02, mask=mask)
        assert torch.equal(replayed, eager)
        assert torch.equal(replayed_sums, eager_sums)

    compiled = torch.compile(
        lambda q: tree_verify(q, pool, indptr, indices, scale=0.02, mask=mask)[0] * 2, fullgraph=True
    )
    assert torch.equal(compiled(q), eager * 2)
