"""Parts of all ranks of a run -> collectives paired, clocks aligned, waits measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from traceanalyzer.analyses.ranks.clocks import Clock, Ends, clocks
from traceanalyzer.analyses.ranks.groups import Group, Member, find_groups
from traceanalyzer.analyses.ranks.measure import RATES, SUMS, TABLE, Paired, measured
from traceanalyzer.analyses.ranks.numbered import Codes, MemberCalls, numbered
from traceanalyzer.analyses.ranks.pairing import Ints, Pairing, pair
from traceanalyzer.analyses.ranks.part import COMMUNICATION, Kind
from traceanalyzer.classify.rules import CLASSES

#: Rows of the table of collectives; of more, those of the longest waits are kept.
MOST_ROWS = 200_000


@dataclass(frozen=True)
class Reduced:
    """What is found of one run."""

    members: Sequence[Member]
    groups: Sequence[Paired]
    clocks: Sequence[Clock]
    shifts: Sequence[int]
    """What is added to the number of a member's step, so that steps of one number are the same step."""
    kinds: Sequence[Kind]
    per_step: pl.DataFrame
    """The parts' `steps` with `member`, `compute_ns`, `exposed_ns`; steps of one number are one step, -1 is none."""
    sums: pl.DataFrame
    """`SUMS` of the groups that hold; step -1 is outside of all steps."""
    collectives: pl.DataFrame
    """`TABLE`: one row per collective and member; `last` is a member."""
    rates: pl.DataFrame
    """`RATES` of the groups that hold."""
    left_out: int
    """Rows of `collectives` that were too many."""


def reduce_run(members: Sequence[Member]) -> Reduced:
    """Pair the collectives of one run's ranks, align clocks, and measure waits."""
    codes = Codes()
    found = [(group, numbered(group, members, codes)) for group in find_groups(members) if len(group.members) > 1]
    paired = [(group, calls, pair([each.calls for each in calls])) for group, calls in found]
    aligned = clocks(len(members), [_ends(*each) for each in paired])
    shifts = _step_shifts(len(members), paired)
    groups = [_described(number, *each, shifts) for number, each in enumerate(paired)]
    whole = sum(each.rows for each in groups)
    results = [measured(each, aligned, codes.kinds, keep=MOST_ROWS / max(whole, 1)) for each in groups]
    sound = [each for each in results if each.paired.holds]
    table = pl.concat([each.table for each in results]) if results else pl.DataFrame(schema=TABLE)
    return Reduced(
        members, groups, aligned, shifts, codes.kinds, _per_step(members, shifts),
        sums=pl.concat([each.sums for each in sound]) if sound else pl.DataFrame(schema=SUMS),
        collectives=table,
        rates=pl.concat([each.rates for each in sound]) if sound else pl.DataFrame(schema=RATES),
        left_out=whole - table.height,
    )  # fmt: skip


def _per_step(members: Sequence[Member], shifts: Sequence[int]) -> pl.DataFrame:
    """Times of every member and step, in one piece."""
    whole = pl.concat([member.part.steps for member in members], rechunk=True)
    heights = [member.part.steps.height for member in members]
    classes = [name for name in CLASSES if name not in (COMMUNICATION, "memory")]
    step = pl.col("step").cast(pl.Int64) + pl.Series(np.repeat(np.array(shifts, np.int64), heights))
    return whole.with_columns(
        member=pl.Series(np.repeat(np.arange(len(members), dtype=np.uint32), heights)), step=step.fill_null(-1),
        compute_ns=pl.sum_horizontal(f"{name}_ns" for name in classes),
        exposed_ns=pl.col("busy_ns") - pl.col("work_ns"),
    )  # fmt: skip


def _ends(group: Group, calls: Sequence[MemberCalls], pairing: Pairing) -> Ends:
    """Ends of the group's collectives: of those that hold their ranks together, or of all where there is none such."""
    strict = not all(each.loose.all() for each in calls)
    kept = [(place >= 0) & ~(each.loose & strict) for place, each in zip(pairing.places, calls, strict=True)]
    return Ends(
        group.members,
        [place[own] for place, own in zip(pairing.places, kept, strict=True)],
        [each.calls.end_ns[own] for each, own in zip(calls, kept, strict=True)],
    )


def _step_shifts(count: int, groups: Sequence[tuple[Group, Sequence[MemberCalls], Pairing]]) -> list[int]:
    """How steps of members are numbered against those of the first: by most of the collectives that they share."""
    shifts: dict[int, int] = {}
    waiting = sorted(groups, key=lambda each: -len(each[0].members))
    for first in range(count):
        if first in shifts:
            continue
        shifts[first] = 0
        while usable := next((each for each in waiting if any(one in shifts for one in each[0].members)), None):
            waiting.remove(usable)
            _follow(*usable, shifts)
    return [shifts[member] for member in range(count)]


def _follow(group: Group, calls: Sequence[MemberCalls], pairing: Pairing, shifts: dict[int, int]) -> None:
    """The shifts of the other members of a group of which one is known."""
    hub = next(at for at, member in enumerate(group.members) if member in shifts)
    if all(member in shifts for member in group.members):
        return
    of_hub = _spread(pairing.places[hub], calls[hub].steps, pairing.count)
    for at, member in enumerate(group.members):
        if member not in shifts:
            own = _spread(pairing.places[at], calls[at].steps, pairing.count)
            both = (own >= 0) & (of_hub >= 0)
            apart, often = np.unique(of_hub[both] - own[both], return_counts=True)
            shifts[member] = shifts[group.members[hub]] + (int(apart[np.argmax(often)]) if len(apart) else 0)


def _spread(places: Ints, values: Ints, count: int) -> Ints:
    """Values of calls by the number of their collective; -1 where there is none."""
    spread = np.full(count, -1, np.int64)
    spread[places[places >= 0]] = values[places >= 0]
    return spread


def _described(
    number: int, group: Group, calls: Sequence[MemberCalls], pairing: Pairing, shifts: Sequence[int]
) -> Paired:
    """The group with step, kind and number of each collective, from the first member that knows."""
    steps, kinds = np.full(pairing.count, -1, np.int64), np.full(pairing.count, -1, np.int64)
    sequences = np.full(pairing.count, -1, np.int64) if pairing.method == "sequence" else None
    for member, place, own in zip(group.members, pairing.places, calls, strict=True):
        paired = place >= 0
        where, known = place[paired], own.steps[paired] >= 0
        steps[where] = np.where((steps[where] < 0) & known, own.steps[paired] + shifts[member], steps[where])
        kinds[where] = np.where(kinds[where] < 0, own.kinds[paired], kinds[where])
        if sequences is not None and own.calls.sequence is not None:
            sequences[where] = own.calls.sequence[paired]
    return Paired(number, group, calls, pairing, steps, kinds, sequences)
