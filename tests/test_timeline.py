"""The timeline: bins that hold what the trace holds, and a picture that says it."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from builders import Event, annotation, kernel, launch, trace, traces
from hypothesis import given
from strategies import linked_ranks
from test_plots import texts

from traceanalyzer import cli
from traceanalyzer.analyses.device_time import device_time
from traceanalyzer.analyses.timeline import timeline
from traceanalyzer.errors import UsageError
from traceanalyzer.plots.timeline import draw
from traceanalyzer.trace import Trace

SAMPLES = Path(__file__).parent.parent / "sample_traces"
EVENTS: list[Event] = [
    kernel("attn_fwd", at=0, dur=100),
    launch(at=590, dur=5, correlation=1),
    annotation("build_mask", at=110, dur=470),
    kernel("gemm", at=600, dur=400, correlation=1),
    kernel("ncclDevKernel_AllReduce", at=800, dur=100, stream=9),
]


def test_bins_hold_classes_and_causes() -> None:
    bins = timeline(trace(EVENTS), bins=10).bins.filter(pl.col("stream").is_null())
    found = {(row["bin"], row["name"]): row["covered_ns"] for row in bins.iter_rows(named=True)}
    assert found[0, "attention"] == 100_000
    assert [found[at, "host_busy"] for at in range(1, 6)] == [100_000] * 5
    assert (found[6, "gemm"], found[8, "gemm"], found[8, "communication"]) == (100_000, 50_000, 50_000)


def test_streams_have_lanes_where_there_are_several() -> None:
    lanes = timeline(trace(EVENTS)).lanes
    assert lanes["stream"].to_list() == [None, "7", "9"]
    assert timeline(trace(EVENTS[:1])).lanes["stream"].to_list() == [None]


def test_a_window_holds_what_reaches_into_it() -> None:
    what = timeline(trace(EVENTS), between_ns=(550_000, 650_000), bins=2)
    assert (what.start_ns, what.end_ns) == (550_000, 650_000)
    sums = what.bins.filter(pl.col("stream").is_null()).group_by("name").agg(pl.col("covered_ns").sum())
    assert dict(sums.iter_rows()) == {"host_busy": 50_000, "gemm": 50_000}


def test_a_step_is_its_window() -> None:
    steps = [annotation(f"ProfilerStep#{i}", at=1000 * i, dur=900) for i in range(3)]
    work = [launch(at=1000 * i + 1, dur=2, correlation=i + 1) for i in range(3)]
    work += [kernel("k", at=1000 * i + 100, dur=500, correlation=i + 1) for i in range(3)]
    what = timeline(trace([*steps, *work]), step=1)
    assert (what.start_ns, what.end_ns) == (500_000, 1_500_000)
    with pytest.raises(UsageError, match="no step 7; steps are 0 to 2"):
        timeline(trace([*steps, *work]), step=7)


@pytest.mark.parametrize(
    ("events", "options", "said"),
    [
        ([], {}, "no device activity"),
        (EVENTS, {"between_ns": (2_000_000, 3_000_000)}, "nothing runs between"),
        (EVENTS, {"step": 0}, "no steps were found"),
    ],
)
def test_where_there_is_nothing_to_draw_it_is_said(events: list[Event], options: dict[str, int], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        timeline(trace(events), **options)  # type: ignore[arg-type]


@given(linked_ranks())
def test_bins_hold_all_time(ranks: Trace) -> None:
    """Over a whole trace the bins of a device add up to its busy and its idle time."""
    if not device_time(ranks)["span_ns"].sum():
        return
    bins = timeline(ranks, bins=50).bins.filter(pl.col("stream").is_null())
    whole = device_time(ranks)
    for kind, name in (("class", "busy_ns"), ("idle", "idle_ns")):
        found = bins.filter(pl.col("kind") == kind)["covered_ns"].sum()
        assert found == pytest.approx(whole[name].sum(), abs=1)


def test_the_picture_says_why_the_gpu_is_idle() -> None:
    said = texts(draw(timeline(trace(EVENTS)), "svg"))
    assert "The GPU is idle for 50% of the time: host_busy, build_mask" in said
    assert "idle: build_mask" in said
    assert "attn_fwd" in said
    assert "rank 0\nGPU 0" in said
    assert "stream 9" in said
    busy = texts(draw(timeline(trace(EVENTS[:1])), "svg"))
    assert "The GPU is busy for 100% of the time, 100% with attention" in busy


def test_more_lanes_than_there_is_room_for_are_counted() -> None:
    many = traces(*(trace(EVENTS[:1], rank=rank) for rank in range(40)))
    assert "8 more lanes not drawn" in texts(draw(timeline(many, bins=20), "svg"))


def test_the_command_draws_a_step(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "step.png"
    arguments = ["timeline", str(SAMPLES / "mask-64k-eager"), "--step", "5", "--plot", str(target)]
    assert cli.main(arguments) == 0
    assert "idle: host_busy" in capsys.readouterr().out
    assert target.read_bytes().startswith(b"\x89PNG")
