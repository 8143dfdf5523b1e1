"""Where the time of each step went: its window, given to activity by name and to idle by cause."""

from __future__ import annotations

import polars as pl

from traceanalyzer.analyses.exclusive import cut_at, exclusive
from traceanalyzer.analyses.idle import CAUSES, Gaps, gaps_and_host
from traceanalyzer.analyses.labels import label
from traceanalyzer.analyses.steps import Found, find_steps, steps
from traceanalyzer.classify.rules import CLASSES, RuleTable
from traceanalyzer.trace import Trace

#: One step of one device.
KEY = ("path", "device", "step")
SCHEMA = pl.Schema({
    "path": pl.String(), "device": pl.String(), "step": pl.UInt32(), "state": pl.String(), "class": pl.String(),
    "kernel": pl.String(), "family": pl.String(), "cause": pl.String(), "host_op": pl.String(), "total_ns": pl.Int64(),
})  # fmt: skip


def step_time(
    trace: Trace, *, found: Found | None = None, rows: pl.DataFrame | None = None, rules: RuleTable | None = None
) -> pl.DataFrame:
    """One row per step of a device and part of it (`SCHEMA`); the parts of a step sum to its `wall_ns` exactly.

    `state` is compute, communication, memory or idle, and an instant goes to the first of these that holds there: to
    the kernel that started first (`class`, `kernel`, `family`), or to the cause of idle, with what the host was busy
    with (`host_op`). `rows` are those of `steps`, and `found` those of `find_steps`, where they are at hand already.
    """
    found = found or find_steps(trace)
    rows = rows if rows is not None else steps(trace, found=found, rules=rules)
    windows = windows_of_steps(rows)
    return pl.concat([_busy(trace, windows, rules), _idle(gaps_and_host(trace, found=found), windows)])


def with_causes(rows: pl.DataFrame, parts: pl.DataFrame) -> pl.DataFrame:
    """The rows of `steps` with one `idle_<cause>_ns` a cause behind `idle_ns`, from those of `step_time`.

    They sum to `idle_ns`, but in rows of kind `outside`, where they are null.
    """
    idle = parts.filter(pl.col("state") == "idle")
    names = [f"idle_{cause}_ns" for cause in CAUSES]
    sums = idle.group_by(KEY).agg(
        pl.col("total_ns").filter(pl.col("cause") == cause).sum().alias(name)
        for cause, name in zip(CAUSES, names, strict=True)
    )
    joined = rows.join(sums, on=KEY, how="left", nulls_equal=True, maintain_order="left")
    inside = pl.when(pl.col("kind") != "outside").then(pl.col(names).fill_null(0))
    at = rows.columns.index("idle_ns") + 1
    return joined.with_columns(inside).select(*rows.columns[:at], *names, *rows.columns[at:])


def windows_of_steps(rows: pl.DataFrame) -> pl.DataFrame:
    """`path`, `device`, `step`, `start_ns`, `end_ns` of the windows that have a length, from the rows of `steps`."""
    windows = rows.drop_nulls("step").select(*KEY, "start_ns", end_ns=pl.col("start_ns") + pl.col("wall_ns"))
    return windows.filter(pl.col("end_ns") > pl.col("start_ns"))


def in_windows(gaps: pl.DataFrame, windows: pl.DataFrame) -> pl.DataFrame:
    """Gaps with the step in whose window they lie: none reaches over the edge of one, which is an end of activity."""
    by = ["path", "device"]  # a join in order takes unknown devices for unlike each other; numbers are known
    groups = windows.select(by).unique().with_row_index("_group")
    numbered, opened = (
        each.join(groups, on=by, how="left", nulls_equal=True, maintain_order="left")
        for each in (gaps.drop("step"), windows.rename({"end_ns": "until_ns"}))
    )
    placed = numbered.sort("start_ns").join_asof(
        opened.select("_group", "step", "start_ns", "until_ns").sort("start_ns"), on="start_ns", by="_group",
        check_sortedness=False,
    )  # fmt: skip
    return placed.filter(pl.col("start_ns") < pl.col("until_ns")).drop("until_ns", "_group")


def _busy(trace: Trace, windows: pl.DataFrame, rules: RuleTable | None) -> pl.DataFrame:
    labels = label(trace.kernels.select("kind", "name"), rules).select("kind", "name", "class", "family")
    files = trace.ranks.select("source", "path", "first_ns")
    start = pl.col("start_ns") - pl.col("first_ns")
    work = pl.col("class")
    activity = (
        trace.kernels.filter(pl.col("duration_ns") >= 0)
        .join(labels, on=["kind", "name"], how="left", nulls_equal=True)
        .join(files, on="source", how="left")
        .select(
            "path", pl.col("device").cast(pl.String), "class", "family", kernel=pl.col("name").cast(pl.String),
            start_ns=start, end_ns=start + pl.col("duration_ns"),
            state=pl.when(work.is_in(["communication", "memory"])).then(work).otherwise(pl.lit("compute")),
        )
    )  # fmt: skip
    # as in `breakdown`: of what starts together the shorter one is first, then by class
    ordered = activity.sort("start_ns", "end_ns", work.cast(pl.Enum(CLASSES)), maintain_order=True)
    pieces = cut_at(ordered.with_row_index("order"), windows, ["path", "device"], "step")
    owned = pieces.with_columns(exclusive(pieces, KEY))
    parts = [*KEY, "state", "class", "kernel", "family"]
    sums = owned.group_by(parts).agg(total_ns=pl.col("own_ns").sum()).filter(pl.col("total_ns") > 0)
    return _as_schema(sums.with_columns(cause=pl.lit(None), host_op=pl.lit(None)))


def _idle(gaps: Gaps, windows: pl.DataFrame) -> pl.DataFrame:
    """Idle time by cause, that of a busy host by what it was busy with."""
    placed = in_windows(gaps.rows.drop("cause").with_row_index("gap"), windows)
    others = [f"{cause}_ns" for cause in CAUSES if cause != "host_busy"]
    by_cause = placed.unpivot(others, index=KEY, variable_name="cause", value_name="total_ns")
    by_cause = by_cause.with_columns(pl.col("cause").str.strip_suffix("_ns"), host_op=pl.lit(None, pl.String))
    busy = placed.select("gap", *KEY).join(gaps.host, on="gap")
    by_host = busy.select(*KEY, "total_ns", cause=pl.lit("host_busy"), host_op="name")
    rows = pl.concat([by_cause.filter(pl.col("total_ns") > 0), by_host], how="diagonal")
    sums = rows.group_by(*KEY, "cause", "host_op").agg(pl.col("total_ns").sum())
    nothing = {name: pl.lit(None) for name in ("class", "kernel", "family")}
    return _as_schema(sums.with_columns(state=pl.lit("idle"), **nothing))


def _as_schema(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.select(pl.col(name).cast(dtype) for name, dtype in SCHEMA.items())
