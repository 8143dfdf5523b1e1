"""`traceanalyze top-kernels`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from traceanalyzer.choices import BYS, SORTS, By, Sort
from traceanalyzer.cli import options

if TYPE_CHECKING:
    from traceanalyzer.classify.rules import RuleTable


@click.command("top-kernels", epilog="Example: traceanalyze top-kernels run/ --by class --rank 0-3")
@options.trace_inputs("runs", "ranks", "devices", "streams", "between_ns")
@click.option(
    "--by",
    type=click.Choice(BYS),
    default="name",
    show_default=True,
    help="One row per full name, short name or class of work.",
)
@click.option(
    "--filter", "pattern", metavar="REGEX", help="Only kernels whose full name matches; shares stay as they are."
)
@click.option(
    "--class",
    "classes",
    type=options.labels,
    multiple=True,
    metavar="NAME",
    help="Only kernels of this class of work (attention, gemm, ...); may be repeated. Shares stay as they are.",
)
@options.limit
@click.option(
    "--sort", type=click.Choice(SORTS), default="total", show_default=True, help="Largest first; names in order."
)
@options.class_rules
@click.option("--explain", is_flag=True, help="Say what every figure means, and which rule gave each class.")
@options.printed
def command(
    inputs: options.Inputs,
    by: By,
    pattern: str | None,
    classes: tuple[tuple[str, ...], ...],
    limit: int | None,
    sort: Sort,
    rules: RuleTable,
    explain: bool,  # noqa: FBT001
    printer: options.Printer,
) -> None:
    """Which kernels does the GPU time go to?

    Kernels by time, with their share of all kernel time, how often and how long they ran, and how much of the GPU their
    launches can fill. Copies and sets appear as a class of their own in --by class.
    """
    from traceanalyzer.analyses.top_kernels import top_kernels
    from traceanalyzer.reports import top_kernels as report

    trace = inputs.read("kernels")
    wanted = [name for names in classes for name in names]
    rows = top_kernels(trace, by=by, filter=pattern, classes=wanted, sort=sort, rules=rules, explain=explain)
    limit = printer.limit(limit)
    printer.show(
        report.build(trace, rows, by=by, sort=sort, filter=pattern, classes=wanted, limit=limit, explain=explain)
    )
