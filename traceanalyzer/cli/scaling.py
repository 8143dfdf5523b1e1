"""`traceanalyze scaling`."""

from __future__ import annotations

import re
from collections import defaultdict
from decimal import Decimal
from typing import TYPE_CHECKING

import click

from traceanalyzer.cli import options

if TYPE_CHECKING:
    from traceanalyzer.classify.rules import RuleTable

_TOKENS = r"(?P<number>\d{1,15}(?:\.\d{1,9})?)(?P<unit>[kKmM]?)"
_UNITS = {"": 1, "k": 1024, "m": 1024 * 1024}
#: No model has such a context, and times by it would not fit into whole nanoseconds.
_MOST_TOKENS = 2**40


def tokens(text: str) -> int:
    """`128k`: a context in tokens."""
    count = _counted(re.fullmatch(_TOKENS, text))
    if not count:
        raise click.BadParameter(f"{text!r} is no number of tokens such as 128k")
    return count


def context(text: str) -> tuple[int, str]:
    """`64k=run/`: the context of a run in tokens, and where its traces are."""
    before, _, path = text.partition("=")
    count = _counted(re.fullmatch(_TOKENS, before))
    if count is None or not path:
        raise click.BadParameter(f"{text!r} is not of the form 64k=TRACE")
    return count, path


def _counted(found: re.Match[str] | None) -> int | None:
    """The number of tokens; None where there is none, or one that no context has."""
    count = round(Decimal(found["number"]) * _UNITS[found["unit"].lower()]) if found else None
    return None if count is None or count > _MOST_TOKENS else count


@click.command("scaling", epilog="Example: traceanalyze scaling 4k=run-4k/ 16k=run-16k/ 64k=run-64k/")
@click.argument("contexts", metavar="CONTEXT=TRACE...", nargs=-1, required=True, type=context)
@click.option("--at", type=tokens, metavar="CONTEXT", help="Project a step to this context, with an interval (128k).")
@options.step_marker
@options.trace_inputs("runs", "ranks", named=False)
@options.limit
@options.plot
@options.class_rules
@options.explain
@options.printed
def command(
    contexts: tuple[tuple[int, str], ...],
    at: int | None,
    marker: str | None,
    inputs: options.Inputs,
    limit: int | None,
    plot: options.PlotFile | None,
    rules: RuleTable,
    explain: bool,  # noqa: FBT001
    printer: options.Printer,
) -> None:
    """Which part of a step grows with the context?

    Traces of the same program at two contexts or more (k is 1024 tokens). Each part of a step is fitted over all steps:
    wall, busy and idle time, causes of idle, what the host was busy with, classes and kernels.
    """
    from traceanalyzer.analyses.scaling import scaling
    from traceanalyzer.reports import scaling as report

    paths: dict[int, list[str]] = defaultdict(list)
    for context, path in contexts:
        paths[context].append(path)
    tables = ("kernels", "launches", "ops", "annotations", "python_calls", "flows", "slices")
    runs = {context: inputs.of(own).read(*tables) for context, own in sorted(paths.items())}
    rows = scaling(runs, at=at, marker=marker, rules=rules)
    printer.show(report.build(runs, rows, at=at, limit=printer.limit(limit), explain=explain))
    if plot:
        from traceanalyzer.plots import scaling as picture

        plot.write(picture.draw(rows, sorted(runs), at, plot.format))
