"""What all tests share: patience on busy machines, and no dependence on the user's own settings."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

from traceanalyzer.ingest.engines import ENGINE_VARIABLE
from traceanalyzer.ingest.native_engine import is_built

settings.register_profile("default", deadline=None, max_examples=15, derandomize=True, database=None)
settings.register_profile("thorough", deadline=None, max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


@pytest.fixture(autouse=True)
def _plain_surroundings(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """No configuration file and no store of the user, no colours, 80 columns."""
    home: Path = tmp_path_factory.getbasetemp() / "no-config"
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home))
    monkeypatch.setenv("TRACEANALYZE_CACHE_DIR", str(tmp_path_factory.getbasetemp() / "store"))
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.delenv("FORCE_COLOR", raising=False)


@pytest.fixture(params=["native", "python"])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The engine that reads in this test; the native one only where it was built."""
    name: str = request.param
    if name == "native" and not is_built():
        pytest.skip("the native engine was not built")
    monkeypatch.setenv(ENGINE_VARIABLE, name)
    return name
