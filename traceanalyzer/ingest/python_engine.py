"""The pure-Python engine: msgspec decodes pieces of a Kineto trace into typed structs, one type a category; every
other entry is taken one by one. Both ways fill the same raw columns with the same values.

Why two ways: a struct with typed slots is decoded about four times as fast as a dict, and columns come out of a
list of equal structs by comprehension. It holds only for entries that look as Kineto writes them; a piece with
anything else (numbers as strings, no category, times beyond a double's exactness in odd spellings) is decoded to
plain objects, which is the reference for what every value means.
"""

from __future__ import annotations

import re
from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from itertools import chain
from typing import Any
from weakref import WeakKeyDictionary

import msgspec
import numpy as np

from traceanalyzer.ingest.categories import (
    FLOW_CATEGORIES,
    FLOW_PHASES,
    KNOWN_SPELLINGS,
    MEMORY_CATEGORY,
    MEMORY_EVENT,
    place,
    place_span,
)
from traceanalyzer.ingest.document import PIECE_BYTES, Document
from traceanalyzer.ingest.entries import (
    BATCH_ROWS,
    COLLECTIVE_KEYS,
    MEMORY_SERIES,
    Columns,
    Entries,
    memory_name,
    no_garbage_collection,
)
from traceanalyzer.ingest.later import LaterTraces
from traceanalyzer.ingest.losses import Losses
from traceanalyzer.ingest.pieces import BoundaryError, MismatchError, PieceCutter
from traceanalyzer.ingest.raw import (
    COLLECTIVE_TABLES,
    Dictionary,
    Scan,
    Sink,
    arg_columns,
)
from traceanalyzer.ingest.source import Source
from traceanalyzer.ingest.values import ExactDecoder, canonical_json, to_label, to_ns
from traceanalyzer.schema import Column

#: Below this many microseconds (12 days) a double tells a nanosecond with three decimals from one with more.
EXACT_MICROSECONDS = float(1 << 40)
#: How far such a double may be from the decimal number that was written, in nanoseconds.
_DOUBLE_ERROR_NS = 0.13
#: Digits before the point of the latest time that is taken for one (`values.LATEST_NS`).
_MOST_DIGITS = 16
#: Digits of such a time in ns are at most twice as many.
_HALF_DIGITS = 10
#: Categories beyond the known ones that may get a struct of their own.
_MOST_CATEGORIES = 300
#: After so many pieces in a row that did not fit the structs, pieces are no longer tried.
_MOST_MISSES = 8
#: Bytes taken entry by entry after a piece that did not fit.
_PATIENCE_BYTES = 1 << 14

#: Kineto's categories of no table of their own.
OTHER_CATEGORIES = ("overhead", "cuda_sync", "Trace")
#: Groups of a piece that are no tables: torch's [memory] events, and all that is taken one by one.
_MEMORY, _OTHER = "memory", "other"
_DECODE = ExactDecoder().decode

_RAW_EMPTY = msgspec.Raw(b"")
_STRUCT_TYPES: dict[str, tuple[Any, Any]] = {
    "integer": (int | None, None),
    "number": (float | None, None),
    "label": (int | str | None, None),
    "text": (str | None, None),
    "json": (msgspec.Raw, _RAW_EMPTY),
    "dim3": (tuple[int, int, int] | None, None),
}


class PythonEngine:
    """Engine B of the design: no compiled code of our own."""

    name = "python"
    releases_interpreter = False

    def scan(
        self, source: Source, sink: Sink, losses: Losses, tables: frozenset[str], later: LaterTraces | None = None
    ) -> Scan:
        """Read a whole file into `sink`. Raises `UnreadableError` for what is no event trace, and `ReadAgainError`."""
        scan = Scan()
        entries = _PieceEntries(sink, losses, tables, scan)
        with closing(source), no_garbage_collection():
            document = Document(source.path, source, entries, losses, later)
            document.read()
            entries.flush()
        scan.metadata, scan.container = document.metadata, document.container
        scan.whole = document.whole and not source.cut
        return scan


