"""`traceanalyze breakdown`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from traceanalyzer.cli import options

if TYPE_CHECKING:
    from traceanalyzer.classify.rules import RuleTable


@click.command("breakdown", epilog="Example: traceanalyze breakdown run/ --rank 0 --between 10..20")
@options.trace_inputs("runs", "ranks", "devices", "streams", "between_ns")
@options.class_rules
@options.explain
@options.printed
def command(inputs: options.Inputs, rules: RuleTable, explain: bool, printer: options.Printer) -> None:  # noqa: FBT001
    """Where did every nanosecond go?

    Each instant of a device's span goes to the first of compute (by class of work), communication, memory and idle (by
    cause) that holds there, so the parts add up to the span exactly. Communication that compute hides is said beside.
    """
    from traceanalyzer.analyses.breakdown import breakdown
    from traceanalyzer.reports import breakdown as report

    trace = inputs.read("kernels", "launches", "ops", "annotations", "flows", "slices")
    printer.show(report.build(trace, breakdown(trace, rules=rules), explain=explain))
