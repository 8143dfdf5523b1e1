"""Which rank is slow, and who waits for whom: the tables of a trace, or of the parts of many files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from traceanalyzer.analyses.arguments import need_trace
from traceanalyzer.analyses.ranks import notices, tables
from traceanalyzer.analyses.ranks.detail import Question, Stretches, because, questions, reasons, work_in
from traceanalyzer.analyses.ranks.groups import AXES, Member
from traceanalyzer.analyses.ranks.part import RankPart, rank_parts
from traceanalyzer.analyses.ranks.reduce import Reduced, reduce_run
from traceanalyzer.analyses.ranks.tables import CULPRITS, DEFINITIONS, REASONS, stacked
from traceanalyzer.analyses.ranks.verdict import Slow, slow_ranks
from traceanalyzer.analyses.steps.find import Found, find_steps
from traceanalyzer.analyses.stretch import need_whole
from traceanalyzer.classify.rules import RuleTable
from traceanalyzer.notes import Note
from traceanalyzer.text import natural_key
from traceanalyzer.trace import Trace

__all__ = ["DEFINITIONS", "Imbalance", "Look", "imbalance", "runs_of", "together"]

#: Answers questions about events: for each of the stretches its `detail.WORK`.
Look = Callable[[Sequence[Stretches]], Sequence[pl.DataFrame]]


@dataclass(frozen=True)
class Imbalance:
    """What ranks of each run do differently, and what it costs. Times are ns; unknown is null."""

    rows: pl.DataFrame
    """By run, rank, device and class."""
    ranks: pl.DataFrame
    steps: pl.DataFrame
    stages: pl.DataFrame
    """By run and pipeline stage, where stages are known: how much of a step no compute runs."""
    collectives: pl.DataFrame
    """One row per collective and rank; `start_ns` on the reference's clock, after the first collective of the run."""
    clocks: pl.DataFrame
    groups: pl.DataFrame
    rates: pl.DataFrame
    culprits: pl.DataFrame
    """Ranks that the others wait for beyond chance, the worst first; none is a good sign."""
    reasons: pl.DataFrame
    """What each of them spent more time on than a rank that came in time, between collectives to which it was late."""
    notes: tuple[Note, ...]


def imbalance(
    trace: Trace, *, marker: str | None = None, found: Found | None = None, rules: RuleTable | None = None
) -> Imbalance:
    """Compare the ranks of each run of a trace.

    `marker` is a regular expression for the names of step markers; `found` is what `find_steps` gave, where it is at
    hand already.
    """
    need_trace(trace, "imbalance")
    need_whole(trace, "imbalance")
    parts = rank_parts(trace, found=found or find_steps(trace, marker=marker), rules=rules)
    runs = [reduce_run(members) for members in runs_of(trace.ranks, parts).values()]
    return together(runs, lambda wanted: [work_in(trace, each, rules=rules) for each in wanted])


def runs_of(ranks: pl.DataFrame, parts: Iterable[RankPart]) -> dict[str, list[Member]]:
    """The members of each run, runs by name, members by rank and device.

    `ranks` is the table of that name, and the `source` of a part is a row of it.
    """
    about = {row["source"]: row for row in ranks.filter(pl.col("used")).iter_rows(named=True)}
    members = [
        Member(
            run=row["run"], rank=row["rank"], path=row["path"], axes={axis: row[axis] for axis in AXES},
            world=row["world_size"], process_groups=row["process_groups"], part=part,
        )
        for part in parts for row in [about[part.source]]
    ]  # fmt: skip
    runs: dict[str, list[Member]] = {}
    for run in sorted({member.run for member in members}, key=natural_key):
        own = [member for member in members if member.run == run]
        runs[run] = sorted(own, key=_place)
    return runs


def _place(member: Member) -> tuple[bool, int, int, tuple[bool, object]]:
    device = member.device
    return member.rank is None, member.rank or 0, member.part.source, (device is None, natural_key(device or ""))


def together(runs: Sequence[Reduced], look: Look) -> Imbalance:
    """The tables of several runs.

    `look` is asked once for each run, about the ranks that are late and those that they are compared with.
    """
    culprits = [_culprits(run, look) for run in runs]
    return Imbalance(
        rows=stacked((tables.class_rows(run) for run in runs), tables.ROWS),
        ranks=stacked((tables.rank_rows(run) for run in runs), tables.RANKS),
        steps=stacked((tables.step_rows(run) for run in runs), tables.STEPS),
        stages=stacked((tables.stage_rows(run) for run in runs), tables.STAGES),
        collectives=stacked((tables.collective_rows(run) for run in runs), tables.COLLECTIVES),
        clocks=stacked((tables.clock_rows(run) for run in runs), tables.CLOCKS),
        groups=stacked((tables.group_rows(run) for run in runs), tables.GROUPS),
        rates=stacked((tables.rate_rows(run) for run in runs), tables.RATES),
        culprits=stacked((each[0] for each in culprits), CULPRITS),
        reasons=stacked((each[1] for each in culprits), REASONS),
        notes=tuple(note for run in runs for note in notices.notes(run)),
    )


def _culprits(run: Reduced, look: Look) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Who is late, and why: `CULPRITS` and `REASONS`."""
    slow = slow_ranks(run)
    asked = questions(run, slow)
    seen = list(look([each for one in asked for each in (one.late, one.in_time)])) if asked else []
    found = {
        one.slow.member: (one, reasons(one, late, in_time))
        for one, late, in_time in zip(asked, seen[::2], seen[1::2], strict=True)
    }
    rows = [_culprit(run, each, *found.get(each.member, (None, None))) for each in slow]
    why = [
        rows_of.with_columns(
            run=pl.lit(run.members[member].run), rank=pl.lit(run.members[member].rank, pl.Int32),
            device=pl.lit(run.members[member].device, pl.String),
        )
        for member, (_, rows_of) in found.items()
    ]  # fmt: skip
    return pl.DataFrame(rows, schema=CULPRITS), stacked(why, REASONS)


def _culprit(run: Reduced, slow: Slow, asked: Question | None, rows: pl.DataFrame | None) -> dict[str, Any]:
    member = run.members[slow.member]
    row: dict[str, Any] = dict.fromkeys(CULPRITS)
    row |= {
        "run": member.run, "rank": member.rank, "device": member.device,
        "group": run.groups[slow.group].group.label, "behind_ns": slow.behind_ns, "share": slow.share,
        "last": slow.last, "collectives": slow.collectives, "steps": list(slow.steps),
    }  # fmt: skip
    if asked is None or rows is None:
        return row
    peer, why = run.members[asked.peer], because(rows, asked.delay_ns)
    row |= {"peer_rank": peer.rank, "peer_device": peer.device, "delay_ns": asked.delay_ns, "because": why.what}
    if why.what is not None:
        row |= {"name": why.name, "extra_ns": why.extra_ns, "extra_count": why.extra_count, "because_share": why.share}
    return row
