"""Compiled kernels of a test run lie in its own folder, which the processes of one run share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(autouse=True, scope="session")
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    base: Path = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    os.environ.setdefault("TRACEANALYZE_CACHE_DIR", str(shared / "kernels"))