class _PieceEntries(Entries):
    """Takes whole pieces at once where they hold nothing out of the ordinary."""

    patience = _PATIENCE_BYTES
    most_patience = PIECE_BYTES
    piece_bytes = PIECE_BYTES

    def __init__(self, sink: Sink, losses: Losses, tables: frozenset[str], scan: Scan) -> None:
        super().__init__(sink, losses, tables, scan)
        self._labels = _Labels(self._dictionary)
        self._json_codes = _JsonCodes(self._dictionary)
        self._structs = _Structs(frozenset(self._tables))
        self._misses = 0
        self._asked = 0
        self._cutter = PieceCutter()

    def take(self, buffer: bytearray, start: int, end: int) -> int:
        """Take a piece, unless pieces of this file have not fitted the structs for long."""
        self._asked += 1
        if self._misses >= _MOST_MISSES and self._asked % _MOST_MISSES:
            return start
        return self._cutter.cut(buffer, start, end, self._take_piece)

    def begin_later(self, shift_ns: int) -> None:
        """Entries of a later trace come next, perhaps with other text between them."""
        super().begin_later(shift_ns)
        self._cutter = PieceCutter()

    def _learn(self, category: str) -> None:
        self._structs.learn(category)

    # -- pieces -------------------------------------------------------------------------------------------------

    def _take_piece(self, view: memoryview) -> None:
        """Take a piece whose entries all look as Kineto writes them; raises without taking any otherwise."""
        try:
            entries = self._structs.decode(view)
            str(view, "utf-8")  # msgspec does not look at the text of what it skips
        except (msgspec.ValidationError, UnicodeDecodeError, RecursionError) as error:
            self._misses += 1
            raise MismatchError from error
        except msgspec.DecodeError as error:
            raise BoundaryError from error
        by_table: defaultdict[str, list[Any]] = defaultdict(list)
        table_of = self._structs.table_of
        for entry in entries:
            by_table[table_of[entry.__class__]].append(entry)
        try:
            self._check_order(by_table)
            batches = self._batches({table: group for table, group in by_table.items() if self._is_batched(table)})
        except MismatchError:
            self._misses += 1
            raise
        self._misses = 0
        for group in by_table.values():
            self._count(group)
        for batch in batches:
            self._take_batch(batch)
        if "collectives" in self._tables:
            self._take_collectives(entries, [batch for batch in batches if batch.table in COLLECTIVE_TABLES])
        for entry in by_table.get(_OTHER, ()):
            self.entry(self._structs.as_mapping(entry), count=False)
        for columns in self._tables.values():
            if len(columns) >= BATCH_ROWS:
                self._hand_over(columns)

    def _check_order(self, by_table: Mapping[str, list[Any]]) -> None:
        """Raises `MismatchError` where entries that are taken one by one fill a table that is also filled by column:
        only entry by entry keeps their order."""
        batched = by_table.keys() & {"flows", _MEMORY}
        if not batched:
            return
        for entry in by_table.get(_OTHER, ()):
            placement = None if entry.ph == "X" else place(entry.ph, None, entry.name)
            if placement and (_MEMORY if placement.table == "counters" else placement.table) in batched:
                raise MismatchError

    def _is_batched(self, table: str) -> bool:
        return table in _BATCHED and self._wanted("counters" if table == _MEMORY else table)

    def _count(self, group: list[Any]) -> None:
        phases = _values_of(group, "ph")
        if _are_all(phases[0], phases):
            counted = {(kind, phases[0]): count for kind, count in Counter(map(type, group)).items()}
        else:
            counted = Counter(zip(map(type, group), phases, strict=True))
        for (kind, phase), count in counted.items():
            self._scan.counts[phase, self._structs.category_of[kind]] += count

    def _batches(self, groups: Mapping[str, list[Any]]) -> list[_Batch]:
        """Check groups of entries and compute their times, all at once, so that taking them cannot fail."""
        for table, group in groups.items():
            if not _BATCHED[table].issuperset(_values_of(group, "ph")):
                raise MismatchError
            if table == _MEMORY:
                _check_memory(group)
        lasting = [group for table, group in groups.items() if table not in ("flows", _MEMORY)]
        starts = _parts(self._structs.nanoseconds(_all_of(groups.values(), "ts")), groups.values())
        durations = _exact_ns(_doubles(_all_of(lasting, "dur")))
        if durations is None or (durations < 0).any():
            raise MismatchError
        lengths = _parts(durations, lasting)
        return [
            _Batch(table, group, next(starts), None if table in ("flows", _MEMORY) else next(lengths))
            for table, group in groups.items()
        ]

    def _take_batch(self, batch: _Batch) -> None:
        if batch.table == _MEMORY:
            self._take_memory(batch)
            return
        columns = self._tables.get(batch.table)
        group = batch.group
        if columns is not None:
            self._fill_fields(columns, group, batch.starts, batch.durations)
            args = _values_of(group, "args") if columns.args else []
            for column in columns.args:
                self._fill_arg(columns.columns[column.name], column, args)

    def _fill_fields(
        self, columns: Columns, group: list[Any], starts: np.ndarray, durations: np.ndarray | None
    ) -> None:
        into = columns.columns
        if "kind" in into:
            if columns.table == "flows":
                _extend(into["kind"], _values_of(group, "ph"), FLOW_PHASES.index)
            else:
                _extend(into["kind"], list(map(type, group)), self._structs.kind_of.__getitem__)
        if "category" in into:
            _extend(into["category"], list(map(type, group)), self._category_code)
        if "name" in into:
            into["name"].extend(array("I", list(map(self._dictionary.__getitem__, _values_of(group, "name")))))
        _extend(into["pid"], _values_of(group, "pid"), self._labels.__getitem__)
        _extend(into["tid"], _values_of(group, "tid"), self._labels.__getitem__)
        into["ts"].frombytes(starts.tobytes())
        if durations is not None:
            into["dur"].frombytes(durations.tobytes())
        if "id" in into:
            into["id"] += _values_of(group, "id")

    def _category_code(self, kind: type) -> int:
        return self._dictionary[self._structs.category_of[kind]]

    def _fill_arg(self, into: Any, column: Column, args: list[Any]) -> None:
        values = self._values(column, args)
        if column.kind == "json":
            _extend(into, _split_raw(values), self._json_codes.__getitem__)
        elif column.kind in ("label", "text"):
            _extend(into, values, self._labels.__getitem__)
        elif column.kind == "dim3":
            part = column.part
            into.extend([None if v is None else v[part] for v in values])
        else:
            into.extend(values)

    def _values(self, column: Column, args: list[Any]) -> list[Any]:
        """The values of a column, from the first of its keys that an entry has."""
        fields = self._structs.fields[column.kind, column.args]
        missing = _STRUCT_TYPES[column.kind or "text"][1]
        values = _values_of(args, fields[0])
        for alternative in fields[1:]:
            if missing not in values:
                break
            others = _values_of(args, alternative)
            if not _are_all(missing, others):
                values = [o if v is missing else v for v, o in zip(values, others, strict=True)]
        return values

    def _take_memory(self, batch: _Batch) -> None:
        into = self._tables["counters"].columns
        code, series = self._dictionary.__getitem__, len(MEMORY_SERIES)
        names: dict[tuple[Any, Any], int] = {}
        for entry in batch.group:
            key = entry.args.kind, entry.args.number
            if key not in names:
                names[key] = code(memory_name(*key))
        rows = {
            "name": [names[entry.args.kind, entry.args.number] for entry in batch.group],
            "pid": [self._labels[entry.pid] for entry in batch.group],
            "tid": [self._labels[entry.tid] for entry in batch.group],
        }
        for column, codes in rows.items():
            into[column].frombytes(np.repeat(np.array(codes, np.uintc), series).tobytes())
        into["series"].extend([code(name) for name in MEMORY_SERIES] * len(batch.group))
        into["ts"].frombytes(np.repeat(batch.starts, series).tobytes())
        into["value"].extend(
            [
                float(value)
                for entry in batch.group
                for value in (entry.args.bytes, entry.args.allocated, entry.args.reserved)
            ]
        )

    def _take_collectives(self, entries: list[Any], batches: list[_Batch]) -> None:
        """The rows of all batches that are collectives, in the order of the piece's entries."""
        rows = [(batch, i) for batch in batches for i in self._collective_rows(batch)]
        if not rows:
            return
        if len(batches) > 1:
            order = {id(entry): index for index, entry in enumerate(entries)}
            rows.sort(key=lambda row: order[id(row[0].group[row[1]])])
        columns = self._tables["collectives"]
        group = [batch.group[i] for batch, i in rows]
        into = columns.columns
        into["kind"].extend([int(batch.table == "kernels") for batch, _ in rows])
        into["name"].extend([self._dictionary[entry.name] for entry in group])
        into["pid"].extend([self._labels[entry.pid] for entry in group])
        into["tid"].extend([self._labels[entry.tid] for entry in group])
        into["ts"].extend([int(batch.starts[i]) for batch, i in rows])
        into["dur"].extend([int(batch.durations[i]) for batch, i in rows if batch.durations is not None])
        args = _values_of(group, "args")
        for column in columns.args:
            self._fill_arg(into[column.name], column, args)

    def _collective_rows(self, batch: _Batch) -> list[int]:
        marks = _values_of(_values_of(batch.group, "args"), self._structs.fields["text", COLLECTIVE_KEYS][0])
        return [] if _are_all(None, marks) else [i for i, value in enumerate(marks) if value is not None]


