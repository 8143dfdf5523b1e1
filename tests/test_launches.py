"""Launch calls, delays, queues and launches per step: by hand on made-up traces, by sums on generated and real ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from builders import Event, annotation, kernel, launch, trace, write_trace
from goldens import check_golden
from hypothesis import given
from shared import CORPUS, needs_corpus
from strategies import linked_ranks

import traceanalyzer as ta
from traceanalyzer.analyses.launched import launched
from traceanalyzer.cli import main

SAMPLES = Path(__file__).parent.parent / "sample_traces"


def row(table: pl.DataFrame, **wanted: Any) -> dict[str, Any]:
    return table.filter(*(pl.col(name) == value for name, value in wanted.items())).row(0, named=True)


def test_calls_with_their_host_time_and_delay() -> None:
    found = ta.launches(trace([
        launch(at=0, dur=4, correlation=1), kernel("a", at=10, dur=20, correlation=1),
        launch(at=5, dur=3, correlation=2), kernel("b", at=30, dur=5, correlation=2),
        launch(at=50, dur=2, correlation=3), kernel("c", at=56, dur=5, correlation=3),
        launch(at=70, dur=2, correlation=4),
        launch("cudaDeviceSynchronize", at=80, dur=99, correlation=5),
    ])).calls  # fmt: skip
    assert found["call"].to_list() == ["cudaLaunchKernel"]
    calls = found.row(0, named=True)
    assert (calls["calls"], calls["started"], calls["lost"], calls["per_call"]) == (4, 3, 1, 1.0)
    assert (calls["host_ns"], calls["host_mean_ns"], calls["host_max_ns"]) == (11_000, 2_750, 4_000)
    assert (calls["delay_p50_ns"], calls["delay_p99_ns"], calls["delay_max_ns"]) == (10_000, 25_000, 25_000)
    assert (calls["idle_calls"], calls["idle_delay_p50_ns"]) == (2, 6_000)


def test_the_first_kernel_of_a_graph_tells_its_delay() -> None:
    replay = [launch("cudaGraphLaunch", at=0, dur=9, correlation=1)]
    replay += [kernel("k", at=20 + 10 * number, dur=5, correlation=1) for number in range(4)]
    calls = ta.launches(trace(replay)).calls.row(0, named=True)
    assert (calls["graph"], calls["calls"], calls["started"], calls["per_call"]) == (True, 1, 4, 4.0)
    assert (calls["delay_p50_ns"], calls["delay_max_ns"]) == (20_000, 20_000)


def test_a_kernel_before_its_call_is_counted_and_in_no_delay() -> None:
    calls = ta.launches(trace([
        launch(at=10, correlation=1), kernel("a", at=7, dur=1, correlation=1),
        launch(at=20, correlation=2), kernel("b", at=26, dur=1, correlation=2),
    ])).calls.row(0, named=True)  # fmt: skip
    assert (calls["early"], calls["delay_p50_ns"], calls["delay_max_ns"]) == (1, 6_000, 6_000)


def test_the_queue_of_a_stream() -> None:
    found = ta.launches(trace([
        launch(at=0, correlation=1), kernel("a", at=10, dur=10, correlation=1),
        launch(at=5, correlation=2), kernel("b", at=20, dur=10, correlation=2),
        launch(at=90, correlation=3), kernel("c", at=100, dur=10, correlation=3),
    ])).streams.row(0, named=True)  # fmt: skip
    assert (found["stream"], found["started"], found["depth_max"]) == ("7", 3, 2)
    assert found["depth_mean"] == (10 + 15 + 10) / 100
    assert found["empty_share"] == (90 - 20) / 100


def test_launches_of_a_step_are_those_that_its_marker_holds() -> None:
    events: list[Event] = []
    for step in range(3):
        at = step * 1000
        events += [annotation(f"step[DECODE bs={step + 1}]", at=at, dur=500)]
        events += [launch("cudaGraphLaunch", at=at + 10, dur=5, correlation=step + 1)]
        events += [kernel(f"k{number}", at=at + 700 + number, dur=1, correlation=step + 1) for number in range(4)]
        events += [
            launch(at=at + 20, dur=3, correlation=100 + step),
            kernel("s", at=at + 800, dur=1, correlation=100 + step),
        ]
    steps = ta.launches(trace(events)).steps.row(0, named=True)
    assert (steps["kind"], steps["steps"]) == ("decode", 3)
    assert (steps["calls_p50"], steps["graphs_p50"], steps["started_p50"], steps["host_p50_ns"]) == (2, 1, 5, 8_000)
    assert steps["host_share"] == 8 / 500


def test_nothing_is_launched_in_nothing() -> None:
    for empty in (ta.Trace.empty(), trace([kernel("k", at=0, dur=1)])):
        found = ta.launches(empty)
        assert (found.calls.height, found.streams.height, found.steps.height) == (0, 0, 0)
    with pytest.raises(ta.UsageError, match="takes a Trace"):
        ta.launches("a path")  # type: ignore[arg-type]


def check_sums(whole: ta.Trace) -> None:
    """What was started is what is linked; what waits is what was launched before it started."""
    found, links = ta.launches(whole), launched(whole)
    linked = links.filter(pl.col("launch").is_not_null())
    assert found.calls["started"].sum() == found.streams["started"].sum() == linked.height
    assert found.calls["early"].sum() == linked.group_by("launch").agg(
        pl.col("launch_delay_ns").min()
    ).filter(pl.col("launch_delay_ns") < 0).height  # fmt: skip
    shares = found.streams["empty_share"].drop_nulls()
    assert ((shares >= 0) & (shares <= 1)).all()
    names = whole.launches.with_columns(call=pl.col("name").cast(pl.String)).filter(
        pl.col("call").is_in(found.calls["call"].unique().implode())
    )  # fmt: skip
    assert found.calls["calls"].sum() == names.height
    assert found.calls["host_ns"].sum() == names["duration_ns"].sum()


@given(whole=linked_ranks(max_ranks=1))
def test_generated_traces_add_up(whole: ta.Trace) -> None:
    check_sums(whole)
    for stream in ta.launches(whole).streams.iter_rows(named=True):
        mine = launched(whole).hstack(whole.kernels.select("device", "stream", "start_ns")).filter(
            pl.col("stream").cast(pl.String) == stream["stream"], pl.col("device").cast(pl.String) == stream["device"],
            pl.col("launch_delay_ns") >= 0,
        )  # fmt: skip
        waits = [(start - delay, start) for start, delay in mine.select("start_ns", "launch_delay_ns").iter_rows()]
        deepest = max((sum(a <= at < b for a, b in waits) for at, _ in waits), default=None)
        assert stream["depth_max"] == deepest


@needs_corpus
@pytest.mark.parametrize("folder", ["tl-b200", "tracemap-h100", "hta-negqueue", "torchrec-resnet2", "mng-8rank"])
def test_real_traces_add_up(folder: str) -> None:
    check_sums(ta.read(CORPUS / folder, cache=False))


def test_the_graph_launches_of_a_sample() -> None:
    """By hand: 32 steps a rank, each one graph of 68 nodes and one copy of the result."""
    found = ta.launches(ta.read(SAMPLES / "cast-graph", cache=False))
    graphs = row(found.calls, call="cudaGraphLaunch", rank=0)
    assert (graphs["calls"], graphs["started"], graphs["per_call"], graphs["lost"]) == (32, 2_176, 68.0, 0)
    assert row(found.steps, rank=0)["graphs_p50"] == 1


def test_the_report_of_a_sample(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "110")
    assert main(["launches", str(SAMPLES / "cast-graph"), "--no-cache"]) == 0
    check_golden("launches-cast-graph.txt", capsys.readouterr().out)


def test_the_command_gives_three_tables(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(
        write_trace(tmp_path / "one.json", [launch(at=0, correlation=1), kernel("k", at=5, dur=1, correlation=1)])
    )
    assert main(["launches", path, "--format", "json", "--no-cache", "--explain"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [(each["call"], each["delay_p50_ns"]) for each in report["rows"]] == [("cudaLaunchKernel", 5_000)]
    assert [each["stream"] for each in report["streams"]] == ["7"]
    assert report["steps"] == []
    assert "launch delay" in report["definitions"]["delay_p50_ns"]
    nothing = str(write_trace(tmp_path / "none.json", [kernel("k", at=5, dur=1)]))
    assert main(["launches", nothing, "--no-cache"]) == 0
    assert "no launch calls recorded" in capsys.readouterr().out
