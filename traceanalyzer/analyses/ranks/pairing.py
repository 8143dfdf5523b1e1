"""Which calls of several ranks are one collective: by their numbers, else by order, else by time; checked, and said.

Recordings begin and end at different moments on different ranks, so that the n-th call of one may be the (n + k)-th of
another. The shift is the one where kernels and sizes agree; where several do, as in a program that repeats itself, the
ends of the calls tell, which all ranks reach at about the same time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Method = Literal["sequence", "order", "shifted", "time", "none"]

#: A shift holds if this part of the calls that it pairs agree in kernel and size.
_AGREE = 0.98
#: A shift has to pair this part of the shorter one's calls.
_OVERLAP = 0.5
#: Ends of one collective that scatter by more than this many times the best shift's scatter are of other collectives.
_TIMES, _FLOOR_NS = 1.5, 200
#: So many calls in a row are looked for in the other rank's, from so many places, to find shifts worth a look.
_PROBE, _PROBES, _MOST_SHIFTS = 12, 5, 400
#: As many calls on both sides that agree are not looked at further if their ends scatter by less than this part of the
#: distance between calls; of more calls than this, not all are looked at.
_SURELY, _SAMPLE = 0.02, 2_000
#: Calls of one collective may end so far apart, as a part of the middle distance between calls, when only time tells.
_NEAR = 0.4
#: Less than this part of the calls paired is no pairing.
_PAIRED = 0.5


@dataclass(frozen=True)
class Calls:
    """The calls of one rank in one group, in order of their start."""

    sequence: Ints | None
    """Recorded numbers; None where one is unknown or there twice."""
    kernels: Ints
    """Code of the kernel's name, the same number for the same name on every rank."""
    sizes: Ints
    """Code of element type and counts; -1 where unknown, or where they may differ between ranks."""
    start_ns: Ints
    end_ns: Ints

    def __len__(self) -> int:
        return len(self.kernels)


@dataclass(frozen=True)
class Pairing:
    """The collectives of a group."""

    method: Method
    """How most of its ranks were paired: the least sure of all ways that were needed."""
    places: tuple[Ints, ...]
    """For each rank the number of the collective of each of its calls; -1: not paired."""
    count: int
    """Collectives: numbers are below."""
    unpaired: int
    """Calls that no other rank's call was found for."""
    mismatched: int
    """Paired calls that differ in kernel or size from those of the rank with most calls."""
    ambiguous: int
    """Ranks for which another shift would have fitted as well."""


def pair(calls: Sequence[Calls]) -> Pairing:
    """Pair the calls of several ranks of one group."""
    if all(each.sequence is not None for each in calls):
        return _by_sequence(calls)
    reference = max(range(len(calls)), key=lambda at: (len(calls[at]), -at))
    found = [_against(each, calls[reference]) for each in calls]
    lowest = min((int(places[places != _NOT].min()) for places, *_ in found if (places != _NOT).any()), default=0)
    shifted = [np.where(places == _NOT, -1, places - lowest) for places, *_ in found]
    order: tuple[Method, ...] = ("order", "shifted", "time", "none")
    method = max((each[1] for each in found), key=order.index)
    return _settled(method, shifted, calls, reference, ambiguous=sum(each[2] for each in found))


#: In places relative to the reference a negative number may be a place before its first call: this one is none.
_NOT = np.iinfo(np.int64).min


def _by_sequence(calls: Sequence[Calls]) -> Pairing:
    recorded = [each.sequence for each in calls if each.sequence is not None]
    numbers = np.unique(np.concatenate(recorded))
    places = [np.searchsorted(numbers, each) for each in recorded]
    reference = max(range(len(calls)), key=lambda at: (len(calls[at]), -at))
    return _settled("sequence", [each.astype(np.int64) for each in places], calls, reference, ambiguous=0)


