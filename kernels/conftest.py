"""For all tests of kernels: where compiled ones lie, and what parameters are called."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from traceanalyzer.kernels.common.case import Case
from traceanalyzer.kernels.common.kernel import Build


@pytest.fixture(autouse=True, scope="session")
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Compiled kernels of a test run lie in its own folder, which the processes of one run share."""
    base: Path = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    os.environ.setdefault("TRACEANALYZE_CACHE_DIR", str(shared / "kernels"))


def pytest_make_parametrize_id(val: object) -> str | None:
    """A case by its name, a program by its macros, an edit by the text it takes away; others as pytest does."""
    if isinstance(val, Case):
        return val.name
    if isinstance(val, Build):
        return val.program.entry + "".join(f"-{name[0]}{value}" for name, value in val.program.defines)
    if isinstance(val, tuple) and isinstance(val[0], str):
        return " ".join(val[0].split())[:50]
    return None
