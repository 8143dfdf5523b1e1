"""`traceanalyze`: the commands, loaded when they are run, and the one place where errors become a line."""

from __future__ import annotations

import importlib
import os
import re
import shlex
import sys
from collections.abc import Sequence

import click

from traceanalyzer._version import __version__
from traceanalyzer.errors import OutputError, TraceAnalyzerError
from traceanalyzer.render.pipe import abandon_standard_output
from traceanalyzer.text import did_you_mean

#: Command -> module that holds it as `command`. The order is that of `--help`.
COMMANDS = {
    "info": "traceanalyzer.cli.info",
    "findings": "traceanalyzer.cli.findings",
    "top-kernels": "traceanalyzer.cli.top_kernels",
    "breakdown": "traceanalyzer.cli.breakdown",
    "classes": "traceanalyzer.cli.classes",
    "occupancy": "traceanalyzer.cli.occupancy",
    "bandwidth": "traceanalyzer.cli.bandwidth",
    "idle-gaps": "traceanalyzer.cli.idle_gaps",
    "timeline": "traceanalyzer.cli.timeline",
    "steps": "traceanalyzer.cli.steps",
    "account": "traceanalyzer.cli.account",
    "imbalance": "traceanalyzer.cli.imbalance",
    "launches": "traceanalyzer.cli.launches",
    "scaling": "traceanalyzer.cli.scaling",
    "kernels": "traceanalyzer.cli.kernels",
    "schema": "traceanalyzer.cli.schema",
    "cache": "traceanalyzer.cli.cache",
}
#: What `--help` says of each, so that it need not load them: the first sentence of a command's own help.
SUMMARIES = {
    "info": "What is in these files?",
    "findings": "What is wrong here?",
    "top-kernels": "Which kernels does the GPU time go to?",
    "breakdown": "Where did every nanosecond go?",
    "classes": "Which class has each kernel, by which rule, and what does no rule know?",
    "occupancy": "Which kernels cannot fill the GPU?",
    "bandwidth": "How far is each kernel from what the hardware can do?",
    "idle-gaps": "Why is the GPU idle?",
    "timeline": "When was the GPU busy with what, and when was it idle?",
    "steps": "What does a step take, and how much of it is the GPU idle?",
    "account": "What does a step consist of, and what of it did nobody expect?",
    "imbalance": "Which rank is slow, and who waits for it?",
    "launches": "How does work get to the GPU?",
    "scaling": "Which part of a step grows with the context?",
    "kernels": "Which replacement kernels are bundled, are they right here, and what do they buy?",
    "schema": "What do the tables hold?",
    "cache": "What does the store of parsed tables hold?",
}
PROGRAM = "traceanalyze"
INTERRUPTED = 130


class LazyGroup(click.Group):
    """Loads a command's module when the command is run. Those modules import nothing heavy at their top."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """In the order of the table above: the most asked first."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """The command of that name."""
        module = COMMANDS.get(cmd_name)
        return importlib.import_module(module).command if module else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The commands with their summaries."""
        room = formatter.width - 6 - max(map(len, COMMANDS))
        with formatter.section("Commands"):
            formatter.write_dl([(name, self._summary(ctx, name).get_short_help_str(room)) for name in COMMANDS])

    def _summary(self, ctx: click.Context, name: str) -> click.Command:
        """A command that only has the help of the one of that name, or that one."""
        known = click.Command(name, help=SUMMARIES.get(name))
        return known if known.help else self.get_command(ctx, name) or known

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does, with the nearest name for a word that is no command."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            hint = did_you_mean(args[0], COMMANDS) or _traces_hint(args)
            ctx.fail(f"no command {args[0]!r}{hint}")
        return super().resolve_command(ctx, args)


def _traces_hint(args: Sequence[str]) -> str:
    """What was likely meant where a trace stands in the place of a command."""
    if not (os.path.exists(args[0]) or re.search(r"[/*]|\.json|\.gz$", args[0])):
        return f"; there are {', '.join(COMMANDS)}"
    return f"; did you mean: {PROGRAM} top-kernels {shlex.join(args)}"


def _print_version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:  # noqa: FBT001
    if wanted and not ctx.resilient_parsing:
        from traceanalyzer.ingest.engines import choose

        click.echo(f"{PROGRAM} {__version__} ({choose().name} engine)")
        ctx.exit()


@click.command(
    PROGRAM,
    cls=LazyGroup,
    epilog=f"Example: {PROGRAM} top-kernels run/",
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.option(
    "-V",
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Show the version and the engine that reads, and exit.",
)
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Where does the GPU time go? Answers from a folder of torch or Chrome trace files, one per rank, offline.

    TRACE is a file, a folder, a quoted glob, or - for standard input; gzipped or not, one rank or many. Read are Kineto
    traces of PyTorch 1.8 to 2.13 (CUDA, ROCm, XPU), those of other GPU producers by a rule each (nsys exports, rocprof,
    Ascend msprof, CUPTI dumps, Intel unitrace, JAX/XLA, Triton Proton), and any other Chrome trace as plain slices.
    """
    from traceanalyzer.cli import config

    ctx.default_map = config.defaults(ctx.invoked_subcommand)


def main(args: Sequence[str] | None = None) -> int:
    """Run a command line; returns the exit code. Every error that a user can cause ends here, in one line."""
    words = list(sys.argv[1:] if args is None else args)
    if words[:1] == ["help"]:
        words = [*words[1:], "--help"]
    try:
        result = cli.main(words or ["--help"], prog_name=PROGRAM, standalone_mode=False)
        sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except click.UsageError as error:
        where = error.ctx.command_path if error.ctx else PROGRAM
        return _say(f"{where}: {error.format_message()} (see {where} --help)", error.exit_code)
    except click.ClickException as error:
        return _say(f"{PROGRAM}: {error.format_message()}", error.exit_code)
    except TraceAnalyzerError as error:
        return _say(f"{PROGRAM}: {error}", error.exit_code)
    except (BrokenPipeError, SystemExit):  # click ends the program where the reader of its output has left
        abandon_standard_output()
        return 0
    except OSError as error:  # a full disk under what is printed
        abandon_standard_output()
        where = error.filename or "standard output"
        return _say(f"{PROGRAM}: {where}: {error.strerror or error}", OutputError.exit_code)
    except (click.Abort, KeyboardInterrupt):
        return _say(f"{PROGRAM}: interrupted", INTERRUPTED)


def _say(line: str, exit_code: int) -> int:
    print(" ".join(line.split()), file=sys.stderr)  # noqa: T201
    return exit_code
