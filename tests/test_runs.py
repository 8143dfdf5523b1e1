"""Files into runs: who belongs together, who is left out, what is said about it."""

from __future__ import annotations

import json
import os
from collections import Counter
from itertools import count
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from traceanalyzer.ingest.identity import FileInfo, identity_from_name, identity_from_regex, int_or_none
from traceanalyzer.ingest.runs import RunPlan, assign_runs
from traceanalyzer.notes import Note
from traceanalyzer.text import ranges

SHARED = Path(os.environ.get("TRACEANALYZER_SHARED", Path(__file__).parents[1] / "../shared"))
FACTS = SHARED / "corpus" / "facts.jsonl"

SECOND = 1_000_000_000
NS = 1_767_225_605_000_000_000
_fresh = count()


def info(
    path: str,
    rank: int | None = None,
    world: int | None = None,
    *,
    at: tuple[float, float] | None = (0, 1),
    device_events: int = 5,
    content: str | None = None,
    labels: tuple[str, ...] = (),
    regex: str | None = None,
) -> FileInfo:
    """A file that was recorded from `at[0]` to `at[1]` seconds; its content is like no other's unless given."""
    start, end = (None, None) if at is None else (NS + int(second * SECOND) for second in at)
    return FileInfo(
        path=path,
        name_identity=identity_from_name(path),
        content_rank=rank,
        world_size=world,
        pid_labels=labels,
        device_events=device_events,
        events=10,
        content_key=f"fresh {next(_fresh)}" if content is None else content,
        first_ns=start,
        last_ns=end,
        regex_identity=None if regex is None else identity_from_regex(path, regex),
    )


def shown(plan: RunPlan) -> dict[str, list[str]]:
    """Per run, its files as `rank name` or `reason: name`, as a person would list them."""
    runs: dict[str, list[str]] = {}
    for file in plan.files:
        rank = "?" if file.identity.rank is None else file.identity.rank
        head = str(rank) if file.used else f"{file.reason}:"
        runs.setdefault(file.run, []).append(f"{head} {file.path.rpartition('/')[2].partition('.')[0]}")
    return runs


def ranks(plan: RunPlan) -> dict[str, list[int | None]]:
    """Ranks of the used files per run."""
    runs: dict[str, list[int | None]] = {run.name: [] for run in plan.runs}
    for file in plan.files:
        if file.used:
            runs[file.run].append(file.identity.rank)
    return runs


def note(plan: RunPlan, code: str) -> Note:
    """The only note of that code."""
    (found,) = [note for note in plan.notes if note.code == code]
    return found


def codes(plan: RunPlan) -> list[str]:
    return [note.code for note in plan.notes]


# ------------------------------------------------------------------------------------- what is one run


def test_ranks_in_the_order_of_their_numbers() -> None:
    plan = assign_runs([info(f"run/1767225605.25-TP-{tp}.trace.json.gz") for tp in (10, 2, 0)])
    assert ranks(plan) == {"run": [0, 2, 10]}


def test_stages_of_one_capture_are_runs_of_their_own() -> None:
    files = [
        info(f"run/1767225605.25-TP-{tp}-{stage}.trace.json.gz") for tp in (0, 1) for stage in ("EXTEND", "DECODE")
    ]
    plan = assign_runs(files)
    assert ranks(plan) == {"run/DECODE": [0, 1], "run/EXTEND": [0, 1]}
    assert [(run.stage, run.session) for run in plan.runs] == [("DECODE", "run"), ("EXTEND", "run")]
    assert {(file.run, file.stage) for file in plan.files} == {("run/DECODE", "DECODE"), ("run/EXTEND", "EXTEND")}


def test_a_single_stage_needs_no_name() -> None:
    plan = assign_runs([info("run/1767225605.25-TP-0-DECODE.trace.json.gz")])
    assert [(run.name, run.stage) for run in plan.runs] == [("run", "DECODE")]


def test_stamps_of_sglang_tell_captures_apart_even_within_a_second() -> None:
    files = [info(f"run/176722560{s}.5-TP-{tp}.trace.json.gz", at=(0, 9)) for s in (5, 6) for tp in (0, 1)]
    assert ranks(assign_runs(files)) == {"run/1767225605.5": [0, 1], "run/1767225606.5": [0, 1]}


