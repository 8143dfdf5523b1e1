"""The report of `schema`: the public tables, as `traceanalyzer.schema` describes them."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from traceanalyzer import schema
from traceanalyzer.report import Column, Fact, Report, Section

_COLUMNS = [
    Column("column", "column", "text"),
    Column("type", "type", "text"),
    Column("unit", "unit", "text"),
    Column("meaning", "meaning", "prose"),
]
_TEXTS = dict.fromkeys(("table", "column", "type", "unit", "meaning"), pl.String)


def build(tables: Sequence[schema.Table] = schema.TABLES) -> Report:
    """One section per table, one row per column."""
    rows = pl.DataFrame([_row(table, column) for table in tables for column in table.columns], schema=_TEXTS)
    sections = [
        Section(
            rows.filter(pl.col("table") == table.name),
            _COLUMNS,
            title=table.name,
            facts=[Fact("", table.doc)],
        )
        for table in tables
    ]
    return Report(command="schema", title="The public tables", sections=sections, data={"rows": rows})


def _row(table: schema.Table, column: schema.Column) -> dict[str, str | None]:
    return {
        "table": table.name,
        "column": column.name,
        "type": _type(column.dtype),
        "unit": column.unit,
        "meaning": column.doc,
    }


def _type(dtype: pl.DataType) -> str:
    """The name of a type; the words of an Enum are in the meaning of its column."""
    return "Enum" if isinstance(dtype, pl.Enum) else str(dtype)
