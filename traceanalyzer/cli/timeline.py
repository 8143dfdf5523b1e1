"""`traceanalyze timeline`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from traceanalyzer.cli import options

if TYPE_CHECKING:
    from traceanalyzer.classify.rules import RuleTable


@click.command("timeline", epilog="Example: traceanalyze timeline run/ --step 5 --plot step5.png")
@options.trace_inputs("runs", "ranks", "devices")
@click.option("--step", type=options.WholeNumber(0), metavar="N", help="Only the time of this step.")
@click.option(
    "--between",
    "between_ns",
    type=options.between,
    metavar="A..B",
    default="..",
    help="Only A to B ms after the first device activity of each file; either end may be left out.",
)
@options.step_marker
@options.class_rules
@options.plot
@options.explain
@options.printed
def command(
    inputs: options.Inputs,
    step: int | None,
    between_ns: tuple[int | None, int | None],
    marker: str | None,
    rules: RuleTable,
    plot: options.PlotFile | None,
    explain: bool,  # noqa: FBT001
    printer: options.Printer,
) -> None:
    """When was the GPU busy with what, and when was it idle?

    A picture (--plot) with a lane for each device and stream: classes of work, and idle time by its cause. Close up it
    names kernels and what the host did; from far away it shows how much of each moment was what.
    """
    from traceanalyzer.analyses.timeline import timeline
    from traceanalyzer.reports import timeline as report

    trace = inputs.read("kernels", "launches", "ops", "annotations", "python_calls", "flows", "slices")
    what = timeline(trace, between_ns=between_ns, step=step, marker=marker, rules=rules)
    printer.show(report.build(trace, what, explain=explain))
    if plot:
        from traceanalyzer.plots import timeline as picture

        plot.write(picture.draw(what, plot.format))