def test_a_stamp_of_sglang_that_ranks_share_is_a_capture_even_where_no_rank_occurs_twice() -> None:
    files = [info(f"run/176722560{5 + tp // 2}.5-TP-{tp}.trace.json.gz") for tp in range(4)]
    assert ranks(assign_runs(files)) == {"run/1767225605.5": [0, 1], "run/1767225606.5": [2, 3]}


def test_old_sglang_took_the_stamp_on_each_rank() -> None:
    stamps = {0: "1719305.0101", 1: "1719305.0107"}
    files = [info(f"run/1767{stamp}-TP-{tp}.trace.json.gz") for tp, stamp in stamps.items()]
    assert ranks(assign_runs(files)) == {"run": [0, 1]}
    again = [info(f"run/17671719605.01{tp}-TP-{tp}.trace.json.gz", at=(300, 301)) for tp in stamps]
    assert ranks(assign_runs(files + again)) == {"run/17671719305.0101": [0, 1], "run/17671719605.010": [0, 1]}


def test_prefixes_tell_runs_apart() -> None:
    files = [info(f"run/{name}-1767225605.25-TP-{tp}.trace.json.gz") for name in ("old", "new") for tp in (0, 1)]
    assert ranks(assign_runs(files)) == {"run/new": [0, 1], "run/old": [0, 1]}


def test_stamps_of_the_torch_handler_differ_by_rank() -> None:
    files = [info(f"run/node_{4240 + rank}.{NS + rank}.pt.trace.json.gz", rank, 4) for rank in range(4)]
    assert ranks(assign_runs(files)) == {"run": [0, 1, 2, 3]}


def test_ranks_of_two_hosts_whose_clocks_differ_are_one_run() -> None:
    files = [
        info(f"run/node{rank}_77.{NS}.pt.trace.json.gz", rank, 2, at=(900 * rank, 900 * rank + 1)) for rank in (0, 1)
    ]
    assert ranks(assign_runs(files)) == {"run": [0, 1]}


def test_names_with_a_random_id_per_rank_are_one_run() -> None:
    files = [
        info(f"run/Baseline - {uid}-rank{rank}-trace.json.gz", rank, 3) for rank, uid in enumerate(["f1", "a7", "c0"])
    ]
    assert ranks(assign_runs(files)) == {"run": [0, 1, 2]}


def test_two_captures_with_random_ids_are_told_apart_by_time() -> None:
    files = [
        info(f"run/{uid}-rank{rank}.json.gz", rank, 2, at=(100 * (uid > "m"), 100 * (uid > "m") + 1))
        for rank, uid in [(0, "a"), (1, "b"), (0, "x"), (1, "y")]
    ]
    found = [sorted(run) for run in shown(assign_runs(files)).values()]
    assert found == [["0 a-rank0", "1 b-rank1"], ["0 x-rank0", "1 y-rank1"]]


def test_random_ids_recorded_far_apart_are_not_one_run() -> None:
    files = [info("run/a-rank0.json", 0, 2), info("run/b-rank1.json", 1, 2, at=(7200, 7201))]
    assert ranks(assign_runs(files)) == {"run/a": [0], "run/b": [1]}


def test_before_and_after_of_one_rank_in_one_folder_are_two_runs() -> None:
    files = [info("run/before.json", 0, 8), info("run/after.json", 0, 8)]
    assert ranks(assign_runs(files)) == {"run/after": [0], "run/before": [0]}


def test_a_rank_per_folder_is_one_run() -> None:
    files = [info(f"out/rank_{rank}/chromium_events.json") for rank in (0, 1, 10)]
    assert ranks(assign_runs(files)) == {"out": [0, 1, 10]}


def test_iterations_are_runs_of_their_own() -> None:
    files = [info(f"out/iteration_{n}/rank{rank}_trace.json", rank, 2) for n in (5, 10) for rank in (0, 1)]
    assert ranks(assign_runs(files)) == {"iteration_5": [0, 1], "iteration_10": [0, 1]}


def test_unrelated_traces_of_one_folder_are_runs_of_their_own() -> None:
    plan = assign_runs([info("run/trace.json"), info("run/trace2.json")])
    assert ranks(plan) == {"run/trace": [None], "run/trace2": [None]}
    assert note(plan, "rank-unknown").count == 2


