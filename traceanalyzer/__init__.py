"""traceanalyzer: where the GPU time goes, from a folder of torch/Chrome traces.

>>> import traceanalyzer as ta
>>> trace = ta.read("run/")          # files, folders, globs; one or many ranks
>>> ta.top_kernels(trace)            # a polars frame

Every function takes frames or a `Trace` and gives a frame; nothing prints or plots. Names are loaded on first use,
so that importing the package costs next to nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from traceanalyzer._version import __version__

if TYPE_CHECKING:
    from traceanalyzer.errors import TraceAnalyzerError, UnreadableError, UsageError
    from traceanalyzer.ingest.reader import read
    from traceanalyzer.trace import Trace

_HOMES = {
    "Trace": "traceanalyzer.trace",
    "TraceAnalyzerError": "traceanalyzer.errors",
    "UnreadableError": "traceanalyzer.errors",
    "UsageError": "traceanalyzer.errors",
    "read": "traceanalyzer.ingest.reader",
}

__all__ = ["Trace", "TraceAnalyzerError", "UnreadableError", "UsageError", "__version__", "read"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'traceanalyzer' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
