"""Scaling: which part of a step grows with the context, on traces where it is known."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from builders import Event, annotation, kernel, launch, trace
from hypothesis import given
from hypothesis import strategies as st
from shared import CORPUS, needs_corpus
from test_plots import texts

import traceanalyzer as ta
from traceanalyzer import cli
from traceanalyzer.analyses.scaling import _Fit, _t_quantile, scaling
from traceanalyzer.analyses.step_parts import step_parts
from traceanalyzer.errors import UsageError
from traceanalyzer.plots.scaling import _curve, draw
from traceanalyzer.trace import Trace

SAMPLES = Path(__file__).parent.parent / "sample_traces"


def run(*, busy: float, host: float, steps: int = 5, constant: float = 40) -> Trace:
    """Steps of a constant kernel, one that takes `busy` us, and `host` us in which the host builds something."""
    events: list[Event] = []
    length = host + busy + constant + 100
    for i in range(steps):
        at = i * length
        events += [
            annotation("step[DECODE bs=1]", at=at, dur=length - 1),
            annotation("build", at=at + 1, dur=host),
            launch(at=at + host + 2, dur=2, correlation=2 * i + 1),
            kernel("constant", at=at + host + 5, dur=constant, correlation=2 * i + 1),
            launch(at=at + host + 6, dur=2, correlation=2 * i + 2),
            kernel("growing", at=at + host + 5 + constant, dur=busy, correlation=2 * i + 2),
        ]
    return trace(events)


def row(rows: pl.DataFrame, component: str, kind: str) -> dict[str, object]:
    (found,) = rows.filter((pl.col("component") == component) & (pl.col("kind") == kind)).to_dicts()
    return found


def test_a_kernel_that_grows_is_told_from_one_that_does_not() -> None:
    rows = scaling({1000: run(busy=100, host=1), 3000: run(busy=300, host=1)})
    growing, constant = row(rows, "growing", "kernel"), row(rows, "constant", "kernel")
    assert (growing["model"], growing["grows"], growing["share_of_growth"]) == ("linear", True, pytest.approx(1))
    assert (growing["slope_ns_per_token"], growing["intercept_ns"]) == (pytest.approx(100), pytest.approx(0, abs=1e-3))
    assert (growing["r2"], growing["mean_1000_ns"], growing["mean_3000_ns"]) == (pytest.approx(1), 100_000, 300_000)
    assert (constant["model"], constant["grows"], constant["intercept_ns"]) == ("constant", False, 40_000)
    assert row(rows, "idle", "step")["grows"] is False


def test_three_contexts_tell_a_square() -> None:
    rows = scaling({n: run(busy=n * n / 10_000, host=1) for n in (1000, 2000, 4000)})
    growing = row(rows, "growing", "kernel")
    assert growing["model"] == "quadratic"
    assert growing["r2"] == pytest.approx(1)
    assert growing["slope_ns_per_token"] == pytest.approx((1_600_000 - 100_000) / 3000)
    lines = scaling({n: run(busy=n / 10, host=1) for n in (1000, 2000, 4000)})
    assert row(lines, "growing", "kernel")["model"] == "linear"


def test_what_the_host_does_is_named() -> None:
    rows = scaling({1000: run(busy=50, host=200), 5000: run(busy=50, host=1000)})
    assert row(rows, "build", "host")["grows"] is True
    assert row(rows, "host_busy", "cause")["share_of_growth"] == pytest.approx(1, abs=0.01)
    assert not rows.filter(pl.col("kind").is_in(["kernel", "class"]))["grows"].any()


def test_a_part_that_one_run_does_not_have_is_0_there() -> None:
    without = run(busy=100, host=1)
    kernels = without.kernels.with_columns(
        pl.col("name").cast(pl.String).str.replace("growing", "other").cast(pl.Categorical)
    )
    rows = scaling({1000: without.replace(kernels=kernels), 2000: run(busy=100, host=1)})
    assert (row(rows, "growing", "kernel")["mean_1000_ns"], row(rows, "other", "kernel")["mean_2000_ns"]) == (0, 0)


@pytest.mark.parametrize("mode", ["eager", "graph"])
def test_the_mask_is_what_grows(mode: str) -> None:
    """The third case: the step grows, the GPU does not, and the culprit is the mask, not the draft tree."""
    rows = scaling({k * 1024: ta.read(SAMPLES / f"mask-{k}k-{mode}") for k in (4, 16, 64)})
    step, mask = row(rows, "wall", "step"), row(rows, "build_tree_mask", "host")
    assert (step["grows"], step["model"], row(rows, "busy", "step")["grows"]) == (True, "linear", False)
    assert (mask["grows"], mask["model"]) == (True, "linear")
    assert mask["share_of_growth"] == pytest.approx(1, abs=0.05)
    assert mask["r2"] > 0.99  # type: ignore[operator]
    others = rows.filter(pl.col("grows") & pl.col("kind").is_in(["host", "kernel", "class"]))["component"].to_list()
    assert others == ["build_tree_mask"]


def test_without_names_the_cause_is_told_all_the_same() -> None:
    rows = scaling({k * 1024: ta.read(SAMPLES / f"mask-{k}k-gpu-only") for k in (4, 64)})
    assert row(rows, "host_busy", "cause")["share_of_growth"] == pytest.approx(0.98, abs=0.03)


def test_what_cannot_be_compared_is_said() -> None:
    one = run(busy=10, host=1)
    with pytest.raises(UsageError, match="two contexts or more"):
        scaling({1000: one})
    with pytest.raises(UsageError, match="no steps in the run of context 2,000"):
        scaling({1000: one, 2000: trace([kernel("k", at=0, dur=1)])})


@given(st.integers(1, 300), st.integers(1, 300), st.integers(3, 6))
def test_causes_of_a_step_sum_to_its_idle_time(busy: int, host: int, steps: int) -> None:
    assert_parts_add_up(run(busy=busy, host=host, steps=steps))


def assert_parts_add_up(trace: Trace) -> None:
    parts = step_parts(trace)
    component, kind, total = pl.col("component"), pl.col("kind"), pl.col("total_ns")
    sums = parts.group_by("path", "device", "step").agg(
        wall=total.filter(component == "wall", kind == "step").sum(),
        busy=total.filter(component == "busy", kind == "step").sum(),
        idle=total.filter(component == "idle", kind == "step").sum(),
        causes=total.filter(kind == "cause").sum(),
        classes=total.filter(kind == "class").sum(),
        kernels=total.filter(kind == "kernel").sum(),
    )
    assert (sums["wall"] == sums["busy"] + sums["idle"]).all()
    assert (sums["idle"] == sums["causes"]).all()
    assert (sums["classes"] == sums["kernels"]).all()


@needs_corpus
@pytest.mark.parametrize(
    "folder", ["tracemap-h100", "mng-8rank", "hta-ncclparse", "torchrec-qcomm4", "kineto-array-w0"]
)
def test_parts_of_real_steps_add_up(folder: str) -> None:
    assert_parts_add_up(ta.read(CORPUS / folder, cache=False))


def test_the_command_names_what_grows(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [f"{k}k={SAMPLES / f'mask-{k}k-eager'}" for k in (4, 64)]
    assert cli.main(["scaling", *arguments]) == 0
    assert "grows: build_tree_mask (host)" in capsys.readouterr().out
    assert cli.main(["scaling", *arguments, "--format", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert {"component", "kind", "model", "intercept_ns", "slope_ns_per_token", "r2", "grows"} <= rows[0].keys()


@pytest.mark.parametrize("wrong", ["x", "4k", "=run", "4q=run", "4k=", f"{'9' * 400}=run", "9999999999m=run"])
def test_a_context_that_is_none_is_said_in_a_line(wrong: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["scaling", wrong, "8k=x"]) == 2
    assert f"{wrong!r} is not of the form 64k=TRACE" in capsys.readouterr().err


# ------------------------------------------------------------------------------------------ projection


@pytest.mark.parametrize("mode", ["eager", "graph", "gpu-only"])
def test_the_step_at_64k_is_told_from_4k_and_16k(mode: str) -> None:
    """Within 10 % of the run that was measured, and the slope per 1,000 tokens is that of the mask alone."""
    runs = {k * 1024: ta.read(SAMPLES / f"mask-{k}k-{mode}") for k in (4, 16, 64)}
    rows = scaling({context: runs[context] for context in (4096, 16384)}, at=65536)
    wall = row(rows, "wall", "step")
    measured = step_parts(runs[65536]).filter(pl.col("component") == "wall")["total_ns"].mean()
    assert wall["projected_ns"] == pytest.approx(measured, rel=0.1)
    assert wall["projected_low_ns"] < wall["projected_ns"] < wall["projected_high_ns"]  # type: ignore[operator]
    assert row(rows, "busy", "step")["grows"] is False
    if mode != "gpu-only":  # without operators nothing has a name
        assert row(rows, "build_tree_mask", "host")["grows"] is True
        assert row(rows, "build_draft_tree", "host")["grows"] is False


def test_intervals_are_those_of_the_textbook() -> None:
    """y = 3 x + noise at 1, 2, 3, 4; the interval of the mean at 10 by hand: t(2) = 4.303."""
    x, y = np.array([1.0, 2, 3, 4]), np.array([3.1, 5.9, 9.1, 11.9])
    slope, intercept = np.polyfit(x, y, 1)
    fit = _Fit("linear", intercept, slope, None, (slope, intercept))
    middle, low, high = fit.at(x, y, 10)
    deviation = math.sqrt(((y - slope * x - intercept) ** 2).sum() / 2)
    reach = 4.303 * deviation * math.sqrt(1 / 4 + (10 - 2.5) ** 2 / 5)
    assert low is not None
    assert high is not None
    assert middle == pytest.approx(10 * slope + intercept)
    assert middle - low == pytest.approx(reach, rel=0.02)
    assert high - middle == pytest.approx(reach, rel=0.02)


@pytest.mark.parametrize(
    ("free", "value"),
    [(1, 12.706), (2, 4.303), (3, 3.182), (5, 2.571), (10, 2.228), (30, 2.042), (1000, 1.962)],
)
def test_quantiles_of_student(free: int, value: float) -> None:
    assert _t_quantile(free) == pytest.approx(value, rel=0.002)


def test_a_projection_of_exact_steps_is_exact() -> None:
    rows = scaling({1000: run(busy=100, host=1), 3000: run(busy=300, host=1)}, at=10_000)
    growing, constant = row(rows, "growing", "kernel"), row(rows, "constant", "kernel")
    names = ("projected_low_ns", "projected_ns", "projected_high_ns")
    assert [growing[name] for name in names] == [1_000_000] * 3
    assert [constant[name] for name in names] == [40_000] * 3


def test_a_line_through_two_steps_says_nothing_of_how_sure_it_is() -> None:
    runs = {1000: run(busy=100, host=1, steps=2), 3000: run(busy=300, host=1, steps=2)}
    wall = row(scaling(runs, at=10_000), "wall", "step")
    assert wall["projected_ns"] == 1_141_000
    assert wall["projected_low_ns"] is wall["projected_high_ns"] is None
    said = texts(draw(scaling(runs, at=8192), sorted(runs), 8192, "svg"))
    assert "growing is 100% of the growth" in said


def test_a_projection_beyond_all_time_is_unknown() -> None:
    rows = scaling({1: run(busy=100, host=1), 2: run(busy=9_000_000, host=1)}, at=2**40)
    assert row(rows, "growing", "kernel")["projected_ns"] is None
    assert row(rows, "constant", "kernel")["projected_ns"] == 40_000


def test_what_does_not_grow_has_no_share_of_the_growth() -> None:
    """Steps that are all alike have a slope of exactly 0, not of what rounding leaves."""
    rows = scaling({4096: run(busy=100.3, host=100), 8192: run(busy=100.3, host=100)})
    assert rows["slope_ns_per_token"].to_list() == [0] * rows.height
    assert rows["share_of_growth"].null_count() == rows.height


def test_the_picture_says_what_grows() -> None:
    rows = scaling({1024: run(busy=100, host=1), 3072: run(busy=300, host=1)}, at=8192)
    said = texts(draw(rows, [1024, 3072], 8192, "svg"))
    assert "growing is 100% of the growth" in said
    assert "growing: +100 µs each 1k" in said
    assert "projected to 8k" in said
    steady = scaling({1024: run(busy=100, host=1), 3072: run(busy=100, host=1)})
    assert "The step does not grow with the context" in texts(draw(steady, [1024, 3072], None, "svg"))


def test_a_parabola_goes_through_its_means() -> None:
    contexts = (1000, 2000, 4000)
    rows = scaling({n: run(busy=n * n / 10_000, host=1) for n in contexts})
    growing = row(rows, "growing", "kernel")
    assert growing["model"] == "quadratic"
    found = _curve(growing, contexts)(np.array(contexts))
    assert found == pytest.approx([n * n / 1e7 for n in contexts], rel=1e-3)


def test_the_command_projects_and_draws(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [f"{k}k={SAMPLES / f'mask-{k}k-eager'}" for k in (4, 16)]
    target = tmp_path / "growth.png"
    assert cli.main(["scaling", *arguments, "--at", "64k", "--plot", str(target)]) == 0
    said = capsys.readouterr().out
    assert "at 64k by the linear fit" in said
    assert "build_draft_tree" in said.partition("does not grow")[2]
    assert target.read_bytes().startswith(b"\x89PNG")
    assert cli.main(["scaling", *arguments, "--at", "far"]) == 2
    assert "'far' is no number of tokens such as 128k" in capsys.readouterr().err
    assert cli.main(["scaling", *arguments, "--at", "9" * 400]) == 2
    assert "is no number of tokens such as 128k" in capsys.readouterr().err