def test_a_single_file_without_a_rank_is_fine() -> None:
    plan = assign_runs([info(f"run/nodea_4242.{NS}.pt.trace.json.gz")])
    assert ranks(plan) == {"run": [None]}
    assert plan.notes == ()


def test_four_workers_without_ranks_never_become_one_rank() -> None:
    plan = assign_runs([info(f"run/nodea_{pid}.{NS + pid}.pt.trace.json.gz") for pid in range(4242, 4246)])
    assert ranks(plan) == {"run": [None] * 4}
    assert note(plan, "rank-unknown").count == 4


def test_workers_recorded_one_after_the_other_are_runs_of_their_own() -> None:
    files = [
        info(f"run/nodea_7.{NS + second * SECOND}.pt.trace.json.gz", at=(second, second + 1)) for second in (0, 90)
    ]
    assert list(ranks(assign_runs(files)).values()) == [[None], [None]]


def test_a_file_whose_name_lost_its_rank_stays_with_the_others() -> None:
    files = [info("run/events.json", at=None)] + [info(f"run/rank_{rank}__events.json", at=None) for rank in (0, 2, 3)]
    plan = assign_runs(files)
    assert ranks(plan) == {"run": [0, 2, 3, None]}
    assert "rank 1; 1 of the files there tell no rank" in note(plan, "missing-ranks").message


def test_a_file_of_that_name_but_another_time_is_a_run_of_its_own() -> None:
    files = [info("run/trace.json", at=(7200, 7201)), info("run/rank0_trace.json"), info("run/rank1_trace.json")]
    assert ranks(assign_runs(files)) == {"run": [0, 1], "run/trace.json": [None]}


def test_graph_captures_stay_apart() -> None:
    files = [
        info("run/decode.json.gz", 0, 1),
        info("run/bs_32_rank0.json.gz", 0, 1),
        info("run/bs_64_rank0.json.gz", 0, 1),
        info("other/graph_capture_profile/cuda_graph_capture-Runner-TP-0.json.gz", 0, 1),
    ]
    plan = assign_runs(files)
    assert ranks(plan) == {
        "graph_capture_profile": [0], "run": [0], "run/capture/bs_32": [0], "run/capture/bs_64": [0],
    }  # fmt: skip
    assert [run.capture for run in plan.runs] == [True, False, True, True]
    assert note(plan, "capture-apart").count == 2


def test_replicas_that_count_from_zero_are_runs_of_their_own() -> None:
    files = [info(f"run/1767225605.25-TP-{tp}-DP-{dp}.trace.json.gz", tp, 2) for tp in (0, 1) for dp in (0, 1)]
    plan = assign_runs(files)
    assert ranks(plan) == {"run/DP-0": [0, 1], "run/DP-1": [0, 1]}
    assert note(plan, "separate-worlds").count == 4


def test_replicas_of_one_world_are_one_run() -> None:
    places = [(0, 0), (1, 0), (2, 1), (3, 1)]
    files = [info(f"run/1767225605.25-TP-{tp}-DP-{dp}.trace.json.gz", tp, 4) for tp, dp in places]
    assert ranks(assign_runs(files)) == {"run": [0, 1, 2, 3]}


def test_dimensions_place_a_file_whose_global_rank_is_unknown() -> None:
    files = [info(f"run/1767225605.25-TP-{tp}-PP-{pp}.trace.json.gz") for pp in (1, 0) for tp in (1, 0)]
    plan = assign_runs(files)
    assert [(f.identity.rank, f.identity.pp, f.identity.tp) for f in plan.files] == [
        (0, 0, 0), (1, 0, 1), (None, 1, 0), (None, 1, 1),
    ]  # fmt: skip
    assert "rank-unknown" not in codes(plan)


def test_single_run_overrules_folders_and_names() -> None:
    files = [info("in/nodea/left.json", 0, 2), info("in/nodeb/right.json", 1, 2, at=(7200, 7201))]
    assert ranks(assign_runs(files)) == {"nodea": [0], "nodeb": [1]}
    assert ranks(assign_runs(files, single_run=True)) == {"in": [0, 1]}


