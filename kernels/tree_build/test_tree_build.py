"""The kernel against the heap: on the CPU through the emulator, and where there is a GPU also there."""

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
from traceanalyzer.kernels.tree_build import reference
from traceanalyzer.kernels.tree_build.cases import Inputs

KERNEL = find("tree_build")
CASES = list(KERNEL.cases())


def test_the_reference_on_a_tree_worked_out_by_hand() -> None:
    """Two depths: 0.5 0.3 and 0.9 0.1. Sums: a .5, aa .45, b .3, ba .27, ab .05, bb .03."""
    log_probs = np.log(np.array([[[0.5, 0.3], [0.9, 0.1]]])).astype(np.float32)
    found = reference.tree_build(log_probs, np.array([[[10, 11], [20, 21]]]), np.array([100]), 5)
    assert found["tokens"].tolist() == [[-1, 10, 20, 11, 20, 21]]
    assert found["parents"].tolist() == [[-1, 0, 1, 0, 3, 1]]
    assert found["depths"].tolist() == [[0, 1, 2, 1, 2, 2]]
    assert found["positions"].tolist() == [[100, 101, 102, 101, 102, 102]]
    assert found["visible"].tolist() == [[[0b1], [0b11], [0b111], [0b1001], [0b11001], [0b100011]]]
    assert found["first_child"].tolist() == [[1, 2, -1, 4, -1, -1]]
    assert found["next_sibling"].tolist() == [[-1, 3, 5, -1, -1, -1]]
    assert found["counts"].tolist() == [5]


@needs_cxx
@pytest.mark.parametrize("case", reduced(CASES))
def test_the_emulator_gives_what_the_reference_gives(case: Case) -> None:
    for seed in SEEDS:
        case.check(Emulator(seed))


@needs_cxx
@pytest.mark.parametrize(
    ("case", "edit"),
    [
        ("plain", ("  copy_async_wait<0>();\n", "")),
        ("plain", ("  block_barrier();\n  if (thread < LANES) {", "  if (thread < LANES) {")),
        ("plain", ("*shared.found = nodes;\n  }\n  block_barrier();", "*shared.found = nodes;\n  }")),
        ("plain", ("store(counts + request, nodes);\n  block_barrier();", "store(counts + request, nodes);")),
        ("equal sums", ("if (count_bits(lanes) > 1 ||", "if (")),
        ("few equal", ("(twins || is_equal(mine[i], best))", "twins")),
        ("equal sums", ("!among || is_before(path, first)", "!among")),
        ("equal sums", ("among = among && word == least", "among = among")),
        ("all equal", ("pick_bytes(ranks, 0, 0x0123)", "ranks")),
        ("all equal", ("lane == node.depth - 1 ? (uint8_t)node.rank :", "false ? (uint8_t)0 :")),
        ("zeros", ("add_rounded(shared.read[i], 0.0)", "shared.read[i]")),
        ("huge", ("low ^ negative, node}", "low, node}")),
        ("-inf tails", ("put_sibling = has_sibling && is_finite(sibling)", "put_sibling = has_sibling")),
        ("-inf tails", ("put_child = has_child && is_finite(child)", "put_child = has_child")),
        (
            "sums that are rounded",
            ("subtract_rounded(score, cell[0]), cell[1]", "score, subtract_rounded(cell[1], cell[0])"),
        ),
        ("one rank", ("chosen(append && lane", "chosen(put_child && lane")),
        ("two words", ("at / 64 == word", "at / 32 == word")),
        ("plain", ("(uint64_t)1 << at % 64", "(uint64_t)2 << at % 64")),
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
@pytest.mark.parametrize("budget", [0, 1, 30, 70])
def test_the_baseline_gives_what_the_reference_gives(budget: int) -> None:
    import torch

    from traceanalyzer.kernels.tree_build import baseline

    log_probs, ids, prefixes = Inputs(3, 5, 8, budget).make()
    tensors = [torch.from_numpy(each) for each in (log_probs, ids, prefixes)]
    found = baseline.tree_build(tensors[0], tensors[1], tensors[2], budget)
    for name, expected in reference.tree_build(log_probs, ids, prefixes, budget).items():
        np.testing.assert_array_equal(getattr(found, name).numpy(), expected, err_msg=name)


@needs_torch
def test_wrong_arguments_are_named() -> None:
    import torch

    from traceanalyzer.kernels.tree_build import tree_build

    said = partial(refusal, tree_build)
    with torch._subclasses.fake_tensor.FakeTensorMode():
        log_probs = torch.empty(2, 4, 8, device="cuda")
        ids = torch.empty(2, 4, 8, dtype=torch.int64, device="cuda")
        prefixes = torch.empty(2, dtype=torch.int32, device="cuda")
        assert (
            said(torch.empty(2, 4, 8, dtype=torch.float16, device="cuda"), ids, prefixes, 8)
            == "log_probs: must be float32, not float16"
        )
        assert (
            said(log_probs, torch.empty(2, 3, 8, dtype=torch.int64, device="cuda"), prefixes, 8)
            == "token_ids: must have the shape [2, 4, 8], not [2, 3, 8]"
        )
        assert (
            said(log_probs, ids, torch.empty(2, dtype=torch.int64, device="cuda"), 8)
            == "prefix_lengths: must be int32, not int64"
        )
        assert said(log_probs, ids, prefixes, 1025) == "budget: must be a whole number from 0 to 1024, not 1025"
        deep = torch.empty(2, 17, 8, device="cuda")
        deep_ids = torch.empty(2, 17, 8, dtype=torch.int64, device="cuda")
        assert said(deep, deep_ids, prefixes, 8) == "log_probs: at most 16 depths are possible, not 17"
        assert [list(each.shape) for each in tree_build(log_probs, ids, prefixes, 70)] == [
            [2, 71], [2, 71], [2, 71], [2, 71], [2, 71, 2], [2, 71], [2, 71], [2],
        ]  # fmt: skip


@needs_torch_and_gpu
def test_torch_tensors_graphs_and_compilation() -> None:
    import torch

    from traceanalyzer.kernels.tree_build import baseline, tree_build

    log_probs, ids, prefixes = (torch.from_numpy(each).cuda() for each in Inputs(5, 9, 12, 40).make())

    def equal(mine: tuple[torch.Tensor, ...], theirs: tuple[torch.Tensor, ...]) -> bool:
        return all(torch.equal(one, other) for one, other in zip(mine, theirs, strict=True))

    out = tree_build(log_probs, ids, prefixes, 40)
    assert equal(out, baseline.tree_build(log_probs, ids, prefixes, 40))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        tree_build(log_probs, ids, prefixes, 40, out=out)
    for seed in (1, 2, 3):
        for tensor, other in zip((log_probs, ids, prefixes), Inputs(5, 9, 12, 40, seed=seed).make(), strict=True):
            tensor.copy_(torch.from_numpy(other))
        for tensor in out:
            tensor.fill_(-99)
        graph.replay()
        assert equal(out, tree_build(log_probs, ids, prefixes, 40))
        assert equal(out, baseline.tree_build(log_probs, ids, prefixes, 40))

    compiled = torch.compile(lambda scores: tree_build(scores, ids, prefixes, 40), fullgraph=True)
    assert equal(compiled(log_probs), out)
    seen = operators_seen(tree_build, log_probs, ids, prefixes, 40)
    assert "traceanalyzer::tree_build" in seen
