"""What `info` says about files, runs and devices."""

from __future__ import annotations

import polars as pl
import pytest
from builders import TEST_GPU, Event, annotation, kernel, launch, memcpy, memset, op, trace, traces
from hypothesis import given
from hypothesis import strategies as st
from strategies import traces_of_ranks
from test_runs import file_infos, info

from traceanalyzer import schema
from traceanalyzer.analyses import overview, trust
from traceanalyzer.analyses.missing import missing_ranks
from traceanalyzer.ingest.identity import FileInfo, identity_from_label
from traceanalyzer.ingest.runs import RunPlan, assign_runs
from traceanalyzer.reports.shared import run_facts
from traceanalyzer.trace import Trace


def test_missing_ranks_are_those_of_the_world_that_no_file_is_from() -> None:
    two = traces(*(trace([kernel("a", at=0, dur=1)], rank=rank, world_size=4) for rank in (0, 2)))
    found = overview.runs(two).row(0, named=True)
    assert (found["ranks"], found["ranks_missing"], found["files"]) == ([0, 2], [1, 3], 2)


def test_without_a_world_size_nobody_knows_what_is_missing() -> None:
    found = overview.runs(trace([kernel("a", at=0, dur=1)], rank=None)).row(0, named=True)
    assert (found["ranks"], found["ranks_missing"]) == ([], None)


def ranks_table(plan: RunPlan) -> pl.DataFrame:
    """The table `ranks` as the reader makes it of a plan: a merged file that is used has a row for each rank."""
    rows: list[dict[str, object]] = []
    for each in plan.files:
        labels = each.file.pid_labels
        several = each.used and len(labels) > 1
        for identity in map(identity_from_label, labels) if several else [each.identity]:
            rows.append(
                {
                    "source": len(rows),
                    "path": each.path,
                    "run": each.run,
                    "stage": each.stage,
                    "rank": identity.rank,
                    "world_size": each.file.world_size,
                    "used": each.used,
                    "reason": each.reason,
                }
            )
    empty = schema.table("ranks").empty()
    return pl.concat([empty, pl.DataFrame(rows, schema_overrides=dict(empty.schema))], how="diagonal")


def assert_missing_as_planned(files: list[FileInfo], *, single: bool = False) -> dict[str, list[int]]:
    """Check `missing_ranks` against the reader's plan; returns what is missing per run."""
    plan = assign_runs(files, single_run=single)
    found = missing_ranks(ranks_table(plan)).to_dicts()
    missing = {row["run"]: row["ranks_missing"] or [] for row in found}
    assert missing == {run.name: list(run.missing) for run in plan.runs}
    assert {row["run"]: row["world_size"] for row in found} == {run.name: run.world_size for run in plan.runs}
    return missing


@given(st.lists(file_infos(), max_size=9, unique_by=lambda file: file.path), st.booleans())
def test_missing_ranks_are_those_of_the_readers_plan(files: list[FileInfo], single: bool) -> None:
    assert_missing_as_planned(files, single=single)


def test_of_graph_captures_and_merged_files_no_rank_is_missing() -> None:
    assert assert_missing_as_planned([info("run/bs_32_rank1.json.gz", 1, 4)]) == {"run": []}
    assert assert_missing_as_planned([info("merged-1767225605.5.trace.json.gz", 0, 4, labels=("TP00", "TP02"))]) == {
        "1767225605.5": []
    }


def test_differing_world_sizes_are_settled_by_most_of_the_files() -> None:
    files = [info(f"run/rank{rank}.json", rank, world) for rank, world in ((0, 4), (1, 4), (2, 8))]
    assert assert_missing_as_planned(files) == {"run": [3]}


def test_without_a_world_size_the_highest_rank_of_any_stage_is_known() -> None:
    files = [
        info(f"run/1767225605.25-TP-{rank}-{stage}.trace.json.gz")
        for rank, stage in ((0, "EXTEND"), (0, "DECODE"), (2, "DECODE"))
    ]
    assert assert_missing_as_planned(files) == {"run/DECODE": [1], "run/EXTEND": [1, 2]}


def test_where_no_file_tells_its_rank_it_is_unknown_which_are_missing() -> None:
    found = overview.runs(trace([kernel("a", at=0, dur=1)], rank=None, world_size=4)).row(0, named=True)
    assert (found["world_size"], found["ranks_missing"]) == (4, None)


