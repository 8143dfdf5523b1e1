"""`Trace`: the frozen holder of the public tables of one or many ranks. It computes and prints nothing by itself."""

from __future__ import annotations

from collections.abc import Callable

import polars as pl

from traceanalyzer import schema
from traceanalyzer.errors import UnreadableError, UsageError
from traceanalyzer.text import counted, did_you_mean


class Trace:
    """Everything that was read, as the tables of `traceanalyzer.schema`.

    A `Trace` holds one or many ranks, of one or several runs; `ranks` says which. Tables hold events of used
    sources only: a duplicate, a merged file beside its parts or a front-end file has a row in `ranks` (and in
    `event_counts`) but no events.

    Tables that lie in the store are read on first use: as an attribute (``trace.kernels``) with all their columns, or
    with `scan` as a lazy frame, of which polars reads only the columns and rows that a query needs.
    """

    __slots__ = ("_kept", "_tables")

    def __init__(self, **tables: pl.DataFrame | pl.LazyFrame) -> None:
        """Tables by name; those that are not given are empty."""
        unknown = tables.keys() - set(_NAMES)
        if unknown:
            raise ValueError(f"no such table: {', '.join(sorted(unknown))}")
        self._tables: dict[str, pl.DataFrame | pl.LazyFrame] = {
            name: tables.get(name, schema.table(name).empty()) for name in _NAMES
        }
        self._kept: dict[str, pl.DataFrame] = {}

    @classmethod
    def empty(cls) -> Trace:
        """A trace with no events: every table is there, with its columns and no rows."""
        return cls()

    def replace(self, **tables: pl.DataFrame | pl.LazyFrame) -> Trace:
        """The same trace with other rows in some tables."""
        return Trace(**{**self._tables, **tables})

    def once(self, name: str, compute: Callable[[], pl.DataFrame]) -> pl.DataFrame:
        """A frame that several analyses take from this trace: computed the first time that it is asked for."""
        if name not in self._kept:
            self._kept[name] = compute()
        return self._kept[name]

    def scan(self, name: str) -> pl.LazyFrame:
        """A table as a lazy frame. Raises `UsageError` for an unknown one."""
        if name not in self._tables:
            raise UsageError(f"no table {name!r}; there are {', '.join(_NAMES)}{did_you_mean(str(name), _NAMES)}")
        return self._tables[name].lazy()

    def table(self, name: str) -> pl.DataFrame:
        """A table by name. Raises `KeyError` for an unknown one."""
        frame = self._tables[name]
        if isinstance(frame, pl.LazyFrame):
            try:
                frame = self._tables[name] = frame.collect()
            except (OSError, pl.exceptions.ComputeError, pl.exceptions.PanicException) as error:
                reason = "stored tables were removed or changed while they were in use; read the files again"
                raise UnreadableError(str(getattr(error, "filename", None) or name), reason) from error
        return frame

    @property
    def tables(self) -> dict[str, pl.DataFrame]:
        """All tables by name, in the order of the schema."""
        return {name: self.table(name) for name in _NAMES}

    @property
    def kernels(self) -> pl.DataFrame:
        """Device activity: kernels, copies and sets."""
        return self.table("kernels")

    @property
    def launches(self) -> pl.DataFrame:
        """Runtime and driver calls on the host."""
        return self.table("launches")

    @property
    def ops(self) -> pl.DataFrame:
        """Host operators."""
        return self.table("ops")

    @property
    def annotations(self) -> pl.DataFrame:
        """Named ranges."""
        return self.table("annotations")

    @property
    def python_calls(self) -> pl.DataFrame:
        """Python function calls."""
        return self.table("python_calls")

    @property
    def flows(self) -> pl.DataFrame:
        """Ends of arrows."""
        return self.table("flows")

    @property
    def counters(self) -> pl.DataFrame:
        """Values of counters."""
        return self.table("counters")

    @property
    def slices(self) -> pl.DataFrame:
        """Everything else that has a duration."""
        return self.table("slices")

    @property
    def collectives(self) -> pl.DataFrame:
        """Events with collective metadata."""
        return self.table("collectives")

    @property
    def threads(self) -> pl.DataFrame:
        """Names of processes and threads."""
        return self.table("threads")

    @property
    def devices(self) -> pl.DataFrame:
        """Devices that the files describe."""
        return self.table("devices")

    @property
    def ranks(self) -> pl.DataFrame:
        """Sources: files, or ranks of a merged file."""
        return self.table("ranks")

    @property
    def event_counts(self) -> pl.DataFrame:
        """Events by phase and category."""
        return self.table("event_counts")

    @property
    def notes(self) -> pl.DataFrame:
        """What the reader noticed."""
        return self.table("notes")

    @property
    def used(self) -> pl.DataFrame:
        """The rows of `ranks` that count: files left out as duplicates and the like are not in it."""
        return self.ranks.filter(pl.col("used"))

    def __repr__(self) -> str:
        used = self.used
        runs = used["run"].unique(maintain_order=True).to_list()
        head = f"<Trace: {counted(used.height, 'source')} of {counted(len(runs), 'run')}"
        if runs:
            head += f" ({', '.join(map(str, runs[:3]))}{', ...' if len(runs) > 3 else ''})"
        heights = {name: self.scan(name).select(pl.len()).collect().item() for name in _NAMES}
        return "\n".join([head, *(f"  {name:<14}{height:>12,}" for name, height in heights.items() if height)]) + ">"


_NAMES = tuple(table.name for table in schema.TABLES)
