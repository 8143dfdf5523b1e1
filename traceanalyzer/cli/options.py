"""Options that commands share, and what they become: `Inputs` to read and `Printer` to show.

Each decorator adds its options to a command and hands over one object instead of their values.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from traceanalyzer.choices import FORMATS, PLOT_FORMATS, Format, PlotFormat
from traceanalyzer.errors import OutputError

if TYPE_CHECKING:
    from traceanalyzer.render.output import Output
    from traceanalyzer.report import Report
    from traceanalyzer.trace import Trace

#: A command before and after options were added to it: decorators change what it takes.
Command = Callable[..., Any]

#: Rows of a table where no limit was given; formats that programs read have no such default.
DEFAULT_LIMIT = 20
#: A time in ms on the command line.
_NUMBER = r"[+-]?\d{1,15}(?:\.\d{1,15})?"
_QUIET = "traceanalyzer.quiet"


def ranks(text: str) -> tuple[int, ...]:
    """Numbers and ranges: `0,2-3` becomes (0, 2, 3)."""
    found: list[int] = []
    for piece in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,6})(?:-(\d{1,6}))?\s*", piece)
        numbers = range(int(match[1]), int(match[2] or match[1]) + 1) if match else range(0)
        if not numbers:
            raise click.BadParameter(f"{text!r} is no list of ranks such as 0,2-3")
        found += numbers
    return tuple(found)


def labels(text: str) -> tuple[str, ...]:
    """Names with commas between them: `7,20` becomes ("7", "20")."""
    return tuple(part.strip() for part in text.split(","))


def between(text: str) -> tuple[int | None, int | None]:
    """A stretch of time in ms: `10..20.5`, `10..` or `..20.5` becomes a pair of ns."""
    match = re.fullmatch(rf"\s*({_NUMBER})?\s*\.\.\s*({_NUMBER})?\s*", text)
    if not match:
        raise click.BadParameter(f"{text!r} is no stretch of milliseconds such as 10..20.5")
    ends = _ms_to_ns(match[1]), _ms_to_ns(match[2])
    if ends[0] is not None and ends[1] is not None and ends[1] <= ends[0]:
        raise click.BadParameter(f"{text!r} ends before it begins")
    return ends


def _ms_to_ns(text: str | None) -> int | None:
    from decimal import Decimal  # here, not at the top: few command lines have a time

    return int(Decimal(text) * 1_000_000) if text else None


class WholeNumber(click.IntRange):
    """A whole number, and what is said of anything else."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """As click does, in plainer words."""
        try:
            if isinstance(value, bool | float):  # from the configuration file; int() would take them
                raise ValueError
            int(value)
        except (TypeError, ValueError):
            self.fail(f"{value!r} is not a whole number", param, ctx)
        return super().convert(value, param, ctx)


@dataclass(frozen=True)
class Inputs:
    """The traces a command was given, how to read them and what to take of them."""

    paths: tuple[str, ...]
    reading: Mapping[str, Any]
    """How to read them: keyword arguments of `ingest.reader.read`."""
    selection: Mapping[str, Any]

    def of(self, paths: Sequence[str]) -> Inputs:
        """Other traces, read and narrowed alike."""
        return replace(self, paths=tuple(paths))

    def read(self, *tables: str, described: bool = False) -> Trace:
        """Read these event tables and narrow them to what was asked for.

        Where damage left no event in any file there is no answer: that is an error, but for a command that describes
        files (`described`).
        """
        from traceanalyzer.analyses.select import select
        from traceanalyzer.cli.progress import reading
        from traceanalyzer.ingest.reader import need_events, read

        with reading(self.paths, quiet=is_quiet()) as progress:
            trace = read(self.paths, tables=tables, progress=progress, **self.reading)
        if not described:
            need_events(trace)
        return select(trace, **self.selection) if any(self.selection.values()) else trace

    def read_beside(self, path: Path, *tables: str) -> Trace:
        """Read these event tables of another file (or folder), all of it, in the same way."""
        from traceanalyzer.ingest.reader import need_events, read

        trace = read([str(path)], tables=tables, **self.reading)
        need_events(trace)
        return trace


@dataclass(frozen=True)
class Printer:
    """Where a command's report goes."""

    output: Output

    def limit(self, limit: int | None) -> int:
        """The number of rows to show, 0 for all: as given, else all where a program reads and a page's worth else."""
        if limit is not None:
            return limit
        return DEFAULT_LIMIT if self.output.format in ("table", "md") else 0

    def show(self, report: Report, *, notes: bool = True) -> None:
        """Write the report; then, on standard error, where it went and what the reader noticed."""
        from traceanalyzer.cli.notes import note_lines

        written = self.output.write(report)
        if is_quiet():
            return
        lines = note_lines(report.notes) if notes else []
        for line in lines + ([f"Wrote {written}"] if written else []):
            click.echo(line, err=True)


