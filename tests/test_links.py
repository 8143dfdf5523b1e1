"""Where device activity comes from: made-up cases, generated traces and real ones, against a naive linker."""

from __future__ import annotations

import json
from typing import Any

import polars as pl
import pytest
from builders import Event, annotation, kernel, launch, op, python_call, trace, traces
from hypothesis import given
from oracles import naive_linker
from shared import CASES, CORPUS, corpus_files, needs_cases, needs_corpus
from strategies import linked_ranks

import traceanalyzer as ta
from traceanalyzer.analyses.links import LINKS

KEYS = ("launch", "op", "root_op", "forward_op", "annotation", "module", "python_call", "reason")
TABLES = ("kernels", "launches", "ops", "annotations", "python_calls", "flows")


def rows_of(frame: pl.DataFrame) -> list[dict[str, Any]]:
    return frame.with_columns(pl.col(pl.Categorical).cast(pl.String)).to_dicts()


def check_against_the_naive_linker(whole: ta.Trace) -> pl.DataFrame:
    links = ta.link(whole)
    assert links.schema == LINKS.schema
    assert links["kernel"].to_list() == list(range(whole.kernels.height))
    expected = naive_linker.link({name: rows_of(whole.table(name)) for name in TABLES})
    for key in KEYS:
        assert links[key].to_list() == [row[key] for row in expected], key
    assert (links["op"].is_null() == links["reason"].is_not_null()).all()
    return links


def linked(*events: Event) -> dict[str, Any]:
    """The link of the only kernel."""
    links = ta.link(trace(list(events)))
    assert links.height == 1
    return links.row(0, named=True)


def test_a_kernel_comes_from_its_launch_operator_module_range_and_line() -> None:
    row = linked(
        annotation("ProfilerStep#1", at=0, dur=100),
        python_call("model.py(3): forward", at=1, dur=90),
        python_call("nn.Module: Linear_0", at=2, dur=80),
        python_call("torch/nn/linear.py(7): forward", at=3, dur=70),
        python_call("<built-in function linear>", at=4, dur=60),
        op("aten::linear", at=5, dur=50),
        op("aten::addmm", at=10, dur=40),
        launch(at=20, correlation=7),
        kernel("gemm", at=30, dur=5, correlation=7),
    )
    assert (row["launch_name"], row["op_name"], row["root_op_name"]) == (
        "cudaLaunchKernel", "aten::addmm", "aten::linear",
    )  # fmt: skip
    assert (row["module_name"], row["python_line"]) == ("nn.Module: Linear_0", "torch/nn/linear.py(7): forward")
    assert (row["annotation_name"], row["launch_delay_ns"]) == ("ProfilerStep#1", 10_000)
    assert (row["evidence"], row["reason"], row["in_graph"]) == ("time", None, False)


@pytest.mark.parametrize("correlation", [0, -1, None])
def test_an_id_that_means_none_is_no_link(correlation: int | None) -> None:
    row = linked(op("aten::mm", at=0, dur=9), launch(at=1, correlation=correlation),
                 kernel("k", at=5, dur=1, correlation=correlation))  # fmt: skip
    assert (row["launch"], row["reason"]) == (None, "no-correlation")


def test_a_call_that_was_not_recorded_is_said() -> None:
    row = linked(op("aten::mm", at=0, dur=9), kernel("k", at=5, dur=1, correlation=3))
    assert (row["launch"], row["op"], row["reason"]) == (None, None, "no-launch")


def test_a_call_outside_of_every_operator_and_a_file_without_operators() -> None:
    call, work = launch(at=20, correlation=3), kernel("k", at=25, dur=1, correlation=3)
    assert linked(op("aten::mm", at=0, dur=9), call, work)["reason"] == "outside"
    assert linked(op("aten::mm", at=0, dur=90, tid=5), call, work)["reason"] == "outside"
    assert linked(call, work)["reason"] == "no-operators"


def test_all_kernels_of_a_replayed_graph_share_its_launch() -> None:
    links = ta.link(trace([
        annotation("step[DECODE bs=1]", at=0, dur=50),
        launch("cudaGraphLaunch", at=10, dur=5, correlation=9),
        *(kernel(f"k{number}", at=20 + number, dur=1, correlation=9, grid=None) for number in range(5)),
    ]))  # fmt: skip
    assert links["launch"].to_list() == [0] * 5
    assert links["in_graph"].all()
    assert set(links["reason"]) == {"graph-replay"}
    assert set(links["annotation_name"]) == {"step[DECODE bs=1]"}


