"""Which rank is slow, and who waits for whom: the tables of a trace, or of the parts of many files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from traceanalyzer.analyses.arguments import need_trace
from traceanalyzer.analyses.ranks import detail
from traceanalyzer.analyses.ranks.detail import Question, Stretches, because, questions, reasons, work_in
from traceanalyzer.analyses.ranks.groups import AXES, Member
from traceanalyzer.analyses.ranks.measure import Paired
from traceanalyzer.analyses.ranks.part import COMMUNICATION, RankPart, rank_parts
from traceanalyzer.analyses.ranks.reduce import Reduced, reduce_run
from traceanalyzer.analyses.ranks.verdict import Slow, slow_ranks
from traceanalyzer.analyses.steps.find import Found, find_steps
from traceanalyzer.analyses.stretch import need_whole
from traceanalyzer.classify.names import short_name
from traceanalyzer.classify.rules import CLASSES, RuleTable
from traceanalyzer.notes import Note
from traceanalyzer.text import counted, listed, natural_key
from traceanalyzer.trace import Trace

#: What each figure is, word for word as it is shown with `--explain`.
DEFINITIONS = {
    "total_ns": "plain sum of the durations of the class on the device",
    "ratio_to_median": "total / middle of the totals of the class over the devices of the run",
    "compute_ns": "plain sum of all classes but communication and memory",
    "communication_ns": "plain sum of the durations of communication kernels: wait and transfer",
    "wait_ns": "latest start of the collective over its ranks - own start, on one clock",
    "transfer_ns": "own end - latest start of the collective over its ranks, on one clock; negative where that cannot "
    "be, which is counted and said",
    "last": "how often the device came last to a collective",
    "last_rank": "rank that came last to the collective; last_device: its device",
    "behind_ns": "how much later than the middle rank of its group the device came to collectives, summed over those "
    "where it came later",
    "waited_for_ns": "time that the others waited in collectives to which the device came last",
    "offset_ns": "its clock minus that of the reference rank: median difference of the ends of shared collectives",
    "drift_ppm": "how much the offset grows, millionths; 0 where it cannot be told from the scatter",
    "residual_ns": "median absolute deviation of the ends from offset and drift",
    "applied": "whether times were corrected: only where the offset exceeds 3 times the residual, or the drift does "
    "over the length of the recording",
    "share": "of a slow rank: what it is behind of its own making, as part of the time of all steps (of the span where "
    "there are none)",
    "delay_ns": "how much longer the slow rank took than its peer from the end of one collective to the start of the "
    "next, where it was late",
    "because": "what most of the delay is: a kernel that took longer or ran more often, idle time by its cause, or "
    "communication in other groups; null where no one thing makes up 30 % of it",
    "extra_ns": "what the slow rank spent more on that than its peer, in those stretches",
    "pairing": "how calls of several ranks were paired: by recorded number (sequence), by order, by order from another "
    "first call on (shifted), or by time; none: it does not hold, and no figure is made of the group",
    "negative": "collectives with a negative transfer on some rank",
    "mismatched": "paired calls that differ in kernel or size",
    "bytes": "message of a rank: what all-reduce, reduce-scatter and all-to-all send, what all-gather receives",
    "gb_per_s": "algorithm bandwidth: bytes / middle transfer time of the slowest rank",
    "bus_gb_per_s": "bus bandwidth: the same times 2(n-1)/n for all-reduce, (n-1)/n for reduce-scatter, all-gather and "
    "all-to-all, 1 for broadcast and reduce, as nccl-tests defines it",
}
_UNIT = pl.Schema({"run": pl.String(), "rank": pl.Int32(), "device": pl.String()})
ROWS = pl.Schema({
    **_UNIT, "class": pl.String(), "total_ns": pl.Int64(), "median_ns": pl.Int64(), "ratio_to_median": pl.Float64(),
})  # fmt: skip
RANKS = pl.Schema({
    **_UNIT, "path": pl.String(), "span_ns": pl.Int64(), "busy_ns": pl.Int64(), "idle_ns": pl.Int64(),
    "compute_ns": pl.Int64(), "communication_ns": pl.Int64(), "wait_ns": pl.Int64(), "transfer_ns": pl.Int64(),
    "collectives": pl.Int64(), "last": pl.Int64(), "behind_ns": pl.Int64(), "waited_for_ns": pl.Int64(),
})  # fmt: skip
STEPS = pl.Schema({
    **_UNIT, "step": pl.Int64(), "kind": pl.String(), "wall_ns": pl.Int64(), "busy_ns": pl.Int64(),
    "idle_ns": pl.Int64(), "compute_ns": pl.Int64(), "communication_ns": pl.Int64(), "wait_ns": pl.Int64(),
    "transfer_ns": pl.Int64(), "collectives": pl.Int64(), "last": pl.Int64(), "behind_ns": pl.Int64(),
    "waited_for_ns": pl.Int64(),
})  # fmt: skip
COLLECTIVES = pl.Schema({
    "run": pl.String(), "group": pl.String(), "index": pl.Int64(), "sequence": pl.Int64(), "name": pl.String(),
    "step": pl.Int64(), "rank": pl.Int32(), "device": pl.String(), "start_ns": pl.Int64(), "wait_ns": pl.Int64(),
    "transfer_ns": pl.Int64(), "last_rank": pl.Int32(), "last_device": pl.String(),
})  # fmt: skip
CLOCKS = pl.Schema({
    **_UNIT, "offset_ns": pl.Int64(), "drift_ppm": pl.Float64(), "residual_ns": pl.Int64(), "applied": pl.Boolean(),
    "collectives": pl.Int64(),
})  # fmt: skip
GROUPS = pl.Schema({
    "run": pl.String(), "group": pl.String(), "axis": pl.String(), "size": pl.Int32(), "ranks": pl.List(pl.Int32()),
    "ranks_missing": pl.List(pl.Int32()), "pairing": pl.String(), "collectives": pl.Int64(), "unpaired": pl.Int64(),
    "mismatched": pl.Int64(), "negative": pl.Int64(), "wait_ns": pl.Int64(), "transfer_ns": pl.Int64(),
})  # fmt: skip
RATES = pl.Schema({
    "run": pl.String(), "group": pl.String(), "name": pl.String(), "kernel": pl.String(), "count": pl.Int64(),
    "bytes": pl.Int64(), "transfer_ns": pl.Int64(), "gb_per_s": pl.Float64(), "bus_gb_per_s": pl.Float64(),
})  # fmt: skip
CULPRITS = pl.Schema({
    **_UNIT, "group": pl.String(), "behind_ns": pl.Int64(), "share": pl.Float64(), "last": pl.Int64(),
    "collectives": pl.Int64(), "steps": pl.List(pl.Int64()), "peer_rank": pl.Int32(), "peer_device": pl.String(),
    "delay_ns": pl.Int64(), "because": pl.String(), "name": pl.String(), "extra_ns": pl.Int64(),
    "extra_count": pl.Int64(), "because_share": pl.Float64(),
})  # fmt: skip
REASONS = pl.Schema({**_UNIT, **detail.REASONS})

#: Answers questions about events: for each of the stretches its `detail.WORK`.
Look = Callable[[Sequence[Stretches]], Sequence[pl.DataFrame]]


@dataclass(frozen=True)
class Imbalance:
    """What ranks of each run do differently, and what it costs. Times are ns; unknown is null."""

    rows: pl.DataFrame
    """By run, rank, device and class."""
    ranks: pl.DataFrame
    steps: pl.DataFrame
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
    return reduced(trace.ranks, parts, lambda wanted: [work_in(trace, each, rules=rules) for each in wanted])


def reduced(ranks: pl.DataFrame, parts: Iterable[RankPart], look: Look) -> Imbalance:
    """Put parts together; `ranks` is the table of that name, and the `source` of a part is a row of it.

    `look` is asked once for each run, about the ranks that are late and those that they are compared with.
    """
    return together([reduce_run(members) for members in runs_of(ranks, parts).values()], look)


def runs_of(ranks: pl.DataFrame, parts: Iterable[RankPart]) -> dict[str, list[Member]]:
    """The members of each run, runs by name, members by rank and device."""
    about = {row["source"]: row for row in ranks.filter(pl.col("used")).iter_rows(named=True)}
    members = [
        Member(
            run=row["run"], rank=row["rank"], path=row["path"], axes={axis: row[axis] for axis in AXES},
            world=row["world_size"], part=part,
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
    """The tables of several runs."""
    culprits = [_culprits(run, look) for run in runs]
    return Imbalance(
        rows=_all((_class_rows(run) for run in runs), ROWS),
        ranks=_all((_rank_rows(run) for run in runs), RANKS),
        steps=_all((_step_rows(run) for run in runs), STEPS),
        collectives=_all((_collective_rows(run) for run in runs), COLLECTIVES),
        clocks=_all((_clock_rows(run) for run in runs), CLOCKS),
        groups=_all((_group_rows(run) for run in runs), GROUPS),
        rates=_all((_rate_rows(run) for run in runs), RATES),
        culprits=_all((each[0] for each in culprits), CULPRITS),
        reasons=_all((each[1] for each in culprits), REASONS),
        notes=tuple(note for run in runs for note in _notes(run)),
    )


def _all(frames: Iterable[pl.DataFrame], schema: pl.Schema) -> pl.DataFrame:
    found = [frame.select(pl.col(name).cast(kind) for name, kind in schema.items()) for frame in frames]
    return pl.concat(found) if found else pl.DataFrame(schema=schema)


def _units(run: Reduced) -> pl.DataFrame:
    """Who the members are, by number."""
    return pl.DataFrame(
        [(number, member.run, member.rank, member.device) for number, member in enumerate(run.members)],
        schema={"member": pl.UInt32, **_UNIT}, orient="row",
    )  # fmt: skip


def _per_step(run: Reduced) -> pl.DataFrame:
    """Times of every member and step; -1 is what belongs to none."""
    classes = [name for name in CLASSES if name not in (COMMUNICATION, "memory")]
    frames = [
        member.part.steps.with_columns(
            member=pl.lit(number, pl.UInt32), step=(pl.col("step").cast(pl.Int64) + shift).fill_null(-1),
            compute_ns=pl.sum_horizontal(f"{name}_ns" for name in classes),
        )
        for number, (member, shift) in enumerate(zip(run.members, run.shifts, strict=True))
    ]  # fmt: skip
    return pl.concat(frames)


def _class_rows(run: Reduced) -> pl.DataFrame:
    names = [f"{name}_ns" for name in CLASSES]
    totals = _per_step(run).group_by("member").agg(pl.col(names).sum())
    rows = totals.unpivot(names, index="member", variable_name="class", value_name="total_ns").with_columns(
        pl.col("class").str.strip_suffix("_ns")
    )
    rows = rows.filter(pl.col("total_ns").sum().over("class") > 0)
    median = pl.col("total_ns").median().over("class")
    rows = rows.with_columns(
        median_ns=median.round().cast(pl.Int64), ratio_to_median=pl.when(median > 0).then(pl.col("total_ns") / median)
    )
    return _units(run).join(rows, on="member").sort("member", "total_ns", "class", descending=[False, True, False])


def _rank_rows(run: Reduced) -> pl.DataFrame:
    times = pl.DataFrame(
        [(n, m.path, *(m.part.facts[name] for name in ("span_ns", "busy_ns", "idle_ns")))
         for n, m in enumerate(run.members)],
        schema={"member": pl.UInt32, "path": pl.String, "span_ns": pl.Int64, "busy_ns": pl.Int64, "idle_ns": pl.Int64},
        orient="row",
    )  # fmt: skip
    work = _per_step(run).group_by("member").agg(pl.col("compute_ns", "communication_ns").sum())
    waits = run.sums.group_by("member").agg(pl.exclude("group", "step").sum())
    joined = _units(run).join(times, on="member").join(work, on="member", how="left")
    return joined.join(waits, on="member", how="left").sort("member")


def _step_rows(run: Reduced) -> pl.DataFrame:
    waits = run.sums.group_by("member", "step").agg(pl.exclude("group").sum())
    rows = _per_step(run).join(waits, on=["member", "step"], how="left")
    there = (pl.col("step") >= 0) | (pl.col("wall_ns") > 0) | (pl.col("kernels") > 0)
    named = _units(run).join(rows.filter(there), on="member").sort("member", "step")
    return named.with_columns(step=pl.when(pl.col("step") >= 0).then("step"))


def _name(run: Reduced, kind: int) -> str:
    what = run.kinds[kind]
    return what.collective or short_name(what.kernel)


def _collective_rows(run: Reduced) -> pl.DataFrame:
    table = run.collectives.sort("group", "index", "member")
    names = {number: _name(run, number) for number in table["kind"].unique().to_list()}
    labels = {each.number: each.group.label for each in run.groups}
    units = _units(run)
    last = units.select(last="member", last_rank="rank", last_device="device")
    return table.join(units, on="member", maintain_order="left").join(
        last, on="last", how="left", maintain_order="left"
    ).with_columns(
        group=pl.col("group").replace_strict(labels, return_dtype=pl.String),
        name=pl.col("kind").replace_strict(names, return_dtype=pl.String),
        step=pl.when(pl.col("step") >= 0).then("step"),
        start_ns=pl.col("start_ns") - pl.col("start_ns").min(),
    )  # fmt: skip


def _clock_rows(run: Reduced) -> pl.DataFrame:
    rows = [
        (n, round(clock.offset_ns), clock.drift * 1e6, None if clock.residual_ns is None else round(clock.residual_ns),
         clock.applied, clock.collectives)
        for n, clock in enumerate(run.clocks)
    ]  # fmt: skip
    schema = pl.Schema({"member": pl.UInt32(), **{name: kind for name, kind in CLOCKS.items() if name not in _UNIT}})
    return _units(run).join(pl.DataFrame(rows, schema=schema, orient="row"), on="member")


def _group_rows(run: Reduced) -> pl.DataFrame:
    sums = run.sums.group_by("group").agg(pl.col("wait_ns", "transfer_ns").sum())
    times = {group: (wait, transfer) for group, wait, transfer in sums.iter_rows()}
    rows = []
    for each in run.groups:
        wait, transfer = times.get(each.number, (None, None))
        ranks = sorted(rank for at in each.group.members if (rank := run.members[at].rank) is not None)
        rows.append({
            "run": run.members[0].run, "group": each.group.label, "axis": each.group.axis,
            "size": len(each.group.ranks) if each.group.ranks else each.group.size, "ranks": ranks,
            "ranks_missing": list(each.group.missing), "pairing": each.pairing.method if each.holds else "none",
            "collectives": each.pairing.count, "unpaired": each.pairing.unpaired,
            "mismatched": each.pairing.mismatched, "negative": each.negative, "wait_ns": wait, "transfer_ns": transfer,
        })  # fmt: skip
    return pl.DataFrame(rows, schema=GROUPS)


def _rate_rows(run: Reduced) -> pl.DataFrame:
    labels = {each.number: each.group.label for each in run.groups}
    rows = [
        {**row, "run": run.members[0].run, "group": labels[row["group"]], "name": _name(run, row["kind"]),
         "kernel": run.kinds[row["kind"]].kernel}
        for row in run.rates.iter_rows(named=True)
    ]  # fmt: skip
    return pl.DataFrame([{name: row[name] for name in RATES} for row in rows], schema=RATES)


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
    return pl.DataFrame(rows, schema=CULPRITS), _all(why, REASONS)


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


# ------------------------------------------------------------------------------------------- notes


def _notes(run: Reduced) -> Iterable[Note]:
    for each in run.groups:
        yield from _notes_on(run.members[0].run, each)
    moved = sum(clock.applied for clock in run.clocks)
    if moved:
        largest = max((clock for clock in run.clocks if clock.applied), key=lambda clock: abs(clock.offset_ns))
        text = (
            f"run {run.members[0].run}: clocks of {counted(moved, 'rank')} were moved onto that of the first, by up "
            f"to {abs(largest.offset_ns) / 1e3:,.1f} µs"
        )
        yield Note("info", "clocks-aligned", text, None, moved)
    if run.left_out:
        text = (
            f"run {run.members[0].run}: rows of collectives of short waits are left out of the table; all count in "
            "every other figure"
        )
        yield Note("info", "collectives-left-out", text, None, run.left_out)


def _notes_on(run: str, each: Paired) -> Iterable[Note]:
    where = f"run {run}: group {each.group.label}"
    if each.group.missing:
        text = f"{where}: no file of {_ranks(each.group.missing)}; who waits for them is not seen"
        yield Note("warning", "group-incomplete", text, None, len(each.group.missing))
    calls = sum(len(own.calls) for own in each.calls)
    if not calls:
        return
    if not each.holds:
        why = (
            f"{each.negative:,} of {each.pairing.count:,} collectives would end before the last rank came"
            if each.pairing.count
            else "their order, kernels and ends do not fit together"
        )
        text = f"{where}: the calls of its ranks could not be paired ({why}); no wait is told"
        yield Note("warning", "pairing-failed", text, None, calls)
        return
    if each.negative:
        text = f"{where}: collectives that end on a rank before the last one came; nobody is blamed for them"
        yield Note("warning", "negative-transfer", text, None, each.negative)
    if each.pairing.unpaired:
        text = f"{where}: calls of communication without a partner on another rank"
        yield Note("warning", "collective-unpaired", text, None, each.pairing.unpaired)
    if each.pairing.mismatched:
        text = f"{where}: paired calls that differ in kernel or size"
        yield Note("warning", "collective-mismatch", text, None, each.pairing.mismatched)
    if each.pairing.method in ("shifted", "time"):
        how = "from another first call on" if each.pairing.method == "shifted" else "by the time of their ends"
        unsure = f", and {each.pairing.ambiguous} could be paired in other ways" if each.pairing.ambiguous else ""
        text = f"{where}: the ranks recorded different calls; they were paired {how}{unsure}"
        level = "warning" if each.pairing.ambiguous else "info"
        yield Note(level, "pairing-shifted", text, None, calls)  # type: ignore[arg-type]
    if not each.group.known:
        text = f"{where}: calls that name no process group are taken for those of one group of all ranks"
        yield Note("info", "group-unknown", text, None, calls)


def _ranks(numbers: Sequence[int]) -> str:
    return f"rank{'' if len(numbers) == 1 else 's'} {listed([str(each) for each in numbers], at_most=8)}"
