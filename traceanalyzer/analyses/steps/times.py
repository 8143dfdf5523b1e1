"""What each step cost on each device: wall, busy and idle time of its window, and its kernels by class."""

from __future__ import annotations

import polars as pl

from traceanalyzer.analyses import covers, intervals
from traceanalyzer.analyses.arguments import need_trace
from traceanalyzer.analyses.labels import label
from traceanalyzer.analyses.ratio import ratio
from traceanalyzer.analyses.steps.find import Found, find_steps
from traceanalyzer.analyses.stretch import need_whole
from traceanalyzer.classify.rules import CLASSES, RuleTable
from traceanalyzer.trace import Trace

#: What each figure is, word for word as it is shown with `--explain`.
DEFINITIONS = {
    "step": "number of the step in its file, from 0; null in the row of what belongs to no step",
    "kind": "decode, prefill, mixed or idle where the marker tells, else step; outside: what belongs to no step",
    "batch": "sequences in the batch, from the marker",
    "tokens": "tokens that the step works on, from the marker",
    "start_ns": "start of the window, after the first device activity of the file",
    "wall_ns": "length of the window: from the end of the step before to the end of the step's own last activity; "
    "windows and the row outside add up to the span of the device",
    "busy_ns": "part of the window in which the device did anything, of whatever step",
    "idle_ns": "wall minus busy",
    "idle_<cause>_ns": "idle time of the window by cause, as in idle-gaps; they add up to idle",
    "host_wall_ns": "length of the marker on the host",
    "kernels": "kernels launched in the step (copies and sets are not counted)",
    "tokens_per_s": "tokens / wall",
    "mark": "partial: the number of kernels is more than a tenth off the middle one of its kind, as at the edges of a "
    "recording; slow: takes 1.5 times the middle wall time of its kind, as in a warm-up",
    "found_by": "marker: a range on the host; graph: replays of graphs that repeat; sequence: kernel names that repeat",
    "confidence": "of steps by sequence, the share of them that are alike in their kernels, times how alike they are "
    "in length; by markers 1",
}
_KEY = ["source", "device"]
#: Steps of a kind are compared from so many on.
_FEWEST = 3
_PARTIAL, _SLOW = 0.1, 1.5


def steps(trace: Trace, *, found: Found | None = None, rules: RuleTable | None = None) -> pl.DataFrame:
    """One row per step and device of each file, and one of kind `outside` for what belongs to no step.

    See `DEFINITIONS`; `<class>_ns` are plain sums of the durations of the step's activity by class. `found` is what
    `find_steps` gave, where it is at hand already.
    """
    need_trace(trace, "steps")
    need_whole(trace, "steps")
    found = found or find_steps(trace)
    activity = trace.kernels.with_columns(step=found.of_kernel).filter(pl.col("duration_ns") >= 0)
    windows = _windows(activity)
    whole = intervals.hull(intervals.of_events(activity, _KEY), _KEY).rename(
        {"end_ns": "last_ns", "start_ns": "first_ns"}
    )
    busy = _busy(activity, windows)
    sums = _sums(activity, label(trace.kernels.select("kind", "name"), rules))
    inside = windows.with_columns(busy).join(sums, on=[*_KEY, "step"], how="left", nulls_equal=True)
    outside = _outside(activity, inside, whole, sums)
    rows = pl.concat([inside, outside], how="diagonal").join(whole, on=_KEY, how="left", nulls_equal=True)
    host = found.steps.select(
        "source", "step", "name", "batch", "tokens", "found_by", "confidence", step_kind="kind",
        host_wall_ns=pl.col("end_ns") - pl.col("start_ns"),
    )  # fmt: skip
    rows = rows.join(host, on=["source", "step"], how="left")
    first = trace.ranks.select("source", "run", "path", "rank", origin_ns="first_ns")
    rows = rows.join(first, on="source", how="left").with_columns(
        kind=pl.coalesce("kind", "step_kind"),
        start_ns=pl.col("start_ns") - pl.col("origin_ns"),
        idle_ns=pl.col("wall_ns") - pl.col("busy_ns"),
        tokens_per_s=ratio(rows["tokens"] * 1_000_000_000, rows["wall_ns"]),
    )
    rows = rows.with_columns(mark=_mark())
    return rows.sort("source", "device", "step", nulls_last=True).select(
        "run", "path", "rank", pl.col("device").cast(pl.String), "step", "name", "kind", "batch", "tokens", "start_ns",
        "wall_ns", "busy_ns", "idle_ns", "host_wall_ns", "kernels", "tokens_per_s", "mark",
        *(f"{name}_ns" for name in CLASSES), "found_by", "confidence",
    )  # fmt: skip


def plain_steps(rows: pl.DataFrame, kind: str | None = None) -> pl.DataFrame:
    """Of the rows of `steps` the whole ones of a `kind`, by default of the kind that each run has most of.

    Partial and slow steps are left out, and the first step of a run where there are others: what it waited for is not
    in its window.
    """
    inside = rows.filter((pl.col("kind") != "outside") & pl.col("mark").is_null())
    if kind is None:
        counts = (
            inside.group_by("run", "kind").agg(pl.len()).sort("run", "len", "kind", descending=[False, True, False])
        )
        wanted = inside.join(counts.unique("run", keep="first", maintain_order=True), on=["run", "kind"], how="semi")
    else:
        wanted = inside.filter(pl.col("kind") == kind)
    firsts = rows.group_by("run").agg(_first=pl.col("step").min())
    later = wanted.join(firsts, on="run", how="left").with_columns(_later=pl.col("step") > pl.col("_first"))
    return later.filter(pl.col("_later") | ~pl.col("_later").any().over("run")).drop("_first", "_later")