def _settled(
    method: Method, places: Sequence[Ints], calls: Sequence[Calls], reference: int, *, ambiguous: int
) -> Pairing:
    """Number the collectives that two ranks or more took part in, and compare what each was."""
    count = max((int(each.max()) + 1 for each in places if len(each)), default=0)
    seen = np.zeros(count, np.int64)
    for each in places:
        np.add.at(seen, each[each >= 0], 1)
    number = np.where(seen >= 2, np.cumsum(seen >= 2) - 1, -1)
    final = tuple(np.where(each >= 0, number[np.clip(each, 0, None)], -1) if count else each for each in places)
    kept = int((seen >= 2).sum())
    kernels, sizes = np.full(kept, -1, np.int64), np.full(kept, -1, np.int64)
    mismatched = 0
    for at in (reference, *(at for at in range(len(calls)) if at != reference)):
        own, where = final[at] >= 0, final[at][final[at] >= 0]
        kernel, size = calls[at].kernels[own], calls[at].sizes[own]
        known = sizes[where]
        wrong = ((kernels[where] >= 0) & (kernels[where] != kernel)) | ((known >= 0) & (size >= 0) & (known != size))
        mismatched += int(wrong.sum())
        kernels[where] = np.where(kernels[where] < 0, kernel, kernels[where])
        sizes[where] = np.where(known < 0, size, known)
    unpaired = sum(int((each < 0).sum()) for each in final)
    return Pairing(method, final, kept, unpaired, mismatched, ambiguous)


def _against(own: Calls, reference: Calls) -> tuple[Ints, Method, bool]:
    """Places in the reference's calls (`_NOT`: none), how they were found, and whether others would do as well."""
    in_order = np.arange(len(own), dtype=np.int64)
    if own is reference or not len(own):
        return in_order, "order", False
    distance = _distance(reference)
    same = _fit(own, reference, 0) if len(own) == len(reference) else None
    if same is not None and same.agreed == 1.0 and same.scatter_ns <= _SURELY * distance:
        return in_order, "order", False
    shifts = _shifts(own, reference)
    fits = [found for shift in shifts if (found := _fit(own, reference, shift)) is not None]
    near = [each for each in fits if each.scatter_ns <= _NEAR * distance]
    if near:
        scatter = min(each.scatter_ns for each in near)
        floor = _FLOOR_NS if (own.end_ns % 1_000).any() else 1_000  # of whole microseconds none shows less
        good = [each for each in near if each.scatter_ns <= _TIMES * scatter + floor]
        kept = next((each for each in good if each.shift == 0 and len(own) == len(reference)), None)
        best = kept or min(good, key=lambda each: (abs(each.offset_ns), each.shift))
        if best.agreed == 1.0:
            return in_order + best.shift, "order" if best.shift == 0 else "shifted", kept is None and len(good) > 1
    # a call may be lost on the way, behind which all are shifted: each part of the sequence has a shift of its own
    by_time = _by_time(own, reference, [*_local_offsets(own, reference, shifts), *(each.offset_ns for each in near)])
    if near and (by_time is None or (by_time != _NOT).sum() <= best.agreed * best.overlap):
        return in_order + best.shift, "order" if best.shift == 0 else "shifted", kept is None and len(good) > 1
    if by_time is not None:
        return by_time, "time", False
    if same is not None and same.agreed == 1.0:  # ends do not meet, but nothing else is possible
        return in_order, "order", False
    return np.full(len(own), _NOT, np.int64), "none", False


@dataclass(frozen=True)
class _Fit:
    """How well a shift fits."""

    shift: int
    agreed: float
    overlap: int
    offset_ns: float
    scatter_ns: float


