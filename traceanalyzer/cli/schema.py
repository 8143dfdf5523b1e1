"""`traceanalyze schema`."""

from __future__ import annotations

import click

from traceanalyzer.cli import options
from traceanalyzer.errors import UsageError
from traceanalyzer.text import did_you_mean


@click.command("schema", epilog="Example: traceanalyze schema kernels")
@click.argument("table", required=False)
@options.printed
def command(table: str | None, printer: options.Printer) -> None:
    """What do the tables hold?

    Every public table, or the TABLE named: its columns with type, unit and meaning.
    """
    from traceanalyzer import schema
    from traceanalyzer.reports import schema as report

    if table is None:
        printer.show(report.build())
        return
    known = [each.name for each in schema.TABLES]
    if table not in known:
        hint = did_you_mean(table, known) or f"; there are {', '.join(known)}"
        raise UsageError(f"no table {table!r}{hint}")
    printer.show(report.build([schema.table(table)]))
