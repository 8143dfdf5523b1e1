"""`traceanalyze steps`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from traceanalyzer.cli import options

if TYPE_CHECKING:
    from traceanalyzer.classify.rules import RuleTable


@click.command("steps", epilog="Example: traceanalyze steps run/ --step-marker 'my_step'")
@options.trace_inputs("runs", "ranks")
@options.step_marker
@options.limit
@options.class_rules
@options.explain
@options.printed
def command(
    inputs: options.Inputs,
    marker: str | None,
    limit: int | None,
    rules: RuleTable,
    explain: bool,  # noqa: FBT001
    printer: options.Printer,
) -> None:
    """What does a step take, and how much of it is the GPU idle?

    Steps from markers, or from the sequence of kernels that repeats: wall, busy and idle time of each on each device,
    kernels and classes, percentiles by kind (prefill, decode), tokens a second where the marker tells.
    """
    from traceanalyzer.analyses.steps import find_steps, steps
    from traceanalyzer.reports import steps as report

    trace = inputs.read("kernels", "launches", "annotations", "flows")
    rows = steps(trace, found=find_steps(trace, marker=marker), rules=rules)
    printer.show(report.build(trace, rows, limit=printer.limit(limit), explain=explain))