@dataclass(frozen=True)
class PlotFile:
    """Where a picture goes. Made before any file is read, so that mistakes show at once."""

    path: str

    @property
    def format(self) -> PlotFormat:
        """By the ending of the name."""
        return next(each for each in PLOT_FORMATS if self.path.lower().endswith(f".{each}"))

    def write(self, picture: bytes) -> None:
        """Write the file, whole or not at all, and say so on standard error."""
        from traceanalyzer.render.output import write_file

        write_file(self.path, picture)
        if not is_quiet():
            click.echo(f"Wrote {self.path}", err=True)


def plot_file(text: str) -> PlotFile:
    """A file name that ends in .png or .svg."""
    if not text.lower().endswith(tuple(f".{each}" for each in PLOT_FORMATS)):
        raise click.BadParameter(f"{text!r} must end in {' or '.join(f'.{each}' for each in PLOT_FORMATS)}")
    if Path(text).is_dir():
        raise OutputError(text, "is a folder")
    return PlotFile(text)


def is_quiet() -> bool:
    """Whether -q was given."""
    return bool(click.get_current_context().meta.get(_QUIET))


# ------------------------------------------------------------------------------------------ decorators

_SELECTIONS = {
    "runs": click.option(
        "--run", "runs", multiple=True, metavar="NAME", help="Only runs of this name or pattern ('*-DECODE')."
    ),
    "ranks": click.option(
        "--rank", "ranks", type=ranks, multiple=True, metavar="N", help="Only these ranks, such as 0,2-3."
    ),
    "devices": click.option(
        "--device", "devices", type=labels, multiple=True, metavar="ID", help="Only activity of these devices."
    ),
    "streams": click.option(
        "--stream", "streams", type=labels, multiple=True, metavar="ID", help="Only activity of these streams."
    ),
    "between_ns": click.option(
        "--between",
        "between_ns",
        type=between,
        metavar="A..B",
        help="Only A to B ms after the first device activity of each file; either end may be left out.",
    ),
}


#: How files are read; named as the arguments of `ingest.reader.read`, but for `no_cache`, its `cache` turned round.
_READING = {
    "rank_regex": click.option(
        "--rank-regex",
        metavar="REGEX",
        help="Where the rank stands in file names that are not understood: one group, or groups named "
        "rank, dp, pp, tp, ep, dcp, stage, run.",
    ),
    "single_run": click.option(
        "--single-run", is_flag=True, help="All files are ranks of one run, whatever their folders (node0/, node1/)."
    ),
    "strict": click.option("--strict", is_flag=True, help="Stop at the first file that cannot be read in full."),
    "no_cache": click.option("--no-cache", is_flag=True, help="Do not use the store of parsed tables."),
    "jobs": click.option("--jobs", type=WholeNumber(1), metavar="N", help="Files read at once (default: one a core)."),
}


def trace_inputs(*selections: str, named: bool = True) -> Callable[[Command], Command]:
    """TRACE..., how to read it and what to take of it; the command gets `inputs`.

    `selections` are the arguments of `analyses.select.select` that make sense for the command. Without `named` the
    command takes its traces in an argument of its own, and reads them with `inputs.of(paths)`.
    """

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def with_inputs(*args: Any, paths: Any = (), **values: Any) -> Any:
            reading = {name: values.pop(name) for name in _READING}
            reading["cache"] = not reading.pop("no_cache")
            selection = {name: _flat(values.pop(name)) for name in selections}
            return command(*args, inputs=Inputs(paths, reading, selection), **values)

        return _with_options(
            with_inputs,
            *([click.argument("paths", metavar="TRACE...", nargs=-1, required=True)] if named else []),
            *(_SELECTIONS[name] for name in selections),
            *_READING.values(),
        )

    return decorate


