"""`traceanalyze occupancy`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from traceanalyzer.choices import LAUNCH_BYS, OCCUPANCY_SORTS, LaunchBy, OccupancySort
from traceanalyzer.cli import options

if TYPE_CHECKING:
    import polars as pl

    from traceanalyzer.classify.rules import RuleTable
    from traceanalyzer.trace import Trace


@click.command("occupancy", epilog='Example: traceanalyze occupancy run/ --gpu "RTX PRO 6000" --plot fill.png')
@options.trace_inputs("runs", "ranks", "devices", "streams", "between_ns")
@click.option(
    "--by",
    type=click.Choice(LAUNCH_BYS),
    default="launch",
    show_default=True,
    help="One row per kernel and launch shape (grid, block, registers, shared memory), or per kernel.",
)
@click.option("--gpu", metavar="NAME", help="How the same launches would sit on another GPU ('RTX PRO 6000').")
@options.kernel_filters
@options.limit
@click.option(
    "--sort",
    type=click.Choice(OCCUPANCY_SORTS),
    default="idle",
    show_default=True,
    help="Most idle SM time, time or launches first; lowest occupancy or SM fill first; names in order.",
)
@options.class_rules
@options.plot
@options.explain
@options.printed
def command(
    inputs: options.Inputs,
    by: LaunchBy,
    gpu: str | None,
    pattern: str | None,
    classes: tuple[str, ...],
    limit: int | None,
    sort: OccupancySort,
    rules: RuleTable,
    plot: options.PlotFile | None,
    explain: bool,  # noqa: FBT001
    printer: options.Printer,
) -> None:
    """Which kernels cannot fill the GPU?

    Occupancy, SM fill, waves and idle SM time of every launch, recomputed from grid, block, registers and shared
    memory. The trace's own estimate is shown beside it and not used: it is 0 for every kernel above 48 KiB of shared
    memory.
    """
    from traceanalyzer.analyses import occupancy as analysis
    from traceanalyzer.hardware import gpus
    from traceanalyzer.reports import occupancy as report

    if gpu is not None:
        gpus.find(gpu)  # a mistake in its name shows before any file is read
    trace = inputs.read("kernels")

    def rows(by: LaunchBy) -> pl.DataFrame:
        return analysis.occupancy(trace, by=by, gpu=gpu, filter=pattern, classes=classes, sort=sort, rules=rules)

    launches = rows("launch")
    per_kernel = rows("kernel") if by == "kernel" or plot else launches
    printer.show(
        report.build(
            trace,
            launches if by == "launch" else per_kernel,
            launches,
            by=by,
            gpu=gpu,
            sort=sort,
            filter=pattern,
            classes=classes,
            limit=printer.limit(limit),
            explain=explain,
        )
    )
    if plot:
        _draw(trace, per_kernel, gpu, plot)


def _draw(trace: Trace, rows: pl.DataFrame, gpu: str | None, plot: options.PlotFile) -> None:
    from traceanalyzer.plots import occupancy as picture
    from traceanalyzer.reports.occupancy import run_devices

    plot.write(picture.draw(rows, plot.format, devices=run_devices(trace, gpu)))
