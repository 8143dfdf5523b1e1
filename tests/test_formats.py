"""Numbers as people read them, row by row with the reason."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from traceanalyzer import formats
from traceanalyzer.formats import Scale
from traceanalyzer.text import counted, did_you_mean, listed, middle, ranges, visible


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),  # unknown is not zero
        (0, "0 ns"),
        (7, "7 ns"),  # whole nanoseconds have no decimals
        (999, "999 ns"),
        (1_000, "1.00 µs"),
        (12_345, "12.3 µs"),
        (64_600_000, "64.6 ms"),
        (303_000_000, "303 ms"),
        (1_234_000_000, "1.23 s"),
        (7_200_000_000_000, "7,200 s"),
        (-1_500, "-1.50 µs"),
    ],
)
def test_a_time_on_its_own_has_three_digits(value: int | None, text: str) -> None:
    assert formats.ns(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (0.0, "0.0%"),  # exact
        (1.0, "100.0%"),  # exact
        (0.631, "63.1%"),
        (0.0004, "<0.1%"),  # would round to 0
        (0.0006, "0.1%"),
        (0.9996, ">99.9%"),  # would round to 100
        (0.9994, "99.9%"),
        (1.0004, ">100.0%"),  # overlapping kernels: more than the whole, and not by much
        (1.375, "137.5%"),
        (1e-300, "<0.1%"),
    ],
)
def test_shares_are_0_or_100_percent_only_where_they_are_exactly(value: float | None, text: str) -> None:
    assert formats.share(value) == text


@given(st.floats(min_value=0, max_value=1))
def test_no_share_claims_to_be_none_or_all_without_being_it(value: float) -> None:
    text = formats.share(value)
    assert (text == "0.0%") == (value == 0)
    assert (text == "100.0%") == (value == 1)


@pytest.mark.parametrize(
    ("value", "text"), [(None, "–"), (0, "0 B"), (1023, "1,023 B"), (1536, "1.50 KiB"), (3 << 30, "3.00 GiB")]
)
def test_sizes_are_in_binary_units(value: int | None, text: str) -> None:
    assert formats.size(value) == text


def column(*values: int | None) -> tuple[str, list[str]]:
    scale = Scale.of(values)
    return scale.unit, [scale.write(value) for value in values]


def test_a_column_has_one_unit_and_one_number_of_decimals() -> None:
    assert column(646_100_000, 12_000_000, 5_250_000) == ("ms", ["646.1", "12.0", "5.2"])


def test_one_long_kernel_does_not_turn_the_others_into_zero() -> None:
    assert column(5_000_000_000, 4_200, 3_100, 2_500) == ("µs", ["5,000,000.00", "4.20", "3.10", "2.50"])


def test_what_is_not_zero_never_prints_as_zero() -> None:
    assert column(50_000_000, 60_000_000, 7, 0, None) == ("ms", ["50.0", "60.0", "<0.1", "0.0", "–"])


def test_a_column_of_nothing_known_has_a_unit_all_the_same() -> None:
    assert column(None, 0) == ("µs", ["–", "0"])


@given(st.lists(st.integers(1, 10**13), min_size=1))
def test_no_time_of_a_column_prints_as_zero_or_needs_more_than_seven_digits(values: list[int]) -> None:
    for text in column(*values)[1]:
        assert float(text.replace(",", "").lstrip("<")) > 0
        assert len(text.split(".")[0].replace(",", "").lstrip("<")) <= 7


@pytest.mark.parametrize(
    ("width", "text"),
    [(30, "ampere_bf16_gemm_nn"), (19, "ampere_bf16_gemm_nn"), (11, "amper…mm_nn"), (10, "amper…m_nn"), (1, "a…")],
)
def test_names_are_shortened_in_the_middle(width: int, text: str) -> None:
    assert middle("ampere_bf16_gemm_nn", width) == text


def test_control_characters_are_spelled_out() -> None:
    assert visible("a\nb\x1b[31mred\x00é漢") == "a\\nb\\x1b[31mred\\x00é漢"


def test_small_words() -> None:
    assert (counted(1, "rank"), counted(1204, "kernel")) == ("1 rank", "1,204 kernels")
    assert (ranges([3, 1, 0, 2, 7]), ranges([])) == ("0-3, 7", "")
    assert (listed(list("abc")), listed(list("abcdefg"))) == ("a, b, c", "a, b, c, d, e and 2 more")
    assert did_you_mean("devics", ["devices", "ops"]) == "; did you mean 'devices'?"
    assert did_you_mean("zzz", ["devices"]) == ""
