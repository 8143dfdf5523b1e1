"""The tables of the comparison of ranks: what is in them, and how they are made of what was found of a run."""

from __future__ import annotations

from collections.abc import Iterable

import polars as pl

from traceanalyzer.analyses.ranks import detail
from traceanalyzer.analyses.ranks.groups import stage_of
from traceanalyzer.analyses.ranks.reduce import Reduced
from traceanalyzer.analyses.ranks.verdict import own_behind
from traceanalyzer.classify.names import short_name
from traceanalyzer.classify.rules import CLASSES

#: What each figure is, word for word as it is shown with `--explain`.
DEFINITIONS = {
    "total_ns": "plain sum of the durations of the class on the device",
    "ratio_to_median": "total / middle of the totals of the class over the devices of the run",
    "compute_ns": "plain sum of all classes but communication and memory",
    "exposed_ns": "time in which communication ran and nothing else did",
    "bubble_ns": "of the mean step of a rank of the pipeline stage: wall - time in which anything but communication "
    "ran; idle and exposed communication, sends and receives included",
    "communication_ns": "plain sum of the durations of communication kernels: wait and transfer",
    "wait_ns": "latest start of the collective over its ranks - own start, on one clock",
    "transfer_ns": "own end - latest start of the collective over its ranks, on one clock; negative where that cannot "
    "be, which is counted and said",
    "last": "how often the device came last to a collective",
    "last_rank": "rank that came last to the collective; last_device: its device",
    "behind_ns": "how much later than the middle rank of its group the device came to collectives, summed over those "
    "where it came later",
    "own_behind_ns": "the same, without what it was held up itself: in a step it counts the group where it was most "
    "behind, less what it waited more in other groups than the middle rank of that group",
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
UNIT = pl.Schema({"run": pl.String(), "rank": pl.Int32(), "device": pl.String()})
ROWS = pl.Schema({
    **UNIT, "class": pl.String(), "total_ns": pl.Int64(), "median_ns": pl.Int64(), "ratio_to_median": pl.Float64(),
})  # fmt: skip
RANKS = pl.Schema({
    **UNIT, "path": pl.String(), "span_ns": pl.Int64(), "busy_ns": pl.Int64(), "idle_ns": pl.Int64(),
    "compute_ns": pl.Int64(), "communication_ns": pl.Int64(), "exposed_ns": pl.Int64(), "wait_ns": pl.Int64(),
    "transfer_ns": pl.Int64(), "collectives": pl.Int64(), "last": pl.Int64(), "behind_ns": pl.Int64(),
    "own_behind_ns": pl.Int64(), "waited_for_ns": pl.Int64(),
})  # fmt: skip
STEPS = pl.Schema({
    **UNIT, "step": pl.Int64(), "kind": pl.String(), "wall_ns": pl.Int64(), "busy_ns": pl.Int64(),
    "idle_ns": pl.Int64(), "compute_ns": pl.Int64(), "communication_ns": pl.Int64(), "exposed_ns": pl.Int64(),
    "wait_ns": pl.Int64(),
    "transfer_ns": pl.Int64(), "collectives": pl.Int64(), "last": pl.Int64(), "behind_ns": pl.Int64(),
    "own_behind_ns": pl.Int64(), "waited_for_ns": pl.Int64(),
})  # fmt: skip
STAGES = pl.Schema({
    "run": pl.String(), "stage": pl.Int32(), "ranks": pl.List(pl.Int32()), "steps": pl.Int64(), "wall_ns": pl.Int64(),
    "work_ns": pl.Int64(), "bubble_ns": pl.Int64(), "bubble_share": pl.Float64(),
})  # fmt: skip
COLLECTIVES = pl.Schema({
    "run": pl.String(), "group": pl.String(), "index": pl.Int64(), "sequence": pl.Int64(), "name": pl.String(),
    "step": pl.Int64(), "rank": pl.Int32(), "device": pl.String(), "start_ns": pl.Int64(), "wait_ns": pl.Int64(),
    "transfer_ns": pl.Int64(), "last_rank": pl.Int32(), "last_device": pl.String(),
})  # fmt: skip
CLOCKS = pl.Schema({
    **UNIT, "offset_ns": pl.Int64(), "drift_ppm": pl.Float64(), "residual_ns": pl.Int64(), "applied": pl.Boolean(),
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
    **UNIT, "group": pl.String(), "behind_ns": pl.Int64(), "share": pl.Float64(), "last": pl.Int64(),
    "collectives": pl.Int64(), "steps": pl.List(pl.Int64()), "peer_rank": pl.Int32(), "peer_device": pl.String(),
    "delay_ns": pl.Int64(), "because": pl.String(), "name": pl.String(), "extra_ns": pl.Int64(),
    "extra_count": pl.Int64(), "because_share": pl.Float64(),
})  # fmt: skip
REASONS = pl.Schema({**UNIT, **detail.REASONS})


def stacked(frames: Iterable[pl.DataFrame], schema: pl.Schema) -> pl.DataFrame:
    found = [frame.select(pl.col(name).cast(kind) for name, kind in schema.items()) for frame in frames]
    return pl.concat(found) if found else pl.DataFrame(schema=schema)


def units(run: Reduced) -> pl.DataFrame:
    """Who the members are, by number."""
    return pl.DataFrame(
        [(number, member.run, member.rank, member.device) for number, member in enumerate(run.members)],
        schema={"member": pl.UInt32, **UNIT}, orient="row",
    )  # fmt: skip


def class_rows(run: Reduced) -> pl.DataFrame:
    names = [f"{name}_ns" for name in CLASSES]
    totals = run.per_step.group_by("member").agg(pl.col(names).sum())
    rows = totals.unpivot(names, index="member", variable_name="class", value_name="total_ns").with_columns(
        pl.col("class").str.strip_suffix("_ns")
    )
    rows = rows.filter(pl.col("total_ns").sum().over("class") > 0)
    median = pl.col("total_ns").median().over("class")
    rows = rows.with_columns(
        median_ns=median.round().cast(pl.Int64), ratio_to_median=pl.when(median > 0).then(pl.col("total_ns") / median)
    )
    return units(run).join(rows, on="member").sort("member", "total_ns", "class", descending=[False, True, False])


def rank_rows(run: Reduced) -> pl.DataFrame:
    times = pl.DataFrame(
        [(n, m.path, *(m.part.facts[name] for name in ("span_ns", "busy_ns", "idle_ns")))
         for n, m in enumerate(run.members)],
        schema={"member": pl.UInt32, "path": pl.String, "span_ns": pl.Int64, "busy_ns": pl.Int64, "idle_ns": pl.Int64},
        orient="row",
    )  # fmt: skip
    work = run.per_step.group_by("member").agg(pl.col("compute_ns", "communication_ns", "exposed_ns").sum())
    waits = run.sums.group_by("member").agg(pl.exclude("group", "step").sum())
    own = own_behind(run).group_by("member").agg(pl.col("own_behind_ns").sum())
    joined = units(run).join(times, on="member").join(work, on="member", how="left")
    return joined.join(waits, on="member", how="left").join(own, on="member", how="left").sort("member")


def step_rows(run: Reduced) -> pl.DataFrame:
    waits = run.sums.group_by("member", "step").agg(pl.exclude("group").sum())
    key = ["member", "step"]
    rows = run.per_step.join(waits, on=key, how="left").join(own_behind(run), on=key, how="left")
    there = (pl.col("step") >= 0) | (pl.col("wall_ns") > 0) | (pl.col("kernels") > 0)
    named = units(run).join(rows.filter(there), on="member").sort("member", "step")
    return named.with_columns(step=pl.when(pl.col("step") >= 0).then("step"))


def stage_rows(run: Reduced) -> pl.DataFrame:
    """`STAGES`: means over the whole steps of the ranks of a stage, per step and rank."""
    stages = {number: stage_of(member) for number, member in enumerate(run.members)}
    if len(set(stages.values()) - {None}) < 2:
        return pl.DataFrame(schema=STAGES)
    names = pl.DataFrame(list(stages.items()), schema={"member": pl.UInt32, "stage": pl.Int32}, orient="row")
    whole = run.per_step.filter((pl.col("step") >= 0) & pl.col("mark").is_null())
    rows = whole.join(names, on="member").join(units(run), on="member").drop_nulls("stage")
    sums = rows.group_by("run", "stage").agg(
        ranks=pl.col("rank").drop_nulls().unique().sort(), steps=pl.col("step").n_unique().cast(pl.Int64),
        wall_ns=pl.col("wall_ns").mean().round().cast(pl.Int64),
        work_ns=pl.col("work_ns").mean().round().cast(pl.Int64),
    ).sort("stage")  # fmt: skip
    bubble = pl.col("wall_ns") - pl.col("work_ns")
    return sums.with_columns(bubble_ns=bubble, bubble_share=bubble / pl.col("wall_ns"))


def _name(run: Reduced, kind: int) -> str:
    what = run.kinds[kind]
    return what.collective or short_name(what.kernel)


def collective_rows(run: Reduced) -> pl.DataFrame:
    table = run.collectives.sort("group", "index", "member")
    names = {number: _name(run, number) for number in table["kind"].unique().to_list()}
    labels = {each.number: each.group.label for each in run.groups}
    who = units(run)
    last = who.select(last="member", last_rank="rank", last_device="device")
    return table.join(who, on="member", maintain_order="left").join(
        last, on="last", how="left", maintain_order="left"
    ).with_columns(
        group=pl.col("group").replace_strict(labels, return_dtype=pl.String),
        name=pl.col("kind").replace_strict(names, return_dtype=pl.String),
        step=pl.when(pl.col("step") >= 0).then("step"),
        start_ns=pl.col("start_ns") - pl.col("start_ns").min(),
    )  # fmt: skip


def clock_rows(run: Reduced) -> pl.DataFrame:
    rows = [
        (n, round(clock.offset_ns), clock.drift * 1e6, None if clock.residual_ns is None else round(clock.residual_ns),
         clock.applied, clock.collectives)
        for n, clock in enumerate(run.clocks)
    ]  # fmt: skip
    schema = pl.Schema({"member": pl.UInt32(), **{name: kind for name, kind in CLOCKS.items() if name not in UNIT}})
    return units(run).join(pl.DataFrame(rows, schema=schema, orient="row"), on="member")


def group_rows(run: Reduced) -> pl.DataFrame:
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


def rate_rows(run: Reduced) -> pl.DataFrame:
    labels = {each.number: each.group.label for each in run.groups}
    rows = [
        {**row, "run": run.members[0].run, "group": labels[row["group"]], "name": _name(run, row["kind"]),
         "kernel": run.kinds[row["kind"]].kernel}
        for row in run.rates.iter_rows(named=True)
    ]  # fmt: skip
    return pl.DataFrame([{name: row[name] for name in RATES} for row in rows], schema=RATES)
