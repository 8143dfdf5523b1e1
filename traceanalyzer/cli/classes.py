"""`traceanalyze classes`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from traceanalyzer.choices import AUDIT_SORTS, AuditSort
from traceanalyzer.cli import options

if TYPE_CHECKING:
    from traceanalyzer.classify.rules import RuleTable


@click.command("classes", epilog="Example: traceanalyze classes run/ --class communication")
@options.trace_inputs("runs", "ranks", "devices", "streams", "between_ns")
@options.kernel_filters
@options.limit
@click.option(
    "--sort",
    type=click.Choice(AUDIT_SORTS),
    default="unclassified",
    show_default=True,
    help="unclassified: what no rule knows first, then by total; total and count: largest first; others in order.",
)
@options.class_rules
@options.explain
@options.printed
def command(
    inputs: options.Inputs,
    pattern: str | None,
    classes: tuple[str, ...],
    limit: int | None,
    sort: AuditSort,
    rules: RuleTable,
    explain: bool,  # noqa: FBT001
    printer: options.Printer,
) -> None:
    """Which class has each kernel, by which rule, and what does no rule know?

    An audit of the class rules on the names of these traces: unclassified names first, with the share of the kernel
    time that has no class. --class communication lists all that counts as communication.
    """
    from traceanalyzer.analyses import classes as analysis
    from traceanalyzer.reports import classes as report

    trace = inputs.read("kernels")
    everything = analysis.classes(trace, sort=sort, rules=rules)
    rows = everything
    if pattern is not None or classes:
        rows = analysis.classes(trace, filter=pattern, classes=classes, sort=sort, rules=rules)
    shares = analysis.unclassified(everything)
    limit = printer.limit(limit)
    printer.show(report.build(trace, rows, shares, filter=pattern, wanted=classes, limit=limit, explain=explain))
