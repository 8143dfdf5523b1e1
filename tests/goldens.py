"""Outputs that were looked at once and must stay as they are.

A golden file under `tests/golden/` holds what a person found right. When an output changes on purpose, accept it with

    UPDATE_GOLDEN=1 pytest tests

and look at what `git diff tests/golden docs` shows before committing: that look is the test.
"""

from __future__ import annotations

import os
from pathlib import Path

FOLDER = Path(__file__).parent / "golden"
UPDATING = bool(os.environ.get("UPDATE_GOLDEN"))


def check_golden(name: str, actual: str) -> None:
    """Compare with `tests/golden/<name>`, or write it where changes are being accepted."""
    check_file(FOLDER / name, actual)


def check_file(path: Path, actual: str) -> None:
    """Compare with a file of the repository, or write it where changes are being accepted."""
    actual = actual.replace("python engine", "native engine")  # which of the two was built here is no difference
    if UPDATING:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(actual, encoding="utf-8")
    expected = path.read_text(encoding="utf-8") if path.exists() else ""
    assert actual == expected, f"{path.name} is not as it was; if that is right: UPDATE_GOLDEN=1 pytest tests"
