"""Several files at once: threads where the engine lets go of the interpreter while it works, processes where not."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future, ThreadPoolExecutor
from typing import TypeVar

from traceanalyzer.ingest.engines import choose
from traceanalyzer.ingest.source import Progress, file_size

Result = TypeVar("Result")
#: Reads one file; the progress function is None in another process.
Work = Callable[[str, Progress | None], Result]
#: Below so many bytes of files, starting processes costs more than they save.
WORTH_PROCESSES = 8 << 20


def map_files(
    work: Callable[[str, Progress | None], Result], paths: Sequence[str], jobs: int | None, progress: Progress | None
) -> Iterator[Result]:
    """`work` on every path, results in the order of the paths."""
    jobs = min(jobs or cores(), len(paths))
    sizes = [file_size(path) for path in paths]
    releases = jobs >= 2 and choose().releases_interpreter
    if jobs < 2 or not (releases or sum(sizes) >= WORTH_PROCESSES):
        for path in paths:
            yield work(path, progress)
        return
    if releases:
        with ThreadPoolExecutor(jobs) as threads:
            yield from threads.map(lambda path: work(path, progress), paths)
        return
    with processes(jobs) as pool:
        futures = [_submitted(pool, work, path) for path in paths]
        for path, future, size in zip(paths, futures, sizes, strict=True):
            try:
                result = future.result()
            except BrokenExecutor:
                # in a script without a `__main__` guard no process can begin, and one may run out of memory
                yield work(path, progress)
                continue
            if progress:
                progress(size)
            yield result


def _submitted(processes: Executor, work: Callable[[str, Progress | None], Result], path: str) -> Future[Result]:
    try:
        return processes.submit(work, path, None)
    except BrokenExecutor as error:
        failed: Future[Result] = Future()
        failed.set_exception(error)
        return failed


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def processes(jobs: int) -> Executor:
    """So many fresh interpreters."""
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor

    # forking a process that has threads (polars has) may hang; a fresh interpreter does not
    return ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn"))
