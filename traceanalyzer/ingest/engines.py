"""Which engine reads: the native one where it was built, else the pure-Python one. Both give the same tables."""

from __future__ import annotations

import os

from traceanalyzer.errors import UsageError
from traceanalyzer.ingest.raw import Engine

#: Environment variable that asks for an engine by name.
ENGINE_VARIABLE = "TRACEANALYZE_ENGINE"


def choose() -> Engine:
    """The engine for the next file. Raises `UsageError` where the one that is asked for does not exist."""
    # here, not at the top: what lies in the store is read without an engine, and half as much needs to be imported
    from traceanalyzer.ingest.native_engine import NativeEngine, is_built

    asked = os.environ.get(ENGINE_VARIABLE) or ("native" if is_built() else "python")
    if asked == "python":
        from traceanalyzer.ingest.python_engine import PythonEngine

        return PythonEngine()
    if asked != "native":
        raise UsageError(f"{ENGINE_VARIABLE} must be native or python, not {asked!r}")
    if not is_built():
        raise UsageError(f"{ENGINE_VARIABLE} is native, but the native engine was not built (that takes a C compiler)")
    return NativeEngine()
