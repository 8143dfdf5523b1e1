"""The report of `imbalance`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import polars as pl

from traceanalyzer import formats
from traceanalyzer.analyses import overview
from traceanalyzer.analyses.ranks import DEFINITIONS, Imbalance
from traceanalyzer.analyses.ranks.sentences import lateness, reason
from traceanalyzer.analyses.ratio import ratio
from traceanalyzer.report import Column, Remainder, Report, Section
from traceanalyzer.reports import shared
from traceanalyzer.text import ranges
from traceanalyzer.trace import Trace

_VERDICT = [Column("rank", "slow rank", "count"), Column("text", "what it does, and what it costs", "prose")]
_RANKS = [
    Column("rank", "rank", "count"),
    Column("device", "device", "text", optional=8),
    Column("compute_ns", "compute", "time", unit_of="time"),
    Column("wait_ns", "wait", "time", unit_of="time"),
    Column("transfer_ns", "transfer", "time", unit_of="time", optional=2),
    Column("idle_ns", "idle", "time", unit_of="time", optional=3),
    Column("own_behind_ns", "behind", "time", unit_of="time", optional=1),
    Column("waited_for_ns", "others waited", "time", unit_of="time"),
    Column("last", "last", "count"),
    Column("last_share", "of all", "share", bar=True),
]
_CLASSES = [
    Column("class", "class", "class"),
    Column("rank", "rank", "count"),
    Column("device", "device", "text", optional=3),
    Column("total_ns", "total", "time", unit_of="total"),
    Column("median_ns", "middle rank", "time", unit_of="total"),
    Column("ratio_to_median", "ratio", "rate"),
]
_WORST = [
    Column("group", "group", "name"),
    Column("index", "no.", "count"),
    Column("name", "collective", "name"),
    Column("step", "step", "count", optional=3),
    Column("start_ns", "at", "time", optional=4, unit_of="at"),
    Column("wait_ns", "waits of all", "time"),
    Column("longest_ns", "longest", "time", optional=2),
    Column("last_rank", "last rank", "count"),
    Column("last_device", "device", "text", optional=5),
]
_GROUPS = [
    Column("group", "group", "name"),
    Column("axis", "axis", "text", optional=2),
    Column("ranks", "ranks", "text"),
    Column("collectives", "collectives", "count"),
    Column("wait_ns", "wait", "time", unit_of="wait"),
    Column("transfer_ns", "transfer", "time", unit_of="wait"),
    Column("pairing", "paired by", "text", optional=1),
    Column("unpaired", "unpaired", "count", optional=3),
    Column("negative", "negative", "count", optional=4),
]
_RATES = [
    Column("name", "collective", "name"),
    Column("group", "group", "name", optional=2),
    Column("count", "count", "count"),
    Column("bytes", "message", "bytes"),
    Column("transfer_ns", "transfer", "time"),
    Column("gb_per_s", "GB/s", "rate"),
    Column("bus_gb_per_s", "bus GB/s", "rate"),
]
_STAGES = [
    Column("stage", "stage", "count"),
    Column("ranks", "ranks", "text"),
    Column("steps", "steps", "count"),
    Column("wall_ns", "mean step", "time", unit_of="wall"),
    Column("work_ns", "work", "time", unit_of="wall"),
    Column("bubble_ns", "bubble", "time", unit_of="wall"),
    Column("bubble_share", "of step", "share", bar=True),
]
_CLOCKS = [
    Column("rank", "rank", "count"),
    Column("device", "device", "text", optional=2),
    Column("offset_ns", "clock ahead by", "time"),
    Column("drift_ppm", "drift ppm", "rate"),
    Column("residual_ns", "scatter", "time"),
    Column("applied", "applied", "flag"),
    Column("collectives", "collectives", "count", optional=1),
]
#: Rows of the smaller tables.
_FEW = 5
#: A class is shown where a rank is so far off the middle, by so much of what the rank computes.
_OFF, _WORTH = 0.05, 0.005
_NOBODY = "no rank is late beyond chance"
_ALONE = "one device: there is nothing to compare"
_NO_PAIRS = "no collective of two ranks is in these files"


def build(found: Imbalance, head: Trace, devices: pl.DataFrame, *, limit: int = 0, explain: bool = False) -> Report:
    """For each run who is slow and why, what ranks do, where they differ, the worst collectives, groups and clocks.

    `head` has the small tables of what was read, `devices` are those of `overview.devices`.
    """
    runs = overview.runs(head, per_device=devices).to_dicts()
    words = overview.DEFINITIONS | DEFINITIONS
    tables = ("culprits", "reasons", "ranks", "steps", "stages", "groups", "rates", "collectives", "clocks")
    shown = [column for name in ("rows", *tables) for column in getattr(found, name).columns]
    return Report(
        command="imbalance",
        title="Imbalance of ranks",
        sections=[section for run in runs for section in _run(run, found, limit)],
        data={"rows": found.rows, **{name: getattr(found, name) for name in tables}},
        traces=shared.traces(devices),
        notes=[*shared.notes(head), *found.notes],
        definitions={name: words[name] for name in dict.fromkeys(shown) if name in words and explain},
    )


def _run(run: Mapping[str, Any], found: Imbalance, limit: int) -> list[Section]:
    own = {
        name: getattr(found, name).filter(pl.col("run") == run["run"])
        for name in ("culprits", "rows", "ranks", "stages", "collectives", "groups", "rates", "clocks")
    }
    head = Section(
        _verdict(own["culprits"]), _VERDICT, title=run["run"], facts=shared.run_facts(run), empty=_empty(run, own)
    )
    sections = [head]
    if own["ranks"].height > 1:
        sections += [_ranks(own["ranks"], limit), *_classes(own["rows"], own["ranks"], limit)]
        sections += [
            *_stages(own["stages"]),
            *_worst(own["collectives"]),
            *_groups(own["groups"]),
            *_rates(own["rates"]),
        ]
        sections += _clocks(own["clocks"], limit)
    return sections


def _empty(run: Mapping[str, Any], own: Mapping[str, pl.DataFrame]) -> str:
    if not run["devices"]:
        return shared.NO_ACTIVITY
    if own["ranks"].height < 2:
        return _ALONE
    return _NOBODY if own["groups"]["wait_ns"].is_not_null().any() else _NO_PAIRS


def _verdict(culprits: pl.DataFrame) -> pl.DataFrame:
    rows = [(row["rank"], f"{lateness(row)}. {reason(row)}") for row in culprits.iter_rows(named=True)]
    return pl.DataFrame(rows, schema={"rank": pl.Int32, "text": pl.String}, orient="row")


def _ranks(ranks: pl.DataFrame, limit: int) -> Section:
    ordered = ranks.sort("own_behind_ns", "waited_for_ns", "rank", descending=[True, True, False], nulls_last=True)
    frame = ordered.with_columns(last_share=ratio(ordered["last"], ordered["collectives"]))
    return _cut(frame, _RANKS, limit, "rank")


def _classes(rows: pl.DataFrame, ranks: pl.DataFrame, limit: int) -> list[Section]:
    """Classes of which a rank has clearly more or less than the middle one; wait is told by the other tables."""
    work = ranks.group_by("run").agg(pl.col("compute_ns").median())["compute_ns"].first()
    off = (pl.col("total_ns") - pl.col("median_ns")).abs()
    worth = (off > _OFF * pl.col("median_ns")) & (off > _WORTH * float(work or 0))  # type: ignore[arg-type]
    different = rows.filter(worth & (pl.col("class") != "communication")).sort(
        off, "class", "rank", descending=[True, False, False]
    )
    if different.is_empty():
        return []
    section = _cut(different, _CLASSES, min(limit, _FEW) if limit else 0, "row")
    return [replace(section, footnotes=_unlike_spans(ranks))]


def _unlike_spans(ranks: pl.DataFrame) -> list[str]:
    """That totals are of recordings of unlike lengths, where they are."""
    spans = sorted(ranks["span_ns"].drop_nulls().to_list()) or [0]
    shortest, longest = spans[0], spans[-1]
    if longest <= (1 + _OFF) * shortest:
        return []
    return [
        f"recordings are {formats.ns(shortest)} to {formats.ns(longest)} long, and totals grow with them: "
        f"traceanalyze steps compares steps"
    ]


def _stages(stages: pl.DataFrame) -> list[Section]:
    if stages.is_empty():
        return []
    texts = pl.Series([ranges(ranks) for ranks in stages["ranks"].to_list()], dtype=pl.String)
    return [_cut(stages.with_columns(ranks=texts), _STAGES, 0, "stage")]


def _worst(collectives: pl.DataFrame) -> list[Section]:
    if collectives.is_empty():
        return []
    each = collectives.group_by("group", "index", maintain_order=True).agg(
        pl.col("name", "step", "last_rank", "last_device").first(), pl.col("start_ns").min(),
        longest_ns=pl.col("wait_ns").max(), wait_ns=pl.col("wait_ns").sum(),
    )  # fmt: skip
    worst = each.sort("wait_ns", "group", "index", descending=[True, False, False])
    return [_cut(worst, _WORST, _FEW, "collective")]


def _groups(groups: pl.DataFrame) -> list[Section]:
    if groups.is_empty():
        return []
    texts = [
        ranges(ranks) + (f" (missing {ranges(missing)})" if missing else "")
        for ranks, missing in groups.select("ranks", "ranks_missing").iter_rows()
    ]
    frame = groups.with_columns(ranks=pl.Series(texts, dtype=pl.String)).sort(
        "wait_ns", descending=True, nulls_last=True, maintain_order=True
    )
    return [_cut(frame, _GROUPS, _FEW, "group")]


def _rates(rates: pl.DataFrame) -> list[Section]:
    known = rates.drop_nulls("gb_per_s").sort("bytes", "name", descending=[True, False])
    return [_cut(known, _RATES, _FEW, "kind")] if known.height else []


def _clocks(clocks: pl.DataFrame, limit: int) -> list[Section]:
    if not clocks["applied"].any():
        return []
    ordered = clocks.filter("applied").sort(pl.col("offset_ns").abs(), "rank", descending=[True, False])
    return [_cut(ordered, _CLOCKS, min(limit, _FEW) if limit else 0, "clock")]


def _cut(frame: pl.DataFrame, columns: Sequence[Column], limit: int, noun: str) -> Section:
    shown = frame.head(limit) if limit else frame
    more = frame.height - shown.height
    rest = Remainder(more, noun if more == 1 else f"{noun}s") if more else None
    used = [column for column in columns if not shown[column.name].is_null().all()]
    return Section(shown, used, remainder=rest)
