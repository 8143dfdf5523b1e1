"""How far the clocks of ranks are apart, from the ends of collectives, which all ranks reach at about the same time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]

#: An offset (or a drift over the whole recording) is applied if it exceeds the scatter of the ends so many times.
APPLIED_FROM = 3.0
#: From fewer collectives nothing is concluded, of a drift even less. No clock is that far off its rate.
FEWEST, _FEWEST_FOR_DRIFT, _MOST_DRIFT = 3, 12, 1e-3
#: Of more collectives than this, so many are looked at; for the drift so many, all pairs of them.
MOST, _MOST_PAIRS = 2_000, 200


@dataclass(frozen=True)
class Clock:
    """How the clock of a rank differs from that of the rank that the others are compared with."""

    offset_ns: float
    """Its time minus the reference's, at `middle_ns`."""
    drift: float
    """How much the offset grows, ns a ns; 0 where no drift can be told from the scatter."""
    residual_ns: float | None
    """Median absolute deviation of the ends from that line; None where too few collectives are shared."""
    middle_ns: int
    """On the reference's clock."""
    collectives: int
    """That it rests on."""
    applied: bool
    """Whether times are corrected by it."""

    def corrected(self, times: Ints) -> Ints:
        """Times of the rank on the reference's clock, in ns."""
        if not self.applied:
            return times
        since = (times - self.middle_ns).astype(np.float64)
        return times - np.round(self.offset_ns + self.drift * since).astype(np.int64)


def same_clock(middle_ns: int = 0, *, collectives: int = 0) -> Clock:
    """A clock of which no difference is known."""
    return Clock(0.0, 0.0, None, middle_ns, collectives, applied=False)


@dataclass(frozen=True)
class Ends:
    """The ends of the collectives of a group: which ranks, and for each of them numbers of collectives and ends."""

    members: Sequence[int]
    numbers: Sequence[Ints]
    ends_ns: Sequence[Ints]


def clocks(count: int, groups: Sequence[Ends]) -> list[Clock]:
    """The clocks of `count` ranks, against that of the first rank of each set of ranks that groups connect.

    Groups with most ranks come first; a rank's difference is taken from one group, to a rank of which it is known.
    """
    found: dict[int, Clock] = {}
    ordered = sorted(groups, key=lambda group: (-len(group.members), min(group.members, default=0)))
    for first in range(count):
        if first in found:
            continue
        found[first] = same_clock()
        _spread(ordered, found)
    return [found[rank] for rank in range(count)]


def _spread(groups: Sequence[Ends], found: dict[int, Clock]) -> None:
    """Go on from the ranks whose clocks are known until no group leads to another one."""
    waiting = list(groups)
    while True:
        usable = next(
            (each for each in waiting if any(one in found for one in each.members)),
            None,
        )
        if usable is None:
            return
        waiting.remove(usable)
        hub = next(at for at, member in enumerate(usable.members) if member in found)
        base = found[usable.members[hub]]
        for at, member in enumerate(usable.members):
            if member not in found:
                clock = _difference(usable, hub, at)
                if clock is not None:
                    found[member] = _added(base, clock)


def _difference(group: Ends, hub: int, at: int) -> Clock | None:
    """The clock of a member against the hub's; None where they share no collective."""
    _, mine, theirs = np.intersect1d(group.numbers[at], group.numbers[hub], assume_unique=True, return_indices=True)
    if not len(mine):
        return None
    thin = slice(None, None, max(len(mine) // MOST, 1))
    own, other = group.ends_ns[at][mine[thin]], group.ends_ns[hub][theirs[thin]]
    return fitted(other, own - other, len(mine))


def fitted(at_ns: Ints, apart_ns: Ints, collectives: int) -> Clock:
    """Offset, drift and residual of differences between two clocks at moments of the reference's clock."""
    middle = int(np.median(at_ns))
    if len(at_ns) < FEWEST:
        return Clock(float(np.median(apart_ns)), 0.0, None, middle, collectives, applied=False)
    since, apart = (at_ns - middle).astype(np.float64), apart_ns.astype(np.float64)
    least = _resolution(at_ns, apart_ns)
    residual, offset = _scatter(apart)
    drift = _slope(since, apart) if len(at_ns) >= _FEWEST_FOR_DRIFT else 0.0
    straight, sloped_offset = _scatter(apart - drift * since)
    grown = abs(drift) * float(since.max() - since.min())
    if grown > APPLIED_FROM * max(straight, least) and abs(drift) <= _MOST_DRIFT:
        return Clock(sloped_offset, drift, straight, middle, collectives, applied=True)
    applied = abs(offset) > APPLIED_FROM * max(residual, least)
    drift = 0.0
    return Clock(offset, drift, residual, middle, collectives, applied)


def _resolution(*times: Ints) -> int:
    """1,000 ns where times are whole microseconds: what is nearer than that no scatter shows."""
    return 1 if any((each % 1_000).any() for each in times) else 1_000


def _scatter(apart: npt.NDArray[np.float64]) -> tuple[float, float]:
    """Median absolute deviation and median."""
    middle = float(np.median(apart))
    return float(np.median(np.abs(apart - middle))), middle


def _slope(since: npt.NDArray[np.float64], apart: npt.NDArray[np.float64]) -> float:
    """The median of the slopes between all pairs (Theil and Sen), of a sample: no outlier moves it."""
    thin = np.unique(np.linspace(0, len(since) - 1, min(len(since), _MOST_PAIRS)).astype(int))
    x, y = since[thin], apart[thin]
    first, second = np.triu_indices(len(x), 1)
    run = x[second] - x[first]
    known = run != 0
    return float(np.median((y[second] - y[first])[known] / run[known])) if known.any() else 0.0


def _added(base: Clock, own: Clock) -> Clock:
    """The clock of a rank against the reference, by way of another one."""
    if not (base.applied or base.offset_ns or base.drift):
        return own
    at_middle = base.offset_ns + base.drift * (own.middle_ns - base.middle_ns)
    residual = None if own.residual_ns is None else own.residual_ns + (base.residual_ns or 0.0)
    offset, drift = at_middle + own.offset_ns, base.drift + own.drift
    applied = residual is not None and bool(drift or abs(offset) > APPLIED_FROM * residual)
    return Clock(offset, drift, residual, own.middle_ns, own.collectives, applied)
