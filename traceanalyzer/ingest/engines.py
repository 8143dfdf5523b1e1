"""Which engine reads: the pure-Python one for now; a native one takes its place where it was built."""

from __future__ import annotations

from traceanalyzer.ingest.python_engine import PythonEngine
from traceanalyzer.ingest.raw import Engine


def choose() -> Engine:
    """The engine for the next file."""
    return PythonEngine()