def summary(rows: pl.DataFrame) -> pl.DataFrame:
    """One row per device and kind of step: how many, and their times (`rows` are those of `steps`).

    Marked steps are counted in `steps` and `marked`, and left out of all other figures where others are left.
    """
    key = ["run", "path", "rank", "device", "kind"]
    inside = rows.filter(pl.col("kind") != "outside")
    plain = pl.col("mark").is_null() | pl.col("mark").is_not_null().all().over(key)
    wall, tokens = pl.col("wall_ns"), pl.col("tokens")
    figures = (
        inside.filter(plain)
        .group_by(key, maintain_order=True)
        .agg(
            wall_total_ns=wall.sum(), **{f"p{rank}_ns": _nearest_rank(rank) for rank in (50, 95, 99)},
            max_ns=wall.max(), busy_ns=pl.col("busy_ns").sum(), idle_ns=pl.col("idle_ns").sum(),
            tokens=pl.when(tokens.null_count() == 0).then(tokens.sum()),
        )
    )  # fmt: skip
    counts = inside.group_by(key, maintain_order=True).agg(
        steps=pl.len().cast(pl.Int64), marked=pl.col("mark").is_not_null().sum().cast(pl.Int64)
    )
    joined = counts.join(figures, on=key, nulls_equal=True, maintain_order="left")
    return joined.with_columns(
        busy_share=ratio(joined["busy_ns"], joined["wall_total_ns"]),
        tokens_per_s=ratio(joined["tokens"] * 1_000_000_000, joined["wall_total_ns"]),
        ns_per_token=ratio(joined["wall_total_ns"], joined["tokens"]).round().cast(pl.Int64),
    ).drop("wall_total_ns", "busy_ns", "idle_ns", "tokens")


def _nearest_rank(percent: int) -> pl.Expr:
    rank = (pl.len().cast(pl.Int64) * percent + 99) // 100  # ceil(n p / 100), counted from 1, in whole numbers
    return pl.col("wall_ns").sort().get(rank - 1)


def _mark() -> pl.Expr:
    """What is odd about a step among those of its kind on its device."""
    alike = ["source", "device", "kind"]
    kernels, wall = pl.col("kernels"), pl.col("wall_ns")
    usual = kernels.median().over(alike)
    partial = (kernels - usual).abs() > _PARTIAL * usual
    slow = wall > _SLOW * wall.median().over(alike)
    comparable = (pl.len().over(alike) >= _FEWEST) & (pl.col("kind") != "outside")
    return pl.when(comparable & partial).then(pl.lit("partial")).when(comparable & slow).then(pl.lit("slow"))


def _windows(activity: pl.DataFrame) -> pl.DataFrame:
    """`start_ns`, `end_ns`, `wall_ns` of each step on each device: windows tile from the first step to the last."""
    end = pl.col("start_ns") + pl.col("duration_ns")
    own = (
        activity.drop_nulls("step")
        .group_by(*_KEY, "step")
        .agg(first=pl.col("start_ns").min(), last=end.max())
        .sort(*_KEY, "step")
    )
    reached = own.with_columns(end_ns=pl.col("last").cum_max().over(_KEY))
    before = pl.col("end_ns").shift(1).over(_KEY)
    return reached.select(
        *_KEY, "step", start_ns=pl.coalesce(before, "first"), end_ns="end_ns",
    ).with_columns(wall_ns=pl.col("end_ns") - pl.col("start_ns"))  # fmt: skip


def _busy(activity: pl.DataFrame, windows: pl.DataFrame) -> pl.Series:
    """`busy_ns` of each window, in their order."""
    covered = intervals.of_events(activity, _KEY)
    until, since = (
        covers.covered_until(covered, windows.select(*_KEY, at_ns=name), _KEY) for name in ("end_ns", "start_ns")
    )
    return (until - since).alias("busy_ns")


def _sums(activity: pl.DataFrame, labels: pl.DataFrame) -> pl.DataFrame:
    """`kernels` and `<class>_ns` per device and step; null is a step like any other."""
    classes = labels.select("kind", "name", "class")
    named = activity.join(classes, on=["kind", "name"], how="left", nulls_equal=True)
    of_class = ((pl.col("class") == name).fill_null(value=False) for name in CLASSES)
    return named.group_by(*_KEY, "step").agg(
        (pl.col("kind") == "kernel").sum().cast(pl.Int64).alias("kernels"),
        *(
            pl.col("duration_ns").filter(chosen).sum().alias(f"{name}_ns")
            for name, chosen in zip(CLASSES, of_class, strict=True)
        ),
    )


def _outside(activity: pl.DataFrame, inside: pl.DataFrame, whole: pl.DataFrame, sums: pl.DataFrame) -> pl.DataFrame:
    """One row per device: the rest of its span and busy time, and the activity of no step."""
    taken = inside.group_by(_KEY).agg(pl.col("wall_ns", "busy_ns").sum())
    busy = intervals.coverage(intervals.of_events(activity, _KEY), _KEY)
    rest = whole.join(busy, on=_KEY, how="left", nulls_equal=True).join(
        taken, on=_KEY, how="left", nulls_equal=True
    )  # fmt: skip
    return rest.select(
        *_KEY,
        step=pl.lit(None, pl.UInt32),
        kind=pl.lit("outside"),
        wall_ns=pl.col("last_ns") - pl.col("first_ns") - pl.col("wall_ns").fill_null(0),
        busy_ns=pl.col("covered_ns").fill_null(0) - pl.col("busy_ns").fill_null(0),
    ).join(
        sums.filter(pl.col("step").is_null()).drop("step"), on=_KEY, how="left", nulls_equal=True
    ).with_columns(pl.col("kernels", *(f"{name}_ns" for name in CLASSES)).fill_null(0))  # fmt: skip
