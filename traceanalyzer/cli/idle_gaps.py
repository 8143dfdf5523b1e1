"""`traceanalyze idle-gaps`."""

from __future__ import annotations

import click

from traceanalyzer.cli import options


@click.command("idle-gaps", epilog="Example: traceanalyze idle-gaps run/ --rank 0 --limit 5")
@options.trace_inputs("runs", "ranks", "devices", "between_ns")
@options.step_marker
@options.limit
@options.plot
@options.explain
@options.printed
def command(
    inputs: options.Inputs,
    marker: str | None,
    limit: int | None,
    plot: options.PlotFile | None,
    explain: bool,  # noqa: FBT001
    printer: options.Printer,
) -> None:
    """Why is the GPU idle?

    Every gap in which a device runs nothing, the longest first: what ran before and after, and what the thread that
    launched the next work did meanwhile. Pieces by cause sum to the idle time exactly.
    """
    from traceanalyzer.analyses.idle import gaps_and_host
    from traceanalyzer.analyses.steps import find_steps
    from traceanalyzer.analyses.stretch import whole_of
    from traceanalyzer.reports import idle_gaps as report

    trace = inputs.read("kernels", "launches", "ops", "annotations", "python_calls", "flows", "slices")
    gaps = gaps_and_host(trace, found=find_steps(whole_of(trace), marker=marker))
    printer.show(report.build(trace, gaps, limit=printer.limit(limit), explain=explain))
    if plot:
        from traceanalyzer.plots import idle as picture

        plot.write(picture.draw(gaps.rows, plot.format))
