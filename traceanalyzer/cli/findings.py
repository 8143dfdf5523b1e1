"""`traceanalyze findings`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from traceanalyzer.cli import options

if TYPE_CHECKING:
    from traceanalyzer.classify.rules import RuleTable


@click.command("findings", epilog="Example: traceanalyze findings run/ --format json")
@options.trace_inputs("runs", "ranks")
@options.limit
@options.class_rules
@options.explain
@options.printed
def command(
    inputs: options.Inputs,
    limit: int | None,
    rules: RuleTable,
    explain: bool,  # noqa: FBT001
    printer: options.Printer,
) -> None:
    """What is wrong here?

    The few sentences that a senior engineer would write about these traces, the most severe first, each with the
    numbers that it rests on. Nothing on a healthy trace.
    """
    from traceanalyzer.analyses.findings import findings
    from traceanalyzer.reports import findings as report

    trace = inputs.read("kernels", "launches", "ops", "annotations", "python_calls", "flows", "collectives", "slices")
    rows = findings(trace, rules=rules)
    printer.show(report.build(trace, rows, limit=printer.limit(limit), explain=explain))
