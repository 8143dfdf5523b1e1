"""Who makes the others wait, beyond chance: ranks that come late all the time, and steps in which one comes late.

How much a rank is behind is measured against the middle rank of its group. Somebody is always last: a rank is named
only if it costs a part of the time, if it is last far more often than chance lets it be, and if it stands out among the
ranks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from traceanalyzer.analyses.ranks.reduce import Reduced

Floats = npt.NDArray[np.float64]

#: A rank is named from this part of the time on that it is behind, beyond what the middle rank is.
SLOW_SHARE = 0.02
#: Chance of being last as often, over all ranks, below which it is no chance.
_CHANCE = 0.001
#: It stands out if it is so many robust standard deviations off the middle; fewer ranks have no spread to speak of.
_OUTLIER, _FEWEST_RANKS = 5.0, 8
#: A step is one rank's fault from this part of its time on, and this many robust standard deviations off.
_STEP_SHARE, _STEP_OUTLIER, _STEP_RANKS = 0.05, 8.0, 4
#: Of so few ranks that there is no spread, from this part on; if over so many steps even the tenth least part is this
#: part of the middle one, it is no scatter (of which the tenth least is a fifth of the middle one).
_STEP_SHARE_OF_FEW, _FEWEST_STEPS, _ALIKE = 0.10, 8, 0.4
_ROBUST = 1.4826


@dataclass(frozen=True)
class Slow:
    """A rank that the others wait for."""

    member: int
    group: int
    """The group in which it is most behind."""
    behind_ns: int
    """How much later than the middle rank it came, in all, where it was not itself held up by another group."""
    share: float
    """The same, as part of the time of all steps (without steps, of the span)."""
    last: int
    """How often it came last in that group, of `collectives`."""
    collectives: int
    steps: tuple[int, ...]
    """Steps in which it stands out; empty for a rank that is slow all the time."""


def own_behind(run: Reduced) -> pl.DataFrame:
    """`member`, `step`, `own_behind_ns`: how much a rank was behind for no other rank's fault."""
    steps = sorted(run.sums["step"].unique().to_list())
    behind, _ = _behind(run, steps) if steps else (np.zeros((0, 0)), None)
    took_part = run.sums.select("member", "step").unique()
    rows = pl.DataFrame(
        {
            "member": np.repeat(np.arange(len(behind), dtype=np.uint32), len(steps)),
            "step": np.tile(np.array(steps, np.int64), len(behind)),
            "own_behind_ns": behind.ravel().round().astype(np.int64),
        }
    )
    return rows.join(took_part, on=["member", "step"], how="semi").sort("member", "step")


def slow_ranks(run: Reduced) -> list[Slow]:
    """The ranks of a run that others wait for beyond chance, the worst first."""
    if run.sums.is_empty():
        return []
    steps, walls = _walls(run)
    behind, groups = _behind(run, steps)
    always = _always(run, behind, groups, float(walls.sum()))
    known = {each.member for each in always}
    sometimes = [each for each in _sometimes(run, behind, groups, steps, walls) if each.member not in known]
    return sorted([*always, *sometimes], key=lambda each: (-each.behind_ns, each.member))


def _walls(run: Reduced) -> tuple[list[int], Floats]:
    """Numbers of the steps that collectives lie in, and the middle wall time of each over the members.

    What lies in no step has what is left of the span, or all of it where there are no steps.
    """
    numbers = sorted(run.sums["step"].unique().to_list())
    walls = dict(run.per_step.group_by("step").agg(pl.col("wall_ns").median()).iter_rows())
    return numbers, np.array([float(walls.get(number) or 0.0) for number in numbers])


