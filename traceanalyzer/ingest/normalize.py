"""Raw columns -> the public tables of one file. All oddities of the files end here.

An engine hands over batches while it reads; each batch becomes a frame at once, so that Python objects live only
as long as a batch. `FileTables.finish` then does what needs the whole file: pairs begin and end marks, lets the
rules of other producers move their slices, adds the base time.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl

from traceanalyzer import schema
from traceanalyzer.ingest import marks as mark_pairs
from traceanalyzer.ingest.categories import FLOW_PHASES
from traceanalyzer.ingest.losses import Losses
from traceanalyzer.ingest.producers import FileFacts, identify, reclassify
from traceanalyzer.ingest.public import ReadFile
from traceanalyzer.ingest.raw import RAW_FIELDS, Dictionary, Filled, Late, RawColumns, Scan, arg_columns
from traceanalyzer.ingest.values import LATEST_NS, to_integer, to_signed_64

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
#: At so many places at most, rows are put into a frame by cutting it there; beyond, by gathering every row.
_MOST_SLICES = 32
#: Above so many rows (about 100 MB of tables) rows go to the store while the file is still read.
SPILL_ROWS = 1_500_000
_WHOLE_NUMBERS = {int, type(None)}
_NEEDED_WHOLE = {"slices", "marks"}
#: Takes rows of a table off memory, for good.
Spill = Callable[[str, pl.DataFrame], None]


class _Lookup:
    """Texts by code, as polars looks them up. A lookup among texts without a null is twice as fast."""

    def __init__(self) -> None:
        self._sure = pl.Series([""], dtype=pl.Categorical)
        self._nullable = pl.Series([None], dtype=pl.Categorical)

    def __len__(self) -> int:
        return len(self._sure)

    def extend(self, texts: list[str]) -> None:
        """Add the texts of the next codes."""
        new = pl.Series(texts, dtype=pl.Categorical)
        self._sure, self._nullable = pl.concat([self._sure, new]), pl.concat([self._nullable, new])

    def texts(self, name: str, codes: np.ndarray, missing: int | None) -> pl.Series:
        """The texts of codes, of which `missing` are 0; None: unknown how many."""
        if missing is None:
            missing = len(codes) - int(np.count_nonzero(codes))
        if missing == len(codes):
            return self._nullable[:1].new_from_index(0, len(codes)).alias(name)
        return (self._nullable if missing else self._sure)[pl.Series(codes)].alias(name)  # `gather` is slower


class _Texts:
    """A file's dictionary as polars lookup tables, grown as the file is read."""

    def __init__(self) -> None:
        self.plain, self.streams = _Lookup(), _Lookup()

    def follow(self, dictionary: Dictionary) -> None:
        """Take in the texts that were added since the last batch."""
        new = [text or "" for text in dictionary.texts[len(self.plain) :]]
        if new:
            self.plain.extend(new)
            self.streams.extend([text.removeprefix(_STREAM_PREFIX) for text in new])


