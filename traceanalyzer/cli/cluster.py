"""`--scheduler`: the workers of a Dask cluster instead of this machine's."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import contextmanager

from traceanalyzer.errors import UsageError

#: Seconds that a scheduler has to answer.
_PATIENCE = 20
#: How often Dask begins a task anew that raised; one whose worker died it gives to another by itself.
_RETRIES = 1


@contextmanager
def workers(address: str | None) -> Iterator[Executor | None]:
    """An executor on the cluster at that address; None for None. Raises `UsageError` where no scheduler answers."""
    if address is None:
        yield None
        return
    try:
        from distributed import Client
    except ImportError as error:
        raise UsageError("--scheduler needs Dask: pip install 'traceanalyzer[cluster]'") from error
    try:
        client = Client(address, timeout=_PATIENCE, set_as_default=False)
    except (OSError, ValueError, TypeError) as error:
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise UsageError(f"--scheduler {address}: no scheduler answers ({reason})") from error
    try:
        yield client.get_executor(pure=False, retries=_RETRIES)  # the same file may be read twice
    finally:
        client.close(timeout=_PATIENCE)
