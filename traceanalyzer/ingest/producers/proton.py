"""Triton's Proton profiler with `data="trace"`.

Learned from the writer, triton-lang/triton: `third_party/proton/csrc/lib/Data/Dump/ChromeTrace.cpp`, and
`csrc/lib/Data/TraceData.cpp` of older releases. Kernels have the category `kernel` and never come here; their row is
a lane that is called "GPU Stream <n>" (older releases: the stream itself, no process and one JSON object per stream
and line). What is left are the scopes of the program.

- Mark: a process called "Trace" whose threads are called "GPU Stream <n>", "CPU Thread <n>" or "Graph: Stream <n>".
- Scopes (`metric`: a scope that carries numbers) are annotations: on the host for "CPU Thread" lanes, on the device
  for "Graph: Stream" lanes, which project the scopes of a captured graph onto its replay.
- Events inside a kernel, which Proton's instrumentation writes, are the business of `intra_kernel`.
"""

from __future__ import annotations

import re

import polars as pl

from traceanalyzer.ingest.producers.base import FileFacts, Reclassified, reclassified
from traceanalyzer.ingest.producers.columns import as_text, left_over, rows

NAME = "Proton"

_SCOPES = ("scope", "metric")
_LANE = re.compile(r"(GPU Stream|CPU Thread|Graph: Stream) \d+")
_GRAPH = "Graph: Stream "


def matches(facts: FileFacts, slices: pl.DataFrame) -> bool:  # noqa: ARG001
    """By the names of the process and its lanes."""
    traced = facts.pids_named("Trace")
    return bool(traced) and any(
        pid in traced and _LANE.fullmatch(name) for (pid, _), name in facts.thread_names.items()
    )


def convert(facts: FileFacts, slices: pl.DataFrame) -> Reclassified:
    """Scopes become annotations."""
    work = as_text(slices)
    scopes = work.filter(pl.col("category").is_in(_SCOPES))
    graphs = [tid for (_, tid), name in facts.thread_names.items() if name.startswith(_GRAPH)]
    return reclassified(
        left_over(slices, scopes),
        annotations=rows(scopes, on_device=scopes["tid"].is_in(graphs)),
    )
