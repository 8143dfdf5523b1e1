"""The tables that describe a file rather than its events: devices, names of threads, counts of events."""

from __future__ import annotations

from typing import Any

import polars as pl

from traceanalyzer import schema
from traceanalyzer.ingest.categories import MEMORY_CATEGORY, MEMORY_EVENT, place
from traceanalyzer.ingest.raw import Scan
from traceanalyzer.ingest.values import convert, printable, to_label, to_text


def devices_frame(scan: Scan) -> pl.DataFrame:
    """The devices that the file describes, without `source`."""
    properties = scan.metadata.get("deviceProperties")
    rows = [_device(each) for each in properties if isinstance(each, dict)] if isinstance(properties, list) else []
    return pl.DataFrame(rows, schema=_without_source(schema.DEVICES))


def threads_frame(scan: Scan) -> pl.DataFrame:
    """The names of processes and threads, without `source`."""
    processes = {pid: names for (pid, tid), names in scan.threads.items() if tid is None}
    rows = [{"pid": pid, "tid": tid, **processes.get(pid, {}), **names} for (pid, tid), names in scan.threads.items()]
    return pl.DataFrame(rows, schema=_without_source(schema.THREADS))


def event_counts_frame(scan: Scan) -> pl.DataFrame:
    """Entries of the event array by phase and category, without `source`."""
    rows = [
        {"phase": phase, "category": category, "table": _table_of(phase, category), "count": count}
        for (phase, category), count in scan.counts.items()
    ]
    frame = pl.DataFrame(rows, schema=_without_source(schema.EVENT_COUNTS))
    return frame.sort("count", "phase", "category", descending=[True, False, False])


def _without_source(table: schema.Table) -> dict[str, pl.DataType]:
    return {name: dtype for name, dtype in table.schema.items() if name != "source"}


def _table_of(phase: str | None, category: str | None) -> str | None:
    placement = place(phase, category, MEMORY_EVENT if category == MEMORY_CATEGORY else None)
    if placement is None:
        return "threads" if phase == "M" else None
    return "slices" if placement.table == "marks" else placement.table


_DEVICE_KEYS = {
    "device": "id",
    "name": "name",
    "compute_major": "computeMajor",
    "compute_minor": "computeMinor",
    "sms": "numSms",
    "warp_size": "warpSize",
    "max_threads_per_block": "maxThreadsPerBlock",
    "max_threads_per_sm": "maxThreadsPerMultiprocessor",
    "registers_per_sm": "regsPerMultiprocessor",
    "registers_per_block": "regsPerBlock",
    "shared_memory_per_sm": "sharedMemPerMultiprocessor",
    "shared_memory_per_block": "sharedMemPerBlock",
    "shared_memory_per_block_optin": "sharedMemPerBlockOptin",
    "total_memory": "totalGlobalMem",
}


def _device(properties: dict[str, Any]) -> dict[str, Any]:
    types = schema.DEVICES.schema
    row: dict[str, Any] = {
        column: _fitting(convert("integer", properties.get(key)), types[column]) for column, key in _DEVICE_KEYS.items()
    }
    row["device"] = _printable(to_label(properties.get("id")))
    row["name"] = _printable(to_text(properties.get("name"))) or None
    return row


def _fitting(number: int | None, dtype: pl.DataType) -> int | None:
    """A number that the column can hold; another one is not known."""
    limit = 1 << (31 if dtype == pl.Int32 else 63)
    return number if number is not None and -limit <= number < limit else None


def _printable(text: str | None) -> str | None:
    return None if text is None else printable(text)
