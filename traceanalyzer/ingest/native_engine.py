"""The native engine: ordinary entries go from text into columns in compiled code (`_scan.c`), the others one by one.

The compiled scanner only takes what is plainly ordinary and stops at anything else; `Entries.entry` then takes that
one entry, so both engines give the same tables by construction. Rows of the two ways are merged in file order when
a table's batch is handed over.
"""

from __future__ import annotations

import ctypes
import struct
import zlib
from collections.abc import Callable, Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from traceanalyzer.ingest import ahead
from traceanalyzer.ingest.categories import FLOW_PHASES, INSTANT_PHASES, place_span
from traceanalyzer.ingest.document import Document
from traceanalyzer.ingest.entries import (
    COLLECTIVE_KEYS,
    MEMORY_SERIES,
    Columns,
    Entries,
    memory_name,
    no_garbage_collection,
)
from traceanalyzer.ingest.later import LaterTraces
from traceanalyzer.ingest.losses import Losses
from traceanalyzer.ingest.raw import (
    COLLECTIVE_TABLES,
    RAW_FIELDS,
    Dictionary,
    Filled,
    Late,
    RawColumns,
    Scan,
    Sink,
    arg_columns,
)
from traceanalyzer.ingest.source import Source
from traceanalyzer.ingest.values import ExactDecoder, canonical_json
from traceanalyzer.schema import Column

#: Rows of a table that the scanner gathers before they become a frame.
BATCH_ROWS = 30_000
#: Asking the scanner costs about as much as decoding an entry of this size.
_MOST_PATIENCE_BYTES = 1 << 10
#: Text that is scanned while it lies in the processor's cache, beside the columns.
_PIECE_BYTES = 300_000
_SLOT_KINDS = ("integer", "number", "label", "text", "json", "dim3")
_CODE, _WIDE, _NARROW, _DOUBLE = range(4)
_SPAN, _FLOW, _INSTANT = range(3)
_FIXED = ("kind", "category", "name", "pid", "tid", "ts", "dur")
_ROLES = (
    "slice-table", "flow-table", "memory-table", "collective-table", "collective-slot", "device-type-slot",
    "device-id-slot", "first-series-slot", "series-count",
)  # fmt: skip
#: Tables whose rows the scanner can fill.
_SPAN_TABLES = ("kernels", "launches", "ops", "annotations", "python_calls")
_TABLES = (*_SPAN_TABLES, "slices", "flows", "counters", "collectives")
_PHASES = ("X", *FLOW_PHASES, *INSTANT_PHASES)
_WRITTEN, _VALUES, _DEVICES = range(3)
_DECODE = ExactDecoder().decode
_MISSING_ID = -(1 << 63)
_DTYPES = {_CODE: np.uint32, _WIDE: np.int64, _NARROW: np.int32, _DOUBLE: np.float64}
_FIXED_DTYPES = {"kind": np.uint8, "ts": np.int64, "dur": np.int64}

_POINTER, _INT, _SIZE = ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t
_SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
    "scan_sources": (ctypes.c_uint32, []),
    "scan_new": (_POINTER, []),
    "scan_free": (None, [_POINTER]),
    "scan_add_slot": (_INT, [_POINTER, _INT, _INT]),
    "scan_add_key": (_INT, [_POINTER, _INT, _INT, ctypes.c_char_p, _SIZE]),
    "scan_add_table": (_INT, [_POINTER, _INT, _INT]),
    "scan_use_slot": (_INT, [_POINTER, _INT, _INT]),
    "scan_add_column": (_INT, [_POINTER, _INT, _INT, _INT, _INT]),
    "scan_set_role": (_INT, [_POINTER, _INT, _INT]),
    "scan_add_phase": (_INT, [_POINTER, _INT, _INT, _INT]),
    "scan_add_category": (_INT, [_POINTER, ctypes.c_char_p, _SIZE, _INT, _INT]),
    "scan_counts": (ctypes.POINTER(ctypes.c_uint64), [_POINTER, _INT]),
    "scan_take": (ctypes.c_int64, [_POINTER, _POINTER, _SIZE]),
    "scan_rows": (ctypes.POINTER(ctypes.c_uint64), [_POINTER]),
    "scan_clear": (None, [_POINTER, _INT]),
    "scan_copy": (ctypes.c_uint64, [_POINTER, _INT, _INT, _POINTER, _POINTER]),
    "scan_texts": (ctypes.c_uint32, [_POINTER, _INT, ctypes.POINTER(_POINTER), ctypes.POINTER(_POINTER)]),
    "scan_canonical": (_POINTER, [_POINTER]),
    "scan_args_text": (_POINTER, [_POINTER]),
}


