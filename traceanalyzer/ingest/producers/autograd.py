"""torch.autograd.profiler before Kineto: `EventList.export_chrome_trace`.

Learned from the corpus (`pippy`) and the writer, pytorch/pytorch `torch/autograd/profiler.py` up to 1.8 and
`profiler_util.py` since (without device rows). A bare array; processes are text.

- Mark: process "CPU functions", and no categories but `cpu_to_cuda` on the arrows.
- Host operators: rows of "CPU functions".
- Device work: rows of "CUDA functions". They are measured with a pair of CUDA events around an operator, nested
  operators included: only the innermost ones are kernels, those around them are annotations on the device. A note says
  that such a time includes what the device waited in between.
- Device: the row, which is the number of the device. Streams are not told apart: null.
"""

from __future__ import annotations

import polars as pl

from traceanalyzer.ingest.producers.base import FileFacts, Reclassified, reclassified
from traceanalyzer.ingest.producers.columns import as_text, left_over, rows
from traceanalyzer.notes import Note

NAME = "PyTorch autograd profiler"

_HOST, _DEVICE = "CPU functions", "CUDA functions"


def matches(facts: FileFacts, slices: pl.DataFrame) -> bool:
    """By the process, in a file that names none and has no categories."""
    if not facts.uncategorised or facts.process_names or facts.metadata:
        return False
    return _HOST in slices["pid"].unique().cast(pl.String).to_list()


def convert(facts: FileFacts, slices: pl.DataFrame) -> Reclassified:  # noqa: ARG001
    """Host rows are operators, the innermost device rows are kernels."""
    work = as_text(slices)
    host = work.filter(pl.col("pid") == _HOST)
    device = _nested(work.filter(pl.col("pid") == _DEVICE))
    inner, outer = device.filter(~pl.col("around")), device.filter("around")
    return reclassified(
        left_over(slices, host, device),
        ops=rows(host),
        kernels=rows(inner, kind="kernel", device=inner["tid"]),
        annotations=rows(outer, on_device=True),
        notes=_notes(inner),
    )


def _nested(device: pl.DataFrame) -> pl.DataFrame:
    """The rows with `around`: whether another row of the same device lies within."""
    start, end = pl.col("start_ns"), pl.col("start_ns") + pl.col("duration_ns")
    ordered = device.sort("tid", "start_ns", "duration_ns", "_row", descending=[False, False, True, False])
    following = (start.shift(-1).over("tid") < end) & (end.shift(-1).over("tid") <= end)
    return ordered.with_columns(around=following.fill_null(value=False)).sort("_row")


def _notes(kernels: pl.DataFrame) -> tuple[Note, ...]:
    if kernels.is_empty():
        return ()
    message = "device times are CUDA events around operators: they include what the device waited in between"
    return (Note("warning", "event-timed-kernels", message, count=kernels.height),)
