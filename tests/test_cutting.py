"""Names cut to a width."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from traceanalyzer.render.cutting import cut, plainly_apart

NCCL = [
    "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL",
    "ncclDevKernel_ReduceScatter_Sum_f32_RING_LL",
    "ncclDevKernel_AllReduce_Sum_bf16_RING_LL",
    "ncclDevKernel_AllReduce_Sum_f32_RING_LL",
    "ncclDevKernel_AllGather_RING_LL",
]


def test_what_fits_stays_as_it_is() -> None:
    assert cut(["gemm", "norm"], 10) == ["gemm", "norm"]


def test_both_ends_can_be_read() -> None:
    assert cut(["nvjet_sm90_tst_128x64_64x12_2x1_v_bz_NNT"], 20) == ["nvjet_sm90…_v_bz_NNT"]


@pytest.mark.parametrize("width", range(28, 45))
def test_the_words_before_the_first_number_survive(width: int) -> None:
    shown = cut(NCCL, width)
    for name, short in zip(NCCL, shown, strict=True):
        assert name.split("_")[1] in short
    assert len(set(shown)) == len(NCCL)


def test_names_that_agree_at_both_ends_are_cut_where_they_agree() -> None:
    files = [f"baseline-2024-12-11-host{rank}-and-a-long-tail-of-words.json.gz" for rank in range(8)]
    shown = cut(files, 24, names=False)
    assert len(set(shown)) == 8
    assert all(f"host{rank}" in short for rank, short in enumerate(shown))


def test_rows_with_the_same_name_show_the_same() -> None:
    assert len(set(cut(["a" * 50, "a" * 50], 20))) == 1


def test_whether_the_middle_can_go() -> None:
    assert plainly_apart(NCCL, 44)
    assert not plainly_apart([f"{'x' * 30}{number}{'x' * 30}" for number in range(3)], 30)


texts = st.lists(st.text("ab_7漢", min_size=1, max_size=60), max_size=8)


@given(texts, st.integers(8, 40), st.booleans())
def test_what_differs_stays_different_and_fits(texts: list[str], width: int, names: bool) -> None:
    shown = cut(texts, width, names=names)
    assert all(cell_len(text) <= width for text in shown)
    assert len(set(zip(texts, shown, strict=True))) == len(set(texts)) == len(set(shown))
