"""Progress while files are read: on a terminal only, and only where it takes long enough to be seen."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

#: Files of fewer bytes than this are read before a bar could be looked at.
WORTH_SHOWING = 8 << 20


@contextmanager
def reading(paths: Sequence[str], *, quiet: bool) -> Iterator[Callable[[int], None] | None]:
    """A function to call with bytes consumed, or None where there is nothing to show."""
    total = 0 if quiet or not sys.stderr.isatty() else _bytes(paths)
    if total < WORTH_SHOWING:
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("reading"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("reading", total=total)
        yield lambda count: progress.advance(task, count)


def _bytes(paths: Sequence[str]) -> int:
    from traceanalyzer.ingest.files import STANDARD_INPUT, find
    from traceanalyzer.ingest.source import file_size

    files = [file.path for file in find(paths) if file.path != STANDARD_INPUT]
    return sum(file_size(path) for path in files)