def test_an_id_that_is_used_again_means_the_nearest_call_before() -> None:
    links = ta.link(trace([
        op("first", at=0, dur=10), launch(at=5, correlation=7),
        op("second", at=100, dur=10), launch(at=105, correlation=7),
        kernel("k", at=50, dur=1, correlation=7), kernel("k", at=150, dur=1, correlation=7),
        kernel("k", at=1, dur=1, correlation=7),
    ]))  # fmt: skip
    assert links["op_name"].to_list() == ["first", "second", "first"]
    assert links["launch_delay_ns"].to_list() == [45_000, 45_000, -4_000]


def test_an_id_means_the_same_only_within_a_rank() -> None:
    ranks = [
        trace([op(f"of rank {rank}", at=0, dur=10), launch(at=1, correlation=7),
               kernel("k", at=5, dur=1, correlation=7)], rank=rank)
        for rank in range(3)
    ]  # fmt: skip
    links = ta.link(traces(*ranks))
    assert links["op_name"].to_list() == ["of rank 0", "of rank 1", "of rank 2"]


def test_a_call_that_starts_a_moment_before_its_operator_is_in_it() -> None:
    call, work = launch(at=9.5, dur=3, correlation=3), kernel("k", at=25, dur=1, correlation=3)
    assert linked(op("aten::mm", at=10, dur=9), call, work)["op_name"] == "aten::mm"
    assert linked(op("aten::mm", at=12.6, dur=9), call, work)["reason"] == "outside"
    assert linked(op("aten::mm", at=12, dur=9), call, work)["reason"] == "outside"


def test_an_external_id_names_the_operator_where_no_call_was_recorded() -> None:
    row = linked(op("outer", at=0, dur=20, external_id=1), op("inner", at=2, dur=9, external_id=2),
                 kernel("k", at=30, dur=1, external_id=2))  # fmt: skip
    assert (row["op_name"], row["root_op_name"], row["evidence"], row["launch"]) == (
        "inner", "outer", "external_id", None,
    )  # fmt: skip


def test_an_external_id_that_repeats_the_correlation_or_contradicts_the_times_names_nothing() -> None:
    stranger = op("stranger", at=0, dur=5, external_id=7)
    row = linked(stranger, kernel("k", at=30, dur=1, external_id=7, correlation=7))
    assert (row["op"], row["reason"]) == (None, "no-launch")
    row = linked(stranger, op("mine", at=10, dur=9, external_id=1), launch(at=12, correlation=5),
                 kernel("k", at=30, dur=1, external_id=7, correlation=5))  # fmt: skip
    assert (row["op_name"], row["evidence"]) == ("mine", "time")


def test_an_external_id_counts_where_the_ids_of_its_file_agree_with_the_times() -> None:
    agreeing: list[Event] = []
    for number in range(1, 20):
        agreeing += [op("a", at=number * 10, dur=9, external_id=number), launch(at=number * 10 + 1, correlation=number),
                     kernel("k", at=number * 10 + 500, dur=1, external_id=number, correlation=number)]  # fmt: skip
    late = [launch(at=209, correlation=50), kernel("k", at=900, dur=1, external_id=19, correlation=50)]
    last = ta.link(trace([*agreeing, *late])).row(-1, named=True)
    assert (last["op"], last["evidence"]) == (18, "external_id")


def test_a_backward_kernel_knows_the_module_of_its_forward_operator() -> None:
    row = linked(
        python_call("nn.Module: Linear_3", at=0, dur=20),
        op("aten::t", at=1, dur=2, **{"Sequence number": 5, "Fwd thread id": 0}),
        op("aten::addmm", at=4, dur=9, **{"Sequence number": 5, "Fwd thread id": 0}),
        op("autograd::engine::evaluate_function", at=100, dur=30, tid=9, **{"Sequence number": 5, "Fwd thread id": 1}),
        op("aten::mm", at=105, dur=9, tid=9),
        launch(at=106, correlation=4, tid=9),
        kernel("k", at=150, dur=1, correlation=4),
    )
    assert (row["op_name"], row["forward_op"], row["module_name"]) == ("aten::mm", 1, "nn.Module: Linear_3")


def test_an_external_id_of_many_operators_is_the_first_one_s_and_costs_no_pairs() -> None:
    number = 3_000
    events = [op(f"op {each}", at=each * 10, dur=5, external_id=5) for each in range(number)]
    events += [kernel("k", at=10**6 + each, dur=1, external_id=5) for each in range(number)]
    assert set(ta.link(trace(events))["op_name"]) == {"op 0"}


def test_a_correlation_of_many_calls_costs_no_pairs() -> None:
    number = 3_000
    events = [launch(at=each * 10, correlation=5) for each in range(number)]
    events += [kernel("k", at=each * 10 + 5, dur=1, correlation=5) for each in range(number)]
    assert ta.link(trace(events))["launch"].to_list() == list(range(number))


