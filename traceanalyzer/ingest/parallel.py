"""How many files at once: what this machine has, and what is worth it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import Executor

from traceanalyzer.ingest.engines import choose
from traceanalyzer.ingest.source import file_size

#: Below so many bytes of files, starting processes costs more than they save.
WORTH_PROCESSES = 8 << 20


def worth(jobs: int | None, paths: Sequence[str]) -> int | None:
    """So many jobs, or 1 where they would be processes and the files are too small for those."""
    if choose().releases_interpreter or sum(map(file_size, paths)) >= WORTH_PROCESSES:
        return jobs
    return 1


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def processes(jobs: int) -> Executor:
    """So many fresh interpreters."""
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor

    # forking a process that has threads (polars has) may hang; a fresh interpreter does not
    return ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn"))