def printed(command: Command) -> Command:
    """--format, -o and -q; the command gets `printer`."""

    @functools.wraps(command)
    def with_printer(*args: Any, format: Format | None, output: str | None, **values: Any) -> Any:
        from traceanalyzer.render.output import Output

        return command(*args, printer=Printer(Output.choose(output, format)), **values)

    return _with_options(
        with_printer,
        click.option(
            "--format", type=click.Choice(FORMATS), help="Default: by the name of the output file, else table."
        ),
        click.option(
            "-o",
            "--output",
            metavar="FILE",
            help="Write to a file (.txt .json .csv .md .parquet); - is standard output.",
        ),
        click.option(
            "-q",
            "--quiet",
            is_flag=True,
            expose_value=False,
            callback=_remember_quiet,
            help="No progress and no notes on standard error.",
        ),
    )


def class_rules(command: Command) -> Command:
    """--rules; the command gets `rules`."""

    @functools.wraps(command)
    def with_rules(*args: Any, rules: tuple[Path, ...], **values: Any) -> Any:
        from traceanalyzer.classify.rules import load_rules

        return command(*args, rules=load_rules(rules), **values)

    return _with_options(
        with_rules,
        click.option(
            "--rules",
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            multiple=True,
            metavar="FILE",
            help="Class rules (TOML) that count before the built-in ones; may be repeated.",
        ),
    )


def kernel_filters(command: Command) -> Command:
    """--filter and --class; the command gets `pattern`, as it was given or None, and the names of `classes`."""

    @functools.wraps(command)
    def with_classes(*args: Any, classes: tuple[tuple[str, ...], ...], **values: Any) -> Any:
        return command(*args, classes=_flat(classes), **values)

    return _with_options(
        with_classes,
        click.option(
            "--filter",
            "pattern",
            metavar="REGEX",
            help="Only kernels whose full name matches; shares stay as they are.",
        ),
        click.option(
            "--class",
            "classes",
            type=labels,
            multiple=True,
            metavar="NAME",
            help="Only kernels of this class of work (attention, gemm, ...); may be repeated. Shares stay as they are.",
        ),
    )


def limit(command: Command) -> Command:
    """--limit; `Printer.limit` gives it its default."""
    return _with_options(
        command,
        click.option(
            "--limit",
            type=WholeNumber(min=0),
            metavar="N",
            help=f"Rows per run; 0 for all. Default: {DEFAULT_LIMIT} in tables, all in json, csv and parquet.",
        ),
    )


def capture(command: Command) -> Command:
    """--capture; the command gets `capture`, a path for `Inputs.read_beside`, or None."""
    return _with_options(
        command,
        click.option(
            "--capture",
            type=click.Path(exists=True, path_type=Path),
            metavar="FILE",
            help="A trace of the capture of the graphs that are replayed: it knows their operators, modules and "
            "shapes.",
        ),
    )


def plot(command: Command) -> Command:
    """--plot; the command gets `plot`, a `PlotFile` or None."""
    return _with_options(
        command,
        click.option(
            "--plot", type=plot_file, metavar="FILE", help="Draw a picture as well (.png or .svg), by the file's name."
        ),
    )


def step_marker(command: Command) -> Command:
    """--step-marker; the command gets `marker`."""
    return _with_options(
        command,
        click.option("--step-marker", "marker", metavar="REGEX", help="Steps are the host ranges whose name matches."),
    )


def explain(command: Command) -> Command:
    """--explain."""
    return _with_options(command, click.option("--explain", is_flag=True, help="Say what every figure means."))


def _with_options(command: Command, *options: Callable[[Command], Command]) -> Command:
    """Add options so that they are listed in the order given."""
    for option in reversed(options):
        command = option(command)
    return command


def _flat(value: Any) -> Any:
    """One tuple of an option that was given several times, each time as a tuple or a word."""
    if not isinstance(value, tuple) or not all(isinstance(each, tuple) for each in value):
        return value
    return tuple(item for each in value for item in each)


def _remember_quiet(ctx: click.Context, _: click.Parameter, value: bool) -> None:  # noqa: FBT001
    ctx.meta[_QUIET] = value