class _Batch:
    """A group of equal-looking entries with their times, ready to be taken."""

    __slots__ = ("durations", "group", "starts", "table")

    def __init__(self, table: str, group: list[Any], starts: np.ndarray, durations: np.ndarray | None) -> None:
        self.table, self.group, self.starts, self.durations = table, group, starts, durations


#: Tables that pieces fill by column, with the phases their entries must have.
_BATCHED: dict[str, frozenset[str]] = {
    **dict.fromkeys(("kernels", "launches", "ops", "annotations", "python_calls"), frozenset("X")),
    "flows": frozenset(FLOW_PHASES),
    _MEMORY: frozenset("i"),
}


class _MemoryArgs(msgspec.Struct, gc=False):
    """The args of a torch [memory] event."""

    bytes: int | None = msgspec.field(default=None, name="Bytes")
    allocated: int | None = msgspec.field(default=None, name="Total Allocated")
    reserved: int | None = msgspec.field(default=None, name="Total Reserved")
    kind: int | None = msgspec.field(default=None, name="Device Type")
    number: int | None = msgspec.field(default=None, name="Device Id")


class _Structs:
    """The union of typed structs, one a category, and what each type stands for."""

    def __init__(self, wanted: frozenset[str]) -> None:
        self.table_of: dict[type, str] = {}
        self.category_of: dict[type, str] = {}
        self.kind_of: dict[type, int] = {}
        self.fields: dict[tuple[str | None, tuple[str, ...]], list[str]] = {}
        self._wanted = wanted
        self._args: dict[str, type] = {}
        self._decoder: msgspec.json.Decoder[list[Any]] | None = None
        self._as_text = False
        self._categories: dict[str, tuple[str, int]] = {
            **{spelling: place_span(spelling) or (_OTHER, 0) for spelling in KNOWN_SPELLINGS},
            **dict.fromkeys(FLOW_CATEGORIES, ("flows", 0)),
            **dict.fromkeys(OTHER_CATEGORIES, (_OTHER, 0)),
            MEMORY_CATEGORY: (_MEMORY, 0),
        }

    def learn(self, category: str) -> None:
        """Give a category that was met for the first time a struct, so that its pieces fit from now on."""
        if category not in self._categories and len(self._categories) < _MOST_CATEGORIES:
            self._categories[category] = place_span(category) or (_OTHER, 0)
            self._decoder = None

    def decode(self, view: memoryview) -> list[Any]:
        """The entries of a piece. Raises msgspec's errors."""
        if self._decoder is None:
            self._decoder = self._build()
        return self._decoder.decode(view)

    def nanoseconds(self, starts: list[Any]) -> np.ndarray:
        """Exact ns of the `ts` of a group. Raises `MismatchError` where they need the careful way."""
        exact = _text_ns(starts) if self._as_text else _exact_ns(np.array(starts, float))
        if exact is None:
            # the digits are needed: times are absolute, or finer than a nanosecond
            self._as_text, self._decoder = True, None
            raise MismatchError
        return exact

    def as_mapping(self, entry: Any) -> dict[str, Any]:
        """An entry of no batched table as the entry-by-entry way wants it."""
        mapping = {"ph": entry.ph, "cat": self.category_of[entry.__class__], "name": entry.name}
        for key in ("pid", "tid", "id"):
            if (value := getattr(entry, key)) is not None:
                mapping[key] = value
        for key in ("ts", "dur", "args", "id2", "scope"):
            if raw := bytes(getattr(entry, key)):
                mapping[key] = _DECODE(raw.decode("utf-8", "surrogateescape"))
        return mapping

    def _build(self) -> msgspec.json.Decoder[list[Any]]:
        union: Any = None
        for category, (table, kind) in self._categories.items():
            struct = self._struct(category, table)
            self.table_of[struct], self.category_of[struct], self.kind_of[struct] = table, category, kind
            union = struct if union is None else union | struct
        return msgspec.json.Decoder(list[union])

    def _struct(self, category: str, table: str) -> type:
        fields: list[Any] = [("ph", str)]
        if self._is_wanted(table):
            fields += [("name", str), *self._times(table)]
            fields += [(key, int | str | None, None) for key in ("pid", "tid", "id")]
            if table == _OTHER:
                fields += [(key, msgspec.Raw, _RAW_EMPTY) for key in ("args", "id2", "scope")]
            elif table != "flows":
                args = _MemoryArgs if table == _MEMORY else self._args_struct(table)
                fields.append(("args", args, msgspec.field(default_factory=args)))
        return msgspec.defstruct(f"Entry_{table}", fields, gc=False, tag=category, tag_field="cat")

    def _is_wanted(self, table: str) -> bool:
        if table == _MEMORY:
            return "counters" in self._wanted
        return table in {_OTHER, *self._wanted} or (table in COLLECTIVE_TABLES and "collectives" in self._wanted)

    def _times(self, table: str) -> list[Any]:
        raw, number = (msgspec.Raw, _RAW_EMPTY), (float, float("nan"))
        return [
            ("ts", *(raw if self._as_text or table == _OTHER else number)),
            ("dur", *(raw if table == _OTHER else number)),
        ]

    def _args_struct(self, table: str) -> type:
        if table not in self._args:
            columns = [
                *arg_columns(table),
                *(arg_columns("collectives") if table in COLLECTIVE_TABLES else ()),
            ]
            fields: dict[str, Any] = {}
            for column in columns:
                kind = column.kind or "text"
                names = [f"{kind}_{re.sub('[^A-Za-z0-9]', '_', key)}" for key in column.args]
                for name, key in zip(names, column.args, strict=True):
                    type_, default = _STRUCT_TYPES[kind]
                    fields[name] = (name, type_, msgspec.field(default=default, name=key))
                self.fields[column.kind, column.args] = names
            self._args[table] = msgspec.defstruct(f"Args_{table}", fields.values(), gc=False)
        return self._args[table]


