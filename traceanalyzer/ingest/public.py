"""The tables of one file, as they were read, and their public form in a trace of several."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from traceanalyzer import schema
from traceanalyzer.ingest.raw import Scan

_POINTS_IN_TIME = ("start_ns", "time_ns")


@dataclass(frozen=True)
class ReadFile:
    """What one file holds. Frames have the public columns except source and rank, and the pid; times as in the file."""

    tables: Mapping[str, pl.DataFrame]
    scan: Scan
    producer: str
    base_ns: int


def public(name: str, frame: pl.LazyFrame, source: int, rank: int | None, base_ns: int = 0) -> pl.LazyFrame:
    """A file's table with `source` and `rank`, absolute times, in the public column order."""
    columns = schema.table(name).schema
    constants = {"source": pl.lit(source, pl.UInt16), "rank": pl.lit(rank, pl.Int32)}
    return frame.select(
        (
            pl.col(column) + base_ns if column in _POINTS_IN_TIME and base_ns else constants.get(column, pl.col(column))
        ).alias(column)
        for column in columns.names()
    )
