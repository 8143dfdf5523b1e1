"""`traceanalyze top-kernels`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from traceanalyzer.choices import BYS, NESTED, ORIGINS, SORTS, By, Sort
from traceanalyzer.cli import options

if TYPE_CHECKING:
    from traceanalyzer.classify.rules import RuleTable

#: What links are made of.
HOST_TABLES = ("launches", "ops", "annotations", "python_calls", "flows")


@click.command("top-kernels", epilog="Example: traceanalyze top-kernels run/ --by class --rank 0-3")
@options.trace_inputs("runs", "ranks", "devices", "streams", "between_ns")
@click.option(
    "--by",
    type=click.Choice(BYS),
    default="name",
    show_default=True,
    help="One row per full name, short name or class of work; or per operator, nn.Module, annotation, python stack "
    "or input shapes that launched it.",
)
@options.capture
@options.kernel_filters
@options.limit
@click.option(
    "--sort",
    type=click.Choice(SORTS),
    help="Largest first; names in order. Default: total; by op, module and annotation, whose groups lie in each other, "
    "self, which is for these alone.",
)
@options.class_rules
@click.option("--explain", is_flag=True, help="Say what every figure means, and which rule gave each class.")
@options.printed
def command(
    inputs: options.Inputs,
    by: By,
    capture: Path | None,
    pattern: str | None,
    classes: tuple[str, ...],
    limit: int | None,
    sort: Sort | None,
    rules: RuleTable,
    explain: bool,  # noqa: FBT001
    printer: options.Printer,
) -> None:
    """Which kernels does the GPU time go to?

    Kernels by time, with their share of all kernel time, how often and how long they ran, and how much of the GPU their
    launches can fill. Copies and sets appear as a class of their own in --by class. By op, module and annotation a
    kernel is in every group around its launch, and counts as its own (self) in the innermost.
    """
    from traceanalyzer.analyses.top_kernels import top_kernels
    from traceanalyzer.reports import top_kernels as report

    if capture and (by not in ORIGINS or by == "annotation"):
        raise click.UsageError("--capture tells operators; it goes with --by op, module, stack or shape")
    if sort == "self" and by not in NESTED:
        raise click.UsageError(
            f"--sort self goes with --by {', '.join(NESTED)}; by {by} all time is a row's own: --sort total"
        )
    tables = HOST_TABLES if by in ORIGINS else ()
    trace = inputs.read("kernels", *tables)
    captured = inputs.read_beside(capture, "kernels", *tables) if capture else None
    rows = top_kernels(
        trace, by=by, filter=pattern, classes=classes, sort=sort, rules=rules, capture=captured, explain=explain
    )
    limit = printer.limit(limit)
    printer.show(
        report.build(trace, rows, by=by, sort=sort, filter=pattern, classes=classes, limit=limit, explain=explain)
    )
