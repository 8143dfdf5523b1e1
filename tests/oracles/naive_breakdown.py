"""A breakdown as simple as can be: every single instant of small traces is looked at."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import NamedTuple


class Activity(NamedTuple):
    """A kernel, copy or set of one device, in whole units of time."""

    start: int
    end: int
    kernel_class: str


def breakdown(
    activity: Iterable[Activity], inside: Callable[[int], bool] = lambda _: True
) -> tuple[Counter[tuple[str, str | None]], int]:
    """How many instants of the span go to each (state, class), and in how many communication is behind compute.

    Of compute kernels that start and end together the first one listed has the time.
    """
    events = list(activity)
    parts: Counter[tuple[str, str | None]] = Counter()
    hidden = 0
    for now in range(min(each.start for each in events), max(each.end for each in events)):
        if not inside(now):
            continue
        running = [each for each in events if each.start <= now < each.end]
        compute = [each for each in running if each.kernel_class not in ("communication", "memory")]
        others = {each.kernel_class for each in running} & {"communication", "memory"}
        if compute:
            first = min(compute, key=lambda each: (each.start, each.end))
            parts["compute", first.kernel_class] += 1
            hidden += "communication" in others
        elif others:
            state = "communication" if "communication" in others else "memory"
            parts[state, state] += 1
        else:
            parts["idle", None] += 1
    return parts, hidden
