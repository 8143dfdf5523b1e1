"""Which span of a thread holds which: the call tree, from times alone.

Host events of one kind nest: a call ends before the one that made it. So the innermost span around each event follows
from one sort, without walking: an event's *depth* is the number of spans that are open where it starts, and what holds
it is the last span before it that is one level less deep. Clocks and rounding make some spans end a little after the
one that holds them; those are cut to it. What overlaps by more than that does not nest: on such a thread, which is
rare, a stack is walked event by event.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]

#: In the place of a row: nothing holds it.
NONE = -1
#: A span may end so much later than the one that holds it (clocks that differ, times rounded to 1 µs).
TOLERANCE_NS = 2_000


def nest(thread: Ints, start: Ints, end: Ints, *, tolerance_ns: int = TOLERANCE_NS) -> Ints:
    """The row of the innermost span that holds each row, `NONE` where there is none.

    `thread` (0, 1, ...), `start` and `end` (ns) are of one length, in any order. A row holds what starts in
    [start, end) of the same thread and ends by its own end, `tolerance_ns` over it forgiven. A row that does not end
    after its start is a point: it is held, and holds nothing. Where spans start together the longer one is outside;
    among equals, the earlier row. A span that starts in another and ends after it is held by what holds both, and what
    starts in both is held by the later one.
    """
    holders = np.full(len(start), NONE, np.int64)
    if not len(start):
        return holders
    order = call_order(thread, start, end)
    thread, start, end = thread[order], start[order], end[order]
    spans = end > start
    place = _nest_in_order(thread, start, end, spans)
    late = _ends_late(place, end, spans)
    if len(late):
        holder = place[late]
        cut = end.copy()
        cut[late] = np.minimum(end[late], np.maximum(end[holder], start[late] + 1))
        place = _nest_in_order(thread, start, cut, spans)
        # Cutting is what the stack does where it is by little, to a span that ends as it says, and then all nest.
        doubtful = (end[late] - cut[late] > tolerance_ns) | np.isin(holder, late) | (place[late] != holder)
        walked = np.append(thread[late[doubtful]], thread[_ends_late(place, cut, spans)])
        _walk(np.unique(walked), thread, start, end, place, tolerance_ns)
    holders[order] = np.where(place == NONE, NONE, order[place])
    return holders


def nearest(holders: Ints, wanted: npt.NDArray[np.bool_]) -> Ints:
    """The innermost wanted row among each row and those around it, `NONE` where none is."""
    found = np.where(wanted | (holders == NONE), np.arange(len(holders)), holders)
    while True:
        further = found[found]
        if np.array_equal(further, found):
            return np.where(wanted[found], found, NONE)
        found = further


def at(values: Ints, places: Ints) -> Ints:
    """`values[places]`, and `NONE` where there is no place."""
    if not len(values):
        return np.full(len(places), NONE, np.int64)
    return np.where(places == NONE, NONE, values[places])


def _walk(threads: Ints, thread: Ints, start: Ints, end: Ints, place: Ints, tolerance_ns: int) -> None:
    """Fill in the places of what holds the rows of these threads, rows in call order."""
    for number in threads:
        first, last = np.searchsorted(thread, [number, number + 1]).tolist()
        found = np.array(nest_by_stack(start[first:last].tolist(), end[first:last].tolist(), tolerance_ns))
        place[first:last] = np.where(found == NONE, NONE, found + first)


def nest_by_stack(start: list[int], end: list[int], tolerance_ns: int) -> list[int]:
    """`nest` of one thread, in call order (start, then longest first), as its definition reads: with a stack."""
    stack: list[tuple[int, int]] = []
    holders = []
    for row, (from_ns, until_ns) in enumerate(zip(start, end, strict=True)):
        while stack and stack[-1][1] <= from_ns:
            stack.pop()
        if until_ns <= from_ns:
            holders.append(stack[-1][0] if stack else NONE)
            continue
        while stack and until_ns > stack[-1][1] + tolerance_ns:
            stack.pop()
        holders.append(stack[-1][0] if stack else NONE)
        stack.append((row, min(until_ns, stack[-1][1]) if stack else until_ns))
    return holders


def outermost(holders: Ints) -> Ints:
    """The row at the top of the chain of each row; a row that nothing holds is its own."""
    top = np.where(holders == NONE, np.arange(len(holders)), holders)
    while True:
        further = top[top]
        if np.array_equal(further, top):
            return top
        top = further


def call_order(thread: Ints, start: Ints, end: Ints) -> Ints:
    """Rows by thread and start, the longest first, then as they come."""
    first = start.min()
    width = int(start.max()) - int(first) + 1
    if width * (int(thread.max()) + 1) >= 2**62:  # times of no one clock: too far apart for one number
        return np.lexsort((-end, start, thread)).astype(np.int64)
    key = thread * width + (start - first)
    order = np.argsort(key, kind="stable")
    sorted_key = key[order]
    same = sorted_key[1:] == sorted_key[:-1]
    if same.any():
        tied = np.flatnonzero(np.append(same, False) | np.insert(same, 0, False))
        rows = order[tied]
        order[tied] = rows[np.lexsort((-end[rows], sorted_key[tied]))]
    return order.astype(np.int64, copy=False)


def _nest_in_order(thread: Ints, start: Ints, end: Ints, spans: npt.NDArray[np.bool_]) -> Ints:
    """The place of what holds each row, of rows in call order that nest without exception."""
    depth = np.zeros(len(start), np.int64)
    for first, last in _stretches(thread):
        mine = spans[first:last]
        opened: Ints = np.cumsum(mine) - mine
        ends = np.sort(end[first:last][mine])
        depth[first:last] = opened - np.searchsorted(ends, start[first:last], side="right")
    holders = np.full(len(start), NONE, np.int64)
    by_depth = np.argsort(depth.astype(np.int16) if depth.max() < 2**15 else depth, kind="stable")
    levels = np.split(by_depth, np.searchsorted(depth[by_depth], np.arange(1, depth.max() + 1)))
    for above, level in pairwise(levels):
        candidates = above[spans[above]]
        holders[level] = candidates[np.searchsorted(candidates, level) - 1]
    return holders


def _stretches(thread: Ints) -> list[tuple[int, int]]:
    """First and last place of each thread, of rows sorted by it."""
    edges = [0, *(np.flatnonzero(np.diff(thread)) + 1).tolist(), len(thread)]
    return list(pairwise(edges))


def _ends_late(place: Ints, end: Ints, spans: npt.NDArray[np.bool_]) -> Ints:
    """The spans that end after what holds them."""
    held = np.flatnonzero(spans & (place != NONE))
    return held[end[held] > end[place[held]]]
