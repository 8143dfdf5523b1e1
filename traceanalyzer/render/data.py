"""A report for programs: JSON by the contract, CSV and Parquet of its main table."""

from __future__ import annotations

import dataclasses
import io
import re
from typing import Any

import orjson
import polars as pl

from traceanalyzer.report import Report

#: A number that JSON readers hold exactly; longer ones stay text.
_NUMBER = re.compile(r"0|[1-9][0-9]{0,14}")
#: Raised when a key of the JSON output is removed or changes its meaning. History: 1, the first.
FORMAT_VERSION = 1


def to_json(report: Report) -> bytes:
    """The JSON contract: `format_version`, `command`, `traces`, `notes`, `rows` and what a command adds."""
    content: dict[str, Any] = {
        "format_version": FORMAT_VERSION,
        "command": report.command,
        "traces": _records(report.traces),
        "notes": [dataclasses.asdict(note) for note in report.notes],
    }
    if report.definitions:
        content["definitions"] = dict(report.definitions)
    content |= {name: _decoded(_records(frame), report.json_texts) for name, frame in report.data.items()}
    return orjson.dumps(content, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def to_csv(report: Report) -> bytes:
    """The main table with a header line; lists are joined with spaces, unknown is empty."""
    lists = [name for name, dtype in report.rows.schema.items() if dtype == pl.List]
    flat = report.rows.with_columns(pl.col(name).cast(pl.List(pl.String)).list.join(" ") for name in lists)
    return flat.write_csv().encode()


def to_parquet(report: Report) -> bytes:
    """The main table with its types."""
    buffer = io.BytesIO()
    report.rows.write_parquet(buffer)
    return buffer.getvalue()


def _records(frame: pl.DataFrame) -> list[dict[str, Any]]:
    records: list[dict[str, Any]] = frame.to_dicts()
    for record in records:
        if "device" in record:
            record["device"] = _number_or_text(record["device"])
    return records


def _decoded(records: list[dict[str, Any]], json_texts: frozenset[str]) -> list[dict[str, Any]]:
    for record in records:
        record.update({name: orjson.loads(record[name]) for name in json_texts & record.keys() if record[name]})
    return records


def _number_or_text(device: str | None) -> int | str | None:
    """A device as a number where it is one: it is text in the tables, since some producers name devices."""
    if device is not None and _NUMBER.fullmatch(device):
        return int(device)
    return device