class _Labels(dict[Any, int]):
    """pid, tid, device, stream, ... -> code: 7 and "7" are the same label."""

    def __init__(self, dictionary: Dictionary) -> None:
        super().__init__()
        self._dictionary = dictionary

    def __missing__(self, label: Any) -> int:
        code = self[label] = self._dictionary.code(to_label(label))
        return code


class _JsonCodes(dict[bytes, int]):
    """JSON text as written -> code of its canonical spelling."""

    def __init__(self, dictionary: Dictionary) -> None:
        super().__init__()
        self._dictionary = dictionary

    def __missing__(self, raw: bytes) -> int:
        value = _DECODE(raw.decode("utf-8", "surrogateescape")) if raw else None
        code = self[raw] = self._dictionary.code(canonical_json(value))
        return code


def _values_of(objects: list[Any], field: str) -> list[Any]:
    """One attribute of all objects. The comprehension is compiled for every type: a third of the cost of `getattr`
    in a loop, and half of one that meets many types."""
    if not objects:
        return []
    getters = _GETTERS.setdefault(objects[0].__class__, {})
    getter = getters.get(field)
    if getter is None:
        getter = getters[field] = eval(f"lambda objects: [o.{field} for o in objects]")
    return getter(objects)


def _all_of(groups: Iterable[list[Any]], field: str) -> list[Any]:
    """One attribute of all objects of all groups."""
    return list(chain.from_iterable(_values_of(group, field) for group in groups))


