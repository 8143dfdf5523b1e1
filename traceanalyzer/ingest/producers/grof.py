"""GROF (siwaarbn/grof): CUPTI records of kernels and copies, and nothing else.

Learned from the corpus (`grof`) and the writer, `grof_cuda.cpp`. A bare array without metadata or categories.

- Mark: every event stands on process 1, and copies are named "[MEMCPY] HtoD"; without any copy, each event carries
  `correlationId` and `externalId` (an older version wrote no args).
- Device work: every event. Only kernels and copies are recorded.
- Device: the process id, always 1: the writer does not keep the device. Stream: the row.
"""

from __future__ import annotations

import polars as pl

from traceanalyzer.ingest.producers.base import FileFacts, Reclassified, reclassified
from traceanalyzer.ingest.producers.columns import Args, as_text, left_over, rows

NAME = "CUPTI dump"

_COPY = "[MEMCPY] "


def matches(facts: FileFacts, slices: pl.DataFrame) -> bool:
    """No names, no categories, one process; then copies by name or ids in every event."""
    if slices.is_empty() or not facts.uncategorised or facts.process_names or facts.metadata:
        return False
    if slices["pid"].n_unique() != 1 or slices["pid"].cast(pl.String)[0] != "1":
        return False
    if slices["name"].cast(pl.String).str.starts_with(_COPY).any():
        return True
    ids = [slices["args"].str.contains(f'"{key}"', literal=True) for key in ("correlationId", "externalId")]
    return bool((ids[0] & ids[1]).fill_null(value=False).all())


def convert(facts: FileFacts, slices: pl.DataFrame) -> Reclassified:  # noqa: ARG001
    """All of it is device work."""
    work = as_text(slices)
    args = Args(work["args"])
    copies = pl.col("name").str.starts_with(_COPY)
    kernels = rows(
        work,
        kind=pl.when(copies).then(pl.lit("memcpy")).otherwise(pl.lit("kernel")),
        device=work["pid"],
        stream=work["tid"],
        correlation=args.integers("correlationId", positive=True),
        external_id=args.integers("externalId", positive=True),
    )
    return reclassified(left_over(slices, work), kernels=kernels)
