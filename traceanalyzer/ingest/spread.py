"""Work on many files by way of a `concurrent.futures.Executor`, whichever it is; workers may die on the way."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Generic, TypeVar

from traceanalyzer.errors import TraceAnalyzerError
from traceanalyzer.ingest.apart import Apart, most_apart
from traceanalyzer.ingest.engines import choose
from traceanalyzer.ingest.parallel import cores
from traceanalyzer.ingest.source import Progress, file_size

Result = TypeVar("Result")
#: What is done with a file; the progress function is None in another process.
Work = Callable[[str, Progress | None], Result]

#: How often work on a file is begun before it is given up; the last time nothing else is at work.
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
    file. What the work itself raises is raised here; what an executor raises because a worker is gone is tried again,
    in the end with nothing else at work, so that no file is `Lost` for what another one did to its worker.
    """
    jobs = min(jobs or cores(), len(paths))
    if executor is not None:
        # a worker that is gone has another name in every executor
        yield from _Run(work, paths, progress, executor, ahead=_AHEAD, gone=(Exception,)).results()
    elif jobs < 2:
        for path in paths:
            yield work(path, progress)
    elif choose().releases_interpreter:
        with ThreadPoolExecutor(jobs) as threads:
            yield from threads.map(lambda path: work(path, progress), paths)
    else:
        apart = Apart()
        gone = (BrokenExecutor, MemoryError)
        try:
            yield from _Run(work, paths, progress, apart, ahead=min(jobs, most_apart()), gone=gone).results()
        finally:
            apart.shutdown(wait=False, cancel_futures=True)


class _Run(Generic[Result]):
    """One call of `spread` by way of an executor."""

    def __init__(
        self,
        work: Work[Result],
        paths: Sequence[str],
        progress: Progress | None,
        executor: Executor,
        *,
        ahead: int,
        gone: tuple[type[Exception], ...],
    ) -> None:
        self._work, self._paths, self._progress = work, paths, progress
        self._executor, self._ahead, self._gone = executor, ahead, gone
        self._attempts = [0] * len(paths)
        self._waiting = deque(range(len(paths)))
        self._last: deque[int] = deque()
        """Files with one attempt left. Others may have killed their workers, or have taken the memory: they wait until
        nothing else is at work, and what kills a worker then is the file's own."""
        self._running: dict[Future[Result], int] = {}
        self._done: dict[int, Result | Lost] = {}

    def results(self) -> Iterator[Result | Lost]:
        """In the order of the paths, each as soon as those before it are there."""
        given = 0
        try:
            while given < len(self._paths):
                while self._waiting and len(self._running) < self._ahead:
                    self._begin(self._waiting.popleft())
                if not self._running:
                    self._begin(self._last.popleft())
                finished, _ = wait(self._running, return_when=FIRST_COMPLETED)
                again = [at for at in map(self._taken, finished) if at is not None]
                self._waiting.extendleft(sorted(again, reverse=True))
                while given in self._done:
                    yield self._done.pop(given)
                    given += 1
        finally:
            for future in self._running:
                future.cancel()

    def _begin(self, at: int) -> None:
        self._attempts[at] += 1
        try:
            future = self._executor.submit(self._work, self._paths[at], None)
        except BrokenExecutor as error:
            future = Future()
            future.set_exception(error)
        self._running[future] = at

    def _taken(self, future: Future[Result]) -> int | None:
        """Keep what a task returned; gives its number where it has to be done again at once."""
        at = self._running.pop(future)
        try:
            self._done[at] = future.result()
        except TraceAnalyzerError:
            raise
        except self._gone as error:
            left = ATTEMPTS - self._attempts[at]
            if left > 1:
                return at
            if left == 1:
                self._last.append(at)
                return None
            name = " ".join(f"{type(error).__name__}: {error}".split())[:200]
            self._done[at] = Lost(self._paths[at], f"was given up after {ATTEMPTS} attempts; the worker died ({name})")
        if self._progress:
            self._progress(file_size(self._paths[at]))
        return None
