"""`traceanalyze launches`."""

from __future__ import annotations

import click

from traceanalyzer.cli import options


@click.command("launches", epilog="Example: traceanalyze launches run/ --rank 0")
@options.trace_inputs("runs", "ranks")
@options.step_marker
@options.limit
@options.explain
@options.printed
def command(
    inputs: options.Inputs,
    marker: str | None,
    limit: int | None,
    explain: bool,  # noqa: FBT001
    printer: options.Printer,
) -> None:
    """How does work get to the GPU?

    Launch calls by name with the host time they take and the delay until their work starts; how many kernels wait on
    each stream; calls, graph launches and kernels per step, where markers tell the steps.
    """
    from traceanalyzer.analyses.launches import launches
    from traceanalyzer.analyses.steps import find_steps
    from traceanalyzer.reports import launches as report

    trace = inputs.read("kernels", "launches", "annotations", "flows")
    found = launches(trace, found=find_steps(trace, marker=marker))
    printer.show(report.build(trace, found, limit=printer.limit(limit), explain=explain))
