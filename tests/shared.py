"""The folder of real traces and small faults that lies beside a developer's checkout, where it is present."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

SHARED = Path(os.environ.get("TRACEANALYZER_SHARED") or Path(__file__).parents[2] / "shared")
CORPUS = SHARED / "corpus"
CASES = SHARED / "cases"

needs_corpus = pytest.mark.skipif(not CORPUS.is_dir(), reason=f"no corpus of real traces at {CORPUS}")
needs_cases = pytest.mark.skipif(not CASES.is_dir(), reason=f"no cases at {CASES}")


def corpus_files() -> list[str]:
    """Every trace of the corpus, as a path below it; none where it is absent."""
    return sorted(path.relative_to(CORPUS).as_posix() for path in CORPUS.glob("*/*") if path.is_file())
