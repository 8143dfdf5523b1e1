"""Account: the exact parts of a step, a user's budget, and a run without a profiler."""

from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise
from pathlib import Path
from statistics import mean
from typing import Any

import polars as pl
import pytest
from builders import Event, annotation, kernel, launch, memcpy, op, trace, write_trace
from hypothesis import given
from hypothesis import strategies as st
from oracles.naive_breakdown import Activity
from oracles.naive_breakdown import breakdown as naive
from shared import CORPUS, corpus_folders, needs_corpus
from strategies import linked_ranks, stretched, traces_of_ranks

import traceanalyzer as ta
from traceanalyzer import cli
from traceanalyzer.analyses.account import account, full_account
from traceanalyzer.analyses.budget import load_budget
from traceanalyzer.analyses.exclusive import STATES, cut_at, exclusive
from traceanalyzer.analyses.idle import CAUSES, gaps_and_host
from traceanalyzer.analyses.step_time import KEY, step_time, with_causes
from traceanalyzer.analyses.steps import find_steps, steps
from traceanalyzer.errors import UsageError
from traceanalyzer.trace import Trace

SAMPLES = Path(__file__).parent.parent / "sample_traces"
GEMM, NCCL = "gemm_a", "ncclDevKernel_AllReduce_Sum_bf16_RING_LL"


def step(at: float, number: int) -> list[Event]:
    """1000 us of the host, in which it builds for 500 us, then a GEMM, and behind it a copy and a collective."""
    return [
        annotation("step[DECODE bs=1]", at=at, dur=999),
        annotation("build", at=at, dur=500),
        launch(at=at + 510, dur=10, correlation=3 * number + 1),
        kernel(GEMM, at=at + 525, dur=200, correlation=3 * number + 1),
        launch(at=at + 521, dur=2, correlation=3 * number + 2),
        kernel(NCCL, at=at + 625, dur=200, correlation=3 * number + 2, stream=9),
        launch(at=at + 524, dur=2, correlation=3 * number + 3),
        memcpy(at=at + 775, dur=100, correlation=3 * number + 3, stream=11),
    ]


def run(count: int = 4) -> Trace:
    return trace([event for number in range(count) for event in step(1000.0 * number, number)])


def measured(rows: pl.DataFrame) -> dict[tuple[str, str], float]:
    """us a step by kind and component."""
    return {
        (kind, component): round(amount / 1000, 3)
        for kind, component, amount in rows.select("kind", "component", "measured_ns_per_step").iter_rows()
    }


# ------------------------------------------------------------------------------------------ by hand


def test_each_instant_of_a_step_has_one_part() -> None:
    """Wall 1000: from the end of the copy at 875 to the next; busy 525 to 875 of it."""
    assert measured(account(run())) == {
        ("step", "wall"): 1000,
        ("class", "gemm"): 200,
        ("communication", "communication"): 100,
        ("memory", "memory"): 50,
        ("host", "build"): 500,
        ("cause", "host_busy"): 135,  # before and behind the range, without the calls
        ("cause", "launch_bound"): 10,
        ("cause", "queued"): 5,
    }


def test_a_budget_takes_what_its_patterns_find_and_names_the_rest(tmp_path: Path) -> None:
    file = tmp_path / "budget.toml"
    file.write_text(
        '[[component]]\nname = "weights"\nregex = "gemm"\nexpected_us = 150.5\n'
        '[[component]]\nname = "absent"\nregex = "attention"\nexpected_us = 7\n'
        '[[component]]\nname = "all of the gemm"\nregex = "gemm_a"\n'
        '[[component]]\nname = "host"\non = "idle"\nregex = "build|queued"\nexpected_us = 20\n'
    )
    found = full_account(run(), budget=load_budget(file))
    budget = found.rows.filter(pl.col("kind") == "budget")
    assert budget.select("component", "measured_ns_per_step", "budget_ns_per_step").rows() == [
        ("weights", 200_000, 150_500), ("absent", 0, 7_000), ("all of the gemm", 0, None), ("host", 505_000, 20_000),
    ]  # fmt: skip
    rest = measured(found.rows.filter(~pl.col("kind").is_in(["budget", "step"])))
    assert rest == {
        ("kernel", NCCL): 100, ("kernel", "Memcpy HtoD (Pageable -> Device)"): 50,
        ("cause", "host_busy"): 135, ("cause", "launch_bound"): 10,
    }  # fmt: skip
    (total,) = found.totals.to_dicts()
    assert (total["budget_ns"], total["in_budget_ns"], total["steps"]) == (177_500, 705_000, 3)


