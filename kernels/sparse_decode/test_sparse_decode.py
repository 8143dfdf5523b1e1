"""The kernel against its reference: on the CPU through the emulator, and where there is a GPU also there."""

from __future__ import annotations

from functools import partial
from typing import Any

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
    operators_seen,
    over_budget,
    reduced,
    refusal,
    run_tensors_on,
    tensor_of_bf16,
    the_gpu,
)
from traceanalyzer.kernels.sparse_decode import reference
from traceanalyzer.kernels.sparse_decode.cases import Inputs, Part

KERNEL = find("sparse_decode")
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
        ("v32: plain", ("    copy_async_wait<STAGES - 2>();\n", "")),
        ("v32: plain", ("    block_barrier();  // this tile is there, and nobody reads the one before\n", "")),
        ("v32: plain", ("    block_barrier();  // the scores of all warps are there\n", "")),
        ("v32: plain", ("  copy_async_wait<EARLY_TILES>();\n", "")),
        ("v32: plain", ("  block_barrier();  // queries are there\n", "")),
        ("v32: plain", ("  block_barrier();  // the first addresses are there\n", "")),
        ("v32: plain", ("  block_barrier();  // sizes of all parts are there\n", "")),
        ("v32: 3 splits", ("index < 0 || index >= cache.slots", "index >= cache.slots")),
        ("v32: indices beyond", ("index < 0 || index >= cache.slots", "index < 0 || index > cache.slots")),
        ("v32: 2 splits, one of", ("valid ? 0 : MINUS_INFINITY;", "0;")),
        ("v32: ragged", ("min(max(load(lengths + request), 0), width)", "width")),
        ("v32: scores of tens", ("    if (moved) follow_levels(output, memory, at);\n", "")),
        ("v32: scores of tens", ("softmax.sum[i] *= alpha;", "")),
        ("v32: a maximum that", ("memory, ALPHAS)[own_row(i, at)] = 1;", "memory, ALPHAS)[own_row(i, at)] *= 1;")),
        ("v32: scales from", ("+= first * inverse.x + second * inverse.y;", "+= first * inverse.x + second;")),
        (
            "v32: groups from",
            ("powers = at_byte<float4>(memory, KEY_POWERS)[keys]", "powers = {0, 1, 0, 1}"),
        ),
        ("v32: plain", ("weight = make_uint2(multiply_f16x2(weight.x, low_scales)", "weight = make_uint2(weight.x")),
        ("v32: plain", ("pick_bytes(codes[i], 0, 0x3120)", "pick_bytes(codes[i], 0, 0x3210)")),
        ("v32: large q", ("max(largest >> 7, 30)", "max(141, 30)")),
        ("v32: NaN in q", ("most = larger(most, warp_read_xor(most, lanes))", "most = warp_read_xor(most, lanes)")),
        ("v32: plain", ("(first_key + half * 8 + at.group) ^ at.pair * 8", "first_key + half * 8 + at.group")),
        (
            "v32: 5 tiles",
            ("pair < PAIRS - 1 || at.warp < WARPS / 2;", "pair < PAIRS - 1;"),
        ),
        ("v32: k 290, 7", ("TILES % ROW_TILES ? min(ROW_TILES, TILES - first_tile) : ROW_TILES", "ROW_TILES")),
        ("v32: 2 splits", ("exp2_fast(weights[split * 8 + row] - base)", "1")),
        ("v32: a sink and 2", ("inverse *= left_by_sink(natural", "inverse *= 0 * left_by_sink(natural")),
        (
            "dsv4: plain",
            ("scale_sums(second, memory, record, part * 2 + 1)", "scale_sums(second, memory, record, part * 2)"),
        ),
        ("dsv4: plain", ("codes + 64 + (step - 3) * 32", "codes + 64 + (step - 4) * 32")),
        ("dsv4: plain", ("(int64_t)cache.page_size * 576", "(int64_t)cache.page_size * 584")),
        (
            "v32: k 290, 2",
            (
                "ring.fetch_index(coming + STAGES, slot_before);\n    }\n    copy",
                "}\n    copy",
            ),
        ),
        (
            "v32: k 290, 8",
            ("      ring.fetch_index(coming + STAGES, slot_before);\n    } else", "    } else"),
        ),
        ("v32: a maximum that grows late in row 17", ("grown = grown || outgrows(larger(", "grown = outgrows(larger(")),
        (
            "v32: a maximum that grows late in row 17",
            ("      softmax.sum[i] *= alpha;", "      if (i == 0) softmax.sum[i] *= alpha;"),
        ),
        (
            "v32: NaN in q of one head, a",
            (
                "        const float (&four)[4] = output[m][tile];",
                "        if (!sums[tile * 8]) continue;\n        const float (&four)[4] = output[m][tile];",
            ),
        ),
        ("v32: k 290, 5", ("coming_record = ring.record_of(slot);", "coming_record = ring.record_of(slot_before);")),
        ("v32: k 290, 7", ("ring.find_records(tile + STAGES, slot)", "ring.find_records(tile + STAGES, slot_before)")),
        ("v32: more splits", ("  if (TEAMS > 1) block_barrier();\n", "")),
        (
            "dsv4: infinity as a value that weighs next to nothing, 4",
            (
                "    total[0] += four.x * weight.x;",
                "    if (weight.x == 0 && weight.y == 0) continue;\n    total[0] += four.x * weight.x;",
            ),
        ),
        ("v32: NaN in q where", ("first_chosen = offset.x != MINUS_INFINITY", "first_chosen = true")),
        ("v32: NaN in q where", ("second_chosen = offset.y != MINUS_INFINITY", "second_chosen = true")),
        ("v32: two caches", ("if (behind) tile -= first.tiles;", "")),
        (
            "v32 in pairs: scores of 2^26",
            ("score - level > LIFT + MOST_GROWTH", "score > level + (LIFT + MOST_GROWTH)"),
        ),
        ("v32 in pairs: a last scale", ("size_of(four.w)", "size_of(four.z)")),
        ("dsv4 in pairs: a last scale", ("group < 7; group++) size", "group < 6; group++) size")),
        ("v32: many keys of little", ("BF16_RECORDS ? 0 : 6", "BF16_RECORDS ? 0 : 0")),
        ("v32 in pairs: many keys of little", ("BF16_RECORDS ? 0 : 6", "BF16_RECORDS ? 0 : 0")),
        ("v32 in pairs: plain", ("    copy_async_wait<STAGES - 1>();\n", "")),
        ("v32 in pairs: plain", ("    warp_barrier();  // this warp's half of the tile is there\n", "")),
        (
            "v32 in pairs: k 330, 1",
            ("      warp_barrier();  // what lies in its place was read, and so were addresses\n", ""),
        ),
        ("v32 in pairs: plain", ("      warp_barrier();  // addresses are there\n", "")),
        (
            "v32 in pairs: k 330, 2",
            ("  if (EXCHANGES == 1) barrier_among(1 + role.team, 64);  // the one before was read\n", ""),
        ),
        ("v32 in pairs: plain", ("  barrier_among(1 + role.team, 64);  // both halves are there\n", "")),
        ("v32 in pairs: k 330, 1", ("turn % EXCHANGES * EXCHANGE_BYTES", "0")),
        ("v32 in pairs: k 330, 2", ("    block_barrier();  // and can be read by all teams\n", "")),
        ("v32 in pairs: k 330, 2", ("  block_barrier();  // nobody uses stages any more\n", "")),
        ("v32 in pairs: plain", ("  block_barrier();  // those of all teams are there\n", "")),
        ("v32 in pairs: plain", ("  block_barrier();  // so are their outputs\n", "")),
        ("v32 in pairs: k 330, 1", ("else at_byte<int32_t>(memory, index_place(turn))[0] = -1;", "")),
        ("v32 in pairs: k 330, 1", ("coming = stream.copy(1, second)", "coming = stream.copy(1, first)")),
        ("v32 in pairs: k 330, 1", ("    chosen = coming;\n", "")),
        ("v32 in pairs: NaN in q where", ("(i < 2 ? low_chosen : high_chosen) ?", "true ?")),
        ("v32 in pairs: a maximum that", ("        softmax.sum[tile][row] *= alpha;\n", "")),
        ("v32 in pairs: a maximum that", ("          output.sums[m][tile][row] *= alpha;\n", "")),
        ("v32 in pairs: a maximum that", ("grown = grown || outgrows(score", "grown = outgrows(score")),
        (
            "v32 in pairs: a maximum that",
            (
                "lanes = 4; lanes < 32; lanes *= 2) most = larger(warp",
                "lanes = 4; lanes < 16; lanes *= 2) most = larger(warp",
            ),
        ),
        ("v32 in pairs: scales from", ("(i < 2 ? low.power.log2 : high.power.log2)", "0")),
        ("v32 in pairs: groups from", ("(i < 2 ? low.power.inverse : high.power.inverse)", "low.power.inverse")),
        ("v32 in pairs: plain", ("i ? high.own[group] : low.own[group]", "low.own[group]")),
        ("v32 in pairs: plain", ("528 + role.half * 64", "528")),
        ("v32 in pairs: plain", ("[team * ROWS + place] * weight;", "[team * ROWS + place];")),
        ("v32 in pairs: plain", ("(role.team - quarter + TEAMS - 1) % TEAMS", "0")),
        ("v32 in pairs: 2 splits, one of", ("exp2_fast(softmax.level[tile][row] - base_of(most))", "1")),
        ("v32 in pairs: large q", ("max(largest >> 7, 30)", "max(141, 30)")),
        ("dsv4 in pairs: plain", ("half && group == 3 ? 1 :", "false ? 1 :")),
        (
            "dsv4 in pairs: plain",
            ("multiply_codes(sums[0], codes[1], queries, 10,", "multiply_codes(sums[0], codes[1], queries, 8,"),
        ),
        ("dsv4 in pairs: plain", ("bf16 ? pack_bf16(first, second) :", "")),
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

    from traceanalyzer.kernels.sparse_decode import sparse_decode

    def cuda(*shape: int, dtype: torch.dtype = torch.uint8) -> torch.Tensor:
        return torch.empty(shape, dtype=dtype, device="cuda")

    said = partial(refusal, sparse_decode, scale=0.1)
    with torch._subclasses.fake_tensor.FakeTensorMode():
        bf16, int32 = torch.bfloat16, torch.int32
        q, cache, indices = cuda(2, 64, 576, dtype=bf16), cuda(100, 656), cuda(2, 7, dtype=int32)
        dsv4, pages = cuda(2, 64, 512, dtype=bf16), cuda(10, 64 * 592)
        assert said(cuda(2, 64, 576), cache, indices) == "q: must be bfloat16, not uint8"
        assert said(cuda(2, 64, 600, dtype=bf16), cache, indices).startswith("q: its last size must be 576 (records")
        assert said(cuda(2, 129, 576, dtype=bf16), cache, indices) == "q: must have 1 to 128 heads, not 129"
        assert said(q, cuda(100, 655), indices) == "cache: must have the shape [slots, 656], not [100, 655]"
        assert said(q, cache, cuda(3, 7, dtype=int32)) == "indices: must have the shape [2, k], not [3, 7]"
        assert said(q, cache, indices, lengths=cuda(2)) == "lengths: must be int32, not uint8"
        assert said(q, cache, indices, page_size=64).startswith("page_size: is 1 by the shape of cache, not 64")
        assert said(dsv4, pages, indices).startswith("page_size: must be given for records of 584 bytes")
        small = "cache: 65 records need 37960 bytes a page, not 37888"
        assert said(dsv4, pages, indices, page_size=65) == small
        aside = (cuda(100, 656), cuda(2, 9), None, None)
        assert said(q, cache, indices, extra=aside) == "extra indices: must be int32, not uint8"
        assert said(q, cache, indices, sink=cuda(64)) == "sink: must be float32, not uint8"
        wrong = cuda(2, 64, 576, dtype=bf16)
        assert said(q, cache, indices, out=wrong) == "out: must have the shape [2, 64, 512], not [2, 64, 576]"


