"""`traceanalyze kernels`: what it lists, how a fault and a missing GPU are said, what a benchmark's report holds."""

from __future__ import annotations

import importlib.util
import json
import shutil
from collections.abc import Iterator
from dataclasses import replace

import pytest

from traceanalyzer import cli
from traceanalyzer.errors import NeedsGpuError
from traceanalyzer.kernels import KERNELS
from traceanalyzer.kernels.common import checks
from traceanalyzer.kernels.common.bench_result import Ceilings, Result, Row
from traceanalyzer.kernels.common.checks import Outcome
from traceanalyzer.kernels.common.gpu_state import GpuState
from traceanalyzer.render.output import Output
from traceanalyzer.reports import kernels as report


def test_every_kernel_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["kernels", "list", "--format", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [row["kernel"] for row in rows] == [kernel.name for kernel in KERNELS]
    assert all(
        row["operator"] == f"traceanalyzer::{row['kernel']}" and "sm_120" in row["architectures"] for row in rows
    )


@pytest.mark.parametrize("command", ["check", "bench"])
def test_without_a_gpu_one_line_and_exit_code_4(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent(*_: object) -> None:
        raise NeedsGpuError("no NVIDIA GPU was found here")

    monkeypatch.setattr(checks, "backend", absent)
    hide(monkeypatch, "torch")
    assert cli.main(["kernels", command, "-q"]) == 4
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert "GPU" in said.err or "torch" in said.err


def hide(monkeypatch: pytest.MonkeyPatch, module: str) -> None:
    """Make a module one that is not installed."""
    real = importlib.util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name, *rest: None if name == module else real(name, *rest))


def test_a_checkout_without_symbolic_links_says_so(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    hide(monkeypatch, "traceanalyzer.kernels")
    assert cli.main(["kernels", "list"]) == 2
    assert "made without symbolic links" in capsys.readouterr().err


def test_an_unknown_kernel_is_wrong_use(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["kernels", "check", "nonsense", "--on", "emulator"]) == 2
    assert (
        "no kernel 'nonsense'; there are gather_cast, tree_build, sparse_decode, tree_verify" in capsys.readouterr().err
    )


@pytest.mark.skipif(shutil.which("g++") is None, reason="no g++: the emulator cannot be built")
def test_a_check_on_the_emulator_is_right(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["kernels", "check", "tree-build", "--on", "emulator", "--format", "json"]) == 0
    said = capsys.readouterr()
    rows = json.loads(said.out)["rows"]
    assert len(rows) > 25
    assert all(row["fault"] is None and row["on"] == "emulator" and row["duration_ns"] > 0 for row in rows)
    assert said.err == "checking tree_build on emulator\n"


def test_a_fault_is_shown_and_makes_the_exit_code_1(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def outcomes(*_: object, **__: object) -> Iterator[Outcome]:
        yield Outcome("gather_cast", "one", "emulator", None, 10)
        yield Outcome("gather_cast", "none", "emulator", "out[0, 0] is 0x1, not 0x2", 20)

    monkeypatch.setattr(checks, "run", outcomes)
    assert cli.main(["kernels", "check", "gather_cast", "--on", "emulator"]) == 1
    out = capsys.readouterr().out
    assert "out[0, 0] is 0x1, not 0x2" in out
    assert "cases 2" in out
    assert "wrong 1" in out


RESULT = Result(
    device="NVIDIA H200",
    architecture="sm_90",
    torch="2.11.0",
    cuda="13.0",
    driver="580.1",
    ceilings=Ceilings(4.3e12, 6.4e14, 3_700),
    rows=[
        Row(
            "gather_cast",
            "16,384 of 495,000",
            "whole pool",
            827_000,
            12_000,
            6_600,
            agree=True,
            peer="torch",
            peer_ns=46_000,
        ),
        Row("tree_build", "1 request, budget 8", "heap", 210_000, 7_000, 3_700, agree=False),
        Row(
            "tree_verify",
            "1 request, 9 nodes",
            "serial walk",
            900_000,
            30_000,
            17_600,
            agree=True,
            baseline_host_ns=150_000,
            largest_error=0.4321,
        ),
    ],
    states=[GpuState(1980, 3201, 1980, 1, 2, 250.4, 700.0, 40)],
    warnings=["the SM clock moved between 1200 and 1980 MHz while this was measured"],
)


def test_a_host_part_has_a_column_where_there_is_one(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    Output.choose(None, "table").write(report.measured(RESULT))
    shown = capsys.readouterr().out
    assert "its host part" in shown
    assert "150.0" in shown
    assert "share of what is allowed" in shown
    Output.choose(None, "table").write(report.measured(replace(RESULT, rows=RESULT.rows[:2])))
    shown = capsys.readouterr().out
    assert "host" not in shown
    assert "share of what is allowed" not in shown


def test_a_benchmark_shows_times_ceilings_and_what_moved(capsys: pytest.CaptureFixture[str]) -> None:
    Output.choose(None, "table").write(report.measured(RESULT))
    shown = capsys.readouterr().out
    for text in (
        "NVIDIA H200 (sm_90)",
        "copy 4,300 GB/s",
        "SM clock 1,980 MHz",
        "power 250 W",
        "68.9",
        "NO",
        "bits",
        "0.43",
    ):
        assert text in shown
    Output.choose(None, "json").write(report.measured(RESULT))
    said = json.loads(capsys.readouterr().out)
    assert said["command"] == "kernels bench"
    assert [row["replacement_ns"] for row in said["rows"]] == [12_000, 7_000, 30_000]
    assert [row["largest_error"] for row in said["rows"]] == [None, None, 0.4321]
    assert said["gpu"][0]["launch_ns"] == 3_700
    assert said["states"][0]["sm_mhz"] == 1980
    assert said["notes"][0]["code"] == "gpu-state"