class FileTables:
    """Collects the rows of one file, as the engine's `Sink`; then gives its tables."""

    def __init__(self, losses: Losses, spill: Spill | None = None) -> None:
        """`spill` takes rows off memory once there are more than `SPILL_ROWS`."""
        self._losses = losses
        self._texts = _Texts()
        self._parts: defaultdict[str, list[pl.DataFrame]] = defaultdict(list)
        self._spill = spill
        self._rows = 0
        self._shift_ns = 0

    def shift(self, nanoseconds: int) -> None:
        """Times of the rows that are added from now on are to be made so much later."""
        self._shift_ns = nanoseconds

    def add(self, table_name: str, columns: RawColumns, dictionary: Dictionary, late: Late | None = None) -> None:
        """Take a batch of raw columns."""
        self._texts.follow(dictionary)
        frame = self._frame(table_name, columns)
        if late is not None:
            frame = _merged(frame, self._frame(table_name, late.columns), late.places)
        if table_name == "kernels":
            frame = self._without_lost(frame)
        elif table_name == "collectives":  # the same records once more: counted as kernels
            frame = frame.filter(~(_is_lost(frame) & frame["on_device"]))
        if self._shift_ns:
            time = "time_ns" if table_name in _POINTS else "start_ns"
            frame = frame.with_columns(pl.col(time) + self._shift_ns)
        self._parts[table_name].append(frame)
        self._rows += frame.height
        if self._spill is not None and self._rows > SPILL_ROWS:
            self._spill_parts(self._spill)

    def _spill_parts(self, spill: Spill) -> None:
        """Hand over what is in memory, but for the tables that `finish` needs whole."""
        for name in self._parts.keys() - _NEEDED_WHOLE:
            parts = self._parts.pop(name)
            spill(name, pl.concat(parts))
        self._rows = 0

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
        return ReadFile(tables, scan, producer, self._base(scan))

    def _base(self, scan: Scan) -> int:
        """What is added to every time."""
        base = to_integer(scan.metadata.get("baseTimeNanoseconds")) or 0
        if -LATEST_NS <= base <= LATEST_NS:
            return base
        self._losses.add("unusable-base", "baseTimeNanoseconds is no possible time; times are as in the file")
        return 0

    def _reclassify(self, facts: FileFacts, tables: dict[str, pl.DataFrame], slices: pl.DataFrame) -> None:
        moved = reclassify(facts, slices)
        if moved is None:
            return
        tables["slices"] = moved.slices
        for name in ("kernels", "launches", "ops", "annotations"):
            rows: pl.DataFrame = getattr(moved, name)
            if rows.height:
                rows = _conform(name, rows)
                if name == "kernels":
                    rows = self._without_lost(rows)
                tables[name] = pl.concat([tables[name], rows]) if name in tables else rows
        for note in moved.notes:
            self._losses.add(note.code, note.message, count=note.count or 1, level=note.level)

    def _without_lost(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Device records whose times were lost say 0 for start and length: counted, never timed."""
        lost = _is_lost(frame)
        if not lost.any():
            return frame
        self._losses.add("lost-record", "device events whose times were lost (0) were dropped", count=int(lost.sum()))
        return frame.filter(~lost)

    def _frame(self, table_name: str, columns: RawColumns) -> pl.DataFrame:
        """A batch with public names and types; times as in the file."""
        if table_name == "kernels":
            _set_place(columns)
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
            return pl.Series("time_ns" if table_name in _POINTS else "start_ns", _array(values, np.int64))
        if name == "dur":
            return pl.Series("duration_ns", _array(values, np.int64))
        if name == "args":
            return pl.Series("args", values, dtype=pl.String)
        if name == "value":
            return _numbers("value", values, pl.Float64())
        if name == "id" and table_name == "flows":
            return self._flow_ids(values)
        return self._text(name, values)

    def _text(self, name: str, codes: Any) -> pl.Series:
        lookup = self._texts.streams if name == "stream" else self._texts.plain
        return lookup.texts(name, _array(codes, np.uint32), codes.missing if isinstance(codes, Filled) else None)

    def _flow_ids(self, values: list[Any] | Filled) -> pl.Series:
        if isinstance(values, Filled) or _WHOLE_NUMBERS.issuperset(map(type, values)):
            with contextlib.suppress(TypeError, OverflowError):
                return _numbers("id", values, pl.Int64())
        assert isinstance(values, list)
        ids = [to_signed_64(to_integer(value)) for value in values]
        bad = sum(new is None and old is not None for new, old in zip(ids, values, strict=True))
        self._losses.add("flow-without-number", "flow ids that are no numbers were left empty", count=bad)
        return pl.Series("id", ids, dtype=pl.Int64)


def _is_lost(frame: pl.DataFrame) -> pl.Series:
    return (frame["start_ns"] == 0) & (frame["duration_ns"] == 0)


def _merged(frame: pl.DataFrame, late: pl.DataFrame, places: np.ndarray) -> pl.DataFrame:
    """Rows of `late` put into `frame`, each before the row of the number that `places` gives."""
    where, first = np.unique(places, return_index=True)
    if len(where) > _MOST_SLICES:
        order = np.insert(np.arange(frame.height), places, np.arange(frame.height, frame.height + late.height))
        return pl.concat([frame, late])[order]
    parts, done = [], 0
    for place, start, end in zip(where.tolist(), first.tolist(), [*first[1:].tolist(), late.height], strict=True):
        parts += [frame[done:place], late[start:end]]
        done = place
    return pl.concat([*parts, frame[done:]], rechunk=False)


def _array(values: Any, dtype: Any) -> np.ndarray:
    return np.asarray(values.values if isinstance(values, Filled) else values, dtype)


def _set_place(columns: RawColumns) -> None:
    """device = args.device, else pid; stream = args.stream, else tid."""
    for column, fallback in (("device", "pid"), ("stream", "tid")):
        if isinstance(columns[column], Filled) and not columns[column].missing:
            continue
        codes = _array(columns[column], np.uint32)
        columns[column] = np.where(codes == 0, _array(columns[fallback], np.uint32), codes)


def _kind(table_name: str, codes: Any) -> pl.Series:
    name, kinds = _KINDS[table_name]
    numbers = _array(codes, np.uint8)
    if kinds is None:
        return pl.Series(name, numbers)
    if len(numbers) and (numbers == numbers[0]).all():
        return kinds.new_from_index(int(numbers[0]), len(numbers)).alias(name)
    return kinds[pl.Series(numbers.astype(np.uint32))].alias(name)


def _values(column: schema.Column, values: list[Any] | Filled) -> pl.Series:
    try:
        series = _numbers(column.name, values, column.dtype)
    except (TypeError, OverflowError):  # an id beyond 63 bits
        assert isinstance(values, list)
        series = pl.Series(column.name, list(map(to_signed_64, values)), dtype=pl.Int64)
    if column.zero_is_unknown:
        unknown = (series == 0) | (series == -1)
        series = series.set(unknown, None) if unknown.any() else series
    return series


def _numbers(name: str, values: list[Any] | Filled, dtype: pl.DataType) -> pl.Series:
    """Numbers as a series. Raises polars' errors for whole numbers beyond 63 bits."""
    if not isinstance(values, Filled):
        return pl.Series(name, values, dtype=dtype, strict=dtype == pl.Int64)
    if values.missing == len(values.values):
        return pl.Series(name, [None], dtype=dtype).new_from_index(0, len(values.values))
    series = pl.Series(name, values.values, dtype=dtype)
    return series.set(pl.Series(values.is_missing()), None) if values.missing else series


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
