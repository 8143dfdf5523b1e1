"""Entries of the event array, one at a time: what every value of an event means, shared by all engines.

An engine takes ordinary entries in a faster way of its own, and hands the others, decoded, to `Entries.entry`, which
is the reference for both.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable
from typing import Any

from traceanalyzer.ingest.categories import MEMORY_EVENT, Placement, place
from traceanalyzer.ingest.losses import Losses
from traceanalyzer.ingest.raw import (
    COLLECTIVE_MARK,
    COLLECTIVE_TABLES,
    RAW_FIELDS,
    Dictionary,
    RawType,
    Scan,
    Sink,
    arg_columns,
    new_column,
    raw_types,
)
from traceanalyzer.ingest.values import LONGEST_NS, canonical_json, convert, to_label, to_ns, to_number, to_text
from traceanalyzer.schema import Column

#: Rows of a table that are gathered before they become a frame.
BATCH_ROWS = 50_000
MEMORY_SERIES = ("Bytes", "Total Allocated", "Total Reserved")
COLLECTIVE_KEYS = next(c.args for c in arg_columns("collectives") if c.name == COLLECTIVE_MARK)
_DEVICE_TYPES = {0: "cpu", 1: "cuda"}


class no_garbage_collection:  # noqa: N801  (reads as a statement)
    """Decoding makes many objects and no cycles: the collector would only cost time (a factor of 2 to 3)."""

    def __enter__(self) -> None:
        self._was_on = gc.isenabled()
        gc.disable()

    def __exit__(self, *_: object) -> None:
        if self._was_on:
            gc.enable()


class Columns:
    """The growing raw columns of one table."""

    def __init__(self, table: str) -> None:
        self.table = table
        self.types: dict[str, RawType] = raw_types(table)
        self.args: tuple[Column, ...] = arg_columns(table)
        self.reset()

    def reset(self) -> None:
        self.columns: dict[str, Any] = {name: new_column(kind) for name, kind in self.types.items()}

    def __len__(self) -> int:
        return len(self.columns["ts"])


class Entries:
    """Takes decoded entries and fills raw columns."""

    def __init__(self, sink: Sink, losses: Losses, tables: frozenset[str], scan: Scan) -> None:
        self._sink, self._losses, self._scan = sink, losses, scan
        self._dictionary = Dictionary()
        self._shift_ns = 0
        wanted = set(tables) | {"slices", "marks"}  # what a producer's rule may need
        self._tables = {name: Columns(name) for name in sorted(wanted)}

    def flush(self) -> None:
        """Hand over what is left."""
        for columns in self._tables.values():
            self._hand_over(columns)

    def begin_later(self, shift_ns: int) -> None:
        """Entries of a later trace of the file come next, whose times are to be made so much later."""
        if shift_ns != self._shift_ns:
            self._shift_ns = shift_ns
            Entries.flush(self)
            self._sink.shift(shift_ns)

    def _hand_over(self, columns: Columns) -> None:
        if len(columns):
            self._sink.add(columns.table, columns.columns, self._dictionary)
            columns.reset()

    def _learn(self, category: str) -> None:
        """Hear of the category of an entry that was taken one by one."""

    def entry(self, value: Any, *, count: bool = True) -> None:
        """Take one decoded entry, whatever it is."""
        if not isinstance(value, dict):
            self._scan.not_events += 1
            self._losses.add("not-an-event", "entries of the event array that are no objects")
            return
        phase, category, name = to_text(value.get("ph")), to_text(value.get("cat")), value.get("name")
        if count:
            self._scan.counts[phase, category] += 1
        if phase is None:
            if value:
                self._losses.add("no-phase", "events without a phase (ph)", level="info")
            return
        if phase == "M":
            self._take_metadata(value)
            return
        placement = place(phase, category, name if isinstance(name, str) else None)
        if category is not None:
            self._learn(category)
        if placement is None or not self._wanted(placement.table):
            return
        self._take_entry(placement, category, value)
        if len(self._tables.get(placement.table, ())) >= BATCH_ROWS:
            self._hand_over(self._tables[placement.table])

    def _wanted(self, table: str) -> bool:
        return table in self._tables or (table in COLLECTIVE_TABLES and "collectives" in self._tables)

    def _take_entry(self, placement: Placement, category: str | None, value: dict[str, Any]) -> None:
        with_duration = placement.table not in ("flows", "counters", "marks")
        times = self._times(value, with_duration=with_duration, on_device=placement.table == "kernels")
        if times is None:
            return
        args = value.get("args")
        args = args if isinstance(args, dict) else {}
        if placement.table == "counters":
            self._take_counter(value, times[0], args)
            return
        fields: dict[str, Any] = {
            "kind": placement.kind,
            "category": self._dictionary.code(category),
            "name": self._dictionary.code(_name(value)),
            "pid": self._dictionary.code(to_label(value.get("pid"))),
            "tid": self._dictionary.code(to_label(value.get("tid"))),
            "ts": times[0],
            "dur": times[1],
        }
        if placement.table == "flows":
            fields["id"] = value.get("id")
        elif placement.table == "marks":
            fields["id"] = self._dictionary.code(_mark_id(value))
        if placement.table in ("slices", "marks"):
            fields["args"] = canonical_json(args) if args else None
        if placement.table in self._tables:
            self._append(self._tables[placement.table], fields, args)
        is_collective = placement.table in COLLECTIVE_TABLES and isinstance(args.get(COLLECTIVE_KEYS[0]), str)
        if is_collective and "collectives" in self._tables:
            fields["kind"] = int(placement.table == "kernels")
            self._append(self._tables["collectives"], fields, args)

    def _append(self, columns: Columns, fields: dict[str, Any], args: dict[str, Any]) -> None:
        into = columns.columns
        for name in RAW_FIELDS[columns.table]:
            into[name].append(fields[name])
        for column in columns.args:
            value = next((args[key] for key in column.args if args.get(key) is not None), None)
            if value is not None:
                value = convert(column.kind or "text", value)
            if columns.types[column.name] == "code":
                value = self._dictionary.code(value)
            elif column.kind == "dim3" and value is not None:
                value = value[column.part]
            into[column.name].append(value)

    def _take_counter(self, value: dict[str, Any], time: int, args: dict[str, Any]) -> None:
        name = _name(value)
        series: Iterable[str] = args
        if value.get("ph") != "C":
            series = MEMORY_SERIES
            name = memory_name(args.get("Device Type"), args.get("Device Id"))
        elif value.get("id") is not None:
            name = f"{name} {to_label(value['id'])}"
        into = self._tables["counters"].columns
        code = self._dictionary.code
        pid, tid = code(to_label(value.get("pid"))), code(to_label(value.get("tid")))
        for key in series:
            number = to_number(args.get(key))
            if number is None:
                continue
            row = {
                "name": code(name),
                "series": code(key),
                "pid": pid,
                "tid": tid,
                "ts": time,
                "value": number,
            }
            for column, cell in row.items():
                into[column].append(cell)

    def _take_metadata(self, value: dict[str, Any]) -> None:
        args = value.get("args")
        what = to_text(value.get("name"))
        key = {"process_name": "name", "thread_name": "name", "process_labels": "labels"}.get(what or "")
        if what is None or key is None or not isinstance(args, dict):
            return
        text = to_label(args.get(key))
        pid = to_label(value.get("pid"))
        tid = to_label(value.get("tid")) if what == "thread_name" else None
        if text is not None and pid is not None:
            self._scan.threads.setdefault((pid, tid), {})[what] = self._dictionary.cleaned(text)

    def _times(self, value: dict[str, Any], *, with_duration: bool, on_device: bool) -> tuple[int, int] | None:
        """Start and duration in ns; None, counted, where they cannot be used."""
        start = to_ns(value.get("ts"))
        if start is None:
            self._losses.add("unusable-time", "events without a usable time were dropped")
            return None
        if not with_duration:
            return start, 0
        duration = to_ns(value.get("dur"), LONGEST_NS)
        if duration is None:
            self._losses.add("unusable-duration", "events without a usable duration were dropped")
            return None
        if duration < 0:
            kind, code = ("device", "negative-duration") if on_device else ("host", "negative-host-duration")
            self._losses.add(code, f"{kind} events with a negative duration were dropped")
            return None
        return start, duration


def _name(value: dict[str, Any]) -> str | None:
    return to_label(value.get("name"))


def _mark_id(value: dict[str, Any]) -> str | None:
    """What joins the two marks of an asynchronous slice."""
    identifier = value.get("id", value.get("id2"))
    if isinstance(identifier, dict):
        identifier = next(iter(identifier.values()), None)
    label = to_label(identifier)
    scope = to_text(value.get("scope"))
    return label if scope is None or label is None else f"{scope}:{label}"


def memory_name(kind: Any, number: Any) -> str:
    """[memory] cpu, [memory] cuda:0, ...: one counter a device."""
    name = _DEVICE_TYPES.get(kind, f"device-type-{kind}") if isinstance(kind, int) else "unknown"
    return f"{MEMORY_EVENT} {name if kind == 0 or number is None else f'{name}:{number}'}"