def test_single_run_keeps_stages_and_captures_apart() -> None:
    files = [
        info("in/1767225605.25-TP-0-EXTEND.trace.json"),
        info("in/1767229999.25-TP-1-EXTEND.trace.json"),
        info("in/1767225605.25-TP-0-DECODE.trace.json"),
        info("in/bs_32_rank0.json.gz"),
    ]
    assert ranks(assign_runs(files, single_run=True)) == {"in/DECODE": [0], "in/EXTEND": [0, 1], "in/capture": [0]}


# ------------------------------------------------------------------------------------ which rank it is


def test_content_beats_name() -> None:
    plan = assign_runs([info("run/rank0.json", 5, 8), info("run/rank1.json", 1, 8)])
    assert ranks(plan) == {"run": [1, 5]}
    assert [file.identity.rank_from for file in plan.files] == ["content", "content"]
    assert "rank0.json is rank 5, not 0" in note(plan, "rank-disagreement").message


def test_a_pattern_beats_the_built_in_ones_but_not_the_content() -> None:
    pattern = r"gpu(\d+)"
    plan = assign_runs([info("run/rank0-gpu3.json", regex=pattern), info("run/rank0-gpu4.json", 4, 8, regex=pattern)])
    assert sorted(str(file.identity.rank_from) for file in plan.files) == ["content", "regex"]
    assert {file.identity.rank for file in plan.files} == {3, 4}


def test_a_pattern_can_name_the_runs() -> None:
    pattern = r"(?P<run>[a-z]+)-(?P<rank>\d+)"
    files = [
        info(f"{folder}/{name}.json", regex=pattern)
        for folder in ("x", "y")
        for name in (f"{folder}a-0", f"{folder}b-1")
    ]
    assert ranks(assign_runs(files)) == {"xa": [0], "xb": [1], "ya": [0], "yb": [1]}
    across = [info(f"node{rank}/night-{rank}.json", regex=pattern) for rank in (0, 1)]
    assert ranks(assign_runs(across)) == {"night": [0, 1]}


def test_files_that_are_each_rank_0_of_a_world_of_one_are_told_by_their_names() -> None:
    plan = assign_runs([info(f"run/rank{rank}.json", 0, 1) for rank in (0, 1, 2)])
    assert ranks(plan) == {"run": [0, 1, 2]}
    assert note(plan, "rank-from-name").count == 2  # the first is right either way


# ----------------------------------------------------------------------------------- who is left out


def test_the_same_file_twice_counts_once() -> None:
    plan = assign_runs(
        [
            info("run/1767225605.25-TP-0.trace.json.gz", content="x"),
            info("run/1767225605.25-TP-0.trace.json", content="x"),
            info("run/1767225605.25-TP-1.trace.json.gz"),
        ]
    )
    assert shown(plan)["run"][2:] == ["duplicate: 1767225605"]
    assert ranks(plan) == {"run": [0, 1]}
    assert note(plan, "duplicate-file").path == "run/1767225605.25-TP-0.trace.json.gz"


def test_the_same_path_given_twice_counts_once() -> None:
    plan = assign_runs([info("run/a.json", content="")] * 2)
    assert [file.used for file in plan.files] == [True, False]
    assert note(plan, "duplicate-file").count == 1


def test_a_copy_without_a_rank_in_its_name_is_the_one_left_out() -> None:
    plan = assign_runs([info("run/a_copy.json", content="x"), info("run/rank3.json", content="x")])
    assert shown(plan) == {"run": ["3 rank3", "duplicate: a_copy"]}


def test_names_that_claim_distinct_ranks_for_one_content_are_believed_with_a_note() -> None:
    plan = assign_runs([info(f"run/rank{rank}.json", content="x") for rank in (0, 1)])
    assert ranks(plan) == {"run": [0, 1]}
    assert note(plan, "same-content").level == "warning"


def test_a_copy_in_another_folder_is_a_run_of_its_own() -> None:
    plan = assign_runs([info("before/rank0.json", content="x"), info("after/rank0.json", content="x")])
    assert ranks(plan) == {"after": [0], "before": [0]}
    assert "same-content" in codes(plan)


