"""Narrow a trace to runs, ranks, devices, streams or a stretch of time before it is analysed."""

from __future__ import annotations

from collections.abc import Collection
from fnmatch import fnmatchcase

import polars as pl

from traceanalyzer import schema
from traceanalyzer.analyses.arguments import Values, labels, need_trace, numbers
from traceanalyzer.analyses.stretch import Between, Stretch, narrowed, windows_of
from traceanalyzer.errors import UsageError
from traceanalyzer.text import did_you_mean, listed, natural_key, ranges
from traceanalyzer.trace import Trace

#: Why a file is not used that was not asked for.
NOT_SELECTED = "not-selected"


def select(
    trace: Trace,
    *,
    runs: Values = (),
    ranks: Values = (),
    devices: Values = (),
    streams: Values = (),
    between_ns: Between | None = None,
) -> Trace:
    """The part of a trace that was asked for; an empty choice leaves everything, one value stands for itself.

    `runs` are names or shell patterns (`*-DECODE`). `runs` and `ranks` narrow every table; `devices`, `streams`
    and `between_ns` narrow the device activity only, so that links to the host side stay whole. A kernel belongs
    to the stretch of time that holds its start, and is counted there in full; `device_time` cuts what runs over
    an edge. Stretches that tile a trace add up to it in both. Files that were not asked for stay in `ranks`, unused
    for the reason `NOT_SELECTED`, so that nobody takes them for missing. Raises `UsageError` for a run, rank,
    device or stream that is not there, and for a stretch of time in which no file is.
    """
    need_trace(trace, "select")
    before = trace if isinstance(trace, Stretch) else None
    chosen = _choose_sources(trace.used, labels("runs", runs), numbers("ranks", ranks))
    if chosen.height < trace.used.height:
        trace = _only_sources(trace, chosen)
    activity, windows = trace.kernels, None
    if before is not None:
        activity = before.activity.filter(pl.col("source").is_in(chosen["source"].to_list()))
        windows = before.windows
    if between_ns is not None:
        windows = windows_of(trace.used, _pair(between_ns), within=windows)
    activity = _only_labels(activity, "device", labels("devices", devices))
    activity = _only_labels(activity, "stream", labels("streams", streams))
    return trace.replace(kernels=activity) if windows is None else narrowed(trace, activity, windows)


def _pair(value: Between) -> Between:
    if not isinstance(value, tuple | list) or len(value) != 2 or not all(_whole_or_open(each) for each in value):
        raise UsageError(f"between_ns: {value!r} is no pair of whole ns such as (0, 5_000_000); None is an open end")
    return value[0], value[1]


def _whole_or_open(value: object) -> bool:
    return value is None or (isinstance(value, int) and not isinstance(value, bool))


def _choose_sources(used: pl.DataFrame, runs: Collection[str], ranks: Collection[int]) -> pl.DataFrame:
    known = used["run"].unique(maintain_order=True).to_list()
    for pattern in runs:
        if not any(_matches(run, pattern) for run in known):
            hint = did_you_mean(pattern, known) or f"; there is {listed(known)}"
            raise UsageError(f"no run {pattern!r} in these files{hint}")
    if runs:
        matches = [any(_matches(run, pattern) for pattern in runs) for run in used["run"]]
        used = used.filter(pl.Series(matches, dtype=pl.Boolean))
    missing = set(ranks) - set(used["rank"].drop_nulls())
    if missing:
        known_ranks = ranges(used["rank"].drop_nulls()) or "none with a known number"
        raise UsageError(f"no rank {ranges(missing)} in these files; ranks: {known_ranks}")
    return used.filter(pl.col("rank").is_in(list(ranks))) if ranks else used


def _matches(run: str, pattern: str) -> bool:
    return run == pattern or fnmatchcase(run, pattern)  # a name may hold brackets of its own


def _only_sources(trace: Trace, chosen: pl.DataFrame) -> Trace:
    inside = pl.col("source").is_in(chosen["source"].to_list())
    sourced = [table.name for table in schema.TABLES if "source" in table.schema]
    tables: dict[str, pl.DataFrame | pl.LazyFrame] = {name: trace.scan(name).filter(inside) for name in sourced}
    unwanted = pl.col("used") & ~inside
    tables["ranks"] = trace.ranks.with_columns(
        used=pl.col("used") & inside,
        reason=pl.when(unwanted).then(pl.lit(NOT_SELECTED)).otherwise(pl.col("reason")),
    )
    paths = trace.ranks.filter(~unwanted)["path"].to_list()
    about = pl.col("path").is_null() | pl.col("path").is_in(paths)
    return trace.replace(**tables, notes=trace.notes.filter(about))


def _only_labels(kernels: pl.DataFrame, column: str, wanted: Collection[str]) -> pl.DataFrame:
    if not wanted:
        return kernels
    known = {str(label) for label in kernels[column].unique().drop_nulls()}
    missing = sorted(set(wanted) - known, key=natural_key)
    if missing:
        there = listed(sorted(known, key=natural_key), at_most=20) or "none"
        raise UsageError(f"no {column} {', '.join(missing)} in these files; {column}s: {there}")
    return kernels.filter(pl.col(column).cast(pl.String).is_in(list(wanted)))
