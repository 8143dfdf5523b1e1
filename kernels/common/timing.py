"""Times of work on a GPU: CUDA events around it, a cold L2 before it, the median of many rounds. Needs torch."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch

#: What L2 holds before each round, nothing of it of use to the work. `written`: lines that must be written to memory
#: before others take their place, as after a kernel that writes much; the work pays for that too. `read`: lines that
#: can be dropped.
Cold = Literal["written", "read"]

_ROUNDS, _WARM_UPS = 100, 10
#: Many times any L2; filled so often that a slow host too has put the work into the stream before the GPU gets to it.
_FLUSH_BYTES = 1 << 29
_FILLS = 5


@dataclass(frozen=True)
class Timing:
    """Of all rounds, in ns."""

    median_ns: int
    p10_ns: int
    p90_ns: int


class Timer:
    """Measures on one device."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._flush = torch.zeros(_FLUSH_BYTES // 4, dtype=torch.float32, device=device)

    def on_gpu(self, work: Callable[[], object], *, rounds: int = _ROUNDS, cold: Cold = "written") -> Timing:
        """Time on the GPU of what `work` puts into the current stream, from an event before it to one behind it."""
        for _ in range(_WARM_UPS):
            work()
        pairs = [(_event(), _event()) for _ in range(rounds)]
        for start, end in pairs:
            self._fill_l2(cold)
            start.record()
            work()
            end.record()
        torch.cuda.synchronize(self.device)
        return _summary([start.elapsed_time(end) * 1e6 for start, end in pairs])

    def on_host(self, work: Callable[[], object], *, rounds: int = 20) -> Timing:
        """Time on the clock of the wall, from an idle GPU to an idle GPU: for work that the host does or waits for."""
        work()
        times = []
        for _ in range(rounds):
            self._fill_l2("written")
            torch.cuda.synchronize(self.device)
            start = time.perf_counter_ns()
            work()
            torch.cuda.synchronize(self.device)
            times.append(float(time.perf_counter_ns() - start))
        return _summary(times)

    def _fill_l2(self, cold: Cold) -> None:
        for _ in range(_FILLS):
            if cold == "written":
                self._flush.zero_()
            else:
                torch.amax(self._flush)


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)


def _summary(times_ns: list[float]) -> Timing:
    ordered = sorted(times_ns)

    def at(share: float) -> int:
        return round(ordered[min(int(share * len(ordered)), len(ordered) - 1)])

    return Timing(round(statistics.median(ordered)), at(0.1), at(0.9))