def test_one_rank_recorded_twice_at_once_is_a_duplicate() -> None:
    plan = assign_runs([info(f"run/node_{pid}.{NS + pid}.pt.trace.json", 0, 1, at=(0, 9)) for pid in (1, 2)])
    assert shown(plan) == {"run": ["0 node_1", "duplicate: node_2"]}
    assert note(plan, "duplicate-rank").level == "warning"


def test_one_rank_recorded_twice_in_turn_is_two_captures() -> None:
    files = [
        info(f"run/worker{rank}.{1767225605000 + second * 1000}.pt.trace.json", rank, 2, at=(second, second + 1))
        for rank in (0, 1)
        for second in (0, 3)
    ]
    assert ranks(assign_runs(files)) == {"run/1767225605000": [0, 1], "run/1767225608000": [0, 1]}


def test_captures_are_told_apart_though_the_clocks_of_the_ranks_differ() -> None:
    """Rank 1 is 5 s ahead: by time alone its first capture would pair with the second of rank 0."""
    files = [
        info(f"run/worker{rank}.{NS + at * SECOND}.pt.trace.json", rank, 2, at=(at, at + 1))
        for rank in (0, 1)
        for at in (5 * rank, 5 * rank + 4)
    ]
    plan = assign_runs(files)
    assert list(ranks(plan).values()) == [[0, 1], [0, 1]]
    assert [file.file.first_ns for file in plan.files if file.run == plan.runs[0].name] == [NS, NS + 5 * SECOND]


def test_captures_are_told_apart_though_a_rank_is_missing_in_one() -> None:
    places = [(0, 0), (1, 0), (0, 30), (1, 30), (2, 30)]
    files = [
        info(f"run/worker{rank}.{NS + at * SECOND}.pt.trace.json", rank, 3, at=(at, at + 1)) for rank, at in places
    ]
    plan = assign_runs(files)
    assert list(ranks(plan).values()) == [[0, 1], [0, 1, 2]]
    assert [run.missing for run in plan.runs] == [(2,), ()]


def test_captures_are_told_apart_by_stamps_where_no_times_are_known() -> None:
    files = [
        info(f"run/worker{rank}.{1767225605000 + second * 1000 + rank}.pt.trace.json", rank, 2, at=None)
        for rank in (0, 1)
        for second in (0, 30)
    ]
    assert list(ranks(assign_runs(files)).values()) == [[0, 1], [0, 1]]


def test_stamps_tell_captures_apart_where_damaged_times_overlap() -> None:
    """A record of time 0 stretches a recording back to the beginning of the clock."""
    files = [info(f"run/worker0.{NS + at * SECOND}.pt.trace.json", 0, 1, at=(0, at + 1)) for at in (0, 30)]
    assert list(ranks(assign_runs(files)).values()) == [[0], [0]]


def test_a_merged_file_is_left_out_beside_its_parts() -> None:
    files = [info(f"run/p-1767225700.5-TP-{tp}.trace.json.gz", tp, 2) for tp in (0, 1)]
    merged = info("run/merged-1767225700.5.trace.json.gz", 0, 2, labels=("TP00", "TP01"))
    plan = assign_runs([merged, *files])
    assert shown(plan) == {"run": ["0 p-1767225700", "1 p-1767225700", "merged: merged-1767225700"]}
    assert note(plan, "merged-left-out").path == merged.path


def test_a_merged_file_is_known_by_its_pids_whatever_its_name() -> None:
    files = [info(f"run/1767225700.5-TP-{tp}.trace.json.gz", tp, 2) for tp in (0, 1)]
    plan = assign_runs([info("run/all.json.gz", 0, 2, labels=("TP00", "TP01")), *files])
    assert shown(plan)["run"][2:] == ["merged: all"]


def test_a_merged_file_alone_is_a_run_whose_rank_is_not_that_of_its_first_part() -> None:
    plan = assign_runs([info("run/merged-1767225700.5.trace.json.gz", 0, 4, labels=("TP00", "TP01"))])
    assert ranks(plan) == {"run": [None]}
    assert plan.files[0].identity.merged
    assert note(plan, "missing-ranks").message == "run run: files for 2 of 4 ranks"


def test_a_merged_file_belongs_to_the_capture_of_its_stamp() -> None:
    files = [info(f"run/176722570{s}.5-TP-{tp}.trace.json.gz", tp, 2) for s in (0, 1) for tp in (0, 1)]
    plan = assign_runs([*files, info("run/merged-1767225701.5.trace.json.gz")])
    assert shown(plan)["run/1767225701.5"][2:] == ["merged: merged-1767225701"]


