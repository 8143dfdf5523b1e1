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


#: `make test-all` looks at every file of the corpus; a usual run at every sixth where each costs a while.
EXHAUSTIVE = bool(os.environ.get("TRACEANALYZER_EXHAUSTIVE"))
_EVERY = 1 if EXHAUSTIVE else 6


def corpus_files() -> list[str]:
    """Traces of the corpus, as paths below it; none where it is absent."""
    return sorted(path.relative_to(CORPUS).as_posix() for path in CORPUS.glob("*/*") if path.is_file())[::_EVERY]


def corpus_folders() -> list[str]:
    """Folders of the corpus, a run or a few files each; none where it is absent."""
    return sorted(path.name for path in CORPUS.glob("*") if path.is_dir())[::_EVERY]