def _fit(own: Calls, reference: Calls, shift: int) -> _Fit | None:
    """None where it pairs too few or what it pairs differs."""
    first, last = max(0, -shift), min(len(own), len(reference) - shift)
    if last - first < max(1, _OVERLAP * min(len(own), len(reference))):
        return None
    mine, theirs = slice(first, last), slice(first + shift, last + shift)
    agreed = float(_alike(own, reference, mine, theirs).mean())
    if agreed < _AGREE:
        return None
    apart = (own.end_ns[mine] - reference.end_ns[theirs])[:: max((last - first) // _SAMPLE, 1)]
    middle = float(np.median(apart))
    return _Fit(shift, agreed, last - first, middle, float(np.median(np.abs(apart - middle))))


def _distance(calls: Calls) -> float:
    """The middle time from the end of a call to the end of the next one."""
    return float(np.median(np.diff(np.sort(calls.end_ns)))) if len(calls) > 1 else 0.0


def _alike(own: Calls, other: Calls, mine: slice | Ints, theirs: slice | Ints) -> npt.NDArray[np.bool_]:
    sizes, others = own.sizes[mine], other.sizes[theirs]
    alike: npt.NDArray[np.bool_] = (own.kernels[mine] == other.kernels[theirs]) & (
        (sizes < 0) | (others < 0) | (sizes == others)
    )
    return alike


def _shifts(own: Calls, reference: Calls) -> list[int]:
    """Shifts worth a look: none, those that make the ends meet, and those at which a few calls in a row agree."""
    shifts = {0, len(reference) - len(own)}
    length = min(_PROBE, len(own), len(reference))
    for begin in np.linspace(0, len(own) - length, _PROBES).astype(int):
        agree = np.ones(len(reference) - length + 1, bool)
        for step in range(length):
            at = np.arange(len(agree)) + step
            agree &= _alike(own, reference, np.full(len(at), begin + step), at)
        shifts.update((np.flatnonzero(agree) - begin).tolist())
    return sorted(shifts, key=abs)[:_MOST_SHIFTS]


def _local_offsets(own: Calls, reference: Calls, shifts: Sequence[int]) -> list[float]:
    """How far the clocks may be apart: where a few calls in a row agree, and so do the distances between their ends.

    The three nearest to none.
    """
    length, distance = min(_PROBE, len(own), len(reference)), _distance(reference)
    found = {0.0}
    for begin in np.linspace(0, len(own) - length, _PROBES).astype(int):
        for shift in shifts:
            if 0 <= begin + shift <= len(reference) - length:
                mine, theirs = slice(begin, begin + length), slice(begin + shift, begin + shift + length)
                apart = own.end_ns[mine] - reference.end_ns[theirs]
                middle = float(np.median(apart))
                if (
                    _alike(own, reference, mine, theirs).all()
                    and np.median(np.abs(apart - middle)) < _SURELY * distance
                ):
                    found.add(middle)
    return sorted(found, key=abs)[:3]


def _by_time(own: Calls, reference: Calls, offsets: Sequence[float]) -> Ints | None:
    """Each call with the one of the same kernel whose end is nearest, where that is near enough and still free; of
    several offsets of the clocks the one that pairs most. None where too few find a partner."""
    if len(reference) < 2:
        return None
    tried = [_nearest(own, reference, round(offset)) for offset in offsets]
    best = max(tried, key=lambda places: int((places != _NOT).sum()))
    return best if (best != _NOT).sum() >= _PAIRED * min(len(own), len(reference)) else None


def _nearest(own: Calls, reference: Calls, offset_ns: int) -> Ints:
    places = np.full(len(own), _NOT, np.int64)
    near = _NEAR * _distance(reference)
    wanted = own.end_ns - offset_ns
    order = np.argsort(reference.end_ns, kind="stable")
    ends = reference.end_ns[order]
    taken = np.zeros(len(reference), bool)
    at = np.searchsorted(ends, wanted)
    for row in range(len(own)):
        best, distance = -1, near
        for candidate in (at[row] - 1, at[row]):
            if 0 <= candidate < len(ends) and abs(int(ends[candidate] - wanted[row])) <= distance:
                there = int(order[candidate])
                if not taken[there] and _alike(own, reference, np.array([row]), np.array([there]))[0]:
                    best, distance = there, abs(int(ends[candidate] - wanted[row]))
        if best >= 0:
            places[row], taken[best] = best, True
    return places