def test_a_merged_file_of_another_capture_is_kept() -> None:
    files = [info(f"run/1767225700.5-TP-{tp}.trace.json.gz", tp, 2) for tp in (0, 1)]
    plan = assign_runs([*files, info("run/merged-1767999999.5.trace.json.gz", at=(1000, 1001))])
    assert ranks(plan) == {"run/1767225700.5": [0, 1], "run/1767999999.5": [None]}


def test_a_front_end_is_left_out_beside_files_with_device_activity() -> None:
    files = [info(f"run/dp0_pp0_tp{r}_dcp0_ep0_rank{r}.{NS + r}.pt.trace.json.gz", r, 2) for r in (0, 1)]
    front_end = info(f"run/nodea_77.async_llm.{NS}.pt.trace.json.gz", device_events=0)
    plan = assign_runs([*files, front_end])
    assert shown(plan)["run"][2:] == ["front-end: nodea_77"]
    assert note(plan, "front-end-left-out").path == front_end.path


def test_a_front_end_alone_is_read() -> None:
    plan = assign_runs([info(f"run/nodea_77.async_llm.{NS}.pt.trace.json.gz", device_events=0)])
    assert ranks(plan) == {"run": [None]}


def test_a_front_end_with_a_rank_of_its_own_group_does_not_take_the_worker_s_place() -> None:
    """The processes of a data-parallel server hold a gloo group of their own."""
    engine = info(f"run/nodea_1.{NS - 9 * SECOND}.pt.trace.json.gz", 0, 2, device_events=0)
    workers = [info(f"run/nodea_{2 + rank}.{NS}.pt.trace.json.gz", rank, 2) for rank in (0, 1)]
    plan = assign_runs([engine, *workers])
    assert shown(plan) == {"run": ["0 nodea_2", "1 nodea_3", "front-end: nodea_1"]}


def test_a_host_only_trace_of_another_time_is_no_front_end() -> None:
    plan = assign_runs([info("run/trace_cpu.json", device_events=0), info("run/trace_gpu.json", at=(6, 7))])
    assert ranks(plan) == {"run/trace_cpu": [None], "run/trace_gpu": [None]}


def test_a_rank_whose_device_activity_was_lost_is_kept() -> None:
    plan = assign_runs([info("run/rank0.json", 0, 2), info("run/rank1.json", 1, 2, device_events=0)])
    assert ranks(plan) == {"run": [0, 1]}


# ------------------------------------------------------------------------------------- what is missing


def test_missing_ranks_are_named() -> None:
    plan = assign_runs([info(f"run/rank{rank}.json", rank, 8) for rank in (0, 1, 3, 4)])
    missing = note(plan, "missing-ranks")
    assert missing.message == "run run: no file of ranks 2, 5-7, 4 of 8 missing"
    assert (missing.level, missing.count) == ("warning", 4)
    assert plan.runs[0].missing == (2, 5, 6, 7)


def test_a_hole_is_missing_even_without_a_world_size() -> None:
    assert assign_runs([info(f"run/rank{rank}.json") for rank in (0, 1, 3)]).runs[0].missing == (2,)


def test_ranks_of_one_stage_are_missing_in_the_other() -> None:
    names = ["TP-0-EXTEND", "TP-1-EXTEND", "TP-2-EXTEND", "TP-0-DECODE", "TP-1-DECODE"]
    plan = assign_runs([info(f"run/1767225605.25-{name}.trace.json.gz") for name in names])
    assert {run.name: run.missing for run in plan.runs} == {"run/DECODE": (2,), "run/EXTEND": ()}


def test_who_opens_one_rank_of_many_is_told_without_alarm() -> None:
    assert note(assign_runs([info("run/rank34.json", 34, 300)]), "missing-ranks").level == "info"
    assert assign_runs([info("run/rank34.json")]).notes == ()


def test_graph_captures_are_recorded_on_chosen_ranks_only() -> None:
    assert assign_runs([info(f"run/graph_capture_rank_0.{NS}.pt.trace.json", 0, 8)]).notes == ()


