"""Processes of this machine that share no pool: one that dies takes the task with it that it had, and no other."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Executor, Future
from dataclasses import dataclass
from typing import Any

from traceanalyzer.ingest.parallel import processes

#: File descriptors that a process takes here: three pipes and what tells that it ended, and room for one that begins.
_DESCRIPTORS = 8
#: Of the descriptors that this process may open, the others are for files.
_PART_OF_DESCRIPTORS = 0.75


@dataclass
class _Lane:
    """A pool of one process, and the last task that it was given."""

    pool: Executor
    task: Future[Any]


class Apart(Executor):
    """A process for each task that is not done, used again by later tasks; for use by one thread.

    A `ProcessPoolExecutor` fails all its tasks when one of its processes dies, so that the guilty one cannot be told.
    Here every pool has one process and one task, and only the task of the process that died fails, with
    `BrokenExecutor`. Whoever submits decides how many are at work at once: see `most_apart`.

    Where no process can begin (in a script without a `__main__` guard), tasks are done in this one.
    """

    def __init__(self) -> None:
        self._lanes: list[_Lane] = []
        self._begins: bool | None = None
        """Whether processes can begin; None while nothing tells."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        lane = next((each for each in self._lanes if each.task.done()), None)
        if self._begins is False:
            return _done_here(fn, *args, **kwargs)
        if lane is None:
            pool = processes(1)
            self._lanes.append(_Lane(pool, pool.submit(fn, *args, **kwargs)))
            return self._lanes[-1].task
        if not isinstance(lane.task.exception(), BrokenExecutor):
            self._begins = True
        try:
            lane.task = lane.pool.submit(fn, *args, **kwargs)
        except BrokenExecutor:
            if not self._can_begin():
                return _done_here(fn, *args, **kwargs)
            lane.pool.shutdown(wait=False)
            lane.pool = processes(1)
            lane.task = lane.pool.submit(fn, *args, **kwargs)
        return lane.task

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: FBT001, FBT002
        for lane in self._lanes:
            lane.pool.shutdown(wait=wait, cancel_futures=cancel_futures)

    def _can_begin(self) -> bool:
        """Asked where a process died before any came back with something: by its task, or without having begun?"""
        if self._begins is None:
            with processes(1) as pool:
                try:
                    self._begins = pool.submit(int).result() == 0
                except BrokenExecutor:
                    self._begins = False
        return self._begins


def _done_here(fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
    future: Future[Any] = Future()
    try:
        future.set_result(fn(*args, **kwargs))
    except Exception as error:  # what work raises is for whoever asks the future, as of every executor
        future.set_exception(error)
    return future


def most_apart() -> int:
    """How many processes of `Apart` the limit on open files allows; at least one."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return 1 << 16
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return 1 << 16
    return max(int(limit * _PART_OF_DESCRIPTORS) // _DESCRIPTORS, 1)
