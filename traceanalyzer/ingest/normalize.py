"""Raw columns -> the public tables of one file. All oddities of the files end here.

An engine hands over batches while it reads; each batch becomes a frame at once, so that Python objects live only
as long as a batch. `FileTables.finish` then does what needs the whole file: pairs begin and end marks, lets the
rules of other producers move their slices, adds the base time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from traceanalyzer import schema
from traceanalyzer.ingest import marks as mark_pairs
from traceanalyzer.ingest.categories import FLOW_PHASES
from traceanalyzer.ingest.losses import Losses
from traceanalyzer.ingest.producers import FileFacts, identify, reclassify
from traceanalyzer.ingest.raw import RAW_FIELDS, Dictionary, Scan, arg_columns
from traceanalyzer.ingest.values import to_integer, to_signed_64

_STREAM_PREFIX = "stream "
_KINDS = {
    "kernels": ("kind", pl.Series(schema.DEVICE_KINDS, dtype=pl.Enum(schema.DEVICE_KINDS))),
    "launches": ("kind", pl.Series(schema.LAUNCH_KINDS, dtype=pl.Enum(schema.LAUNCH_KINDS))),
    "annotations": ("on_device", pl.Series([False, True])),
    "collectives": ("on_device", pl.Series([False, True])),
    "flows": ("phase", pl.Series(FLOW_PHASES, dtype=pl.Enum(FLOW_PHASES))),
    "marks": ("kind", None),
}
_POINTS = ("flows", "counters")
_POINTS_IN_TIME = ("start_ns", "time_ns")
#: Above so many rows (about 100 MB of tables) rows go to the store while the file is still read.
SPILL_ROWS = 1_500_000
_NEEDED_WHOLE = {"slices", "marks"}
#: Takes rows of a table off memory, for good.
Spill = Callable[[str, pl.DataFrame], None]


class _Texts:
    """A file's dictionary as polars lookup tables, grown as the file is read."""

    def __init__(self) -> None:
        self.plain = pl.Series([None], dtype=pl.Categorical)
        self.streams = self.plain.clone()

    def follow(self, dictionary: Dictionary) -> None:
        """Take in the texts that were added since the last batch."""
        new = dictionary.texts[len(self.plain) :]
        if new:
            self.plain = pl.concat([self.plain, pl.Series(new, dtype=pl.Categorical)])
            stripped = [None if text is None else text.removeprefix(_STREAM_PREFIX) for text in new]
            self.streams = pl.concat([self.streams, pl.Series(stripped, dtype=pl.Categorical)])


