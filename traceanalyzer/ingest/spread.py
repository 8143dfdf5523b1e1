"""Work on many files by way of a `concurrent.futures.Executor`, whichever it is; workers may die on the way."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Generic, TypeVar

from traceanalyzer.errors import TraceAnalyzerError
from traceanalyzer.ingest.engines import choose
from traceanalyzer.ingest.parallel import cores, processes
from traceanalyzer.ingest.source import Progress, file_size

Result = TypeVar("Result")
#: What is done with a file; the progress function is None in another process.
Work = Callable[[str, Progress | None], Result]

#: How often work on a file is begun before it is given up.
ATTEMPTS = 3
#: Tasks that wait in an executor whose size is not known: results are taken as they come.
_AHEAD = 256


@dataclass(frozen=True)
class Lost:
    """A file whose work did not come back, as often as it was tried."""

    path: str
    reason: str


def spread(
    work: Work[Result], paths: Sequence[str], executor: Executor | None, jobs: int | None, progress: Progress | None
) -> Generator[Result | Lost, None, None]:
    """`work` on every path, results in the order of the paths.

    Without an executor: threads where the engine lets go of the interpreter, processes where not, and neither for one
    file. What the work itself raises is raised here; what an executor raises because a worker is gone is tried again.
    """
    jobs = min(jobs or cores(), len(paths))
    if executor is not None:
        yield from _Run(work, paths, progress, lambda: executor, ahead=_AHEAD, own=False).results()
    elif jobs < 2:
        for path in paths:
            yield work(path, progress)
    elif choose().releases_interpreter:
        with ThreadPoolExecutor(jobs) as threads:
            yield from threads.map(lambda path: work(path, progress), paths)
    else:
        yield from _Run(work, paths, progress, lambda: processes(jobs), ahead=2 * jobs, own=True).results()


class _Run(Generic[Result]):
    """One call of `spread` by way of an executor."""

    def __init__(
        self,
        work: Work[Result],
        paths: Sequence[str],
        progress: Progress | None,
        make: Callable[[], Executor],
        *,
        ahead: int,
        own: bool,
    ) -> None:
        self._work, self._paths, self._progress = work, paths, progress
        self._make, self._ahead, self._own = make, ahead, own
        self._executor = make()
        self._attempts = [0] * len(paths)
        self._done: dict[int, Result | Lost] = {}

    def results(self) -> Iterator[Result | Lost]:
        """In the order of the paths, each as soon as those before it are there."""
        waiting = deque(range(len(self._paths)))
        running: dict[Future[Result], int] = {}
        given = 0
        try:
            while given < len(self._paths):
                while waiting and len(running) < self._ahead:
                    at = waiting.popleft()
                    running[self._begun(at)] = at
                finished, _ = wait(running, return_when=FIRST_COMPLETED)
                taken = (self._taken(future, running.pop(future)) for future in finished)
                again = [at for at in taken if at is not None]
                waiting.extendleft(sorted(again, reverse=True))
                while given in self._done:
                    yield self._done.pop(given)
                    given += 1
        finally:
            for future in running:
                future.cancel()
            if self._own:
                self._executor.shutdown(wait=False, cancel_futures=True)

    def _begun(self, at: int) -> Future[Result]:
        self._attempts[at] += 1
        try:
            return self._executor.submit(self._work, self._paths[at], None)
        except BrokenExecutor as error:
            if self._own:
                self._executor.shutdown(wait=False, cancel_futures=True)
                self._executor = self._make()
                return self._executor.submit(self._work, self._paths[at], None)
            failed: Future[Result] = Future()
            failed.set_exception(error)
            return failed

    def _taken(self, future: Future[Result], at: int) -> int | None:
        """Keep what a task returned; gives its number where it has to be done again."""
        try:
            self._done[at] = future.result()
        except TraceAnalyzerError:
            raise
        except Exception as error:  # a worker that is gone has another name in every executor
            if self._attempts[at] < ATTEMPTS:
                return at
            name = " ".join(f"{type(error).__name__}: {error}".split())[:200]
            self._done[at] = Lost(self._paths[at], f"was given up after {ATTEMPTS} attempts; the worker died ({name})")
        if self._progress:
            self._progress(file_size(self._paths[at]))
        return None