def _load() -> ctypes.CDLL | None:
    """The compiled scanner, if one of this version was built."""
    for path in sorted(Path(__file__).parent.glob("_scan.*")):
        if path.suffix not in (".so", ".dll", ".dylib", ".pyd"):
            continue
        try:
            library = ctypes.CDLL(str(path))
            for name, (result, arguments) in _SIGNATURES.items():
                function = getattr(library, name)
                function.restype, function.argtypes = result, arguments
        except (OSError, AttributeError):  # of another machine or version
            continue
        if library.scan_sources() == _sources():
            return library
    return None


def _sources() -> int:
    """The checksum of the scanner's sources, as `setup.py` gives it to the build."""
    checksum = 0
    for path in sorted(Path(__file__).parent.glob("_scan*.[ch]")):
        checksum = zlib.crc32(path.read_bytes(), checksum)
    return checksum


_LIBRARY = _load()


def is_built() -> bool:
    """Whether the compiled scanner is there."""
    return _LIBRARY is not None


class NativeEngine:
    """Engine A of the design."""

    name = "native"
    releases_interpreter = True

    def scan(
        self, source: Source, sink: Sink, losses: Losses, tables: frozenset[str], later: LaterTraces | None = None
    ) -> Scan:
        """Read a whole file into `sink`. Raises `UnreadableError` for what is no event trace, and `ReadAgainError`."""
        scan = Scan()
        entries = _NativeEntries(sink, losses, tables, scan)
        with ahead.text_of(source) as text, no_garbage_collection():
            document = Document(source.path, text, entries, losses, later)
            document.read()
            entries.flush()
        scan.metadata, scan.container = document.metadata, document.container
        scan.whole = document.whole and not source.cut
        return scan


class _NativeEntries(Entries):
    """Takes what the scanner takes, and entries one by one."""

    patience = 1
    most_patience = _MOST_PATIENCE_BYTES
    piece_bytes = _PIECE_BYTES

    def __init__(self, sink: Sink, losses: Losses, tables: frozenset[str], scan: Scan) -> None:
        super().__init__(sink, losses, tables, scan)
        self._scanner = _Scanner(frozenset(self._tables), self._dictionary)
        #: For every row taken one by one: how many rows of its table the scanner had before it.
        self._places: dict[str, list[int]] = {name: [] for name in self._tables}

    def take(self, buffer: bytearray, start: int, end: int) -> int:
        """Take entries up to the first that is not ordinary or not whole."""
        taken = self._scanner.take(buffer, start, end)
        for name, columns in self._tables.items():
            if self._scanner.rows(name) >= BATCH_ROWS:
                self._hand_over(columns)
        return taken

    def entry(self, value: Any, *, count: bool = True) -> None:
        """Take one decoded entry, whatever it is."""
        super().entry(value, count=count)
        for name, columns in self._tables.items():
            places = self._places[name]
            if len(columns) > len(places):
                places += [self._scanner.rows(name)] * (len(columns) - len(places))

    def flush(self) -> None:
        """Hand over what is left, and the counts of the entries that the scanner took."""
        super().flush()
        self._scan.counts.update(self._scanner.counts())

    def _learn(self, category: str) -> None:
        self._scanner.learn(category)

    def _hand_over(self, columns: Columns) -> None:
        name, places = columns.table, self._places[columns.table]
        places += [self._scanner.rows(name)] * (len(columns) - len(places))
        if self._scanner.rows(name):
            late = Late(columns.columns, np.array(places)) if places else None
            self._sink.add(name, self._scanner.columns(name), self._dictionary, late)
            self._scanner.clear(name)
        elif places:
            self._sink.add(name, columns.columns, self._dictionary)
        if places:
            columns.reset()
            places.clear()