def _behind(run: Reduced, steps: Sequence[int]) -> tuple[Floats, npt.NDArray[np.int64]]:
    """How much each member is behind of its own making in each step, and the group where that shows most.

    Who waited for others in another group since, is late for their fault: what it waited more there than the middle
    rank of this group is taken off.
    """
    sums = run.sums.sort("group", maintain_order=True)
    member, step = sums["member"].to_numpy(), np.searchsorted(np.array(steps), sums["step"].to_numpy())
    wait, late = sums["wait_ns"].to_numpy().astype(np.float64), sums["behind_ns"].to_numpy().astype(np.float64)
    shape = (len(run.members), len(steps))
    waited, behind = np.zeros(shape), np.zeros(shape)
    np.add.at(waited, (member, step), wait)
    most, where = np.full(shape[0], -1.0), np.zeros(shape[0], np.int64)
    edges = np.searchsorted(sums["group"].to_numpy(), np.arange(len(run.groups) + 1))
    for group, first, last in zip(run.groups, edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        if first == last:
            continue
        own = np.array(group.group.members)
        rows, columns = np.searchsorted(own, member[first:last]), step[first:last]
        late_here, waited_here = np.zeros((len(own), len(steps))), np.zeros((len(own), len(steps)))
        late_here[rows, columns], waited_here[rows, columns] = late[first:last], wait[first:last]
        elsewhere = waited[own] - waited_here
        made = np.maximum(late_here - np.maximum(elsewhere - _middle(elsewhere), 0.0), 0.0)
        behind[own] = np.maximum(behind[own], made)
        total = made.sum(axis=1)
        more = total > most[own]
        most[own[more]], where[own[more]] = total[more], group.number
    return behind, where


def _middle(values: Floats) -> Floats:
    """The middle of the rows, of two the lower."""
    middle: Floats = np.sort(values, axis=0)[(len(values) - 1) // 2]
    return middle


def _always(run: Reduced, behind: Floats, groups: npt.NDArray[np.int64], whole: float) -> list[Slow]:
    total = behind.sum(axis=1)
    excess = total - float(np.sort(total)[(len(total) - 1) // 2])
    spread = _ROBUST * float(np.median(np.abs(total - np.median(total))))
    last = _last(run)
    found = []
    for member in np.flatnonzero(excess >= SLOW_SHARE * whole) if whole else ():
        times, collectives = last.get((int(member), int(groups[member])), (0, 0))
        size = len(run.groups[groups[member]].group.members)
        by_chance = at_least(times, collectives, 1 / size) < _CHANCE / len(run.members)
        stands_out = len(total) < _FEWEST_RANKS or excess[member] > _OUTLIER * spread
        if by_chance and stands_out:
            found.append(
                Slow(int(member), int(groups[member]), int(total[member]), float(total[member]) / whole, times,
                     collectives, ())
            )  # fmt: skip
    return found


def _last(run: Reduced) -> dict[tuple[int, int], tuple[int, int]]:
    """How often each member was last in each group, and of how many collectives."""
    sums = run.sums.group_by("member", "group").agg(pl.col("last", "collectives").sum())
    return {(member, group): (last, many) for member, group, last, many in sums.iter_rows()}


def _sometimes(
    run: Reduced, behind: Floats, groups: npt.NDArray[np.int64], steps: Sequence[int], walls: Floats
) -> list[Slow]:
    """Ranks that stand out in some steps, if those cost a part of all the time."""
    whole, last = float(walls.sum()), _last(run)
    real = np.array(steps) >= 0
    standing_out = _standing_out(behind[:, real], walls[real])
    marked: dict[int, list[int]] = {}
    for column in np.flatnonzero(real)[standing_out]:
        marked.setdefault(int(behind[:, column].argmax()), []).append(int(column))
    if sum(float(behind[member, columns].sum()) for member, columns in marked.items()) < SLOW_SHARE * whole:
        return []
    return [
        Slow(member, int(groups[member]), int(behind[member, columns].sum()),
             float(behind[member, columns].sum()) / whole, *last.get((member, int(groups[member])), (0, 0)),
             tuple(steps[column] for column in columns))
        for member, columns in marked.items()
    ]  # fmt: skip


def _standing_out(behind: Floats, walls: Floats) -> npt.NDArray[np.bool_]:
    """The steps in which the rank that is most behind is so for more than chance."""
    worst = behind.max(axis=0, initial=0.0)
    if not worst.size:
        return np.zeros(0, bool)
    if len(behind) >= _STEP_RANKS:
        middle = np.median(behind, axis=0)
        spread = _ROBUST * np.median(np.abs(behind - middle), axis=0)
        usual = np.maximum(spread, np.median(spread))  # of few ranks, those of one step may be alike by chance
        found: npt.NDArray[np.bool_] = (worst >= _STEP_SHARE * walls) & (worst - middle > _STEP_OUTLIER * usual)
        return found
    # so few ranks have no spread: a step stands out among the steps, or somebody is late by as much in all of them
    more = worst - _middle(behind)  # what each is behind in turn evens out within a step
    enough: npt.NDArray[np.bool_] = more >= _STEP_SHARE_OF_FEW * walls
    middle_step = float(np.median(more))
    spread_of_steps = _ROBUST * float(np.median(np.abs(more - middle_step)))
    alike = len(more) >= _FEWEST_STEPS and float(np.quantile(more, 0.1)) >= _ALIKE * middle_step
    found = (more - middle_step > _STEP_OUTLIER * spread_of_steps) | alike
    return enough & found


def at_least(times: int, of: int, chance: float) -> float:
    """The probability of a thing of that chance to come about so many times or more."""
    if times <= 0:
        return 1.0
    terms = (
        math.lgamma(of + 1) - math.lgamma(each + 1) - math.lgamma(of - each + 1)
        + each * math.log(chance) + (of - each) * math.log1p(-chance)
        for each in range(times, of + 1)
    )  # fmt: skip
    return min(sum(math.exp(term) for term in terms), 1.0) if chance < 1 else 1.0
