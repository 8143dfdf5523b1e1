"""The picture of `bandwidth`: which row is far from the roof, whatever is known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from builders import trace, traces
from test_bandwidth import COPY, H200, launched
from test_plots import texts

from traceanalyzer import cli
from traceanalyzer.analyses import overview
from traceanalyzer.analyses.bandwidth import bandwidth, roofs
from traceanalyzer.choices import PlotFormat
from traceanalyzer.plots.roofline import draw
from traceanalyzer.trace import Trace

MATRICES: dict[str, Any] = {"Input Dims": [[4096, 4096]] * 2, "Input type": ["c10::BFloat16"] * 2}
#: 6 MB in 10 us are 600 GB/s, an eighth of the roof; 137 GFLOP in 200 us are 687 TFLOP/s.
SLOW_COPY = launched("aten::copy_", 1, at=0, dur=10, **COPY)
PRODUCT = launched("aten::mm", 2, at=50, dur=200, **MATRICES)
UNKNOWN = launched("my::op", 3, at=300, dur=5)


def picture(trace: Trace, format: PlotFormat = "svg") -> bytes:
    devices = {run: tuple(gpus or ()) for run, gpus in overview.runs(trace).select("run", "gpus").iter_rows()}
    return draw(bandwidth(trace), format, roofs=roofs(trace), devices=devices)


def test_the_picture_says_what_is_far_from_the_roof() -> None:
    said = texts(picture(trace([*SLOW_COPY, *UNKNOWN], device_properties=[H200])))
    assert "aten::copy__kernel: 67% of the time at 12% of the roof" in said
    assert "aten::copy__kernel  ·  600 GB/s  ·  12% of the roof" in said
    assert "my::op_kernel  ·  unknown" in said
    assert "no operations are known" in said


def test_the_roofline_has_the_roofs_of_what_is_computed() -> None:
    said = texts(picture(trace([*PRODUCT, *UNKNOWN], device_properties=[H200])))
    assert "Nothing with 10% or more of the time is below 40% of the roof" in said
    assert "bf16 989 TFLOP/s" in said
    assert "memory 4,800 GB/s" in said
    assert "fp8" not in said
    assert "aten::mm  ·  97.6%" in said


@pytest.mark.parametrize("events", [[], UNKNOWN, SLOW_COPY, PRODUCT], ids=["none", "unknown", "copy", "product"])
@pytest.mark.parametrize("device", [H200, {"id": 0, "name": "Something new"}], ids=["known", "unknown device"])
def test_any_trace_has_a_picture(events: list[Any], device: dict[str, Any]) -> None:
    assert picture(trace(events, device_properties=[device]), "png").startswith(b"\x89PNG\r\n\x1a\n")


def test_what_is_mostly_unknown_says_so() -> None:
    said = texts(picture(trace([*PRODUCT, *launched("my::op", 3, at=300, dur=900)], device_properties=[H200])))
    assert "How near the roof is, is known of 18% of the time" in said


def test_runs_have_panels_of_their_own() -> None:
    both = traces(
        trace(SLOW_COPY, run="a", device_properties=[H200]), trace(SLOW_COPY, run="b", device_properties=[H200])
    )
    assert texts(picture(both)).count("100% of the time at 12% of the roof") == 2


def test_the_same_rows_give_the_same_picture() -> None:
    rows = bandwidth(trace([*SLOW_COPY, *PRODUCT, *UNKNOWN], device_properties=[H200]))
    options: dict[str, Any] = {"roofs": {}, "devices": {}}
    assert draw(rows, "svg", **options) == draw(rows.sample(fraction=1, shuffle=True, seed=3), "svg", **options)


def test_the_command_draws_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sample = Path(__file__).parent.parent / "sample_traces" / "cast-eager"
    assert cli.main(["bandwidth", str(sample), "--plot", str(tmp_path / "roof.png")]) == 0
    assert f"Wrote {tmp_path / 'roof.png'}" in capsys.readouterr().err
    assert (tmp_path / "roof.png").read_bytes().startswith(b"\x89PNG")
