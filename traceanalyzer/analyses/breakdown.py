"""Where every nanosecond of the span went: compute by class, exposed communication, memory, idle by cause.

Each instant of a device's span goes to the first of these that holds there. Among compute kernels that run at once the
one that started first has it. So the parts of a device add up to its span exactly, however kernels overlap.
"""

from __future__ import annotations

import polars as pl

from traceanalyzer.analyses.arguments import need_trace
from traceanalyzer.analyses.device_time import DEVICE_KEYS, all_activity, device_time
from traceanalyzer.analyses.idle import CAUSES, caused_gaps, launched_activity
from traceanalyzer.analyses.impossible import clipped, impossible_in
from traceanalyzer.analyses.labels import Paths, label, rule_table
from traceanalyzer.analyses.ratio import ratio
from traceanalyzer.analyses.stretch import Stretch
from traceanalyzer.classify.rules import CLASSES, RuleTable
from traceanalyzer.text import natural_key
from traceanalyzer.trace import Trace

#: In the order in which an instant is given away.
STATES = ("compute", "communication", "memory", "idle")

#: What each figure is, word for word as it is shown with `--explain`.
DEFINITIONS = {
    "state": "what an instant of the span goes to: the first of compute, communication, memory (copies and sets) and "
    "idle that holds there",
    "class": "class of work of the compute kernel that has the instant: of several at once the one that started first",
    "cause": "why the device was idle, as in idle-gaps; the causes of a device add up to its idle time",
    "total_ns": "length of all instants of the span that went there; the parts of a device add up to its span",
    "share": "total / span",
    "hidden_communication_ns": "communication while compute runs, which is no part of the sum",
    "clipped_total_ns": "total with durations that cannot be true ended at the next start on their stream",
    "least_share": "smallest share of any device of the run",
    "most_share": "largest share of any device of the run",
}

_STATE, _CLASS = pl.Enum(STATES), pl.Enum(CLASSES)
_BEFORE_ALL = -(2**63)
_START, _END = pl.col("start_ns"), pl.col("end_ns")


def breakdown(trace: Trace, *, rules: RuleTable | Paths | None = None) -> pl.DataFrame:
    """One row per run, rank, device, state, class of compute and cause of idle; see `DEFINITIONS`.

    Columns: run, rank, device, state, class (null for idle), cause (null for all but idle, and where that is 0),
    total_ns, share (null where the span is 0), hidden_communication_ns (in the row of communication, else null).
    `total_ns` of a device add up to its span exactly. A class that is only behind others has 0; a state that a device
    does not know has no row, but for idle.
    Where durations of the trace cannot be true (see `impossible_in`), `clipped_total_ns` stands beside: the same parts
    of the span that is left when they end at the next start. `rules` are those of `top_kernels`.
    """
    need_trace(trace, "breakdown")
    activity = all_activity(trace)
    windows = trace.windows if isinstance(trace, Stretch) else None
    labelled = label(activity.select("kind", "name"), rule_table(rules))
    key = [*DEVICE_KEYS, "state", "class", "cause"]
    launches = launched_activity(trace)
    rows = _by_cause(_parts(activity, windows, labelled), launches, trace)
    found = impossible_in(trace)
    if found.height:
        without = _parts(clipped(activity, found), windows, labelled)
        without = _by_cause(without, clipped(launches, found), trace).select(*key, clipped_total_ns="total_ns")
        rows = rows.join(without, on=key, how="full", nulls_equal=True, coalesce=True)
        spans = rows.drop_nulls("span_ns").select(*DEVICE_KEYS, _span="span_ns").unique()
        rows = rows.join(spans, on=DEVICE_KEYS, how="left", nulls_equal=True).with_columns(
            pl.col("total_ns", "clipped_total_ns").fill_null(0), span_ns=pl.coalesce("span_ns", "_span")
        )
        rows = _without_idle_of_nothing(rows, list(DEVICE_KEYS))
    files = trace.ranks.select("source", "run", "rank")
    rows = rows.join(files, on="source", how="left").with_columns(share=ratio(rows["total_ns"], rows["span_ns"]))
    columns = ["run", "rank", "device", "state", "class", "cause", "total_ns", "share", "hidden_communication_ns"]
    if found.height:
        columns.insert(7, "clipped_total_ns")
    return _in_order(rows).select(columns).with_columns(pl.col("device", "state", "class").cast(pl.String))


