"""Nsight Systems, converted from its SQLite export: nsys2json (chenyu-jiang) and nsys2chrome (nCompass).

Learned from the corpus (`ncompass-nsys`) and the writers: nsys2json's script, nCompass-tech/ncompass
`ncompass/trace/converters/parsers`. A bare array or an object; processes and threads are text.

- Mark: the category `cuda_api`, or `cuda` on rows "Stream <n>" of processes "Device <n>".
- Device work: `cuda` rows on a stream. Newer nsys2chrome writes category `kernel` instead: those rows never come here.
- Device and stream: `deviceId` and `streamId`, else the numbers in the names of process and row.
- Correlation: `correlationId`; all kernels of a graph replay share one. nsys2json writes no args at all.
- Calls: `cuda_api` (names cuda* are the runtime, cu* the driver; CUPTI's version suffix is dropped, so that
  cudaGraphLaunch_v10000 is known by its name). `nvtx` are ranges on the host, `nvtx-kernel` their projection.
- `osrt` (system calls) stays slices. Both converters leave out copies and sets: said in a note where calls for them
  were made, since the device then looks idle while it copies.
"""

from __future__ import annotations

import polars as pl

from traceanalyzer.ingest.producers.base import FileFacts, Reclassified, reclassified
from traceanalyzer.ingest.producers.columns import Args, as_text, cuda_calls, either, left_over, rows
from traceanalyzer.notes import Note

NAME = "nsys export"

_STREAM, _DEVICE = "Stream ", "Device "


def matches(facts: FileFacts, slices: pl.DataFrame) -> bool:
    """API calls of their own category, or kernels on rows named after device and stream."""
    categories = facts.span_categories
    if "cuda_api" in categories:
        return True
    if "cuda" not in categories:
        return False
    kernels = as_text(slices).filter(pl.col("category") == "cuda")
    on_stream = pl.col("pid").str.starts_with(_DEVICE) & pl.col("tid").str.starts_with(_STREAM)
    return not kernels.filter(on_stream).is_empty()


def convert(facts: FileFacts, slices: pl.DataFrame) -> Reclassified:
    """Categories become tables."""
    work = as_text(slices)
    device = work.filter((pl.col("category") == "cuda") & pl.col("tid").str.starts_with(_STREAM))
    calls = work.filter(pl.col("category") == "cuda_api")
    ranges = work.filter(pl.col("category").is_in(("nvtx", "nvtx-kernel")))
    kernels, launches = _kernels(device), cuda_calls(calls)
    return reclassified(
        left_over(slices, device, calls, ranges),
        kernels=kernels,
        launches=launches,
        annotations=rows(ranges, on_device=ranges["category"] == "nvtx-kernel"),
        notes=_notes(facts, kernels, launches),
    )


def _kernels(picked: pl.DataFrame) -> pl.DataFrame:
    args = Args(picked["args"])
    return rows(
        picked,
        kind=pl.when(pl.col("name").str.contains(r"(?i)^\[?(cuda )?memcpy"))
        .then(pl.lit("memcpy"))
        .when(pl.col("name").str.contains(r"(?i)^\[?(cuda )?memset"))
        .then(pl.lit("memset"))
        .otherwise(pl.lit("kernel")),
        device=either(args.labels("deviceId"), picked["pid"].str.strip_prefix(_DEVICE)),
        stream=either(args.labels("streamId"), picked["tid"].str.strip_prefix(_STREAM)),
        correlation=args.integers("correlationId", positive=True),
        **args.dim3("grid", "grid"),
        **args.dim3("block", "block"),
        registers=args.integers("registersPerThread"),
        shared_memory=args.integers("staticSharedMemory") + args.integers("dynamicSharedMemory"),
        graph_node_id=args.integers("graphNodeId", positive=True),
        bytes=args.integers("bytes"),
    )


def _notes(facts: FileFacts, kernels: pl.DataFrame, launches: pl.DataFrame) -> tuple[Note, ...]:
    """A warning where copies or sets were called for and none is in the file."""
    recorded = {"gpu_memcpy", "gpu_memset"} & facts.span_categories
    if recorded or kernels["kind"].is_in(("memcpy", "memset")).any():
        return ()
    calls = launches.filter(pl.col("name").str.contains(r"^(cuda|cu)Mem(cpy|set)")).height
    if not calls:
        return ()
    message = "copies and sets were called for, but this export holds kernels only: the time they took reads as idle"
    return (Note("warning", "copies-not-exported", message, count=calls),)
