"""`traceanalyze bandwidth`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from traceanalyzer.cli import options

if TYPE_CHECKING:
    import polars as pl

    from traceanalyzer.classify.rules import RuleTable
    from traceanalyzer.hardware.rates import RateTable
    from traceanalyzer.trace import Trace


#: What bytes are known from.
TABLES = ("kernels", "launches", "ops", "collectives", "flows")


@click.command("bandwidth", epilog="Example: traceanalyze bandwidth run/ --by-shape")
@options.trace_inputs("runs", "ranks")
@click.option("--by-shape", is_flag=True, help="One row per kernel, operator and shapes of its inputs.")
@options.capture
@click.option(
    "--rates",
    "rates_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Rates of your own devices: a tab-separated table as gpu_specs.tsv, which counts before it.",
)
@options.limit
@options.class_rules
@options.plot
@options.explain
@options.printed
def command(
    inputs: options.Inputs,
    by_shape: bool,  # noqa: FBT001
    capture: Path | None,
    rates_file: Path | None,
    limit: int | None,
    rules: RuleTable,
    plot: options.PlotFile | None,
    explain: bool,  # noqa: FBT001
    printer: options.Printer,
) -> None:
    """How far is each kernel from what the hardware can do?

    Bytes and operations from the shapes of operators, the sizes of copies and the messages of collectives, over the
    time that they took: GB/s and TFLOP/s, against the published rates of the device.
    """
    from traceanalyzer.analyses.bandwidth import bandwidth
    from traceanalyzer.hardware.rates import load_rates
    from traceanalyzer.reports import bandwidth as report

    rates = load_rates(rates_file) if rates_file else ()
    trace = inputs.read(*TABLES)
    captured = inputs.read_beside(capture, *TABLES) if capture else None
    rows = bandwidth(trace, by_shape=by_shape, rates=rates, rules=rules, capture=captured)
    printer.show(report.build(trace, rows, rates=rates, limit=printer.limit(limit), explain=explain))
    if plot:
        _draw(trace, rows, rates, plot)


def _draw(trace: Trace, rows: pl.DataFrame, rates: RateTable, plot: options.PlotFile) -> None:
    from traceanalyzer.analyses import overview
    from traceanalyzer.analyses.bandwidth import roofs
    from traceanalyzer.plots import roofline

    devices = {run: tuple(gpus or ()) for run, gpus in overview.runs(trace).select("run", "gpus").iter_rows()}
    plot.write(roofline.draw(rows, plot.format, roofs=roofs(trace, rates), devices=devices))