def per_run(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows of `breakdown` added up over the devices of each run, in the same order.

    `share` is of the sum of their spans; `least_share` and `most_share` are the extremes over the devices, of which
    one that has no such row has 0.
    """
    sums = [name for name in ("total_ns", "clipped_total_ns", "hidden_communication_ns") if name in rows.columns]
    owners = rows.select("run", "rank", "device").unique()
    devices = owners.group_by("run").agg(_devices=pl.len())
    spans = rows.group_by("run").agg(_span_ns=pl.col("total_ns").sum())
    key = ["run", "state", "class", "cause"]
    summed = rows.group_by(key, maintain_order=True).agg(
        *(pl.when(pl.col(name).is_not_null().any()).then(pl.col(name).sum()).alias(name) for name in sums),
        pl.col("share").min().alias("least_share"),
        pl.col("share").max().alias("most_share"),
        _there=pl.len(),
    )
    summed = _without_idle_of_nothing(summed, ["run"])
    summed = summed.join(spans, on="run", how="left").join(devices, on="run", how="left")
    some_lack_it = pl.col("_there") < pl.col("_devices")
    summed = summed.with_columns(
        share=ratio(summed["total_ns"], summed["_span_ns"]),
        least_share=pl.when(some_lack_it).then(0.0).otherwise(pl.col("least_share")),
    )
    return _by_state(summed).select(*key, *sums, "share", "least_share", "most_share")


def _by_cause(rows: pl.DataFrame, activity: pl.DataFrame, trace: Trace) -> pl.DataFrame:
    """The rows with that of idle cut into one per cause; where a device is never idle it stays as it is."""
    columns = [f"{cause}_ns" for cause in CAUSES]
    sums = caused_gaps(activity, trace).group_by(DEVICE_KEYS).agg(pl.col(columns).sum())
    causes = sums.unpivot(columns, index=DEVICE_KEYS, variable_name="cause", value_name="cause_ns")
    causes = causes.filter(pl.col("cause_ns") > 0).with_columns(pl.col("cause").str.strip_suffix("_ns"))
    idle = pl.col("state") == "idle"
    cut = rows.filter(idle).join(causes, on=DEVICE_KEYS, how="left", nulls_equal=True)
    cut = cut.with_columns(total_ns=pl.coalesce("cause_ns", "total_ns")).drop("cause_ns")
    return pl.concat([rows.filter(~idle).with_columns(cause=pl.lit(None, pl.String)), cut])


def _without_idle_of_nothing(rows: pl.DataFrame, key: list[str]) -> pl.DataFrame:
    """Rows but for "not idle" where another row of the same device or run says why it was."""
    idle = pl.col("state") == "idle"
    told = (idle & pl.col("cause").is_not_null()).any().over(key)
    return rows.filter(~(idle & pl.col("cause").is_null() & told))


def _parts(activity: pl.DataFrame, windows: pl.DataFrame | None, labelled: pl.DataFrame) -> pl.DataFrame:
    """Rows of source, device, state, class, total_ns, hidden_communication_ns, span_ns; one set per device."""
    times = device_time(activity, windows=windows).select(*DEVICE_KEYS, "span_ns", "idle_ns")
    busy = _shared_out(_within(_stated(activity, labelled), windows))
    length = pl.col("_compute", "_exposed", "_memory", "_communication").sum()
    states = times.join(
        busy.group_by(DEVICE_KEYS).agg(length, there=pl.col("state").unique()),
        on=DEVICE_KEYS,
        how="left",
        nulls_equal=True,
    )
    hidden = pl.col("_communication") - pl.col("_exposed")
    compute = (
        busy.filter(pl.col("state") == "compute")
        .group_by(*DEVICE_KEYS, "state", "class")
        .agg(total_ns=pl.col("_compute").sum())
        .with_columns(hidden_communication_ns=pl.lit(None, pl.Int64))
        .join(times.drop("idle_ns"), on=DEVICE_KEYS, nulls_equal=True)
    )
    idle = _state(states, "idle", pl.col("idle_ns"))
    return pl.concat(
        [
            compute.select(idle.columns),
            _state(_knowing(states, "communication"), "communication", pl.col("_exposed"), hidden),
            _state(_knowing(states, "memory"), "memory", pl.col("_memory")),
            idle,
        ]
    )


def _knowing(states: pl.DataFrame, state: str) -> pl.DataFrame:
    """The devices that have activity of this state."""
    return states.filter(pl.col("there").list.contains(pl.lit(state, _STATE)))


def _stated(activity: pl.DataFrame, labelled: pl.DataFrame) -> pl.DataFrame:
    """Activity as intervals, each with its state and class."""
    work = pl.col("class")
    state = pl.when(work.is_in(["communication", "memory"])).then(work).otherwise(pl.lit("compute"))
    states = labelled.select("kind", "name", work.cast(_CLASS), state=state.cast(_STATE))
    return (
        activity.filter(pl.col("duration_ns") >= 0)
        .select(*DEVICE_KEYS, "kind", "name", "start_ns", end_ns=pl.col("start_ns") + pl.col("duration_ns"))
        .join(states, on=["kind", "name"], how="left", nulls_equal=True)
        .drop("kind", "name")
    )


def _within(busy: pl.DataFrame, windows: pl.DataFrame | None) -> pl.DataFrame:
    """Adds `from_ns` and `until_ns`, what counts of each interval: all of it, or what lies in the window of its file.

    Intervals that do not reach into the window stay, of no length: which kernel started first is of the whole trace.
    """
    if windows is None:
        return busy.with_columns(from_ns=_START, until_ns=_END)
    placed = busy.join(windows, on="source")
    return placed.with_columns(
        from_ns=pl.max_horizontal("start_ns", "from_ns"), until_ns=pl.min_horizontal("end_ns", "until_ns")
    )


def _shared_out(busy: pl.DataFrame) -> pl.DataFrame:
    """Adds how long each interval has the instants of its device, one column a way of giving them away.

    In the order of starts an interval has the instants from the latest end so far on: those at which nothing that
    started before it is still running. (Of what starts together the shorter one is first, then the class that `CLASSES`
    names first.) Summed up that is the length of a union, so one sort serves all of them: `_compute` is among compute
    alone, `_communication` among communication alone, what is left of that where compute does not run is `_exposed`,
    and `_memory` is left by both. Of the last two only the sums mean anything.
    """
    devices = busy.select(DEVICE_KEYS).unique(maintain_order=True).with_row_index("_device")
    ordered = busy.join(devices, on=DEVICE_KEYS, nulls_equal=True).sort("_device", "start_ns", "end_ns", "class")
    owned = ordered.with_columns(
        _compute=_own(["compute"]),
        _communication=_own(["communication"]),
        _both=_own(["compute", "communication"]),
        _all=_own(["compute", "communication", "memory"]),
    )
    return owned.with_columns(
        _exposed=pl.col("_both") - pl.col("_compute"), _memory=pl.col("_all") - pl.col("_both")
    ).drop("_both", "_all", "_device")


def _own(states: list[str]) -> pl.Expr:
    """The length that an interval has for itself among those of these states; 0 for all others."""
    among = pl.col("state").is_in(states)
    reached = pl.when(among).then(_END).otherwise(_BEFORE_ALL).cum_max().shift(1).over("_device")
    length = (pl.col("until_ns") - pl.max_horizontal("from_ns", reached)).clip(lower_bound=0)
    return pl.when(among).then(length).otherwise(0)


def _state(times: pl.DataFrame, state: str, total: pl.Expr, hidden: pl.Expr | None = None) -> pl.DataFrame:
    class_ = None if state == "idle" else state
    return times.select(
        *DEVICE_KEYS,
        pl.lit(state, _STATE).alias("state"),
        pl.lit(class_, _CLASS).alias("class"),
        total.alias("total_ns"),
        (pl.lit(None, pl.Int64) if hidden is None else hidden).alias("hidden_communication_ns"),
        "span_ns",
    )


def _in_order(rows: pl.DataFrame) -> pl.DataFrame:
    """By run and rank as people count, by device, then as in `STATES`; classes of compute the largest first."""
    runs = sorted(rows["run"].unique().drop_nulls(), key=natural_key)
    place = pl.col("run").replace_strict({run: at for at, run in enumerate(runs)}, return_dtype=pl.UInt32)
    device = pl.col("device").cast(pl.String)
    return rows.sort(
        place, "rank", "source", device.str.len_chars(), device, "state", "total_ns", "class", "cause",
        descending=[False] * 6 + [True, False, False],
    )  # fmt: skip


def _by_state(summed: pl.DataFrame) -> pl.DataFrame:
    runs = {run: place for place, run in enumerate(summed["run"].unique(maintain_order=True))}
    place = pl.col("run").replace_strict(runs, return_dtype=pl.UInt32)
    return summed.sort(
        place, pl.col("state").cast(_STATE), "total_ns", "class", "cause", descending=[False, False, True, False, False]
    )