def test_runs_are_apart_and_times_are_summed_over_devices() -> None:
    both = traces(
        trace([kernel("a", at=0, dur=10), kernel("b", at=5, dur=10, device=1)], run="one"),
        trace([kernel("a", at=0, dur=10), kernel("a", at=20, dur=5)], run="two"),
    )
    found = overview.runs(both).select("run", "devices", "span_ns", "busy_ns", "idle_ns")
    assert found.rows() == [("one", 2, 20_000, 20_000, 0), ("two", 1, 25_000, 15_000, 10_000)]


def test_kinds_of_activity_are_counted_apart() -> None:
    events = [kernel("a", at=0, dur=1), memcpy(at=1, dur=1), memset(at=2, dur=1), memset(at=3, dur=1)]
    found = overview.devices(trace(events)).select("device", "name", "sms", "kernels", "copies", "sets")
    assert found.rows() == [("0", "Test GPU", 100, 1, 1, 2)]


def test_a_file_without_device_activity_has_a_row_with_unknown_times() -> None:
    found = overview.devices(trace([op("aten::mm", at=0, dur=5)]))
    assert found.select("rank", "device", "span_ns", "kernels").rows() == [(0, None, None, None)]


def test_activity_on_a_device_without_a_number_is_activity() -> None:
    nameless = trace([kernel("a", at=0, dur=5), kernel("b", at=10, dur=5)])
    nameless = nameless.replace(kernels=nameless.kernels.with_columns(device=pl.lit(None, pl.Categorical)))
    found = overview.devices(nameless).select("device", "span_ns", "busy_ns", "kernels")
    assert found.rows() == [(None, 15_000, 10_000, 2)]
    assert overview.files(nameless)["busy_ns"].to_list() == [10_000]
    assert overview.runs(nameless).select("devices", "busy_ns").rows() == [(1, 10_000)]


def test_left_out_files_are_listed_with_their_reason() -> None:
    both = traces(
        trace([kernel("a", at=0, dur=10)], path="a.json"),
        trace([kernel("a", at=0, dur=10)], path="copy.json", used=False, reason="duplicate"),
    )
    found = overview.files(both).select("path", "used", "reason", "busy_ns")
    assert found.rows() == [("a.json", True, None, 10_000), ("copy.json", False, "duplicate", None)]
    assert overview.runs(both)["files"].to_list() == [1]


def test_events_are_counted_by_category_with_the_table_that_holds_them() -> None:
    events = [op("x", at=0, dur=1), op("y", at=1, dur=1), annotation("z", at=0, dur=9)]
    found = overview.events(trace(events)).rows()
    assert found == [("X", "cpu_op", "ops", 2), ("X", "user_annotation", "annotations", 1)]


def test_nothing_read_gives_no_rows() -> None:
    for analysis in (overview.devices, overview.files, overview.runs, overview.events):
        assert analysis(Trace.empty()).is_empty()


@given(traces_of_ranks())
def test_counts_and_times_are_conserved_from_devices_to_files_to_runs(drawn: Trace) -> None:
    devices, files, runs = overview.devices(drawn), overview.files(drawn), overview.runs(drawn)
    assert devices.select("kernels", "copies", "sets").sum().sum_horizontal().sum() == drawn.kernels.height
    for column in ("busy_ns", "span_ns", "idle_ns", "kernels"):
        assert devices[column].sum() == files[column].sum() == runs[column].sum()


def test_the_only_described_device_stands_for_one_under_another_number() -> None:
    amd = {**TEST_GPU, "name": "AMD Instinct MI300X", "numSms": 304}
    one = trace([kernel("a", at=0, dur=5, device=9)], device_properties=[amd])
    assert overview.devices(one).select("device", "name", "sms").rows() == [("9", "AMD Instinct MI300X", 304)]
    facts = [fact.value for fact in run_facts(overview.runs(one).row(0, named=True))]
    assert "AMD Instinct MI300X (304 CUs)" in facts
    two = trace([kernel("a", at=0, dur=5, device=9)], device_properties=[amd, {**amd, "id": 1}])
    assert overview.devices(two).select("name", "sms").rows() == [(None, None)]


@pytest.mark.parametrize(
    ("events", "message"),
    [
        ([], "holds no events"),
        ([annotation("step", at=0, dur=5, on_device=True)], "no device activity"),
        ([op("aten::mm", at=0, dur=5)], "no device activity and no launch calls: the host alone was recorded"),
        ([launch(at=0)], "1 launch call, but no device activity: it was not recorded, or the profiler lost it"),
    ],
)
def test_a_trace_without_device_activity_says_what_it_holds(events: list[Event], message: str) -> None:
    assert [note.message for note in trust.notes(trace(events))] == [message]
