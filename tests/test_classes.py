"""`classes`: the audit of the class rules, on small traces and on the real ones of the corpus."""

from __future__ import annotations

import statistics
from pathlib import Path

import polars as pl
import pytest
from builders import kernel, memcpy, trace, traces
from shared import CORPUS, needs_corpus

import traceanalyzer as ta
from traceanalyzer.analyses.classes import classes, unclassified
from traceanalyzer.choices import AUDIT_SORTS, AuditSort
from traceanalyzer.errors import UsageError

EVENTS = [
    kernel("attn_fwd", at=0, dur=50),
    kernel("attn_fwd", at=50, dur=30),
    kernel("frobnicate", at=100, dur=5),
    kernel("triton__0d1d2d", at=110, dur=7),
    kernel("zap", at=120, dur=8),
    memcpy(at=130, dur=100),
]


def test_what_no_rule_knows_comes_first_and_copies_are_not_judged() -> None:
    rows = classes(trace(EVENTS))
    assert rows.select("kernel", "class", "rule", "count", "total_ns").rows() == [
        ("zap", "other", None, 1, 8_000),
        ("frobnicate", "other", None, 1, 5_000),
        ("triton__0d1d2d", "triton_other", "triton-nameless", 1, 7_000),
        ("attn_fwd", "attention", "attention-flash", 2, 80_000),
    ]
    assert rows["share_of_kernel_time"].to_list() == [0.08, 0.05, 0.07, 0.8]


@pytest.mark.parametrize(
    ("sort", "kernels"),
    [
        ("unclassified", ["zap", "frobnicate", "triton__0d1d2d", "attn_fwd"]),
        ("total", ["attn_fwd", "zap", "triton__0d1d2d", "frobnicate"]),
        ("count", ["attn_fwd", "frobnicate", "triton__0d1d2d", "zap"]),
        ("class", ["attn_fwd", "zap", "frobnicate", "triton__0d1d2d"]),
        ("rule", ["attn_fwd", "zap", "frobnicate", "triton__0d1d2d"]),
        ("name", ["attn_fwd", "frobnicate", "triton__0d1d2d", "zap"]),
    ],
)
def test_orders(sort: AuditSort, kernels: list[str]) -> None:
    assert classes(trace(EVENTS), sort=sort)["kernel"].to_list() == kernels


def test_every_order_is_tested() -> None:
    (mark,) = test_orders.pytestmark  # type: ignore[attr-defined]
    assert {sort for sort, _ in mark.args[1]} == set(AUDIT_SORTS)


def test_an_unknown_order_is_refused() -> None:
    with pytest.raises(UsageError, match=r"sort: 'totl' is not one of .*; did you mean 'total'"):
        classes(trace(EVENTS), sort="totl")  # type: ignore[arg-type]


def test_shares_of_what_is_unclassified_are_of_each_run() -> None:
    both = traces(
        trace(EVENTS, run="a"), trace([kernel("attn_fwd", at=0, dur=9), memcpy(at=10, dur=1)], run="b", rank=0)
    )
    shares = unclassified(classes(both))
    assert shares.rows() == [
        ("a", "other", 2, 13_000, 0.13),
        ("a", "triton_other", 1, 7_000, 0.07),
        ("b", "other", 0, 0, 0.0),
        ("b", "triton_other", 0, 0, 0.0),
    ]


def test_filters_choose_rows_and_leave_shares_alone() -> None:
    rows = classes(trace(EVENTS), filter="^zap")
    assert rows.select("kernel", "share_of_kernel_time").rows() == [("zap", 0.08)]
    assert classes(trace(EVENTS), classes="triton_other")["kernel"].to_list() == ["triton__0d1d2d"]


def test_users_rules_count_first(tmp_path: Path) -> None:
    path = tmp_path / "ours.toml"
    path.write_text("[[rule]]\nid = 'ours'\nclass = 'moe'\npattern = '^frob'\n", encoding="utf-8")
    rows = classes(trace(EVENTS), rules=path)
    assert rows.filter(kernel="frobnicate").select("class", "rule").rows() == [("moe", "ours")]


def test_kernels_that_take_no_time_have_no_share() -> None:
    shares = unclassified(classes(trace([kernel("zap", at=0, dur=0)])))
    assert shares["share_of_kernel_time"].to_list() == [None, None]
    assert unclassified(classes(trace())).is_empty()


# -- the corpus

#: Traces of language models, in training or inference. (nuggets-b is none: a benchmark of one MLP, of whose kernels two
#: have no name but their signature, `triton__0d1d2d`; no rule can say what these do, and none guesses.)
LLM_TRACES = (
    "tl-b200/eager_trace.json.gz",
    "tl-sgl-dsr1-b300/1782843274.7730265-TP-0-DECODE.trace.json.gz",
    "tl-sgl-qwen3moe-mi300/1782859605.7198358-TP-0-DECODE.trace.json.gz",
    "tl-sglang-decode/bs_32_rank0.json.gz",
    "tl-sglang-decode/sglang_Qwen3-8B_decode.json.gz",
    "tl-vllm-decode/graph_capture_rank_0.1773709742341309550.pt.trace.json.gz",
    "tl-vllm-decode/graph_execution.json.gz",
    "tracemap-h100/1_h100_1000isl_10osl_32con.pt.trace.json.gz",
    "ncompass-nsys/gold_nsys_example.json.gz",
    "ncompass-torch/test_trace.pt.trace.json.gz",
    "sidnb-transformer/dcb0aa1a78e7_4399.1752181589621105859.pt.trace.json",
    "mng-h2d/profile-rank0-trace.json.gz",
    "mng-8rank",
)


@needs_corpus
def test_hardly_any_kernel_time_of_a_language_model_is_unclassified() -> None:
    for path in LLM_TRACES:
        shares = unclassified(classes(ta.read(CORPUS / path, cache=False)))
        assert shares["share_of_kernel_time"].sum() < 0.1, path


@needs_corpus
def test_in_the_median_trace_less_than_5_percent_of_the_kernel_time_is_other() -> None:
    shares: list[float] = []
    for path in sorted(CORPUS.glob("*/*")):
        try:
            rows = classes(ta.read(path, cache=False))
        except ta.UnreadableError:
            continue
        if rows["total_ns"].sum():
            shares.append(unclassified(rows).filter(pl.col("class") == "other")["share_of_kernel_time"].item())
    assert len(shares) > 80
    assert statistics.median(shares) < 0.05
    assert sum(share < 0.1 for share in shares) >= 0.9 * len(shares)


@needs_corpus
def test_the_b200_trace_has_2_14_ms_of_communication() -> None:
    """Tools that know NCCL alone see 0.022 ms of it."""
    rows = classes(ta.read(CORPUS / "tl-b200", cache=False), classes="communication")
    assert rows["total_ns"].sum() == 2_141_501
    assert rows["rule"].unique().sort().to_list() == ["communication-multimem", "communication-nccl"]
