"""`traceanalyze imbalance`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from traceanalyzer.cli import options

if TYPE_CHECKING:
    from traceanalyzer.classify.rules import RuleTable


@click.command("imbalance", epilog="Example: traceanalyze imbalance run/ --format json -o ranks.json")
@options.trace_inputs("runs", "ranks")
@click.option(
    "--scheduler",
    metavar="ADDRESS",
    help="Read on the workers of a Dask cluster (tcp://host:8786); --jobs does not count.",
)
@options.step_marker
@options.limit
@options.class_rules
@options.plot
@options.explain
@options.printed
def command(
    inputs: options.Inputs,
    scheduler: str | None,
    marker: str | None,
    limit: int | None,
    rules: RuleTable,
    plot: options.PlotFile | None,
    explain: bool,  # noqa: FBT001
    printer: options.Printer,
) -> None:
    """Which rank is slow, and who waits for it?

    Collectives are paired over the ranks and clocks are aligned: what each rank waits and what it transfers, who comes
    last, and which kernels or which idle time make it late. Files are read one by one: a thousand ranks fit.
    """
    from traceanalyzer.cli.cluster import workers
    from traceanalyzer.cli.progress import reading
    from traceanalyzer.many import imbalance_of
    from traceanalyzer.reports import imbalance as report

    with reading(inputs.paths, quiet=options.is_quiet()) as progress, workers(scheduler) as executor:
        found = imbalance_of(
            inputs.paths, executor=executor, marker=marker, rules=rules, near=plot is not None, progress=progress,
            **inputs.selection, **inputs.reading,
        )  # fmt: skip
    printer.show(report.build(found.imbalance, found.head, found.devices, limit=printer.limit(limit), explain=explain))
    if plot:
        from traceanalyzer.plots import ranks as picture

        plot.write(picture.draw(found.imbalance, found.closeup, plot.format))
