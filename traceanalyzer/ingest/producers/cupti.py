"""CUPTI activity records as eunomia-bpf's converter writes them (`cupti_trace_parser.py` of xpu-perf).

Learned from the corpus (`cupti-ebpf`) and that script. An object whose `metadata` names the tool.

- Mark: the categories `GPU_Kernel` and `MemCopy`, which no other writer uses.
- Device work: those two categories, kernels and copies.
- Device and stream: `deviceId` and `streamId`. Where the dump left them out, as in the corpus, kernels have no process
  at all and copies stand on a row named after their kind: both are null, one unknown device.
- Correlation: `correlationId`. Grid and block where the dump printed them; bytes: `size`.
- Names: the writer puts "Kernel: ", "Runtime: " and "Driver: " in front of the symbol; that is not part of the name.
- `CUDA_Runtime` and `CUDA_Driver` are the calls; `Overhead` (CUPTI's own) stays slices.
"""

from __future__ import annotations

import polars as pl

from traceanalyzer.ingest.producers.base import FileFacts, Reclassified, reclassified
from traceanalyzer.ingest.producers.columns import Args, as_text, cuda_calls, left_over, rows

NAME = "CUPTI dump"

_KERNEL, _COPY = "GPU_Kernel", "MemCopy"
_CALLS = ("CUDA_Runtime", "CUDA_Driver")


def matches(facts: FileFacts, slices: pl.DataFrame) -> bool:  # noqa: ARG001
    """By category."""
    return not facts.span_categories.isdisjoint((_KERNEL, _COPY))


def convert(facts: FileFacts, slices: pl.DataFrame) -> Reclassified:  # noqa: ARG001
    """Categories become tables."""
    work = as_text(slices)
    device = work.filter(pl.col("category").is_in((_KERNEL, _COPY)))
    calls = work.filter(pl.col("category").is_in(_CALLS))
    return reclassified(
        left_over(slices, device, calls),
        kernels=_kernels(device),
        launches=cuda_calls(calls.with_columns(pl.col("name").str.replace(r"^(Runtime|Driver): ", ""))),
    )


def _kernels(picked: pl.DataFrame) -> pl.DataFrame:
    args = Args(picked["args"])
    return rows(
        picked.with_columns(pl.col("name").str.strip_prefix("Kernel: ")),
        kind=picked["category"].replace_strict([_KERNEL, _COPY], ["kernel", "memcpy"], return_dtype=pl.String),
        device=args.labels("deviceId"),
        stream=args.labels("streamId"),
        correlation=args.integers("correlationId", positive=True),
        **args.dim3("grid", "grid"),
        **args.dim3("block", "block"),
        bytes=args.integers("size"),
    )
