"""Inflating in a thread ahead of the scan, where a large file is read alone: the two take about the same time, and
neither holds the interpreter."""

from __future__ import annotations

import multiprocessing
import os
import queue
import threading
from collections.abc import Generator
from dataclasses import dataclass, field

from traceanalyzer.ingest.losses import Losses
from traceanalyzer.ingest.source import Source, file_size

#: Smaller files are read before a thread would pay.
WORTH_A_THREAD = 2 << 20
#: Text that goes from thread to thread at once, and how many of those may wait.
_PART_BYTES = 500_000
_MOST_PARTS = 3
#: With less than a core and a half idle, two threads only get in each other's way: more processor time, no gain.
_ENOUGH_IDLE = 1.5


def blocks(source: Source) -> Generator[bytes, None, None]:
    """The blocks of a source, read ahead in a thread where that pays."""
    return _ReadAhead(source).blocks() if _pays(source) else iter(source)


def _pays(source: Source) -> bool:
    """Not in a worker: there the other cores are at work on other files."""
    alone = threading.current_thread() is threading.main_thread() and multiprocessing.parent_process() is None
    return alone and _idle_cores() >= _ENOUGH_IDLE and file_size(source.path) >= WORTH_A_THREAD


def _idle_cores() -> float:
    """Cores that this process may use and nobody used in the last minute, on average."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        return cores - os.getloadavg()[0]
    except (AttributeError, OSError):  # not known here
        return cores


@dataclass
class _Part:
    """Some blocks, and what happened while they were read: told to the reader when it comes to them, so that notes
    stand in one order and progress is reported by one thread."""

    blocks: list[bytes] = field(default_factory=list)
    losses: Losses = field(default_factory=Losses)
    consumed: int = 0
    error: BaseException | None = None
    last: bool = False


class _ReadAhead:
    def __init__(self, source: Source) -> None:
        self._source = source
        self._losses, self._progress = source.losses, source.progress
        self._parts: queue.Queue[_Part] = queue.Queue(_MOST_PARTS)
        self._stopped = threading.Event()
        self._part = _Part()

    def blocks(self) -> Generator[bytes, None, None]:
        """All blocks; what the source raises is raised here."""
        self._source.progress = self._note_progress
        self._source.losses = self._part.losses
        threading.Thread(target=self._run, name="inflate", daemon=True).start()
        try:
            while True:
                part = self._parts.get()
                self._losses.include(part.losses)
                if self._progress and part.consumed:
                    self._progress(part.consumed)
                yield from part.blocks
                if part.error is not None:
                    raise part.error
                if part.last:
                    return
        finally:
            self._stopped.set()

    def _run(self) -> None:
        try:
            size = 0
            for block in self._source:
                self._part.blocks.append(block)
                size += len(block)
                if size >= _PART_BYTES:
                    if not self._put():
                        return
                    size = 0
        except BaseException as error:  # handed to the reader, which raises it: nothing may end this thread unsaid
            self._part.error = error
        self._part.last = True
        self._put()

    def _put(self) -> bool:
        """Hand over the part that is read; false where nobody waits for it any more."""
        part, self._part = self._part, _Part()
        self._source.losses = self._part.losses
        while not self._stopped.is_set():
            try:
                self._parts.put(part, timeout=0.1)
            except queue.Full:
                continue
            return True
        return False

    def _note_progress(self, consumed: int) -> None:
        self._part.consumed += consumed
