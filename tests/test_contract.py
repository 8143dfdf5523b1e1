"""The JSON contract: the keys that programs rely on are in the rows of commands, and times are whole nanoseconds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from traceanalyzer import cli

SAMPLE = Path(__file__).parent.parent / "sample_traces" / "cast-eager"
KEYS = {
    "classes": "kernel class rule count total_ns",
    "breakdown": "rank device state class total_ns share",
    "imbalance": "rank class total_ns ratio_to_median",
    "occupancy": "kernel count total_ns grid block registers shared_memory resident_blocks_per_sm "
    "theoretical_occupancy limited_by sm_fill waves wave_fill idle_sm_ns",
}


@pytest.mark.parametrize("command", KEYS)
def test_rows_hold_the_keys_of_the_contract(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([command, str(SAMPLE), "--format", "json", "-q"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["format_version"], said["command"]) == (1, command)
    assert [(each["rank"], each["span_ns"] - each["busy_ns"] - each["idle_ns"]) for each in said["traces"]] == [
        (0, 0), (1, 0),
    ]  # fmt: skip
    for row in said["rows"]:
        assert set(KEYS[command].split()) <= set(row)
        assert all(value is None or isinstance(value, int) for key, value in row.items() if key.endswith("_ns"))
        assert all(
            value is None or 0 <= value <= 1 for key, value in row.items() if "share" in key and "shared" not in key
        )


@pytest.mark.parametrize("command", KEYS)
def test_a_trace_without_activity_is_an_empty_table(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "empty.json"
    path.write_text('{"traceEvents": []}')
    assert cli.main([command, str(path), "--format", "json"]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out)["rows"] == []
    assert "holds no events" in printed.err
    assert cli.main([command, str(path), "-q"]) == 0
    assert "no device activity" in capsys.readouterr().out
