"""The small faults of the shared cases, through the command line: what a user sees is the expected value."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest
from shared import CASES, needs_cases

from traceanalyzer import cli

pytestmark = needs_cases

#: Cases with values per rank; the others have tests of their own beside what they are about.
WITH_RANKS = [
    case.name
    for case in (sorted(CASES.iterdir()) if CASES.is_dir() else [])
    if (case / "expect.json").is_file() and json.loads((case / "expect.json").read_text()).get("ranks")
]
TIMES = {
    "gpu_busy_us": "busy_ns", "gpu_span_us": "span_ns", "gpu_idle_us": "idle_ns", "gpu_busy_raw_us": "busy_ns",
    "gpu_span_raw_us": "span_ns", "gpu_busy_clipped_us": "clipped_busy_ns", "gpu_span_clipped_us": "clipped_span_ns",
}  # fmt: skip
TOTALS = {
    "kernel_total_us": "total_ns",
    "kernel_total_raw_us": "total_ns",
    "kernel_total_clipped_us": "clipped_total_ns",
}


def ns(microseconds: Any) -> int:
    return int(Decimal(str(microseconds)) * 1000)


@pytest.mark.parametrize("case", WITH_RANKS)
def test_what_is_printed_is_what_is_expected(case: str, capsys: pytest.CaptureFixture[str]) -> None:
    for expected in json.loads((CASES / case / "expect.json").read_text())["ranks"]:
        selection = ["--rank", str(expected["rank"])] if "file" in expected or case.startswith("s14") else []
        assert cli.main(["top-kernels", str(CASES / case / "in"), "--format", "json", *selection]) == 0
        content = json.loads(capsys.readouterr().out)
        for key, name in TIMES.items():
            if key in expected:
                assert [each[name] for each in content["traces"]] == [ns(expected[key])]
        for key, name in TOTALS.items():
            if key in expected:
                assert {row["kernel"]: row[name] for row in content["rows"]} == {
                    kernel: ns(total) for kernel, total in expected[key].items()
                }
        for row in content["rows"]:
            if row["kernel"] in expected.get("sm_coverage", {}):
                assert row["sm_fill"] == pytest.approx(expected["sm_coverage"][row["kernel"]], rel=1e-4)
                assert row["blocks"] == expected["blocks"][row["kernel"]]
            elif "sm_coverage" in expected:
                assert (row["sm_fill"], row["blocks"], row["grids"]) == (None, None, None)


def test_an_impossible_duration_is_said_with_its_kernel_and_stream(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["top-kernels", str(CASES / "s10-impossible-duration" / "in")]) == 0
    assert "fmha_bwd on stream 7 runs 1,599.988 ms past the start of the next" in capsys.readouterr().err