def test_different_world_sizes_in_one_run_are_noticed() -> None:
    plan = assign_runs([info("run/rank0.json", 0, 2), info("run/rank1.json", 1, 4)])
    assert "2, 4" in note(plan, "world-size-differs").message


def test_a_rank_beyond_its_world_is_noticed() -> None:
    assert "rank-outside-world" in codes(assign_runs([info("run/rank4.json", 4, 4)]))


def test_nothing_in_nothing_out() -> None:
    assert assign_runs([]) == assign_runs([], single_run=True) == RunPlan((), (), ())


@pytest.mark.parametrize(
    ("numbers", "text"),
    [([], ""), ([2], "2"), ([7, 2, 5, 6], "2, 5-7"), (range(300), "0-299"), ([1, 1, 2], "1-2")],
)
def test_ranges(numbers: list[int], text: str) -> None:
    assert ranges(numbers) == text


def test_long_lists_of_ranges_are_cut() -> None:
    assert ranges([0, 2, 4, 5], most=2) == "0, 2 and 2 more"


# --------------------------------------------------------------------------------------- names of runs


@pytest.mark.parametrize(
    ("paths", "names"),
    [
        (["/data/night/rank0.json"], ["night"]),
        (["/data/a/x/rank0.json", "/data/b/x/rank0.json"], ["a/x", "b/x"]),  # as much as tells them apart
        (["x/rank0.json", "y/x/rank0.json", "y/x/rank1.json"], ["x", "y/x"]),
        (["decode.json.gz"], ["decode"]),  # no folder
        (["rank0.json"], ["rank0.json"]),  # no folder and nothing but a rank
        (["a/t.json", "a/t.json.gz"], ["a/t.json", "a/t.json.gz"]),
        (["a/b.json", "a/c.json", "x/a/b/rank0.json"], ["a/b", "a/c", "b"]),
        (["run/trace10.json", "run/trace9.json"], ["run/trace9", "run/trace10"]),
        (["/rank0.json"], ["rank0.json"]),
    ],
)
def test_run_names(paths: list[str], names: list[str]) -> None:
    assert [run.name for run in assign_runs([info(path) for path in paths]).runs] == names


# ---------------------------------------------------------------------------------------------- laws

_NAMES = (
    "rank{r}.json", "trace.json", "trace-rank-{r}.json.gz", "{u}-rank{r}.json", "worker{r}.{ns}.pt.trace.json",
    "node_{u}.{ns}.pt.trace.json.gz", "node_{u}.async_llm.{ns}.pt.trace.json.gz", "{s}-TP-{r}.trace.json.gz",
    "p-{s}-TP-{r}-DP-{d}-DECODE.trace.json.gz", "{s}-TP-{r}-EXTEND.trace.json.gz", "merged-{s}.trace.json.gz",
    "dp{d}_pp0_tp0_dcp0_ep0_rank{r}.{ns}.pt.trace.json.gz", "bs_32_rank{r}.json.gz", "{u}.json",
)  # fmt: skip


@st.composite
def file_infos(draw: st.DrawFn) -> FileInfo:
    """Files of few folders, ranks, times and contents, so that they clash often."""
    small = st.integers(0, 2)
    name = draw(st.sampled_from(_NAMES)).format(
        r=draw(small), d=draw(small), u=draw(st.sampled_from("ab")), s=1767225605 + 100 * draw(small),
        ns=NS + 100 * SECOND * draw(small) + draw(small),
    )  # fmt: skip
    folder = draw(st.sampled_from(["x", "y/rank_1", "y", "x/y", ""]))
    path = f"{folder}/{name}" if folder else name
    start = draw(st.none() | st.sampled_from([0, 0.5, 3, 100]))
    regex = draw(st.sampled_from([None, None, None, r"rank(\d+)", r"(?P<run>[a-z]+).*(?P<rank>[0-2])"]))
    return info(
        path,
        draw(st.none() | small),
        draw(st.sampled_from([None, 1, 2, 3])),
        at=None if start is None else (start, start + draw(st.sampled_from([0, 1, 2]))),
        device_events=draw(st.sampled_from([0, 5])),
        content=draw(st.sampled_from(["", "p", "q", "r", "s"])),
        labels=draw(st.sampled_from([(), (), (), ("TP00",), ("TP00", "TP01")])),
        regex=regex,
    )


