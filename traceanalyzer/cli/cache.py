"""`traceanalyze cache`."""

from __future__ import annotations

import click

from traceanalyzer.cli import options


@click.group("cache", invoke_without_command=True, epilog="Example: traceanalyze cache info")
@click.pass_context
def command(ctx: click.Context) -> None:
    """What does the store of parsed tables hold?

    Files from 64 KB whose JSON is 8 MB or more are kept as Parquet tables in the user's cache folder, so that the next
    question on the same file is answered at once. TRACEANALYZE_CACHE_DIR puts the store elsewhere,
    TRACEANALYZE_CACHE_GB limits its size (20 without it): entries that were not used for longest go first.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


@command.command("info")
@options.printed
def info(printer: options.Printer) -> None:
    """Where the store is, how large, and what is in it."""
    from traceanalyzer.reports import cache as report
    from traceanalyzer.store import default_store

    store = default_store()
    printer.show(report.contents(store, store.entries()))


@command.command("verify")
@options.printed
def verify(printer: options.Printer) -> None:
    """Read every entry and the files they were made from in full; remove entries that are not right."""
    from traceanalyzer.reports import cache as report
    from traceanalyzer.store import default_store

    store = default_store()
    printer.show(report.verified(store, list(store.verify())))


@command.command("clear")
def clear() -> None:
    """Remove all entries."""
    from traceanalyzer.formats import size
    from traceanalyzer.store import default_store

    store = default_store()
    click.echo(f"removed {size(store.clear())} from {store.root}")
