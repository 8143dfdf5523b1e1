"""The report of `idle-gaps`."""

from __future__ import annotations

from typing import Any

import polars as pl

from traceanalyzer import formats
from traceanalyzer.analyses import idle, overview
from traceanalyzer.analyses.idle import Gaps, places
from traceanalyzer.analyses.idle import doubts as doubts_of
from traceanalyzer.analyses.idle import lengths as lengths_of
from traceanalyzer.analyses.labels import label
from traceanalyzer.report import Column, Remainder, Report, Section
from traceanalyzer.reports import shared
from traceanalyzer.trace import Trace

_CAUSES = [
    Column("cause", "cause", "text"),
    Column("gaps", "gaps", "count"),
    Column("total_ns", "total", "time"),
    Column("share", "of idle", "share", bar=True),
    Column("meaning", "what the host did", "prose", optional=1),
]
_HOST = [
    Column("host_op", "host busy with", "name"),
    Column("gaps", "gaps", "count"),
    Column("total_ns", "total", "time"),
]
_LENGTHS = [
    Column("length", "gaps of", "text"),
    Column("gaps", "gaps", "count"),
    Column("total_ns", "total", "time"),
    Column("share", "of idle", "share", bar=True),
    Column("most", "most of it", "text", optional=1),
]
_PLACES = [
    Column("next_short", "gaps before", "name"),
    Column("previous_short", "behind", "name"),
    Column("gaps", "gaps", "count"),
    Column("steps", "steps", "count", optional=3),
    Column("total_ns", "total", "time"),
    Column("share", "of idle", "share"),
    Column("mean_ns", "mean", "time", optional=2),
    Column("cause", "cause", "text", optional=1),
]
_GAPS = [
    Column("rank", "rank", "count"),
    Column("device", "device", "text", optional=7),
    Column("step", "step", "count", optional=5),
    Column("start_ns", "at", "time", optional=4, unit_of="at"),
    Column("duration_ns", "gap", "time"),
    Column("cause", "cause", "text"),
    Column("host_op", "host", "name"),
    Column("host_share", "of it", "share", optional=6),
    Column("next_short", "next kernel", "name", optional=2),
    Column("previous_short", "previous kernel", "name", optional=3),
]
_DEFINITIONS = {
    "gaps": "how many gaps; a gap of several causes counts with each, so those of causes are more than there are gaps",
    "total_ns": "idle time of these gaps; of a cause or of what the host did, of its pieces alone",
    "share": "part of the idle time of the run",
}
#: Names of what the host did that are shown for each run, and places in the program.
_MOST_HOSTS, _MOST_PLACES = 5, 5
_UNNAMED = "(no range, function or operator)"


def build(trace: Trace, gaps: Gaps, *, limit: int = 0, explain: bool = False) -> Report:
    """For each run the causes of its idle time, what the host was busy with, and its longest gaps."""
    rows = gaps.rows
    devices = overview.devices(trace)
    runs = overview.runs(trace, per_device=devices).to_dicts()
    causes, hosts = idle.by_cause(rows), idle.by_host(gaps)
    lengths, doubts = idle.by_length(rows), idle.idle_doubts(trace, rows)
    ordered = rows.sort("run", "duration_ns", "start_ns", descending=[False, True, False])
    tables = {"rows": ordered, "causes": causes, "host": hosts, "lengths": lengths, "doubts": doubts,
              "places": idle.by_place(rows)}  # fmt: skip
    sections = [section for run in runs for section in _run(run, trace, tables, limit)]
    words = overview.DEFINITIONS | places.DEFINITIONS | lengths_of.DEFINITIONS | doubts_of.DEFINITIONS
    words |= idle.DEFINITIONS | _DEFINITIONS
    figures = dict.fromkeys(name for table in tables.values() for name in table.columns)
    return Report(
        command="idle-gaps",
        title="Idle gaps",
        sections=sections,
        data=tables | {"rows": ordered.group_by("run", maintain_order=True).head(limit) if limit else ordered},
        traces=shared.traces(devices),
        notes=shared.notes(trace, records=True),
        definitions={name: words[name] for name in figures if name in words and explain},
    )