_FILES = st.lists(file_infos(), max_size=9)


@given(_FILES, st.booleans(), st.randoms(use_true_random=False))
def test_the_order_of_the_files_does_not_matter(files: list[FileInfo], single: bool, random: object) -> None:
    shuffled = list(files)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert assign_runs(shuffled, single_run=single) == assign_runs(files, single_run=single)


@given(_FILES, st.booleans())
def test_every_file_is_used_or_left_out_for_a_reason(files: list[FileInfo], single: bool) -> None:
    plan = assign_runs(files, single_run=single)
    assert Counter(file.file for file in plan.files) == Counter(files)
    assert all(file.used == (file.reason is None) for file in plan.files)
    assert {file.run for file in plan.files} == {run.name for run in plan.runs}


@given(_FILES, st.booleans())
def test_no_two_used_files_of_a_run_are_the_same_rank(files: list[FileInfo], single: bool) -> None:
    used = [file for file in assign_runs(files, single_run=single).files if file.used]
    places = Counter((file.run, file.stage, file.identity.place) for file in used if file.identity.known)
    global_ranks = Counter((file.run, file.identity.rank) for file in used if file.identity.rank is not None)
    assert set(places.values()) | set(global_ranks.values()) <= {1}


@given(_FILES, st.booleans())
def test_runs_have_names_of_their_own_and_a_file_that_counts(files: list[FileInfo], single: bool) -> None:
    plan = assign_runs(files, single_run=single)
    assert max(Counter(run.name for run in plan.runs).values(), default=0) <= 1
    assert all(run.name for run in plan.runs)
    assert {file.run for file in plan.files if file.used} == {run.name for run in plan.runs}
    assert {(file.run, file.stage) for file in plan.files if file.used} == {(r.name, r.stage) for r in plan.runs}


@given(_FILES, st.booleans())
def test_notes_are_one_line_each_with_a_count(files: list[FileInfo], single: bool) -> None:
    for each in assign_runs(files, single_run=single).notes:
        assert each.count is None or each.count > 0
        assert each.message
        assert "\n" not in each.message
        assert each.path is None or each.path in {file.path for file in files}


# --------------------------------------------------------------------------------------------- corpus


def corpus_files() -> list[FileInfo]:
    """The corpus as its facts tell it: identity and times, without reading the traces."""
    files = []
    for line in FACTS.read_text(encoding="utf-8").splitlines():
        fact = json.loads(line)
        distributed = fact.get("distributedInfo") or {}
        first = None if fact.get("x_first_ts") is None else round(float(fact["x_first_ts"]) * 1000)
        files.append(
            FileInfo(
                path=fact["path"],
                name_identity=identity_from_name(fact["path"]),
                content_rank=int_or_none(distributed.get("rank")),
                world_size=int_or_none(distributed.get("world_size")),
                device_events=sum(fact.get(f"{kind}_count", 0) for kind in ("kernel", "memcpy", "memset")),
                content_key=fact["sha256"],
                first_ns=first,
                last_ns=None if first is None else first + round((fact.get("x_span_us") or 0) * 1000),
            )
        )
    return files


@pytest.mark.skipif(not FACTS.is_file(), reason=f"no file {FACTS} (TRACEANALYZER_SHARED)")
def test_corpus() -> None:
    plan = assign_runs(corpus_files())
    found = ranks(plan)
    assert all(file.used for file in plan.files)
    several = {
        "mng-8rank": [*range(8)],
        "param-dlrm8": [*range(8)],
        "torchrec-qcomm4": [*range(4)],
        "torchrec-resnet2": [0, 1],
        "titan-tl4": [0, 2, 3, None],  # the second file lost its folder, and with it its rank
    }
    assert {name: found[name] for name in several} == several
    others = {name: each for name, each in found.items() if name not in several}
    assert all(len(each) == 1 for each in others.values()), "nothing else in the corpus belongs together"
    assert {run.name for run in plan.runs if run.capture} == {
        "tl-sglang-decode/capture", "tl-vllm-decode/capture", "tl-xdit-flux-capture",
    }  # fmt: skip
    assert {"tl-sglang-decode", "tl-vllm-decode", "hta-compare/base", "hta-compare/test"} <= others.keys()
