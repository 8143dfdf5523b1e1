"""Inflating in a thread ahead of the scan, where a large file is read alone: the two take about the same time, and
neither holds the interpreter."""

from __future__ import annotations

import multiprocessing
import os
import queue
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field

from traceanalyzer.ingest.losses import Losses
from traceanalyzer.ingest.source import INFLATED_BLOCK, Source, Text, file_size

#: Smaller files are read before a thread would pay.
WORTH_A_THREAD = 2 << 20
#: Text that goes from thread to thread at once, and how many of those may wait.
_PART_BYTES = 500_000
_MOST_PARTS = 3
#: With less than a core and a half idle, two threads only get in each other's way: more processor time, no gain.
_ENOUGH_IDLE = 1.5


@contextmanager
def text_of(source: Source) -> Iterator[Text]:
    """The text of a source, read ahead in a thread where that pays. Leaving it stops the reading."""
    with closing(_ReadAhead(source) if _pays(source) else source) as text:
        yield text


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
    """Some text, and what happened while it was read: told to the reader when it comes to it, so that notes stand in
    one order and progress is reported by one thread."""

    text: memoryview
    size: int = 0
    losses: Losses = field(default_factory=Losses)
    consumed: int = 0
    error: BaseException | None = None
    last: bool = False


class _ReadAhead:
    """A `Text` that is read in a thread, begun when it is first asked."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._losses, self._progress = source.losses, source.progress
        self._parts: queue.Queue[_Part] = queue.Queue(_MOST_PARTS)
        self._read_parts: queue.SimpleQueue[memoryview] = queue.SimpleQueue()
        self._stopped = threading.Event()
        self._begun = False
        self._given, self._at = _Part(memoryview(b"")), 0

    def readinto(self, room: memoryview) -> int:
        """As `Source.readinto`, with what it raises."""
        while self._at == self._given.size:
            if self._given.error is not None:
                raise self._given.error
            if self._given.last:
                return 0
            self._receive()
        count = min(self._given.size - self._at, len(room))
        room[:count] = self._given.text[self._at : self._at + count]
        self._at += count
        return count

    def close(self) -> None:
        """Stop reading."""
        self._stopped.set()

    def _receive(self) -> None:
        """Go on to the next part; the memory of the one before is used again."""
        if self._begun:
            self._read_parts.put(self._given.text)
        else:
            self._begun = True
            self._source.progress = self._note_progress
            threading.Thread(target=self._run, name="inflate", daemon=True).start()
        self._given, self._at = self._parts.get(), 0
        self._losses.include(self._given.losses)
        if self._progress and self._given.consumed:
            self._progress(self._given.consumed)

    def _run(self) -> None:
        while not self._stopped.is_set():
            part = self._part = _Part(self._memory())
            self._source.losses = part.losses
            try:
                while part.size < _PART_BYTES and not part.last:
                    count = self._source.readinto(part.text[part.size :])
                    part.size, part.last = part.size + count, count == 0
            except BaseException as error:  # handed to the reader, which raises it: nothing may end this thread unsaid
                part.error, part.last = error, True
            if not self._put(part) or part.last:
                break
        self._source.close()

    def _memory(self) -> memoryview:
        """Room for a part, and for as much more as a source gives at once."""
        try:
            return self._read_parts.get_nowait()
        except queue.Empty:
            return memoryview(bytearray(_PART_BYTES + INFLATED_BLOCK))

    def _put(self, part: _Part) -> bool:
        """Hand over a part; false where nobody waits for it any more."""
        while not self._stopped.is_set():
            try:
                self._parts.put(part, timeout=0.1)
            except queue.Full:
                continue
            return True
        return False

    def _note_progress(self, consumed: int) -> None:
        self._part.consumed += consumed
