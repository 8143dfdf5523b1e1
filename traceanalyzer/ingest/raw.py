"""Raw columns: what an engine hands over for each table, before `normalize` gives them their public form.

Text is a code into the file's `Dictionary` (0: null), times are nanoseconds as in the file (no base added),
arguments have their Python values. Rows stand in file order.
"""

from __future__ import annotations

from array import array
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

from traceanalyzer.ingest.losses import Losses
from traceanalyzer.ingest.source import Source
from traceanalyzer.ingest.values import without_half_characters
from traceanalyzer.schema import COLLECTIVES, EVENT_TABLES, Column, table

if TYPE_CHECKING:
    import numpy as np

    from traceanalyzer.ingest.later import LaterTraces

#: ``small``: a kind, phase or flag (one byte). ``code``: text as a dictionary code. ``time``: Int64 ns.
#: ``values``: a list of Python values, None where unknown.
RawType = Literal["small", "code", "time", "values"]

_SPAN: dict[str, RawType] = {"name": "code", "pid": "code", "tid": "code", "ts": "time", "dur": "time"}
#: Event fields of each raw table; the columns read from ``args`` come on top (`arg_columns`).
RAW_FIELDS: dict[str, dict[str, RawType]] = {
    "kernels": {"kind": "small", **_SPAN},
    "launches": {"kind": "small", **_SPAN},
    "ops": _SPAN,
    "annotations": {"kind": "small", **_SPAN},
    "python_calls": _SPAN,
    "slices": {"category": "code", **_SPAN, "args": "values"},
    "collectives": {"kind": "small", **_SPAN},
    "flows": {"kind": "small", "category": "code", "pid": "code", "tid": "code", "ts": "time", "id": "values"},
    "counters": {
        "name": "code", "series": "code", "pid": "code", "tid": "code", "ts": "time", "value": "values",
    },
    "marks": {
        "kind": "small", "category": "code", "name": "code", "pid": "code", "tid": "code", "ts": "time",
        "id": "code", "args": "values",
    },
}  # fmt: skip
#: Tables whose events may also carry collective metadata.
COLLECTIVE_TABLES = ("kernels", "ops")
COLLECTIVE_MARK = "collective"
#: Argument columns kept as dictionary codes rather than values.
_CODED = ("label", "text", "json")


def arg_columns(table_name: str) -> tuple[Column, ...]:
    """The columns of a raw table that come from ``args``."""
    return () if table_name == "marks" else table(table_name).arg_columns


def raw_types(table_name: str) -> dict[str, RawType]:
    """Every column of a raw table with its raw type. The three columns of a ``dim3`` are separate."""
    types = dict(RAW_FIELDS[table_name])
    for column in arg_columns(table_name):
        types[column.name] = "code" if column.kind in _CODED else "values"
    return types


class Dictionary(dict[str, int]):
    """Text -> code, in order of first appearance. Code 0 stands for null."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str | None] = [None]

    def __missing__(self, text: str) -> int:
        code = len(self.texts)
        self.texts.append(self.cleaned(text))
        self[text] = code
        return code

    def code(self, text: str | None) -> int:
        """The code of a text, 0 for None."""
        return 0 if text is None else self[text]

    def cleaned(self, text: str) -> str:
        """Text that can be stored."""
        return without_half_characters(text)


_ARRAY_CODES: dict[str, Literal["B", "I", "q"]] = {"small": "B", "code": "I", "time": "q"}


def new_column(raw_type: RawType) -> Any:
    """An empty growing column of a raw type."""
    return [] if raw_type == "values" else array(_ARRAY_CODES[raw_type])


@dataclass(frozen=True)
class Filled:
    """A raw column as an array, of `values` or of codes. Where a value is unknown stands the smallest number (NaN
    among doubles, 0 among codes)."""

    values: np.ndarray
    missing: int
    """How many values are unknown."""

    def is_missing(self) -> np.ndarray:
        """For every value, whether it is unknown."""
        import numpy as np  # not at the top: what lies in the store is read without it

        values = self.values
        missing: np.ndarray = np.isnan(values) if values.dtype == np.float64 else values == np.iinfo(values.dtype).min
        return missing


#: Raw columns by name: growing columns, or arrays.
RawColumns = dict[str, Any]


@dataclass(frozen=True)
class Late:
    """Rows of a batch that were gathered apart, and for each how many of the batch's other rows go before it."""

    columns: RawColumns
    places: np.ndarray


class Sink(Protocol):
    """Takes filled raw columns of a table, in file order."""

    def add(self, table_name: str, columns: RawColumns, dictionary: Dictionary, late: Late | None = None) -> None: ...

    def shift(self, nanoseconds: int) -> None:
        """Times of the rows that are added from now on are to be made so much later."""
        ...


@dataclass
class Scan:
    """What an engine found in one file besides the rows it handed to the sink."""

    metadata: dict[str, Any] = field(default_factory=dict)
    """Top-level keys other than ``traceEvents``, decoded (floats as Decimal)."""
    threads: dict[tuple[str | None, str | None], dict[str, str]] = field(default_factory=dict)
    """(pid, tid) -> process_name, process_labels, thread_name from metadata events."""
    counts: Counter[tuple[str | None, str | None]] = field(default_factory=Counter)
    """(ph, cat) -> entries of the event array."""
    not_events: int = 0
    """Entries of the event array that are no objects."""
    container: Literal["object", "array"] = "object"
    whole: bool = True


class Engine(Protocol):
    """Turns JSON text into raw columns. All engines give the same rows in the same order."""

    name: str
    releases_interpreter: bool
    """Whether threads can read several files at once."""

    def scan(
        self, source: Source, sink: Sink, losses: Losses, tables: frozenset[str], later: LaterTraces | None = None
    ) -> Scan:
        """Read a whole file. Raises `UnreadableError` for what is no event trace, and `ReadAgainError`."""
        ...


ALL_TABLES = frozenset(each.name for each in EVENT_TABLES)
assert COLLECTIVE_MARK in COLLECTIVES.schema