def test_a_budget_without_times_is_no_budget_of_0(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "budget.toml"
    file.write_text('[[component]]\nname = "weights"\nregex = "gemm"\n')
    (total,) = full_account(run(), budget=load_budget(file)).totals.to_dicts()
    assert (total["budget_ns"], total["in_budget_ns"]) == (None, 200_000)
    events = [event for number in range(4) for event in step(1000.0 * number, number)]
    assert cli.main(["account", str(write_trace(tmp_path / "a.json", events)), "--budget", str(file)]) == 0
    said = capsys.readouterr().out
    assert "budget 0" not in said
    assert "its components take 200 µs" in said


def test_what_only_the_profiler_makes_is_told_apart() -> None:
    found = full_account(run(), measured_step_ns=900_000)
    whole = measured(found.rows.filter(pl.col("kind") == "step"))
    assert whole == {
        ("step", "wall"): 1000, ("step", "without a profiler"): 900, ("step", "only under the profiler"): 100,
    }  # fmt: skip
    assert found.totals.select("inflation_ns", "inflated_idle_ns").row(0) == (100_000, 100_000)
    assert full_account(run(), measured_step_ns=100_000).totals["inflated_idle_ns"].item() == 650_000
    longer = full_account(run(), measured_step_ns=2_000_000)
    assert longer.totals["inflated_idle_ns"].item() == 0
    assert longer.rows.filter(pl.col("kind") == "step")["component"].to_list() == ["wall", "without a profiler"]


def test_kinds_of_steps_are_apart() -> None:
    prefill = [
        annotation("step[EXTEND bs=1 toks=99]", at=9000, dur=900),
        launch(at=9010, dur=5, correlation=99), kernel(GEMM, at=9020, dur=800, correlation=99),
    ]  # fmt: skip
    both = trace([*(event for number in range(4) for event in step(1000.0 * number, number)), *prefill])
    assert full_account(both).totals["step_kind"].to_list() == ["decode"]
    assert measured(account(both, kind="prefill"))["class", "gemm"] == 800
    with pytest.raises(UsageError, match="no steps of kind 'mixed'; there are decode, prefill"):
        account(both, kind="mixed")


def test_without_steps_there_are_no_rows() -> None:
    assert account(trace([kernel(GEMM, at=0, dur=5)])).is_empty()
    assert account(trace([])).is_empty()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x =", "not TOML"),
        ("x = 1", r"no components in it: each begins with a line \[\[component\]\]"),
        ('[[component]]\nname = "a"', "component 1: it has no regex"),
        ('[[component]]\nname = 1\nregex = "a"', "component 1: name must be a text"),
        ('[[component]]\nname = "a"\nregex = "("', "component 1: regex '\\(' does not compile"),
        ('[[component]]\nname = "a"\nregex = "a"\nexpected = 3', "unknown key 'expected'.*expected_us"),
        ('[[component]]\nname = "a"\nregex = "a"\nexpected_us = "3"', "expected_us is '3', must be a number"),
        ('[[component]]\nname = "a"\nregex = "a"\nexpected_us = nan', "expected_us is nan, must be a number"),
        ('[[component]]\nname = "a"\nregex = "a"\nexpected_us = -1', "expected_us is -1, must be a number"),
        ('[[component]]\nname = "a"\nregex = "a"\non = "host"', "on is 'host', must be 'device' or 'idle'"),
        ('[[component]]\nname = "a"\nregex = "a"\n[[component]]\nname = "a"\nregex = "b"', "component 2: there is ano"),
    ],
)
def test_a_budget_that_is_none_is_said_in_a_line(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "budget.toml"
    file.write_text(text)
    with pytest.raises(UsageError, match=f"budget file .*budget.toml: .*{said}"):
        load_budget(file)


# ------------------------------------------------------------------------------------------ instant by instant


@given(traces_of_ranks(max_ranks=1), st.lists(st.integers(1, 70), max_size=4, unique=True))
def test_exclusive_time_is_that_of_a_walk_instant_by_instant(recorded: Trace, edges: list[int]) -> None:
    """In windows of any size, each on its own, by state; of several of one state the first to start has it."""
    kernels = recorded.kernels.filter(pl.col("device").cast(pl.String) == "0")
    origin = int(kernels["start_ns"].min() or 0)  # type: ignore[arg-type]
    cuts = [0, *sorted(edges), 200]
    windows = pl.DataFrame({
        "device": "0", "start_ns": [1000 * each for each in cuts[:-1]], "end_ns": [1000 * each for each in cuts[1:]],
        "window": range(len(cuts) - 1),
    })  # fmt: skip
    activity = kernels.select(
        pl.col("device").cast(pl.String), "duration_ns", start_ns=pl.col("start_ns") - origin,
        state=pl.Series([STATES[number % 3] for number in range(kernels.height)], dtype=pl.String),
    ).with_columns(end_ns=pl.col("start_ns") + pl.col("duration_ns"))  # fmt: skip
    activity = activity.sort("start_ns").with_row_index("order")
    pieces = cut_at(activity, windows, ["device"], "window")
    found = pieces.with_columns(exclusive(pieces, ["device", "window"]))
    held = activity.select("state", "order", "start_ns", "end_ns").rows()
    for number, (first, last) in enumerate(pairwise(cuts)):
        expected: Counter[int] = Counter()
        for instant in range(1000 * first, 1000 * last, 1000):
            there = [(STATES.index(state), order) for state, order, start, end in held if start <= instant < end]
            if there:
                expected[min(there)[1]] += 1000
        own = found.filter(pl.col("window") == number, pl.col("own_ns") > 0)
        assert dict(own.select("order", "own_ns").iter_rows()) == expected


@given(traces_of_ranks(max_ranks=1))
def test_of_equals_the_first_to_start_has_the_time(recorded: Trace) -> None:
    """As `breakdown` has it, class by class: there is one window, and only compute."""
    kernels = recorded.kernels.filter(pl.col("kind") == "kernel")
    rows = [(row["start_ns"] // 1000, row["duration_ns"] // 1000, row["device"]) for row in kernels.to_dicts()]
    for device in {each[2] for each in rows}:
        own = sorted(each for each in rows if each[2] == device)
        frame = pl.DataFrame({
            "device": device, "state": "compute", "start_ns": [1000 * start for start, _, _ in own],
            "end_ns": [1000 * (start + length) for start, length, _ in own], "order": range(len(own)),
        })  # fmt: skip
        found = exclusive(frame, ["device"])
        classes = ["gemm", "attention", "norm"]
        named = [Activity(start, start + length, classes[at % 3]) for at, (start, length, _) in enumerate(own)]
        expected, _ = naive(named)
        for at, name in enumerate(classes):
            assert sum(found[at::3].to_list()) == 1000 * expected["compute", name]


def test_a_kernel_that_runs_over_the_edge_of_a_step_was_the_first_on_both_sides() -> None:
    """The long one began before the short one, and hides it: behind the end of step 0 too, where both are cut."""
    events = [event for number in range(3) for event in [
        annotation("step[DECODE bs=1]", at=1000 * number, dur=990),
        launch(at=1000 * number + 10, dur=5, correlation=3 * number + 1),
        kernel("ends the step before", at=1000 * number + 300, dur=10, correlation=3 * number - 2, stream=9),
        launch(at=1000 * number + 20, dur=5, correlation=3 * number + 2),
        kernel("long", at=1000 * number + 100, dur=500, correlation=3 * number + 2),
        launch(at=1000 * number + 30, dur=5, correlation=3 * number + 3),
        kernel("short", at=1000 * number + 200, dur=200, correlation=3 * number + 3, stream=8),
    ]]  # fmt: skip
    assert "short" not in step_time(trace(events))["kernel"].to_list()
    both = ["ncclDevKernel_AllReduce_a", "ncclDevKernel_AllGather_b"]
    hidden = pl.DataFrame({
        "device": "0", "kernel": [GEMM, *both], "state": ["compute", "communication", "communication"],
        "start_ns": [0, 0, 5], "end_ns": [10, 100, 50], "order": [0, 1, 2],
    })  # fmt: skip
    assert exclusive(hidden, ["device"]).to_list() == [10, 90, 0]


# ------------------------------------------------------------------------------------------ conservation


def assert_parts_tile_steps(recorded: Trace) -> None:
    """Parts of a step sum to its wall time, those of idle to its idle time, by cause and by what the host did."""
    found = find_steps(recorded)
    rows = steps(recorded, found=found)
    parts = step_time(recorded, found=found, rows=rows)
    idle = pl.col("total_ns").filter(pl.col("state") == "idle").sum()
    sums = parts.group_by(KEY).agg(all_ns=pl.col("total_ns").sum(), parts_idle_ns=idle)
    joined = rows.drop_nulls("step").join(sums, on=KEY, how="left", nulls_equal=True)
    assert (joined["wall_ns"] == joined["all_ns"].fill_null(0)).all()
    assert (joined["idle_ns"] == joined["parts_idle_ns"].fill_null(0)).all()
    caused = with_causes(rows, parts).filter(pl.col("kind") != "outside")
    assert (
        caused["idle_ns"] == caused.select(pl.sum_horizontal(f"idle_{cause}_ns" for cause in CAUSES)).to_series()
    ).all()
    gaps = gaps_and_host(recorded, found=found)
    by_gap = gaps.host.group_by("gap").agg(pl.col("total_ns").sum())
    busy = gaps.rows.with_row_index("gap").filter(pl.col("host_busy_ns") > 0).select("gap", total_ns="host_busy_ns")
    assert by_gap.sort("gap").equals(busy.cast(by_gap.schema).sort("gap"))


@given(linked_ranks(), st.integers(1, 40))
def test_parts_of_steps_sum_to_their_time(ranks: Trace, factor: int) -> None:
    """Stretched, so that the host is busy for long enough to be named."""
    assert_parts_tile_steps(stretched(ranks, factor))


@needs_corpus
@pytest.mark.parametrize("folder", corpus_folders())
def test_parts_of_real_steps_sum_to_their_time(folder: str) -> None:
    try:
        recorded = ta.read(CORPUS / folder, cache=False)
    except ta.UnreadableError:
        pytest.skip("no trace")
    assert_parts_tile_steps(recorded)


def test_a_device_without_a_name_is_one_like_any_other() -> None:
    recorded = run()
    unnamed = recorded.kernels.with_columns(device=pl.lit(None, pl.Categorical))
    assert_parts_tile_steps(recorded.replace(kernels=unnamed))


# ------------------------------------------------------------------------------------------ real ones


@pytest.mark.parametrize("mode", ["eager", "graph", "gpu-only"])
def test_the_inflation_is_that_of_the_measured_runs(mode: str) -> None:
    """The trace against the same run without a profiler: both were measured by CUDA events."""
    truth = json.loads((SAMPLES / f"mask-4k-{mode}" / "truth.json").read_text())
    profiled, without = (
        mean(mean(rank[which]["cuda_event_step_ns"][1:]) for rank in truth["ranks"])
        for which in ("profiled", "unprofiled")
    )
    found = full_account(ta.read(SAMPLES / f"mask-4k-{mode}"), measured_step_ns=round(without))
    (total,) = found.totals.to_dicts()
    assert total["wall_ns"] == pytest.approx(profiled, rel=0.02)
    assert total["inflation_ns"] == pytest.approx(profiled - without, abs=0.02 * profiled)
    assert 0 < total["inflated_idle_ns"] < total["idle_ns"]


def test_the_mask_is_most_of_a_step_and_the_tree_has_a_figure_of_its_own() -> None:
    truth = json.loads((SAMPLES / "mask-64k-eager" / "truth.json").read_text())
    mask, tree = (
        mean(mean(rank["profiled"][which][1:]) for rank in truth["ranks"]) for which in ("host_mask_ns", "host_tree_ns")
    )
    found = measured(account(ta.read(SAMPLES / "mask-64k-eager")))
    assert found["host", "build_tree_mask"] * 1000 == pytest.approx(mask, rel=0.03)
    assert found["host", "build_draft_tree"] * 1000 == pytest.approx(tree, rel=0.3)  # the profiler slows the call


def test_a_range_around_everything_names_nothing() -> None:
    events = [
        kernel("a", at=0, dur=100),
        launch(at=590, dur=5, correlation=1),
        kernel("b", at=600, dur=1, correlation=1),
    ]
    around = [annotation("whole run", at=0, dur=100_000), op("aten::topk", at=120, dur=400)]
    (part,) = gaps_and_host(trace([*events, *around])).host.rows()
    assert part[1:] == ("aten::topk", 490_000)


def test_the_command_shows_budget_and_inflation(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "budget.toml"
    file.write_text('[[component]]\nname = "casts"\nregex = "unrolled"\nexpected_us = 12\n')
    arguments = ["account", str(SAMPLES / "cast-eager"), "--budget", str(file), "--measured-step", "3.66ms"]
    assert cli.main(arguments) == 0
    said = capsys.readouterr().out
    assert "casts" in said
    assert "without a profiler 3.66 ms" in said
    assert cli.main([*arguments, "--format", "json"]) == 0
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert {"component", "kind", "measured_ns_per_step", "budget_ns_per_step", "share"} <= answer["rows"][0].keys()
    assert answer["steps"][0]["measured_step_ns"] == 3_660_000
    shares = [row["share"] for row in answer["rows"] if row["kind"] != "step"]
    assert sum(shares) == pytest.approx(1)


def test_steps_that_take_no_time_are_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """All device activity is points at one instant."""
    points = [event for number in range(4) for event in [
        annotation("step[DECODE bs=1]", at=10 * number, dur=9),
        launch(at=10 * number, dur=1, correlation=number + 1),
        kernel(GEMM, at=100, dur=0, correlation=number + 1),
    ]]  # fmt: skip
    budget = tmp_path / "budget.toml"
    budget.write_text('[[component]]\nname = "weights"\nregex = "gemm"\nexpected_us = 150.5\n')
    arguments = ["account", str(write_trace(tmp_path / "points.json", points))]
    assert cli.main([*arguments, "--budget", str(budget), "--measured-step", "1us"]) == 0
    assert "mean of 3 decode steps 0 ns" in capsys.readouterr().out


def test_a_limit_holds_for_programs_too_and_runs_without_steps_say_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    events = [event for number in range(4) for event in step(1000.0 * number, number)]
    one = [kernel(GEMM, at=0, dur=5)]
    paths = [write_trace(tmp_path / "a" / "rank0.json", events), write_trace(tmp_path / "b" / "rank0.json", one)]
    arguments = ["account", *map(str, paths), "--limit", "2"]
    assert cli.main(arguments) == 0
    assert "b\nrank 0 of 1\n" in (said := capsys.readouterr().out)
    assert said.count("no whole steps found: see traceanalyze steps") == 1
    assert cli.main([*arguments, "--format", "json"]) == 0
    kinds = [row["kind"] for row in json.loads(capsys.readouterr().out)["rows"]]
    assert kinds == ["step", "host", "class"]


@pytest.mark.parametrize("wrong", ["3.66", "ms", "-3ms", "0ms", "3 min"])
def test_a_time_that_is_none_is_said_in_a_line(wrong: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["account", str(SAMPLES / "cast-eager"), f"--measured-step={wrong}"]) == 2
    assert "is no time such as 3.66ms" in capsys.readouterr().err