def test_nothing_links_to_nothing() -> None:
    assert ta.link(ta.Trace.empty()).schema == LINKS.schema
    assert ta.link(trace([kernel("k", at=0, dur=1)]))["reason"].to_list() == ["no-correlation"]
    with pytest.raises(ta.UsageError, match="takes a Trace"):
        ta.link("a path")  # type: ignore[arg-type]


@given(linked_ranks())
def test_generated_traces_link_as_the_naive_linker_says(whole: ta.Trace) -> None:
    check_against_the_naive_linker(whole)


@given(linked_ranks(max_ranks=3))
def test_one_rank_at_a_time_is_all_at_once(whole: ta.Trace) -> None:
    names = ["source", "op_name", "annotation_name", "module_name", "launch_delay_ns", "reason"]
    together = ta.link(whole).select(names)
    alone = [ta.link(ta.select(whole, ranks=rank)).select(names) for rank in whole.ranks["rank"]]
    assert together.equals(pl.concat(alone))


@given(linked_ranks(max_ranks=1))
def test_the_order_of_the_files_does_not_matter(whole: ta.Trace) -> None:
    other = trace([op("aten::mm", at=0, dur=9), launch(at=1, correlation=2), kernel("k", at=3, dur=1, correlation=2)])
    names = ["op_name", "annotation_name", "module_name", "launch_delay_ns", "reason"]
    first, second = ta.link(traces(whole, other)).select(names), ta.link(traces(other, whole)).select(names)
    assert first.equals(pl.concat([second.tail(-1), second.head(1)]))


@needs_cases
def test_case_s11_every_kernel_of_a_replay_links_to_its_graph_launch() -> None:
    (folder,) = CASES.glob("s11-*")
    (expected,) = json.loads((folder / "expect.json").read_text())["ranks"]
    whole = ta.read(folder / "in", cache=False)
    links = ta.link(whole).hstack(whole.kernels.select("correlation", "duration_ns"))
    found = links.group_by("correlation", api=pl.col("launch_name").cast(pl.String)).agg(
        kernels=pl.len(), kernel_us=pl.col("duration_ns").sum() / 1000
    )
    wanted = pl.DataFrame(expected["launch_calls"]).sort("correlation")
    assert found.sort("correlation").select(wanted.columns).rows() == wanted.rows()
    assert links["launch"].null_count() == expected["kernels_without_launch_call"]


@needs_cases
def test_case_s12_correlation_zero_is_no_link() -> None:
    (folder,) = CASES.glob("s12-*")
    (expected,) = json.loads((folder / "expect.json").read_text())["ranks"]
    links = ta.link(ta.read(folder / "in", cache=False))
    assert links["launch"].count() == expected["device_events_with_launch_call"]
    assert (
        dict(links["reason"].value_counts().rows())["no-correlation"] == expected["device_events_without_launch_call"]
    )


#: The naive linker takes a second for some 10,000 operators; larger files add nothing to what these show.
_LARGEST = 40_000


@needs_corpus
@pytest.mark.parametrize("path", corpus_files())
def test_real_traces_link_as_the_naive_linker_says(path: str) -> None:
    try:
        whole = ta.read(CORPUS / path, cache=False)
    except ta.UnreadableError:
        pytest.skip("is no trace")
    if whole.ops.height > _LARGEST:
        pytest.skip("too large for the naive linker")
    check_against_the_naive_linker(whole)


@needs_corpus
@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("tl-b200/eager_trace.json.gz", {None: 927, "outside": 2}),
        ("tracemap-h100/1_h100_1000isl_10osl_32con.pt.trace.json.gz", {None: 5151, "graph-replay": 8667}),
        ("tl-sgl-qwen3moe-mi300/1782859605.7198358-TP-0-DECODE.trace.json.gz",
         {None: 30, "graph-replay": 772, "outside": 3}),
        ("hta-negqueue/rank0.json.gz", {None: 6785, "no-launch": 872, "outside": 90}),
        ("saf-false/asdf_False.json.gz", {None: 26796}),
        ("msprof-view/trace_view.json", {None: 274, "no-correlation": 2}),
        ("grof/gpu_trace.json", {"no-launch": 300}),
    ],
)  # fmt: skip
def test_what_real_traces_cannot_tell_is_counted(path: str, expected: dict[str | None, int]) -> None:
    reasons = ta.link(ta.read(CORPUS / path, cache=False))["reason"]
    assert dict(reasons.value_counts().rows()) == expected
