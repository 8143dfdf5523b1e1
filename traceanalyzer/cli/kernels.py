"""`traceanalyze kernels`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from traceanalyzer.cli import options

if TYPE_CHECKING:
    from traceanalyzer.kernels.common.kernel import Kernel

_Command = Callable[..., object]


@click.group("kernels", invoke_without_command=True, epilog="Example: traceanalyze kernels list")
@click.pass_context
def command(ctx: click.Context) -> None:
    """Which replacement kernels are bundled, are they right here, and what do they buy?

    GPU code for bottlenecks that traces show, compiled at run time for the GPU at hand. bench needs torch, and both
    check and bench need a GPU; without one the exit code is 4.
    """
    import importlib.util

    from traceanalyzer.errors import UsageError

    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())
    elif importlib.util.find_spec("traceanalyzer.kernels") is None:
        raise UsageError(
            "the kernels are not here: this checkout was made without symbolic links, and traceanalyzer/kernels is one"
        )


def _names(command: _Command) -> _Command:
    return click.argument("names", metavar="[KERNEL]...", nargs=-1)(command)


def _gpu(command: _Command) -> _Command:
    number = options.WholeNumber(0)
    return click.option("--gpu", "ordinal", type=number, default=0, metavar="N", help="Which GPU (default: 0).")(
        command
    )


@command.command("list")
@options.printed
def list_(printer: options.Printer) -> None:
    """The bundled kernels and what they replace."""
    from traceanalyzer.kernels import KERNELS
    from traceanalyzer.reports import kernels as report

    printer.show(report.listed(KERNELS))


@command.command("check")
@_names
@click.option(
    "--on",
    "where",
    type=click.Choice(("gpu", "emulator")),
    default="gpu",
    show_default=True,
    help="Run on a GPU, or on the CPU through the emulator (needs a C++ compiler; sizes are reduced).",
)
@_gpu
@options.printed
def check(names: tuple[str, ...], where: str, ordinal: int, printer: options.Printer) -> int:
    """Are the results right? Every case of all kernels (or of those named) against a reference on the CPU.

    The exit code is 1 where one is not.
    """
    from traceanalyzer.kernels.common import checks
    from traceanalyzer.reports import kernels as report

    kernels = _chosen(names)
    on = checks.backend(where, ordinal)
    outcomes: list[checks.Outcome] = []
    for kernel in kernels:
        _say(f"checking {kernel.name} on {on.name}")
        outcomes += checks.run([kernel], on, full=where == "gpu")
    printer.show(report.checked(outcomes))
    return int(any(outcome.fault for outcome in outcomes))


@command.command("bench")
@_names
@_gpu
@options.printed
def bench(names: tuple[str, ...], ordinal: int, printer: options.Printer) -> None:
    """What do they buy on this GPU? Baseline, replacement, floor and peer in one run.

    The GPU's ceilings come first: the bandwidth of a copy and the rate of mma.sync. Times are medians of CUDA events,
    with an L2 that holds nothing of use. Clocks, memory and power are read along the way (with nvidia-ml-py).
    """
    import importlib.util

    from traceanalyzer.errors import NeedsGpuError

    kernels = _chosen(names)
    if importlib.util.find_spec("torch") is None:
        raise NeedsGpuError("kernels bench measures against torch, which is not installed here (pip install torch)")
    from traceanalyzer.kernels.common import bench as measuring
    from traceanalyzer.reports import kernels as report

    _say(f"measuring {', '.join(kernel.name for kernel in kernels)}")
    printer.show(report.measured(measuring.run(kernels, ordinal)))


def _chosen(names: tuple[str, ...]) -> tuple[Kernel, ...]:
    from traceanalyzer.kernels import KERNELS, find

    return tuple(find(name) for name in names) or KERNELS


def _say(line: str) -> None:
    if not options.is_quiet():
        click.echo(line, err=True)
