"""The baseline: its masks, what it is compiled to, and on a GPU what it gives."""

from __future__ import annotations

import numpy as np
import pytest

from traceanalyzer.kernels.common.testing import needs_torch_and_gpu
from traceanalyzer.kernels.sparse_decode.reference import random_bf16
from traceanalyzer.kernels.tree_verify import reference

pytest.importorskip("torch")
pytest.importorskip("triton")

_TYPES = {
    **dict.fromkeys(("q_start", "pool_start"), "*bf16"),
    **dict.fromkeys(("indptr_start", "indices_start"), "*i32"),
    "mask_start": "*u8",
    "mask_offsets_start": "*i64",
    "out_start": "*bf16",
    "scale": "fp32",
    **dict.fromkeys(("nodes", "heads"), "i32"),
}


@pytest.mark.parametrize(("capability", "keys"), [(90, 64), (120, 32)])
def test_it_is_compiled_with_tensor_cores(capability: int, keys: int) -> None:
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from traceanalyzer.kernels.tree_verify import baseline

    constants = {"BLOCK_NODES": 32, "BLOCK_KEYS": keys}
    signature = {**_TYPES, **dict.fromkeys(constants, "constexpr")}
    attributes = {(at,): [["tt.divisibility", 16]] for at, kind in enumerate(signature.values()) if kind[0] == "*"}
    source = ASTSource(triton.jit(baseline.walk), signature, constants, attributes)
    target = GPUTarget("cuda", capability, 32)
    compiled = triton.compile(source, target=target, options={"num_warps": 8, "num_stages": 1})
    assert "mma.sync" in compiled.asm["ptx"]


def test_masks_are_of_ones_then_what_of_the_tree_is_seen() -> None:
    import torch

    from traceanalyzer.kernels.tree_verify import baseline

    parents = [reference.random_parents(np.random.default_rng(seed), 70) for seed in (1, 2)]
    seen = np.stack([reference.seen_of_parents(each) for each in parents])
    words = np.stack([reference.bits_of_seen(each) for each in seen])
    between = baseline.unpacked(torch.from_numpy(words))
    assert between.numpy().tolist() == seen.tolist()
    masks = baseline.build_masks(between, torch.tensor([3, 0], dtype=torch.int32)).numpy()
    assert masks.shape == (70 * 73 + 70 * 70,)
    first = masks[: 70 * 73].reshape(70, 73)
    assert first[:, :3].all()
    assert (first[:, 3:] == seen[0]).all()
    assert (masks[70 * 73 :].reshape(70, 70) == seen[1]).all()


@needs_torch_and_gpu
@pytest.mark.parametrize("nodes", [1, 9, 40])
def test_it_gives_what_the_reference_gives(nodes: int) -> None:
    import torch

    from traceanalyzer.kernels.tree_verify import baseline

    random = np.random.default_rng(nodes)
    prefixes, slots, heads = (0, 1, 63, 100), 400, 3
    counts = [prefix + nodes for prefix in prefixes]
    indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    indices = random.integers(0, slots, indptr[-1], dtype=np.int32)
    pool, q = random_bf16(random, slots, 576), random_bf16(random, 4, nodes, heads, 576)
    seen = np.stack([reference.seen_of_parents(reference.random_parents(random, nodes)) for _ in prefixes])
    mask = np.stack([reference.bits_of_seen(each) for each in seen])

    def bf16(bits: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(bits.view(np.int16)).view(torch.bfloat16).cuda()

    masks = baseline.build_masks(torch.from_numpy(seen).cuda(), torch.tensor(prefixes, dtype=torch.int32).cuda())
    starts, every = torch.from_numpy(indptr).cuda(), torch.from_numpy(indices).cuda()
    out = baseline.tree_verify(bf16(q), bf16(pool), starts, every, masks, scale=0.05)
    expected = reference.tree_verify(q, pool.reshape(-1).view(np.uint8), indptr, indices, 0.05, mask=mask)
    error = np.abs(out.float().cpu().numpy() - expected.out) / (expected.weighted_sizes + np.abs(expected.out))
    assert error.max() < 2.0**-7
