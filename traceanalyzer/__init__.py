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
    from traceanalyzer.analyses import intervals
    from traceanalyzer.analyses.bandwidth import bandwidth
    from traceanalyzer.analyses.breakdown import breakdown
    from traceanalyzer.analyses.classes import classes
    from traceanalyzer.analyses.device_time import device_time
    from traceanalyzer.analyses.findings import findings
    from traceanalyzer.analyses.idle import idle_gaps
    from traceanalyzer.analyses.launches import launches
    from traceanalyzer.analyses.links import link
    from traceanalyzer.analyses.occupancy import occupancy
    from traceanalyzer.analyses.overview import devices, events, files, runs
    from traceanalyzer.analyses.ranks import imbalance
    from traceanalyzer.analyses.select import select
    from traceanalyzer.analyses.steps import find_steps, steps
    from traceanalyzer.analyses.top_kernels import top_kernels
    from traceanalyzer.errors import TraceAnalyzerError, UnreadableError, UsageError
    from traceanalyzer.ingest.gather import gather
    from traceanalyzer.ingest.reader import read
    from traceanalyzer.many import imbalance_of
    from traceanalyzer.trace import Trace

#: Public name -> module that defines it.
_HOMES = {
    "Trace": "traceanalyzer.trace",
    "TraceAnalyzerError": "traceanalyzer.errors",
    "UnreadableError": "traceanalyzer.errors",
    "UsageError": "traceanalyzer.errors",
    "account": "traceanalyzer.analyses.account",
    "bandwidth": "traceanalyzer.analyses.bandwidth",
    "breakdown": "traceanalyzer.analyses.breakdown",
    "classes": "traceanalyzer.analyses.classes",
    "device_time": "traceanalyzer.analyses.device_time",
    "devices": "traceanalyzer.analyses.overview",
    "events": "traceanalyzer.analyses.overview",
    "files": "traceanalyzer.analyses.overview",
    "find_steps": "traceanalyzer.analyses.steps",
    "findings": "traceanalyzer.analyses.findings",
    "gather": "traceanalyzer.ingest.gather",
    "idle_gaps": "traceanalyzer.analyses.idle",
    "imbalance": "traceanalyzer.analyses.ranks",
    "imbalance_of": "traceanalyzer.many",
    "launches": "traceanalyzer.analyses.launches",
    "link": "traceanalyzer.analyses.links",
    "occupancy": "traceanalyzer.analyses.occupancy",
    "read": "traceanalyzer.ingest.reader",
    "runs": "traceanalyzer.analyses.overview",
    "scaling": "traceanalyzer.analyses.scaling",
    "select": "traceanalyzer.analyses.select",
    "steps": "traceanalyzer.analyses.steps",
    "top_kernels": "traceanalyzer.analyses.top_kernels",
}

__all__ = [
    "Trace",
    "TraceAnalyzerError",
    "UnreadableError",
    "UsageError",
    "__version__",
    "account",
    "bandwidth",
    "breakdown",
    "classes",
    "device_time",
    "devices",
    "events",
    "files",
    "find_steps",
    "findings",
    "gather",
    "idle_gaps",
    "imbalance",
    "imbalance_of",
    "intervals",
    "launches",
    "link",
    "occupancy",
    "read",
    "runs",
    "select",
    "steps",
    "top_kernels",
]


def __getattr__(name: str) -> Any:
    if name == "intervals":
        return importlib.import_module("traceanalyzer.analyses.intervals")
    if name not in _HOMES:
        raise AttributeError(f"module 'traceanalyzer' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