class _Texts:
    """One of the scanner's dictionaries: its codes -> those of the file's `Dictionary`."""

    def __init__(self, dictionary: Dictionary, decode: Callable[[bytes, bool], str | None]) -> None:
        self._dictionary = dictionary
        self._decode = decode
        self._codes = np.zeros(1, np.uint32)

    def codes(self, library: ctypes.CDLL, scanner: int, which: int) -> np.ndarray:
        """The codes of all texts so far; [0] stands for null."""
        start, ends = _POINTER(), _POINTER()
        count = library.scan_texts(scanner, which, ctypes.byref(start), ctypes.byref(ends))
        known = len(self._codes) - 1
        if count > known:
            borders = np.frombuffer((ctypes.c_uint64 * (count + 1)).from_address(ends.value or 0), np.uint64)
            new = (borders[known:] - borders[known]).tolist()
            raw = ctypes.string_at((start.value or 0) + int(borders[known]), new[-1]) if new[-1] else b""
            texts = [raw[a:b] for a, b in pairwise(new)]
            plain = self._are_plain(library, scanner, which, known, texts)
            code, decode = self._dictionary.code, self._decode
            added = [code(decode(text, bool(each))) for text, each in zip(texts, plain, strict=True)]
            self._codes = np.concatenate([self._codes, np.array(added, np.uint32)])
        return self._codes

    @staticmethod
    def _are_plain(library: ctypes.CDLL, scanner: int, which: int, known: int, texts: list[bytes]) -> Iterable[int]:
        """For every new text, whether it is spelled as it is to be."""
        if which != _VALUES:
            return [b"\\" not in text for text in texts]
        return ctypes.string_at(library.scan_canonical(scanner) + known, len(texts))