def _parts(values: np.ndarray, groups: Iterable[list[Any]]) -> Iterator[np.ndarray]:
    """The values of each group, of those of all groups."""
    done = 0
    for group in groups:
        yield values[done : done + len(group)]
        done += len(group)


#: By type, as long as it lives: every file has types of its own.
_GETTERS: WeakKeyDictionary[type, dict[str, Callable[[list[Any]], list[Any]]]] = WeakKeyDictionary()


def _are_all(value: Any, values: list[Any]) -> bool:
    return values.count(value) == len(values)


def _extend(into: array[int], values: list[Any], code: Callable[[Any], int]) -> None:
    """Append the code of every value: often they are all the same."""
    if values and _are_all(values[0], values):
        into.extend(array(into.typecode, [code(values[0])]) * len(values))
    else:
        into.extend(array(into.typecode, list(map(code, values))))


def _doubles(values: list[float]) -> np.ndarray:
    return np.frombuffer(array("d", values))


def _split_raw(raws: list[Any]) -> list[bytes]:
    """The text of each raw value; JSON text cannot hold a zero byte."""
    return b"\0".join(raws).split(b"\0") if raws else []


def _exact_ns(microseconds: np.ndarray) -> np.ndarray | None:
    """Doubles of microseconds -> ns, or None where a double is not surely the decimal number that was written."""
    if len(microseconds) == 0:
        return np.empty(0, np.int64)
    whole = np.floor(microseconds)
    part = (microseconds - whole) * 1000
    rounded = np.rint(part)
    sure = (np.abs(part - rounded) < _DOUBLE_ERROR_NS) & (np.abs(microseconds) < EXACT_MICROSECONDS)
    if not sure.all():  # also where one is NaN: the field was missing
        return None
    exact: np.ndarray = whole.astype(np.int64) * 1000 + rounded.astype(np.int64)
    return exact


