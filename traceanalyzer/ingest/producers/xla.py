"""The XLA profiler (JAX, TensorFlow): `trace.json.gz` beside the xplane file.

Learned from the writer, openxla/xla: `xla/tsl/profiler/convert/trace_events_to_json.cc` (the JSON), `xplane_schema.cc`
(names of planes, lines and stats) and `xla/backends/profiler/gpu/cupti_collector.cc` (what stands on a GPU's lines).
An object; `ts` and `dur` in microseconds down to picoseconds; no categories; all args are text.

- Mark: a process "/device:GPU:<n>".
- Device work: rows of the threads "Stream #<n>(...)" of such a process. The part in brackets lists what the stream
  ever did ("MemcpyD2H,Compute") and says nothing about one row.
- Kind: by args: `kernel_details` is a kernel, `memcpy_details` a copy, `memset_details` a set; else by name. Memory
  residency records are no work. A graph traced as one piece (`cuda_graph_exec_id`) is one kernel row.
- Device and stream: the numbers in both names. Correlation: `correlation_id`.
- Shape, registers and shared memory: from the text of `kernel_details`; bytes: `size:` or `num_bytes:`.
- Not counted: the lines that the profiler derives from the streams (Steps, XLA Modules, XLA Ops, Framework Ops,
  Source code, ...). Steps and XLA Modules become annotations on the device, the others stay slices.
- Calls: rows of other processes that carry a `correlation_id` and are called cu*, cuda* or hip*.
- TPU devices (process "/device:TPU:<n>") are no GPUs: their rows stay slices.
"""

from __future__ import annotations

import polars as pl

from traceanalyzer.ingest.producers.base import FileFacts, Reclassified, reclassified
from traceanalyzer.ingest.producers.columns import Args, as_text, left_over, named, rows

NAME = "JAX/XLA"

_GPU = "/device:GPU:"
_STREAM = r"^Stream #(\d+)"
_RANGES = ("Steps", "XLA Modules")
_COPIES = ("memcpy_details", "Memcpy_details")
_SETS = ("memset_details", "Memset_details")
_MEMORY_RECORDS = ("memory_residency_details", "MemoryResidency_details", "memalloc_details", "MemFree_details")


def matches(facts: FileFacts, slices: pl.DataFrame) -> bool:  # noqa: ARG001
    """By the name that the profiler gives to the plane of a GPU."""
    return facts.uncategorised and any(name.startswith(_GPU) for name in facts.process_names.values())


def convert(facts: FileFacts, slices: pl.DataFrame) -> Reclassified:
    """Stream lines are device work, two derived lines are ranges, driver calls are calls."""
    work = as_text(slices)
    work = work.with_columns(process=named(work["pid"], facts.process_names), line=_lines(work, facts))
    on_gpu = pl.col("process").str.starts_with(_GPU).fill_null(value=False)
    device = work.filter(on_gpu & pl.col("line").str.contains(_STREAM))
    device = device.filter(~Args(device["args"]).has(*_MEMORY_RECORDS))
    ranges = work.filter(on_gpu & pl.col("line").is_in(_RANGES))
    calls = _calls(work.filter(~on_gpu))
    return reclassified(
        left_over(slices, device, ranges, calls),
        kernels=_kernels(device),
        launches=rows(
            calls,
            kind=pl.when(pl.col("name").str.contains(r"^(cuda|hip)[A-Z]"))
            .then(pl.lit("runtime"))
            .otherwise(pl.lit("driver")),
        ),
        annotations=rows(ranges, on_device=True),
    )


def _lines(work: pl.DataFrame, facts: FileFacts) -> pl.Series:
    """The name of each row's thread."""
    names = pl.DataFrame(
        [(*key, name) for key, name in facts.thread_names.items()],
        schema={"pid": pl.String, "tid": pl.String, "line": pl.String},
        orient="row",
    )
    return work.select("pid", "tid").join(names, on=["pid", "tid"], how="left", maintain_order="left")["line"]


def _calls(host: pl.DataFrame) -> pl.DataFrame:
    calls = host.filter(pl.col("name").str.contains(r"^(cu|cuda|hip)[A-Z]"))
    correlation = Args(calls["args"]).integers("correlation_id", positive=True)
    return calls.with_columns(correlation=correlation).filter(pl.col("correlation").is_not_null())


def _kernels(picked: pl.DataFrame) -> pl.DataFrame:
    args = Args(picked["args"])
    kernel = args.labels("kernel_details")
    memory = args.labels(*_COPIES, *_SETS)
    shape = {
        f"{key}_{axis}": kernel.str.extract(rf"\b{key}:(\d+),(\d+),(\d+)", part)
        for key in ("grid", "block")
        for part, axis in enumerate("xyz", start=1)
    }
    shared = kernel.str.extract(r"\bstatic_shared:(\d+)").cast(pl.Int64) + kernel.str.extract(
        r"\bdynamic_shared:(\d+)"
    ).cast(pl.Int64)
    return rows(
        picked,
        kind=_kind(args),
        device=picked["process"].str.strip_prefix(_GPU),
        stream=picked["line"].str.extract(_STREAM),
        correlation=args.integers("correlation_id", positive=True),
        **shape,
        registers=kernel.str.extract(r"\bregs:(\d+)"),
        shared_memory=shared,
        graph_id=args.integers("cuda_graph_id", positive=True),
        bytes=memory.str.extract(r"\b(?:size|num_bytes):(\d+)"),
    )


def _kind(args: Args) -> pl.Expr:
    kernel, copies, sets = args.has("kernel_details"), args.has(*_COPIES), args.has(*_SETS)
    name = pl.col("name")
    return (
        pl.when(pl.lit(kernel))
        .then(pl.lit("kernel"))
        .when(pl.lit(copies) | name.str.starts_with("Memcpy"))
        .then(pl.lit("memcpy"))
        .when(pl.lit(sets) | name.str.starts_with("Memset"))
        .then(pl.lit("memset"))
        .otherwise(pl.lit("kernel"))
    )
