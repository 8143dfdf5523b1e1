"""The bounds of attention on a GPU's tensors are those of arrays."""

from __future__ import annotations

import numpy as np
import pytest

from traceanalyzer.kernels.common.attention import attend, bf16_values, expect_close
from traceanalyzer.kernels.common.errors import MismatchError
from traceanalyzer.kernels.common.testing import needs_torch
from traceanalyzer.kernels.gather_cast.reference import bf16_bits


@needs_torch
@pytest.mark.parametrize("what", ["out", "lse"])
def test_both_find_the_same_error(what: str) -> None:
    import torch

    from traceanalyzer.kernels.common.attention_check import Attention, Result, largest_error

    random = np.random.default_rng(2)
    queries, keys = random.normal(size=(6, 32)), random.normal(size=(50, 32))
    seen = random.random((6, 50)) < 0.7
    expected = attend(queries, keys, 20, seen, 0.25)
    bits, lse = bf16_bits(expected.out), expected.lse.astype(np.float32)
    if what == "out":
        off = expected.out[2, 3] + 0.003 * expected.weighted_sizes[2, 3]
        bits[2, 3] = bf16_bits(np.array(off))
    else:
        lse[4] += np.float32(5e-6)
    found = expect_close(bits, lse, expected)
    assert 0.2 < found < 1
    rows = Attention(torch.from_numpy(queries), torch.from_numpy(keys), 0.25, torch.from_numpy(seen))
    result = Result(torch.from_numpy(bf16_values(bits)), torch.from_numpy(lse))
    assert largest_error([(rows, result)]) == pytest.approx(found, rel=1e-6)
    result.out[0, 0] = torch.nan
    assert largest_error([(rows, result)]) == np.inf


def test_results_of_another_shape_are_wrong() -> None:
    expected = attend(np.zeros((2, 4)), np.zeros((3, 4)), 4, np.ones((1, 3), bool), 1.0)
    with pytest.raises(MismatchError, match="not"):
        expect_close(np.zeros((2, 3), np.uint16), np.zeros(2, np.float32), expected)
