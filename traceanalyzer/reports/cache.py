"""The reports of `cache`: what the store holds, and what a check of it found."""

from __future__ import annotations

import datetime
from collections.abc import Sequence

import polars as pl

from traceanalyzer.report import Column, Fact, Report, Section
from traceanalyzer.store import Entry, Store

_SCHEMA = {
    "path": pl.String,
    "bytes": pl.Int64,
    "tables": pl.Int64,
    "events": pl.Int64,
    "last_used": pl.String,
    "fault": pl.String,
}
_COLUMNS = [
    Column("path", "file", "path"),
    Column("bytes", "in the store", "bytes"),
    Column("tables", "tables", "count", optional=2),
    Column("events", "rows", "count", optional=1),
    Column("last_used", "last used", "text", optional=3),
]


def contents(store: Store, entries: Sequence[Entry]) -> Report:
    """Where the store is, how large, and one row per entry, the one used last first."""
    rows = _frame([(entry, None) for entry in reversed(entries)])
    return _report("cache info", store, rows, _COLUMNS, "nothing is stored")


def verified(store: Store, findings: Sequence[tuple[Entry, str | None]]) -> Report:
    """What a full check of every entry found. Entries with a fault are gone."""
    rows = _frame(findings)
    columns = [_COLUMNS[0], _COLUMNS[1], Column("fault", "fault", "prose")]
    faults = rows["fault"].drop_nulls().len()
    footnotes = [f"{faults} of {rows.height} entries were not right and are removed"] if faults else []
    return _report("cache verify", store, rows, columns, "nothing is stored", footnotes)


def _report(
    command: str, store: Store, rows: pl.DataFrame, columns: Sequence[Column], empty: str, footnotes: Sequence[str] = ()
) -> Report:
    facts = [
        Fact("store", str(store.root), "path"),
        Fact("size", int(rows["bytes"].sum()), "bytes"),
        Fact("limit", store.limit, "bytes"),
    ]
    section = Section(rows, columns, facts=facts, empty=empty, footnotes=footnotes)
    return Report(command=command, title="The store of parsed tables", sections=[section], data={"rows": rows})


def _frame(findings: Sequence[tuple[Entry, str | None]]) -> pl.DataFrame:
    return pl.DataFrame([_row(entry, fault) for entry, fault in findings], schema=_SCHEMA)


def _row(entry: Entry, fault: str | None) -> dict[str, object]:
    used = datetime.datetime.fromtimestamp(entry.used) if fault is None else None
    return {
        "path": entry.source,
        "bytes": entry.size,
        "tables": len({part["table"] for part in entry.manifest["parts"]}),
        "events": sum(part["rows"] for part in entry.manifest["parts"]),
        "last_used": used and used.isoformat(" ", "minutes"),
        "fault": fault,
    }
