"""`traceanalyze steps`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from traceanalyzer.cli import options

if TYPE_CHECKING:
    from traceanalyzer.classify.rules import RuleTable


@click.command("steps", epilog="Example: traceanalyze steps run/ --step-marker 'my_step'")
@options.trace_inputs("runs", "ranks", "devices")
@options.step_marker
@options.limit
@options.plot
@options.class_rules
@options.explain
@options.printed
def command(
    inputs: options.Inputs,
    marker: str | None,
    limit: int | None,
    plot: options.PlotFile | None,
    rules: RuleTable,
    explain: bool,  # noqa: FBT001
    printer: options.Printer,
) -> None:
    """What does a step take, and how much of it is the GPU idle?

    Steps from markers, or from the sequence of kernels that repeats: wall, busy and idle time of each on each device,
    kernels and classes, percentiles by kind (prefill, decode), tokens a second where the marker tells.
    """
    from traceanalyzer.analyses.step_time import step_time, with_causes
    from traceanalyzer.analyses.steps import find_steps, steps
    from traceanalyzer.reports import steps as report

    trace = inputs.read("kernels", "launches", "ops", "annotations", "python_calls", "flows", "slices")
    found = find_steps(trace, marker=marker)
    rows = steps(trace, found=found, rules=rules)
    parts = step_time(trace, found=found, rows=rows, rules=rules)
    printer.show(report.build(trace, with_causes(rows, parts), limit=printer.limit(limit), explain=explain))
    if plot:
        from traceanalyzer.plots import steps as picture

        plot.write(picture.draw(rows, parts, plot.format))
