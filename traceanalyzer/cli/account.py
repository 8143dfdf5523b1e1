"""`traceanalyze account`."""

from __future__ import annotations

import re
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import click

from traceanalyzer.cli import options

if TYPE_CHECKING:
    from traceanalyzer.classify.rules import RuleTable

_UNITS = {"ns": 1, "us": 1_000, "µs": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
_TIME = re.compile(r"\s*(?P<number>\d{1,12}(?:\.\d{1,9})?)\s*(?P<unit>ns|us|µs|ms|s)\s*")


def time_ns(text: str) -> int:
    """A time with its unit: `3.66ms`, `950us`."""
    found = _TIME.fullmatch(text)
    if found is None or not Decimal(found["number"]):
        raise click.BadParameter(f"{text!r} is no time such as 3.66ms or 950us")
    return round(Decimal(found["number"]) * _UNITS[found["unit"]])


@click.command("account", epilog="Example: traceanalyze account run/ --budget budget.toml --measured-step 3.66ms")
@options.trace_inputs("runs", "ranks", "devices")
@click.option(
    "--budget",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Expected components (TOML): name, regex, expected_us; what is in none of them is named.",
)
@click.option(
    "--measured-step",
    "measured_step_ns",
    type=time_ns,
    metavar="TIME",
    help="A step without a profiler (3.66ms): what the profiler adds is told apart.",
)
@click.option("--kind", metavar="KIND", help="Steps of this kind (decode, prefill). Default: of which there are most.")
@options.step_marker
@options.limit
@options.class_rules
@options.explain
@options.printed
def command(
    inputs: options.Inputs,
    budget: Path | None,
    measured_step_ns: int | None,
    kind: str | None,
    marker: str | None,
    limit: int | None,
    rules: RuleTable,
    explain: bool,  # noqa: FBT001
    printer: options.Printer,
) -> None:
    """What does a step consist of, and what of it did nobody expect?

    The parts of a mean step add up to its wall time: compute by class, communication, memory, and idle by cause and by
    what the host was busy with. With a budget its components come first, and the rest is named.
    """
    from traceanalyzer.analyses.account import full_account
    from traceanalyzer.analyses.budget import load_budget
    from traceanalyzer.reports import account as report

    components = load_budget(budget) if budget else ()
    trace = inputs.read("kernels", "launches", "ops", "annotations", "python_calls", "flows", "slices")
    found = full_account(
        trace, budget=components, measured_step_ns=measured_step_ns, kind=kind, marker=marker, rules=rules
    )  # fmt: skip
    printer.show(report.build(trace, found, limit=printer.limit(limit), explain=explain))