class FileTables:
    """Collects the rows of one file, as the engine's `Sink`; then gives its tables."""

    def __init__(self, losses: Losses, spill: Spill | None = None) -> None:
        """`spill` takes rows off memory once there are more than `SPILL_ROWS`."""
        self._losses = losses
        self._texts = _Texts()
        self._parts: defaultdict[str, list[pl.DataFrame]] = defaultdict(list)
        self._spill = spill
        self._rows = 0

    def add(self, table_name: str, columns: dict[str, Any], dictionary: Dictionary) -> None:
        """Take a batch of raw columns."""
        self._texts.follow(dictionary)
        if table_name == "kernels":
            columns = self._without_lost(columns)
            _set_place(columns)
        frame = self._frame(table_name, columns)
        self._parts[table_name].append(frame)
        self._rows += frame.height
        if self._spill is not None and self._rows > SPILL_ROWS:
            self._spill_parts(self._spill)

    def _spill_parts(self, spill: Spill) -> None:
        """Hand over what is in memory, but for the tables that `finish` needs whole."""
        for name in self._parts.keys() - _NEEDED_WHOLE:
            parts = self._parts.pop(name)
            spill(name, pl.concat(parts))

    def finish(self, scan: Scan) -> ReadFile:
        """The tables of the whole file, those apart that were spilled. Times are as in the file."""
        tables = {name: pl.concat(parts) for name, parts in self._parts.items()}
        marks = tables.pop("marks", None)
        if marks is not None:
            pairs = mark_pairs.pair(marks, self._losses)
            tables["slices"] = pl.concat([tables["slices"], pairs]) if "slices" in tables else pairs
        facts = _facts(scan)
        slices = tables.get("slices", _empty("slices"))
        producer = identify(facts, slices)
        self._reclassify(facts, tables, slices)
        return ReadFile(tables, scan, producer, to_integer(scan.metadata.get("baseTimeNanoseconds")) or 0)

    def _reclassify(self, facts: FileFacts, tables: dict[str, pl.DataFrame], slices: pl.DataFrame) -> None:
        moved = reclassify(facts, slices)
        if moved is None:
            return
        tables["slices"] = moved.slices
        for name in ("kernels", "launches", "ops", "annotations"):
            rows: pl.DataFrame = getattr(moved, name)
            if rows.height:
                rows = _conform(name, rows)
                tables[name] = pl.concat([tables[name], rows]) if name in tables else rows
        for note in moved.notes:
            self._losses.add(note.code, note.message, count=note.count or 1, level=note.level)

    def _without_lost(self, columns: dict[str, Any]) -> dict[str, Any]:
        """Device records whose times were lost say 0 for start and length: counted, never timed."""
        times, durations = np.frombuffer(columns["ts"], np.int64), np.frombuffer(columns["dur"], np.int64)
        lost = (times == 0) & (durations == 0)
        if not lost.any():
            return columns
        self._losses.add("lost-record", "device events whose times were lost (0) were dropped", count=int(lost.sum()))
        keep = np.flatnonzero(~lost).tolist()
        return {
            name: [values[i] for i in keep] if isinstance(values, list) else np.array(values)[keep]
            for name, values in columns.items()
        }

    def _frame(self, table_name: str, columns: dict[str, Any]) -> pl.DataFrame:
        """A batch with public names and types; times as in the file."""
        series = []
        for name in RAW_FIELDS[table_name]:
            if name == "kind":
                series.append(_kind(table_name, columns[name]))
            else:
                series.append(self._field(table_name, name, columns[name]))
        for column in arg_columns(table_name):
            if column.dtype == pl.Categorical:
                series.append(self._text(column.name, columns[column.name]))
            else:
                series.append(_values(column, columns[column.name]))
        return pl.DataFrame(series)

    def _field(self, table_name: str, name: str, values: Any) -> pl.Series:
        if name == "ts":
            return pl.Series("time_ns" if table_name in _POINTS else "start_ns", np.array(values, np.int64))
        if name == "dur":
            return pl.Series("duration_ns", np.array(values, np.int64))
        if name == "args":
            return pl.Series("args", values, dtype=pl.String)
        if name == "value":
            return pl.Series("value", values, dtype=pl.Float64)
        if name == "id" and table_name == "flows":
            return self._flow_ids(values)
        return self._text(name, values)

    def _text(self, name: str, codes: Any) -> pl.Series:
        texts = self._texts.streams if name == "stream" else self._texts.plain
        return texts.gather(pl.Series(np.array(codes, np.uint32))).alias(name)

    def _flow_ids(self, values: list[Any]) -> pl.Series:
        try:
            return pl.Series("id", values, dtype=pl.Int64)
        except (TypeError, OverflowError):
            ids = [to_signed_64(to_integer(value)) for value in values]
            bad = sum(new is None and old is not None for new, old in zip(ids, values, strict=True))
            self._losses.add("flow-without-number", "flow ids that are no numbers were left empty", count=bad)
            return pl.Series("id", ids, dtype=pl.Int64)


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


def _set_place(columns: dict[str, Any]) -> None:
    """device = args.device, else pid; stream = args.stream, else tid."""
    for column, fallback in (("device", "pid"), ("stream", "tid")):
        codes = np.array(columns[column], np.uint32)
        columns[column] = np.where(codes == 0, np.array(columns[fallback], np.uint32), codes)


def _kind(table_name: str, codes: Any) -> pl.Series:
    name, kinds = _KINDS[table_name]
    numbers = pl.Series(name, np.array(codes, np.uint8))
    return numbers if kinds is None else kinds.gather(numbers.cast(pl.UInt32)).alias(name)


def _values(column: schema.Column, values: list[Any]) -> pl.Series:
    if column.dtype == pl.Int64:
        try:
            series = pl.Series(column.name, values, dtype=pl.Int64)
        except (TypeError, OverflowError):  # an id beyond 63 bits
            series = pl.Series(column.name, list(map(to_signed_64, values)), dtype=pl.Int64)
    else:
        series = pl.Series(column.name, values, dtype=column.dtype, strict=False)
    if column.zero_is_unknown:
        series = series.set((series == 0) | (series == -1), None)
    return series


def _empty(name: str) -> pl.DataFrame:
    """A file's table with no rows: the public columns, plus the pid where the public table has none."""
    columns = dict(schema.table(name).schema)
    columns.pop("source"), columns.pop("rank", None)
    if name in ("kernels", "collectives"):
        columns |= {"pid": pl.Categorical(), "tid": pl.Categorical()}
    return pl.DataFrame(schema=columns)


def _conform(name: str, rows: pl.DataFrame) -> pl.DataFrame:
    """Rows of a producer's rule with all columns and types of a file's table."""
    wanted = _empty(name).schema
    return rows.select(
        (pl.col(column).cast(dtype) if column in rows.columns else pl.lit(None, dtype)).alias(column)
        for column, dtype in wanted.items()
    )


def _facts(scan: Scan) -> FileFacts:
    def names(what: str) -> dict[str, str]:
        return {pid: each[what] for (pid, _), each in scan.threads.items() if what in each and pid is not None}

    return FileFacts(
        metadata=scan.metadata,
        process_names=names("process_name"),
        process_labels=names("process_labels"),
        thread_names={
            (pid or "", tid or ""): each["thread_name"]
            for (pid, tid), each in scan.threads.items()
            if "thread_name" in each
        },
        counts=scan.counts,
    )
