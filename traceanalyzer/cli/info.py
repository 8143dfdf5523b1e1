"""`traceanalyze info`."""

from __future__ import annotations

import click

from traceanalyzer.cli import options


@click.command("info", epilog="Example: traceanalyze info run/*.trace.json.gz --explain")
@options.trace_inputs("runs", "ranks")
@options.limit
@options.explain
@options.printed
def command(inputs: options.Inputs, limit: int | None, explain: bool, printer: options.Printer) -> None:  # noqa: FBT001
    """What is in these files?

    Runs with the ranks found and missing, devices with their span, busy and idle time, events by kind, files that were
    left out, and everything that was noticed about the quality of the traces.
    """
    from traceanalyzer.ingest.engines import choose
    from traceanalyzer.reports import info as report

    trace = inputs.read("kernels", "launches", described=True)
    answer = report.build(trace, limit=printer.limit(limit), explain=explain, engine=choose().name)
    printer.show(answer, notes=False)
