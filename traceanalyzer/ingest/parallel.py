"""Several files at once: threads where the engine lets go of the interpreter while it works, processes where not."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
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
    jobs = min(jobs or os.cpu_count() or 1, len(paths))
    releases = choose().releases_interpreter
    sizes = [file_size(path) for path in paths]
    if jobs < 2 or not (releases or sum(sizes) >= WORTH_PROCESSES):
        for path in paths:
            yield work(path, progress)
        return
    if releases:
        with ThreadPoolExecutor(jobs) as threads:
            yield from threads.map(lambda path: work(path, progress), paths)
        return
    with _processes(jobs) as processes:
        futures = [processes.submit(work, path, None) for path in paths]
        for future, size in zip(futures, sizes, strict=True):
            result = future.result()
            if progress:
                progress(size)
            yield result


def _processes(jobs: int) -> Executor:
    import multiprocessing

    # forking a process that has threads (polars has) may hang; a fresh interpreter does not
    return ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn"))
