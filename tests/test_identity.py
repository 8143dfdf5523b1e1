"""Names of trace files: what each scheme says, and the numbers that are no rank."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from traceanalyzer.errors import UsageError
from traceanalyzer.ingest.identity import (
    Identity,
    check_rank_regex,
    identity_from_label,
    identity_from_name,
    identity_from_regex,
    int_or_none,
    label_of_pid,
    natural_key,
    run_folder,
)

SHARED = Path(os.environ.get("TRACEANALYZER_SHARED", Path(__file__).parents[1] / "../shared"))
RANK_NAMES = SHARED / "cases" / "s13-rank-file-names"


def told(identity: Identity) -> dict[str, Any]:
    """What an identity says, without what it does not."""
    silent = (None, False)
    fields = {name: value for name, value in vars(identity).items() if not any(value is s for s in silent)}
    return {name: value for name, value in fields.items() if name not in ("scheme", "rank_from")}


SGLANG = [
    ("1767225605.25-TP-0.trace.json.gz", {"stamp": "1767225605.25", "tp": 0, "rank": 0}),
    ("1767225605.25-TP-10.trace.json.gz", {"stamp": "1767225605.25", "tp": 10, "rank": 10}),
    ("1767225605-TP-1.trace.json.gz", {"stamp": "1767225605", "tp": 1, "rank": 1}),
    ("run1-1767225700.5-TP-1.trace.json.gz", {"prefix": "run1", "stamp": "1767225700.5", "tp": 1, "rank": 1}),
    ("my-run-2-1767225700.5-TP-1.trace.json", {"prefix": "my-run-2", "stamp": "1767225700.5", "tp": 1, "rank": 1}),
    ("1767225700.5-TP-1-DECODE.trace.json.gz", {"stamp": "1767225700.5", "tp": 1, "rank": 1, "stage": "DECODE"}),
    # profile v2 has its own words for the stages
    ("1767225700.5-TP-1-prefill.trace.json.gz", {"stamp": "1767225700.5", "tp": 1, "rank": 1, "stage": "PREFILL"}),
    ("1767225700.5-TP-1-decode.trace.json.gz", {"stamp": "1767225700.5", "tp": 1, "rank": 1, "stage": "DECODE"}),
    # older releases wrote the enum
    (
        "1767225700.5-TP-1-ForwardMode.EXTEND.trace.json.gz",
        {"stamp": "1767225700.5", "tp": 1, "rank": 1, "stage": "EXTEND"},
    ),
    # DP above 0: replica or slice of the TP group, nobody knows, so the global rank is unknown
    (
        "1767225700.5-TP-1-DP-1-PP-0-EP-3-DECODE.trace.json.gz",
        {"stamp": "1767225700.5", "tp": 1, "dp": 1, "pp": 0, "ep": 3, "stage": "DECODE"},
    ),
    # another order of the dimensions
    ("1767225700.5-DP-0-PP-1-TP-1.trace.json.gz", {"stamp": "1767225700.5", "tp": 1, "dp": 0, "pp": 1}),
    # EP slices the TP group and adds no ranks
    ("1767225700.5-TP-3-EP-3.trace.json.gz", {"stamp": "1767225700.5", "tp": 3, "ep": 3, "rank": 3}),
    ("1767225700.5-TP-2-DP-0-PP-0.trace.json.gz", {"stamp": "1767225700.5", "tp": 2, "dp": 0, "pp": 0, "rank": 2}),
    # what follows and is no stage keeps files apart
    ("1767225700.5-TP-0-2.trace.json.gz", {"stamp": "1767225700.5", "tp": 0, "rank": 0, "prefix": "2"}),
    # downloaded twice
    ("1767225700.5-TP-0.trace.json (1).gz", {"stamp": "1767225700.5", "tp": 0, "rank": 0}),
    ("1767225700.5-TP-0.trace (2).json.gz", {"stamp": "1767225700.5", "tp": 0, "rank": 0}),
    # renamed by hand: without a stamp, the rest must look like SGLang's
    ("baseline-TP-1.trace.json.gz", {"prefix": "baseline", "tp": 1, "rank": 1}),
    ("merged-1767225700.5.trace.json.gz", {"stamp": "1767225700.5", "merged": True}),
    ("merged-night.trace.json.gz", {"prefix": "night", "merged": True}),
    (
        "cuda_graph_capture-DecodeCudaGraphRunner-TP-3.json.gz",
        {"prefix": "DecodeCudaGraphRunner", "tp": 3, "rank": 3, "capture": True},
    ),
    ("bs_32_rank0.json.gz", {"prefix": "bs_32", "rank": 0, "capture": True}),
    (
        "DecodeCudaGraphRunner_bs_104_rank1.json.gz",
        {"prefix": "DecodeCudaGraphRunner_bs_104", "rank": 1, "capture": True},
    ),
    ("graph_capture_profile/anything_rank2.json.gz", {"prefix": "anything", "rank": 2, "capture": True}),
]

NS = "1767225605000000000"
HANDLER = [
    (
        f"dp0_pp0_tp1_dcp0_ep1_rank1.{NS}.pt.trace.json.gz",
        {"stamp": NS, "dp": 0, "pp": 0, "tp": 1, "dcp": 0, "ep": 1, "rank": 1},
    ),
    (
        f"my_model_dp0_pp0_tp1_dcp0_ep1_rank1.{NS}.pt.trace.json.gz",
        {"stamp": NS, "prefix": "my_model", "dp": 0, "pp": 0, "tp": 1, "dcp": 0, "ep": 1, "rank": 1},
    ),
    ("dp0_pp0_tp1_dcp0_ep1_rank1.json", {"dp": 0, "pp": 0, "tp": 1, "dcp": 0, "ep": 1, "rank": 1}),
    # sizes, not places: no rank is below its tp
    ("llama_dp1_pp1_tp8_rank0.json", {"prefix": "llama_dp1_pp1_tp8", "rank": 0}),
    # host and pid say nothing, not even a prefix: the ranks of one run have different ones
    (f"nodea_4242.{NS}.pt.trace.json.gz", {"stamp": NS}),
    (f"ip-172-31-16-248.us-east-2.compute.internal_58187.{NS}.pt.trace.json.gz", {"stamp": NS}),
    ("dcb0aa1a78e7_4399.1752181589621105859.pt.trace.json", {"stamp": "1752181589621105859"}),
    # the front-end process of vLLM
    (f"nodea_4242.async_llm.{NS}.pt.trace.json.gz", {"stamp": NS, "prefix": "async_llm"}),
    ("worker3.1694128201545.pt.trace.json", {"stamp": "1694128201545", "rank": 3}),
    ("worker3_step_12.1694128201545.pt.trace.json", {"stamp": "1694128201545", "prefix": "step_12", "rank": 3}),
    ("worker0.pt.trace.json.gz", {"rank": 0}),
    (f"rank0.{NS}.pt.trace.json.gz", {"stamp": NS, "rank": 0}),
    ("rank-34.Jul_15_10_52_41.1074.pt.trace.json.gz", {"stamp": "Jul_15_10_52_41.1074", "rank": 34}),
    (f"exp[demo-7b]-rank[6].{NS}.pt.trace.json.gz", {"stamp": NS, "prefix": "exp[demo-7b]", "rank": 6}),
    (f"graph_capture_rank_0.{NS}.pt.trace.json.gz", {"stamp": NS, "rank": 0, "capture": True}),
    (
        f"graph_capture_rank_0_drafter.{NS}.pt.trace.json.gz",
        {"stamp": NS, "prefix": "drafter", "rank": 0, "capture": True},
    ),
]

OTHERS = [
    ("torch_profile/rank-12.json.gz", {"rank": 12}),  # Megatron-LM
    ("iteration_10/rank7_trace.json.gz", {"prefix": "trace", "rank": 7}),  # torchtitan, TraceLens
    ("tl_out/rank_2/chromium_events.json", {"prefix": "chromium_events", "rank": 2}),  # rank in the folder
    ("rank_0__chromium_events.json", {"prefix": "chromium_events", "rank": 0}),
    ("out/rank_3/iteration_5/trace.json", {"prefix": "trace", "rank": 3}),
    ("out/rank_3/rank5.json", {"rank": 5}),  # the file itself has the last word
    ("profile_trace_rank_0.json.gz", {"prefix": "profile_trace", "rank": 0}),  # xDiT
    ("capture_trace_rank_0.json.gz", {"rank": 0, "capture": True}),
    ("profile-rank0-trace.json.gz", {"prefix": "profile-trace", "rank": 0}),
    (
        "Baseline - 12-11 - 220ff-rank6-chrome-trace.json.gz",
        {"prefix": "Baseline - 12-11 - 220ff-chrome-trace", "rank": 6},
    ),
    ("trace-rank-5.json.gz", {"prefix": "trace", "rank": 5}),
    ("RANK_5.JSON.GZ", {"rank": 5}),
    ("rank0_of_8.json", {"prefix": "of_8", "rank": 0}),
    ("global_rank_7.json", {"prefix": "global", "rank": 7}),
    ("C:\\traces\\run\\rank_1.json", {"rank": 1}),
    ("s3://bucket/run/rank_1.json", {"rank": 1}),
]

NO_RANK = [
    ("bs_32.json", "a batch size"),
    ("1_h100_1000isl_10osl_32con.pt.trace.json.gz", "a number in front"),
    ("908_results.json.gz", "a number in front"),
    ("4096_8_128_bnb.json", "sizes of a kernel"),
    ("benchmark_result_2869224_1695835535_trace.json.gz", "a process id and a time"),
    ("step_based_trace_2543932.json.gz", "a process id"),
    ("mi250_minitoy_train_ROCm6_2_kineto.json.gz", "a version"),
    ("rank_non_gpu.json.gz", "the word without a number"),
    ("allreduce_tp4.json", "the size of a group"),
    ("Llama-TP-8-bf16.json", "the size of a group"),
    ("Llama-TP-8.json", "the size of a group"),
    ("nranks_8.json", "the number of ranks"),
    ("ranks8.json", "the number of ranks"),
    ("llama_lora_rank_16.json", "the rank of a matrix"),
    ("local_rank_1.json", "counts from 0 on every node"),
    ("node_rank1.json", "the rank of a node"),
    ("tp_rank_1.json", "a rank in a group, not in the world"),
    ("rerank3.json", "part of a word"),
    ("rank0_vs_rank1.json", "two of them"),
    ("rank123456789.json", "too large for a rank"),
    ("dataloader_worker_3.json", "no worker of torch's handler"),
    ("resnet50_num_workers_0/trace.json", "a number in a folder's name"),
    ("rank_3/plots/trace.json", "a folder further up"),
    (".json", "no name at all"),
    ("", "nothing"),
]


@pytest.mark.parametrize(("path", "expected"), SGLANG + HANDLER + OTHERS)
def test_names(path: str, expected: dict[str, Any]) -> None:
    identity = identity_from_name(path)
    assert told(identity) == expected
    assert identity.rank_from == ("name" if "rank" in expected else None)


@pytest.mark.parametrize(("path", "reason"), NO_RANK)
def test_no_rank_is_guessed_from(path: str, reason: str) -> None:
    assert not identity_from_name(path).known, reason


@given(st.text(max_size=60))
def test_any_text_is_a_name(path: str) -> None:
    assert identity_from_name(path).rank_from in (None, "name")


@pytest.mark.parametrize(
    ("path", "folder"),
    [
        ("/data/run/rank_3/trace.json", "/data/run"),
        ("run/iteration_5/rank3_trace.json", "run/iteration_5"),  # iterations are runs of their own
        ("run/rank_3/iteration_5/trace.json", "run/iteration_5"),
        ("./run/trace.json", "run"),
        ("C:\\traces\\run\\t.json", "C:/traces/run"),
        ("trace.json", ""),
    ],
)
def test_run_folder(path: str, folder: str) -> None:
    assert run_folder(path) == folder


def test_natural_order() -> None:
    names = ["TP-10", "TP-2", "TP-0", "tp-1", "7", "20", "stream 7", "stream 20", "", "a01", "a1"]
    expected = ["", "7", "20", "a01", "a1", "stream 7", "stream 20", "TP-0", "tp-1", "TP-2", "TP-10"]
    assert sorted(names, key=natural_key) == expected
    assert sorted([10, 9, 100], key=natural_key) == [9, 10, 100]
    assert natural_key("9" * 5000) < natural_key("1" + "0" * 5000)  # int() refuses these


@given(st.lists(st.integers(min_value=0)))
def test_natural_order_of_numbers_is_theirs(numbers: list[int]) -> None:
    assert sorted(map(str, numbers), key=natural_key) == [str(number) for number in sorted(numbers)]


@given(st.text(), st.text())
def test_natural_order_is_total(one: str, two: str) -> None:
    assert (natural_key(one) == natural_key(two)) == (one == two)


@pytest.mark.parametrize(
    ("value", "expected"),
    [(3, 3), ("3", 3), (" 3 ", 3), ("None", None), ("", None), (None, None), (True, None), (-1, None), (1.5, None)],
)
def test_int_or_none(value: object, expected: int | None) -> None:
    assert int_or_none(value) == expected


@pytest.mark.parametrize(
    ("pid", "label"),
    [
        ("[TP00-DP01] 1234", "TP00-DP01"),
        ("[TP07] Spans", "TP07"),
        ("1234", None),
        ("[Unknown] 1234", None),  # ProfileMerger's word for a name without dimensions
    ],
)
def test_label_of_pid(pid: str, label: str | None) -> None:
    assert label_of_pid(pid) == label


def test_identity_from_label() -> None:
    assert told(identity_from_label("TP00-DP01-EP03")) == {"tp": 0, "dp": 1, "ep": 3}
    alone = identity_from_label("TP07")
    assert told(alone) == {"tp": 7, "rank": 7}
    assert alone.rank_from == "content"


@pytest.mark.parametrize(
    ("path", "regex", "expected"),
    [
        ("a/gpu7.json", r"gpu(\d+)", {"rank": 7}),
        ("a/gpu7.json", r"gpu(?P<rank>\d+)", {"rank": 7}),
        ("a/gpu7-t1.json", r"gpu(?P<rank>\d+)-t(?P<tp>\d+)", {"rank": 7, "tp": 1}),
        ("night/gpu7.json", r"(?P<run>\w+)/gpu(?P<rank>\d+)", {"rank": 7, "prefix": "night"}),
        ("a/7-decode.json", r"(?P<rank>\d+)-(?P<stage>\w+)", {"rank": 7, "stage": "DECODE"}),
        ("a/7.json", r"(?P<rank>\d+)(-(?P<stage>\w+))?\.json", {"rank": 7}),
        ("a/other.json", r"gpu(\d+)", {}),  # no match says nothing
        ("a/gpux.json", r"gpu(\w+)", {}),  # no number says nothing
    ],
)
def test_regex(path: str, regex: str, expected: dict[str, Any]) -> None:
    identity = identity_from_regex(path, regex)
    assert told(identity) == expected
    assert identity.rank_from == ("regex" if "rank" in expected else None)


@pytest.mark.parametrize(
    ("regex", "message"),
    [
        (r"gpu(", "does not compile"),
        (r"gpu\d+", "needs one"),
        (r"gpu(\d+)-(\d+)", "needs one"),
        (r"(?P<gpu>\d+)", "no use for group 'gpu'"),
    ],
)
def test_bad_regex_is_one_clear_line(regex: str, message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        check_rank_regex(regex)
    assert "\n" not in str(caught.value)
    with pytest.raises(UsageError):
        identity_from_regex("a.json", regex)


@pytest.mark.skipif(not RANK_NAMES.is_dir(), reason=f"no folder {RANK_NAMES} (TRACEANALYZER_SHARED)")
def test_shared_case_of_rank_file_names() -> None:
    expected = json.loads((RANK_NAMES / "expect.json").read_text(encoding="utf-8"))
    for path, place in expected["from_file_name"].items():
        identity = identity_from_name(path)
        assert {key: getattr(identity, key) for key in place} == place, path
        if "tp" not in place:  # where the case names dimensions, it leaves the global rank open
            assert identity.rank == place.get("rank"), path
