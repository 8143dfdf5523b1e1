"""Intel PTI's unitrace (and onetrace before it) with Chrome logging of device work.

Learned from the writer, intel/pti-gpu `tools/unitrace/src/chromelogger.h` and `levelzero/ze_collector.h`. An object;
times are whole microseconds of the epoch; the names of processes and threads come last in the file.

- Mark: the category `gpu_op`, on processes that are called "DEVICE<host>address #<n>" (after "RANK <n> " under MPI).
- Device work: `gpu_op` rows, but the commands that only order others (barriers, events, timestamps).
- Kind: memory copies and fills of Level Zero and OpenCL by their command names, everything else is a kernel.
- Device: the number after # ("0", with tiles "0.1"). Stream: the row (engine or queue, per host thread).
- Shape: Level Zero kernels carry it in the name: "gemm[SIMD16 {24; 1; 1} {128; 4; 1}]" is 24 groups of 512 work
  items. The name stays as recorded. Copies carry their bytes the same way: "zeCommandListAppendMemoryCopy(M2D)[4096]".
- API calls have the category `cpu_op` and never come here. Arrows link them; there is no correlation id.
"""

from __future__ import annotations

import polars as pl

from traceanalyzer.ingest.producers.base import FileFacts, Reclassified, reclassified
from traceanalyzer.ingest.producers.columns import as_text, either, left_over, named, rows

NAME = "Intel unitrace"

_DEVICE = "DEVICE<"
_TILE = r"^(?:Tile #\d+: )?"
_COPY = _TILE + r"(zeCommandListAppend(MemoryCopy|ImageCopy)|clEnqueue(Read|Write|Copy|Map|Unmap|SVMMemcpy|Migrate))"
_FILL = _TILE + r"(zeCommandListAppendMemoryFill|clEnqueue(Fill|SVMMemFill|MemFill))"
_COMMAND = _TILE + r"(zeCommandList|zeEvent|clEnqueue)"
_SHAPE = r"\[SIMD\w+ \{(\d+); (\d+); (\d+)\} \{(\d+); (\d+); (\d+)\}\]$"
_BYTES = r"\[(\d+)\]$"


def matches(facts: FileFacts, slices: pl.DataFrame) -> bool:  # noqa: ARG001
    """The category on its own is too plain a word: the processes must be unitrace's too."""
    return "gpu_op" in facts.span_categories and any(_DEVICE in name for name in facts.process_names.values())


def convert(facts: FileFacts, slices: pl.DataFrame) -> Reclassified:
    """Device commands are device work."""
    work = as_text(slices)
    name = pl.col("name")
    device = work.filter(
        (pl.col("category") == "gpu_op")
        & (~name.str.contains(_COMMAND) | name.str.contains(_COPY) | name.str.contains(_FILL))
    )
    process = named(device["pid"], facts.process_names)
    shape = {
        f"{key}_{axis}": name.str.extract(_SHAPE, 3 * group + part)
        for group, key in enumerate(("grid", "block"))
        for part, axis in enumerate("xyz", start=1)
    }
    kernels = rows(
        device,
        kind=pl.when(name.str.contains(_COPY))
        .then(pl.lit("memcpy"))
        .when(name.str.contains(_FILL))
        .then(pl.lit("memset"))
        .otherwise(pl.lit("kernel")),
        device=either(process.str.extract(r"#([\d.]+)$"), device["pid"]),
        stream=device["tid"],
        **shape,
        bytes=pl.when(name.str.contains(_COPY) | name.str.contains(_FILL)).then(name.str.extract(_BYTES)),
    )
    return reclassified(left_over(slices, device), kernels=kernels)
