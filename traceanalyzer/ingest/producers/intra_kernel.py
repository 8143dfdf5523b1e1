"""Events from inside kernels, per warp: intra-kernel-profiler, and Proton's instrumentation backend.

Learned from the corpus (`ikp-gemm`) and, for Proton, the writer (triton-lang/triton,
`third_party/proton/common/lib/TraceDataIO/TraceWriter.cpp`).

- Mark: processes called "sm <n>" whose threads are called "block <n> warp <n>"; Proton: process ids of the form
  "<kernel> Core<n> CTA<n>".
- None of it is device activity in the sense of `kernels`: a row is a stretch of one warp's program, thousands of them
  are one launch, and the clock is the SM's. Everything stays in slices; a note says so.
"""

from __future__ import annotations

import re

import polars as pl

from traceanalyzer.ingest.producers.base import FileFacts, Reclassified, reclassified
from traceanalyzer.notes import Note

NAME = "intra-kernel profiler"

_SM = re.compile(r"sm \d+")
_WARP = re.compile(r"block \d+ warp \d+")
_PROTON = r" Core\d+ CTA\d+$"


def matches(facts: FileFacts, slices: pl.DataFrame) -> bool:
    """By the names of SMs and warps; Proton names no process, it spells the ids out."""
    if facts.process_names:
        return all(map(_SM.fullmatch, facts.process_names.values())) and any(
            map(_WARP.fullmatch, facts.thread_names.values())
        )
    if facts.metadata.get("displayTimeUnit") != "ns" or slices.is_empty():
        return False
    return bool(slices["pid"].unique().cast(pl.String).str.contains(_PROTON).all())


def convert(facts: FileFacts, slices: pl.DataFrame) -> Reclassified:  # noqa: ARG001
    """Nothing moves."""
    message = "events from inside kernels, per warp, are left in slices: they count as no device time"
    return reclassified(slices, notes=(Note("info", "intra-kernel-events", message, count=slices.height),))