@needs_torch
def test_shapes_are_known_without_a_gpu() -> None:
    import torch

    from traceanalyzer.kernels.sparse_decode import sparse_decode

    with torch._subclasses.fake_tensor.FakeTensorMode():
        q = torch.empty(2, 20, 576, dtype=torch.bfloat16, device="cuda")
        cache = torch.empty(5, 64, 656, dtype=torch.uint8, device="cuda")
        out, lse = sparse_decode(q, cache, torch.empty(2, 7, dtype=torch.int32, device="cuda"), scale=0.1)
    assert out.shape == (2, 20, 512)
    assert out.dtype == torch.bfloat16
    assert lse.shape == (2, 20)
    assert lse.dtype == torch.float32


@needs_torch
@needs_cxx
@pytest.mark.parametrize("layout", ["v32", "dsv4"])
@pytest.mark.parametrize(
    ("k", "kernels"),
    [(20, ["sparse_decode"]), (400, ["sparse_decode", "mla_combine"]), (600, ["sparse_decode", "mla_combine"])],
)
def test_the_operator_gives_what_the_reference_gives(
    layout: str, k: int, kernels: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    from traceanalyzer.kernels.sparse_decode import op

    launched = run_tensors_on(Emulator(5), monkeypatch)
    sink = np.linspace(-1, 1, 9, dtype=np.float32)
    parts = (Part(k=k, lengths=(k, 13)), Part(k=7))
    q, selections, _ = Inputs(heads=9, layout=layout, parts=parts).make()
    first, second = (
        (
            torch.from_numpy(each.records.memory.reshape(-1, each.records.page_bytes)),
            torch.from_numpy(each.indices),
            None if each.lengths is None else torch.from_numpy(each.lengths),
        )
        for each in selections
    )
    sizes = [each.records.page_size for each in selections]
    out = tensor_of_bf16(np.zeros((2, 9, 512), np.uint16))
    lse = op._launch(tensor_of_bf16(q), *first, torch.from_numpy(sink), sizes[0], *second, sizes[1], 0.05, out)
    assert launched == kernels
    expected = reference.sparse_decode(q, selections, 0.05, sink)
    expect_close(out.view(torch.int16).numpy().view(np.uint16), lse.numpy(), expected)


@needs_torch_and_gpu
@pytest.mark.parametrize("layout", ["v32", "dsv4"])
def test_graphs_and_compilation_give_what_eager_gives(layout: str) -> None:
    import torch

    from traceanalyzer.kernels.sparse_decode import sparse_decode
    from traceanalyzer.kernels.sparse_decode.shapes import Shape, make

    inputs = make(Shape(3, 20, 300, v32=layout == "v32"), torch.device("cuda"))
    lengths = torch.tensor([300, 17, 0], dtype=torch.int32, device="cuda")
    options: dict[str, Any] = {**inputs.options(), "lengths": lengths}
    out = torch.empty(3, 20, 512, dtype=torch.bfloat16, device="cuda")
    sparse_decode(inputs.q, inputs.cache, inputs.indices, out=out, **options)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        _, sums = sparse_decode(inputs.q, inputs.cache, inputs.indices, out=out, **options)
    for numbers in ([300, 17, 0], [0, 1, 300], [33, 64, 65]):
        lengths.copy_(torch.tensor(numbers, dtype=torch.int32))
        inputs.q.normal_()
        out.fill_(float("nan"))
        graph.replay()
        replayed, replayed_sums = out.clone(), sums.clone()
        eager, eager_sums = sparse_decode(inputs.q, inputs.cache, inputs.indices, **options)
        assert torch.equal(replayed, eager)
        assert torch.equal(replayed_sums, eager_sums)

    compiled = torch.compile(lambda q: sparse_decode(q, inputs.cache, inputs.indices, **options)[0] * 2, fullgraph=True)
    assert torch.equal(compiled(inputs.q), eager * 2)

    seen = operators_seen(sparse_decode, inputs.q, inputs.cache, inputs.indices, **options)
    assert "traceanalyzer::sparse_decode" in seen