def _run(run: dict[str, Any], trace: Trace, tables: dict[str, pl.DataFrame], limit: int) -> list[Section]:
    own, of_run, busy, lengths, doubts, places = (
        tables[name].filter(pl.col("run") == run["run"])
        for name in ("rows", "causes", "host", "lengths", "doubts", "places")
    )
    meanings = {f"{cause}_ns": meaning for cause in idle.CAUSES for meaning in [idle.DEFINITIONS[f"{cause}_ns"]]}
    of_run = of_run.with_columns(meaning=(pl.col("cause") + "_ns").replace_strict(meanings, return_dtype=pl.String))
    never = "the device is never idle" if run["devices"] else shared.NO_ACTIVITY
    footnotes = [] if own.is_empty() else [_doubt(doubt) for doubt in doubts.iter_rows(named=True)]
    head = Section(of_run, _CAUSES, title=run["run"], facts=shared.run_facts(run), empty=never, footnotes=footnotes)
    if own.is_empty():
        return [head]
    sections = [head]
    if not busy.is_empty():
        named = busy.with_columns(pl.col("host_op").fill_null(_UNNAMED))
        sections.append(Section(named.head(_MOST_HOSTS), _HOST, remainder=_rest(named.slice(_MOST_HOSTS), "total_ns")))
    sections.append(Section(_by_decade(lengths), _LENGTHS))
    named_places = _with_short_names(places.head(_MOST_PLACES), trace)
    sections.append(Section(named_places, _PLACES, remainder=_rest(places.slice(_MOST_PLACES), "total_ns", "place")))
    shown = _with_short_names(own.head(limit) if limit else own, trace)
    sections.append(Section(shown, _GAPS, remainder=_rest(own.slice(shown.height), "duration_ns", "gap")))
    return sections


def _doubt(doubt: dict[str, Any]) -> str:
    """A line that says why idle is an upper bound, and by how much."""
    amount = doubt["at_most_ns"]
    how_much = "by how much is not known" if amount is None else f"{formats.ns(amount)} of it at most"
    return f"idle is an upper bound: {doubt['text']}; {how_much}"


def _by_decade(lengths: pl.DataFrame) -> pl.DataFrame:
    """The histogram in decades, with the cause that has most of each."""
    decade = pl.col("from_ns").cast(pl.String).str.len_chars().cast(pl.Int64) - 1  # a logarithm of 1,000 is below 3
    causes = [f"{cause}_ns" for cause in idle.CAUSES]
    sums = (
        lengths.group_by(decade.alias("decade")).agg(pl.col("gaps", "total_ns", "share", *causes).sum()).sort("decade")
    )
    largest = pl.concat_list(causes).list.arg_max().replace_strict(dict(enumerate(idle.CAUSES)), return_dtype=pl.String)
    most = pl.when(pl.col("total_ns") > 0).then(largest)
    texts = [f"{formats.power_of_ten(each)} to {formats.power_of_ten(each + 1)}" for each in sums["decade"]]
    return sums.with_columns(most=most, length=pl.Series(texts, dtype=pl.String))


def _rest(rows: pl.DataFrame, total: str, noun: str = "name") -> Remainder | None:
    if rows.is_empty():
        return None
    return Remainder(rows.height, noun if rows.height == 1 else f"{noun}s", int(rows[total].sum()))


def _with_short_names(rows: pl.DataFrame, trace: Trace) -> pl.DataFrame:
    labels = label(trace.kernels.select("kind", "name")).select(
        text=pl.col("name").cast(pl.String), short=pl.coalesce("short_name", pl.col("name").cast(pl.String))
    ).unique("text")  # fmt: skip
    for which in ("next", "previous"):
        rows = rows.join(
            labels.rename({"text": f"{which}_kernel", "short": f"{which}_short"}), on=f"{which}_kernel", how="left",
            maintain_order="left",
        )  # fmt: skip
    return rows
