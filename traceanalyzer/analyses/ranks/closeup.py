"""The collective that cost most, close up: what each of its ranks ran before and meanwhile, on one clock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from traceanalyzer.analyses.labels import label
from traceanalyzer.analyses.ranks.clocks import Clock
from traceanalyzer.analyses.ranks.detail import Stretches
from traceanalyzer.analyses.ranks.reduce import Reduced
from traceanalyzer.analyses.ranks.verdict import slow_ranks
from traceanalyzer.classify.names import short_name
from traceanalyzer.classify.rules import RuleTable
from traceanalyzer.trace import Trace

#: Ranks that are shown: the last ones to come, and others spread over the group.
MOST_LANES = 12
#: What is shown before the first start and behind the last end, as parts of the time between.
_BEFORE, _BEHIND = 0.5, 0.15
SEEN = pl.Schema({
    "name": pl.String(), "class": pl.String(), "stream": pl.String(), "start_ns": pl.Int64(), "end_ns": pl.Int64(),
})  # fmt: skip
#: Answers what ran in stretches of time: for each of them a frame as `SEEN` says.
See = Callable[[Sequence[Stretches]], Sequence[pl.DataFrame]]


@dataclass(frozen=True)
class Lane:
    """A rank of the collective. Times are ns after the latest start, on the reference's clock."""

    rank: int | None
    device: str | None
    start_ns: int
    end_ns: int
    kernels: pl.DataFrame
    """`SEEN`: device activity, the collective included."""


@dataclass(frozen=True)
class Closeup:
    """A collective and its ranks, in order of rank."""

    run: str
    group: str
    index: int
    name: str
    step: int | None
    wait_ns: int
    """Of all ranks, the ones that are not shown included."""
    last: int
    """Lane of the rank that came last."""
    lanes: tuple[Lane, ...]
    left_out: int
    """Ranks that are not shown."""
    from_ns: int
    until_ns: int


def closeup(runs: Sequence[Reduced], see: See) -> Closeup | None:
    """The collective with the longest waits of all runs, of those to which a slow rank came last, where there is one;
    None where no two ranks share any."""
    found = [(*each, number) for number, run in enumerate(runs) for each in _worst(run)]
    if not found:
        return None
    _, wait, group, index, number = max(found, key=lambda each: (each[0], each[1], -each[4], -each[2], -each[3]))
    return _closeup(runs[number], group, index, wait, see)


def _worst(run: Reduced) -> list[tuple[bool, int, int, int]]:
    """Whether a slow rank came last to it, the waits, group and index of the collective of a run that cost most."""
    holding = [each.number for each in run.groups if each.holds]
    rows = run.collectives.filter(pl.col("group").is_in(holding) & pl.col("sound"))
    slow = slow_ranks(run)[:1]
    late = pl.any_horizontal(pl.lit(value=False), *(
        (pl.col("last") == each.member) & (pl.col("group") == each.group) for each in slow
    ))  # fmt: skip
    sums = rows.group_by("group", "index").agg(late=late.first(), wait_ns=pl.col("wait_ns").sum())
    ordered = sums.sort("late", "wait_ns", "group", "index", descending=[True, True, False, False])
    return ordered.head(1).select("late", "wait_ns", "group", "index").rows()


def _closeup(run: Reduced, group: int, index: int, wait: int, see: See) -> Closeup:
    rows = run.collectives.filter((pl.col("group") == group) & (pl.col("index") == index)).sort("member")
    latest = int((rows["start_ns"] + rows["wait_ns"]).max())  # type: ignore[arg-type]
    shown = _chosen(rows)
    begin, end = int(rows["start_ns"].min()) - latest, int(rows["transfer_ns"].max())  # type: ignore[arg-type]
    length = max(end - begin, 1)
    since, until = begin - round(_BEFORE * length), end + round(_BEHIND * length)
    wanted = []
    for member in shown["member"]:
        edges = _on_own_clock(run.clocks[member], latest + since, latest + until)
        part = run.members[member].part
        wanted.append(Stretches(part.source, part.device, np.array(edges[:1]), np.array(edges[1:])))
    lanes = []
    for row, seen in zip(shown.iter_rows(named=True), see(wanted), strict=True):
        member, clock = run.members[row["member"]], run.clocks[row["member"]]
        moved = {name: pl.Series(clock.corrected(seen[name].to_numpy()) - latest) for name in ("start_ns", "end_ns")}
        lanes.append(
            Lane(member.rank, member.device, row["start_ns"] - latest, row["transfer_ns"], seen.with_columns(**moved))
        )
    last = shown["last"][0]
    kind = run.kinds[rows["kind"][0]]
    return Closeup(
        run.members[0].run, run.groups[group].group.label, index, kind.collective or short_name(kind.kernel),
        None if rows["step"][0] < 0 else rows["step"][0], wait, shown["member"].to_list().index(last), tuple(lanes),
        rows.height - shown.height, since, until,
    )  # fmt: skip


def _chosen(rows: pl.DataFrame) -> pl.DataFrame:
    """The latest third, and of the others so many as fit, spread over the group."""
    if rows.height <= MOST_LANES:
        return rows
    latest = rows.sort("wait_ns", "member").head(MOST_LANES // 3)
    others = rows.join(latest.select("member"), on="member", how="anti", maintain_order="left")
    at = np.unique(np.linspace(0, others.height - 1, MOST_LANES - latest.height).round().astype(int))
    return pl.concat([latest, others[at]]).sort("member")


def _on_own_clock(clock: Clock, *times: int) -> list[int]:
    """Times of the reference's clock on that of a rank."""
    if not clock.applied:
        return list(times)
    return [time + round(clock.offset_ns + clock.drift * (time - clock.middle_ns)) for time in times]


def activity_in(trace: Trace, stretches: Stretches, *, rules: RuleTable | None = None) -> pl.DataFrame:
    """`SEEN` of a device: all of its activity that touches the stretches."""
    own = trace.kernels.filter(
        (pl.col("source") == stretches.source) & pl.col("device").cast(pl.String).eq_missing(stretches.device)
    )
    end = pl.col("start_ns") + pl.col("duration_ns")
    inside = pl.any_horizontal(
        (pl.col("start_ns") < until) & (end > since)
        for since, until in zip(stretches.start_ns.tolist(), stretches.end_ns.tolist(), strict=True)
    )
    rows = own.filter(inside & (pl.col("duration_ns") >= 0))
    classes = label(rows.select("kind", "name"), rules).select("kind", "name", "class", "short_name")
    named = rows.join(classes, on=["kind", "name"], how="left", nulls_equal=True)
    seen = named.select(pl.col("short_name").alias("name"), "class", "stream", "start_ns", end.alias("end_ns"))
    return seen.select(pl.col(name).cast(kind) for name, kind in SEEN.items()).sort("start_ns", "end_ns", "name")