class _Scanner:
    """The compiled scanner of one file: its tables, set up from the schema, and their rows."""

    def __init__(self, wanted: frozenset[str], dictionary: Dictionary) -> None:
        assert _LIBRARY is not None
        self._library = _LIBRARY
        self._handle: int = self._library.scan_new() or _out_of_memory()
        self._rows = self._library.scan_rows(self._handle)
        self._slots: dict[tuple[str, tuple[str, ...]], int] = {}
        self._categories: dict[int, str | None] = {}
        self._columns: dict[str, list[tuple[str, int]]] = {name: [] for name in _TABLES}
        self._code_columns: dict[int, np.ndarray] = {}
        self._texts = (
            _Texts(dictionary, _unescaped),
            _Texts(dictionary, _canonical),
            _Texts(dictionary, _device_name),
        )
        self._series = np.array([dictionary.code(name) for name in MEMORY_SERIES], np.uint32)
        self._numbers = {name: self._add_table(name, name in wanted) for name in _TABLES}
        self._set_up()

    def __del__(self) -> None:
        if handle := self.__dict__.pop("_handle", None):
            self._library.scan_free(handle)

    # -- set-up from the schema ---------------------------------------------------------------------------------

    def _set_up(self) -> None:
        for name in (*_SPAN_TABLES, "collectives"):
            for column in arg_columns(name):
                self._add_arg_column(name, column)
        for name in COLLECTIVE_TABLES:
            for column in arg_columns("collectives"):
                self._use(name, column)
        series = [self._slot("number", (key,)) for key in MEMORY_SERIES]
        roles = {
            **{f"{table[:-1]}-table": self._numbers[table] for table in ("slices", "flows", "collectives")},
            "memory-table": self._numbers["counters"],
            "collective-slot": self._slots["text", COLLECTIVE_KEYS],
            "device-type-slot": self._slot("integer", ("Device Type",)),
            "device-id-slot": self._slot("integer", ("Device Id",)),
            "first-series-slot": series[0],
            "series-count": len(series),
        }
        for slot in (*series, roles["device-type-slot"], roles["device-id-slot"]):
            self._call("scan_use_slot", self._numbers["counters"], slot)
        for name, number in roles.items():
            self._call("scan_set_role", _ROLES.index(name), number)
        self._add_column("slices", "args", _WIDE, self._slot("integer", ()), 0)
        self._add_column("flows", "id", _WIDE, self._slot("integer", ()), 0)
        self._add_column("counters", "value", _DOUBLE, self._slot("number", ()), 0)
        for phase in _PHASES:
            shape = _FLOW if phase in FLOW_PHASES else _INSTANT if phase in INSTANT_PHASES else _SPAN
            self._call("scan_add_phase", ord(phase), shape, FLOW_PHASES.index(phase) if shape == _FLOW else 0)
        self._add_category(None)

    def _call(self, function: str, *arguments: Any) -> int:
        """A set-up call, which fails only where the schema outgrows the scanner's limits."""
        result: int = getattr(self._library, function)(self._handle, *arguments)
        if result < 0:
            raise AssertionError(f"{function}{arguments}")
        return result

    def _add_table(self, name: str, wanted: bool) -> int:  # noqa: FBT001
        collective_kind = int(name == "kernels") if name in COLLECTIVE_TABLES else -1
        return self._call("scan_add_table", int(wanted), collective_kind)

    def _add_arg_column(self, table: str, column: Column) -> None:
        type_ = {pl.Categorical: _CODE, pl.Int64: _WIDE, pl.Int32: _NARROW, pl.Float64: _DOUBLE}[type(column.dtype)]
        self._add_column(table, column.name, type_, self._use(table, column), column.part)

    def _add_column(self, table: str, name: str, type_: int, slot: int, part: int) -> None:
        self._call("scan_add_column", self._numbers[table], type_, slot, part)
        self._columns[table].append((name, type_))

    def _use(self, table: str, column: Column) -> int:
        slot = self._slot(column.kind or "text", column.args)
        self._call("scan_use_slot", self._numbers[table], slot)
        return slot

    def _slot(self, kind: str, keys: tuple[str, ...]) -> int:
        """The slot of a value of args: one for all columns that read the same keys in the same way."""
        if (kind, keys) not in self._slots:
            slot = self._call("scan_add_slot", _SLOT_KINDS.index(kind), int(self._is_narrow(kind, keys)))
            for rank, key in enumerate(keys):
                self._call("scan_add_key", slot, rank, key.encode(), len(key.encode()))
            self._slots[kind, keys] = slot
        return self._slots[kind, keys]

    def _is_narrow(self, kind: str, keys: tuple[str, ...]) -> bool:
        columns = [column for name in (*_SPAN_TABLES, "collectives") for column in arg_columns(name)]
        return any(c.dtype == pl.Int32 for c in columns if (c.kind, c.args) == (kind, keys))

    # -- categories ---------------------------------------------------------------------------------------------

    def learn(self, category: str) -> None:
        """Take the entries of a category from now on, if it is one that needs no escapes."""
        plain = category.isprintable() and not set(category) & {'"', "\\"}
        if plain and category not in self._categories.values():
            self._add_category(category)

    def _add_category(self, category: str | None) -> None:
        placement = place_span(category)
        table, kind = (placement.table, placement.kind) if placement else ("slices", 0)
        raw = None if category is None else category.encode()
        add = self._library.scan_add_category
        number = add(self._handle, raw, len(raw or b""), self._numbers[table], kind)
        if number >= 0:
            self._categories[number] = category

    def counts(self) -> dict[tuple[str | None, str | None], int]:
        """Entries taken, by phase and category."""
        return {
            (phase, category): counted[index]
            for number, category in self._categories.items()
            for counted in (self._library.scan_counts(self._handle, number),)
            for index, phase in enumerate(_PHASES)
            if counted[index]
        }

    # -- text in, rows out --------------------------------------------------------------------------------------

    def take(self, buffer: bytearray, start: int, end: int) -> int:
        """The index behind what was taken of ``buffer[start:end]``."""
        first = ctypes.c_char.from_buffer(buffer)
        taken: int = self._library.scan_take(self._handle, ctypes.addressof(first) + start, end - start)
        return start + taken if taken >= 0 else _out_of_memory()

    def rows(self, table: str) -> int:
        """Rows of a table that wait for being handed over."""
        number = self._numbers.get(table)
        return 0 if number is None else self._rows[number]

    def clear(self, table: str) -> None:
        """Forget the rows of a table."""
        self._library.scan_clear(self._handle, self._numbers[table])

    def columns(self, table: str) -> RawColumns:
        """The raw columns of a table, as copies. Codes are good until the next table is asked for."""
        fixed = [name for name in RAW_FIELDS[table] if name in _FIXED]
        columns: RawColumns = {name: self._fixed(table, name) for name in fixed}
        for index, (name, type_) in enumerate(self._columns[table]):
            which = _VALUES if type_ == _CODE and self._is_json(table, name) else _WRITTEN
            columns[name] = self._copied(table, len(_FIXED) + index, _DTYPES[type_], which if type_ == _CODE else None)
        if table == "slices":
            columns["args"] = self._args_texts(columns["args"].values, self._fixed(table, "kind").values)
        if table == "counters":
            columns["series"] = Filled(self._series[self._fixed(table, "kind").values], 0)
        return columns

    def _is_json(self, table: str, name: str) -> bool:
        return any(column.kind == "json" for column in arg_columns(table) if column.name == name)

    def _fixed(self, table: str, name: str) -> Filled:
        dtype = _FIXED_DTYPES.get(name)
        dictionary = None if dtype else _DEVICES if (table, name) == ("counters", "name") else _WRITTEN
        return self._copied(table, _FIXED.index(name), dtype or np.uint32, dictionary)

    def _copied(self, table: str, column: int, dtype: Any, dictionary: int | None) -> Filled:
        rows = self.rows(table)
        if dictionary is None:  # becomes the memory of the table
            into, codes = np.empty(rows, dtype), None
        else:
            into = self._code_memory(column, rows)
            codes = self._texts[dictionary].codes(self._library, self._handle, dictionary)
        lookup = None if codes is None else codes.ctypes.data
        missing = self._library.scan_copy(self._handle, self._numbers[table], column, into.ctypes.data, lookup)
        return Filled(into, missing)

    def _code_memory(self, column: int, rows: int) -> np.ndarray:
        """Memory for codes, of use until this column of any table is copied again: codes become texts at once, and new
        memory would cost more than filling it."""
        if len(self._code_columns.get(column, ())) < rows:
            self._code_columns[column] = np.empty(rows, np.uint32)
        return self._code_columns[column][:rows]

    def _args_texts(self, ends: np.ndarray, canonical: np.ndarray) -> list[str | None]:
        text = ctypes.string_at(self._library.scan_args_text(self._handle) or 0, int(ends[-1])) if len(ends) else b""
        borders = pairwise([0, *ends.tolist()])
        return [_args_text(text[a:b], bool(each)) for (a, b), each in zip(borders, canonical.tolist(), strict=True)]


def _unescaped(raw: bytes, has_no_escapes: bool) -> str:  # noqa: FBT001
    """The text of a string as written between its quotes."""
    text = raw.decode()
    return text if has_no_escapes else str(_DECODE(f'"{text}"'))


def _canonical(raw: bytes, is_canonical: bool) -> str | None:  # noqa: FBT001
    """The canonical spelling of a JSON value. A string stands for itself, so its quotes and escapes must go."""
    text = raw.decode()
    return text if is_canonical and text[0] != '"' else canonical_json(_DECODE(text))


def _args_text(raw: bytes, is_canonical: bool) -> str | None:  # noqa: FBT001
    if raw in (b"", b"{}"):
        return None
    if is_canonical:
        return raw.decode()
    value = _DECODE(raw.decode())
    return canonical_json(value) if value else None


def _device_name(raw: bytes, _: bool) -> str:  # noqa: FBT001
    kind, number = struct.unpack("=qq", raw)
    return memory_name(kind, None if number == _MISSING_ID else number)


def _out_of_memory() -> int:
    raise MemoryError("no memory left for the events of a trace")
