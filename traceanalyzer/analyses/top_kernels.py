"""Which kernels the device time goes to: by full name, short name or class of work, or by where they come from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import polars as pl

from traceanalyzer.analyses.arguments import Values, labels, need_choice, need_trace
from traceanalyzer.analyses.device_time import device_time
from traceanalyzer.analyses.impossible import clipped, impossible_in
from traceanalyzer.analyses.labels import Paths, compiled, label, matching, rule_table
from traceanalyzer.analyses.ratio import ratio, rounded_mean
from traceanalyzer.analyses.sm_fill import sm_fill, with_blocks_and_sms
from traceanalyzer.choices import BYS, NESTED, ORIGINS, SORTS, By, Sort
from traceanalyzer.classify.rules import CLASSES, RuleTable
from traceanalyzer.errors import UsageError
from traceanalyzer.text import natural_key
from traceanalyzer.trace import Trace

#: What each figure is, word for word as it is shown with `--explain`.
DEFINITIONS = {
    "class": "class of work, by the first rule that knows the name; copies and sets are memory",
    "rule": "the rule that gave the class; unknown where none knows the name, or several gave it",
    "count": "kernels of that name that the trace holds; with --between, those that start in the stretch",
    "total_ns": "plain sum of their durations as recorded; kernels that overlap, or run over an edge of --between, "
    "are each counted in full",
    "clipped_total_ns": "total with durations that cannot be true ended at the next start on their stream",
    "reason": "why the group is unknown",
    "self_ns": "plain sum of the kernels whose innermost operator, module or range it is: over all groups and reasons "
    "it adds up to all kernel time. total is of all kernels launched in it, in what it calls too, each once",
    "self_share": "self / total of all kernels of the run, before filter and limit",
    "mean_ns": "total / count, rounded half to even",
    "p50_ns": "nearest-rank percentile: the shortest duration that 50 % of the kernels do not exceed",
    "p99_ns": "nearest-rank percentile: the shortest duration that 99 % of the kernels do not exceed",
    "min_ns": "shortest duration",
    "max_ns": "longest duration",
    "share_of_kernel_time": "total / total of all kernels of the run, before filter and limit; "
    "by class, copies and sets are part of the whole",
    "share_of_busy": "total / busy summed over the devices of the run; overlapping kernels add up to more than 100 %",
    "blocks": "blocks of a launch (product of the grid); unknown where launches differ or do not say",
    "grids": "number of different grids among the launches that say; unknown where none does",
    "sm_fill": "min(1, blocks / SMs of the device), weighted by duration over the launches that say",
    "ranks": "number of ranks that ran it",
}

#: Columns of the result; `group`, `rule` and `clipped_total_ns` are there where they are wanted.
_ORDER = (
    "run", "group", "reason", "kernel", "short_name", "class", "rule", "count", "self_ns", "total_ns",
    "clipped_total_ns", "mean_ns", "p50_ns", "p99_ns", "min_ns", "max_ns", "self_share", "share_of_kernel_time",
    "share_of_busy", "blocks", "grids", "sm_fill", "ranks",
)  # fmt: skip
_NEEDED = ("source", "kind", "name", "device", "stream", "start_ns", "duration_ns", "grid_x", "grid_y", "grid_z")
_KEY: dict[By, str] = {"name": "name", "short": "family", "class": "class"}
#: The column that each order looks at; names apart.
SORTED_BY: dict[Sort, str] = {
    "total": "total_ns", "self": "self_ns", "count": "count", "mean": "mean_ns", "p50": "p50_ns", "p99": "p99_ns",
    "min": "min_ns", "max": "max_ns", "sm_fill": "sm_fill",
}  # fmt: skip


def top_kernels(
    trace: Trace,
    *,
    by: By = "name",
    filter: str | None = None,
    classes: Values = (),
    sort: Sort | None = None,
    rules: RuleTable | Paths | None = None,
    capture: Trace | None = None,
    explain: bool = False,
) -> pl.DataFrame:
    """One row per kernel name (`by` name), short name, class or origin and run, the largest first; see `DEFINITIONS`.

    Runs are apart: every share is of its own run. Copies and sets are left out, except `by` class, where they
    are the class memory and part of the whole. `filter` is a regular expression, searched in the full names; it
    and `classes` (one class of work or several) remove kernels and leave the shares alone. `rules` are class rules
    that count before the built-in ones: files, or what `load_rules` makes of them. Ties are in order of name. Where
    a group holds several kernels, what they do not share (`kernel`, `short_name`, `class`, `blocks`) is null.
    By op, module and annotation a kernel is in every group around its launch call, and `self_ns` is of the innermost
    alone; by stack and shape it is in one. Where it is in none, `group` is null and `reason` says why (see `origins`).
    `sort` "self" is for those three. `capture` is the trace of the capture of the graphs that the trace replays.
    `explain` adds the `rule` that gave the class. Where durations of the trace, of whatever kind, cannot be true (see
    `impossible_in`), `clipped_total_ns` stands beside `total_ns`.
    """
    need_trace(trace, "top_kernels")
    need_choice("by", by, BYS)
    sort = _sort_for(by, sort)
    pattern = compiled(filter)
    wanted = labels("classes", classes)
    for each in wanted:
        need_choice("class", each, CLASSES)
    activity = trace.kernels.select(_NEEDED)  # joins copy every column they are given
    activity = activity.with_row_index("kernel")
    activity = activity if by == "class" else activity.filter(pl.col("kind") == "kernel")
    labelled = label(activity, rule_table(rules))
    launches = _launches(activity, trace)
    totals = launches.group_by("run").agg(all_ns=pl.col("duration_ns").sum())
    if pattern is not None or wanted:
        chosen = matching(labelled, pattern, wanted)
        launches = launches.join(chosen, on=["kind", "name"], how="semi", nulls_equal=True)
    key, launches, own = _grouped(launches, labelled, trace, by, capture)
    rows = launches.group_by(key).agg(*_figures())
    for more in (
        *own,
        _members(launches, labelled, key),
        _grids(launches, key),
        sm_fill(launches, key),
        *_clipped_totals(launches, impossible_in(trace), key),
    ):
        rows = rows.join(more, on=key, how="left", nulls_equal=True)
    rows = rows.join(totals, on="run", how="left").join(_busy_by_run(trace), on="run", how="left")
    rows = rows.with_columns(
        pl.col(key).cast(pl.String),
        *_self_share(rows),
        mean_ns=rounded_mean("total_ns", "count"),
        share_of_kernel_time=ratio(rows["total_ns"], rows["all_ns"]),
        share_of_busy=ratio(rows["total_ns"], rows["busy_ns"]),
    )
    return _in_order(rows.select(_columns(rows, by, explain=explain)), sort, by)


def _sort_for(by: By, sort: Sort | None) -> Sort:
    """What rows are sorted by. Raises `UsageError`."""
    sort = sort or default_sort(by)
    need_choice("sort", sort, SORTS)
    if sort == "self" and by not in NESTED:
        raise UsageError(
            f"sort: 'self' goes with by {', '.join(NESTED)}; by {by} all time is a row's own: sort by total"
        )
    return sort


def _launches(activity: pl.DataFrame, trace: Trace) -> pl.DataFrame:
    """The activity that counts, with its run (a category: it is compared millions of times)."""
    return with_blocks_and_sms(activity, trace.devices).join(_run_of_source(trace), on="source", how="left")


def _grouped(
    launches: pl.DataFrame, labelled: pl.DataFrame, trace: Trace, by: By, capture: Trace | None
) -> tuple[list[str], pl.DataFrame, list[pl.DataFrame]]:
    """The key of a group, each kernel once for every group that it is in, and further figures of the groups.

    Operators, modules and ranges lie in each other: a kernel is in all that are around it, and in the innermost alone
    it counts as its own. Kernels whose group is unknown are a group for each reason.
    """
    if by not in ORIGINS:
        groups = labelled.select("kind", "name", group=pl.col(_KEY[by]).cast(pl.Categorical))
        grouped = launches.join(groups, on=["kind", "name"], how="left", nulls_equal=True)
        return ["run", "group"], grouped, []
    from traceanalyzer.analyses.origins import origins  # links take long to import, and no name needs them

    found = origins(trace, by, capture=capture)
    key = ["run", "group", "reason"]
    unknown = found.own.filter(pl.col("group").is_null())
    members = found.members.with_columns(reason=pl.lit(None, pl.String))
    grouped = launches.join(pl.concat([members, unknown.select(members.columns)]), on="kernel")
    if by not in NESTED:
        return key, grouped, []
    own = launches.join(found.own, on="kernel").group_by(key).agg(self_ns=pl.col("duration_ns").sum())
    everywhere = grouped.select(key).unique().join(own, on=key, how="left", nulls_equal=True)
    return key, grouped, [everywhere.with_columns(pl.col("self_ns").fill_null(0))]


def _self_share(rows: pl.DataFrame) -> Iterator[pl.Series]:
    if "self_ns" in rows.columns:
        yield ratio(rows["self_ns"], rows["all_ns"]).alias("self_share")


def _run_of_source(trace: Trace) -> pl.DataFrame:
    return trace.ranks.select("source", pl.col("run").cast(pl.Categorical))


def _busy_by_run(trace: Trace) -> pl.DataFrame:
    devices = device_time(trace).join(_run_of_source(trace), on="source", how="left")
    return devices.group_by("run").agg(pl.col("busy_ns").sum())


def _figures() -> list[pl.Expr]:
    duration = pl.col("duration_ns")
    return [
        pl.len().cast(pl.Int64).alias("count"),
        duration.sum().alias("total_ns"),
        _nearest_rank(50),
        _nearest_rank(99),
        duration.min().alias("min_ns"),
        duration.max().alias("max_ns"),
        _shared("blocks"),
        pl.col("source").n_unique().cast(pl.Int64).alias("ranks"),
    ]


def _members(launches: pl.DataFrame, labels: pl.DataFrame, key: Sequence[str]) -> pl.DataFrame:
    """What all kernels of a group have in common: their name, short name, class and rule."""
    distinct = launches.select(*key, "kind", "name").unique()
    named = distinct.join(labels, on=["kind", "name"], how="left", nulls_equal=True)
    texts = named.with_columns(kernel=pl.col("name").cast(pl.String))
    return texts.group_by(key).agg(map(_shared, ("kernel", "short_name", "class", "rule")))


def _shared(column: str) -> pl.Expr:
    """The value that all rows of a group have; null where they differ or one is unknown."""
    value = pl.col(column)
    return pl.when((value.min() == value.max()) & (value.null_count() == 0)).then(value.first()).alias(column)


def _clipped_totals(launches: pl.DataFrame, found: pl.DataFrame, key: Sequence[str]) -> Iterator[pl.DataFrame]:
    """Totals without the part of durations that cannot be; nothing where all of them can.

    What is `found` in the whole trace is the same for every grouping and filter; so is whether there is the column.
    """
    if found.height:
        total = pl.col("duration_ns").sum().alias("clipped_total_ns")
        yield clipped(launches, found).group_by(key).agg(total)


def _nearest_rank(percent: int) -> pl.Expr:
    rank = (pl.len().cast(pl.Int64) * percent + 99) // 100  # ceil(n p / 100), counted from 1, in whole numbers
    return pl.col("duration_ns").sort().get(rank - 1).alias(f"p{percent}_ns")


def _grids(launches: pl.DataFrame, key: Sequence[str]) -> pl.DataFrame:
    axes = ["grid_x", "grid_y", "grid_z"]
    distinct = launches.drop_nulls(axes).select(*key, *axes).unique()
    return distinct.group_by(key).agg(grids=pl.len().cast(pl.Int64))


def _columns(rows: pl.DataFrame, by: By, *, explain: bool) -> list[str]:
    optional = {"group": by != "name", "rule": explain}
    there = {"reason", "self_ns", "self_share", "clipped_total_ns"}
    return [column for column in _ORDER if optional.get(column, column not in there or column in rows.columns)]


def default_sort(by: By) -> Sort:
    """What rows are sorted by where nobody says: groups that lie in each other by what is their own."""
    return "self" if by in NESTED else "total"


def _in_order(rows: pl.DataFrame, sort: Sort, by: By) -> pl.DataFrame:
    runs = sorted(rows["run"].unique().drop_nulls(), key=natural_key)
    place = pl.col("run").replace_strict({run: at for at, run in enumerate(runs)}, return_dtype=pl.UInt32)
    names = ["kernel"] if by == "name" else [name for name in ("group", "reason") if name in rows.columns]
    if sort == "name":
        return rows.sort(place, *names, nulls_last=by in ORIGINS)
    return rows.sort(place, SORTED_BY[sort], *names, descending=[False, True, *(False for _ in names)], nulls_last=True)