def _text_ns(texts: list[Any]) -> np.ndarray:
    """Digits of microseconds -> ns. Raises `MismatchError` for what is no usable time."""
    if not texts:
        return np.empty(0, np.int64)
    joined = b"\0".join([*texts, b""])
    width, rest = divmod(len(joined), len(texts))
    block = None if rest else np.frombuffer(joined, np.uint8).reshape(len(texts), width)
    if block is not None and not block[:, -1].any():  # JSON text cannot hold a zero byte: all are equally long
        values = _digits_ns(block[:, :-1])
        if values is not None:
            return values
    return _texts_ns_by_length(joined.split(b"\0")[:-1])


def _texts_ns_by_length(raws: list[bytes]) -> np.ndarray:
    lengths = np.array([len(raw) for raw in raws])
    out = np.empty(len(raws), np.int64)
    for length in np.unique(lengths).tolist():
        rows = np.flatnonzero(lengths == length)
        block = np.frombuffer(b"".join([raws[i] for i in rows.tolist()]), np.uint8).reshape(len(rows), length)
        values = _digits_ns(block)
        out[rows] = values if values is not None else [_one_ns(raws[i]) for i in rows.tolist()]
    return out


def _digits_ns(block: np.ndarray) -> np.ndarray | None:
    """Rows of equally long decimal numbers of at most three decimals -> ns; None for any other text."""
    length = block.shape[1]
    dots = np.flatnonzero(block[0] == ord(".")).tolist() if length else []
    dot = dots[0] if dots else length
    decimals = max(length - dot - 1, 0)
    if not 0 < length <= _MOST_DIGITS + 4 or dot > _MOST_DIGITS or decimals > 3:
        return None
    if dots and not (block[:, dot] == ord(".")).all():
        return None
    if dot == _MOST_DIGITS and (block[:, 0] > ord("3")).any():  # beyond LATEST_NS, perhaps beyond 64 bits
        return None
    digits = block - np.uint8(ord("0"))
    if dots:
        digits[:, dot] = 0
    if digits.max() > 9:
        return None
    # the digits of ns in two halves, of which a double holds each exactly
    powers = np.arange(dot + 2, dot + 2 - length, -1)
    powers[dot + 1 :] += 1
    high = np.where(powers >= _HALF_DIGITS, 10.0 ** (powers - _HALF_DIGITS), 0.0)
    low = np.where(powers < _HALF_DIGITS, 10.0**powers, 0.0)
    halves = (digits.astype(np.float64) @ np.stack([high, low], axis=1)).astype(np.int64)
    total: np.ndarray = halves[:, 0] * 10**_HALF_DIGITS + halves[:, 1]
    return total


def _one_ns(raw: bytes) -> int:
    value = to_ns(_DECODE(raw.decode())) if raw else None
    if value is None:
        raise MismatchError
    return value


def _check_memory(group: list[Any]) -> None:
    for entry in group:
        args = entry.args
        if entry.name != MEMORY_EVENT or args.bytes is None or args.allocated is None or args.reserved is None:
            raise MismatchError
