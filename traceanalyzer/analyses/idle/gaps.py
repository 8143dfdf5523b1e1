"""Every stretch in which a device did nothing, with its neighbours, its causes and what the host did."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from traceanalyzer.analyses import intervals
from traceanalyzer.analyses.arguments import need_trace
from traceanalyzer.analyses.idle.causes import CAUSES, THREAD, largest_cause, own_code_of, pieces
from traceanalyzer.analyses.idle.host import HALF, cut_by_lowest_range, lowest_holders, near
from traceanalyzer.analyses.launched import as_rows, gathered, launched
from traceanalyzer.analyses.like import alphabetical
from traceanalyzer.analyses.ratio import ratio
from traceanalyzer.analyses.steps.find import Found, find_steps
from traceanalyzer.analyses.steps.markers import is_marker
from traceanalyzer.analyses.stretch import Stretch, whole_of
from traceanalyzer.trace import Trace

#: What each figure is, word for word as it is shown with `--explain`.
DEFINITIONS = {
    "start_ns": "start of the gap, after the first device activity of the file",
    "duration_ns": "length of the gap: the device runs nothing on any stream; gaps of a device add up to its idle time",
    "cause": "the cause with the largest piece of the gap",
    "step": "step of the activity behind the gap",
    "previous_kernel": "the activity that ended where the gap begins",
    "next_kernel": "the activity that began where the gap ends",
    "host_op": "of the ranges, python functions and operators around the launching thread's own code in the gap "
    "(without waits and calls of the runtime) the lowest that holds half of it; a range that is local to it is "
    "preferred. Without such code, the call of the runtime that holds half of the time",
    "host_share": "part of that code, or of that time, that it held",
    "host_busy_ns": "the thread that launched what came next ran other code, for over 50 µs",
    "sync_ns": "it waited for the device, and then had to launch anew",
    "launch_bound_ns": "it was in calls of the runtime (launches, allocations, events) or between two of them, and "
    "could not keep the device fed",
    "queued_ns": "the work was launched, and the device did not begin it yet: start-up, or a dependency on another "
    "stream",
    "comm_wait_ns": "it waited for other ranks",
    "graph_launch_ns": "it was inside the call that replays a graph",
    "allocation_ns": "it was in calls that get device memory or give it back (the latter wait for the device)",
    "profiler_ns": "the profiler worked on that thread (its own overhead rows)",
    "unknown_ns": "no launch call of what came next was recorded",
}
_DEVICE = ["source", "device"]
#: Of what the host was busy with in a gap, the rest that no range names is looked into from this part on.
_WORTH_A_NAME = 0.1
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Gaps:
    """The gaps of a trace, and all that the host was busy with in them."""

    rows: pl.DataFrame
    """Those of `idle_gaps`."""
    host: pl.DataFrame
    """`gap` (a row of `rows`), `name` (null: nothing has a name), `total_ns`: the pieces of `host_busy_ns` of the gaps
    that have some, by the lowest range that somebody named around each instant, else by the function or operator that
    holds half of the rest, if that is a tenth of it or more."""


def idle_gaps(trace: Trace, *, found: Found | None = None) -> pl.DataFrame:
    """One row per gap of each device, in order of time, as `DEFINITIONS` says; `<cause>_ns` sum to its length.

    Of a stretch of time, gaps are cut at its edges. `found` is what `find_steps` gave for the whole trace (see
    `whole_of`), where it is at hand already.
    """
    return gaps_and_host(trace, found=found).rows


def gaps_and_host(trace: Trace, *, found: Found | None = None) -> Gaps:
    """The rows of `idle_gaps`, whose arguments it takes, and all that the host was busy with in each."""
    need_trace(trace, "idle_gaps")
    whole = whole_of(trace)
    found = found or find_steps(whole)
    activity = launched_activity(trace).with_columns(step=found.of_kernel)
    gaps = caused_gaps(activity, trace).with_row_index("gap")
    own_code = _own_code(gaps, whole)
    ranges = near(_ranges(whole), own_code).with_columns(is_range=pl.lit(value=True))
    cut = cut_by_lowest_range(ranges, own_code, THREAD)
    unnamed = _unnamed(cut)
    others = _others(whole, own_code, HALF * min(_least(own_code), _least(unnamed)))
    gaps = _with_host(gaps, own_code, pl.concat([ranges, others]), whole)
    files = trace.ranks.select("source", "run", "path", "rank", "first_ns")
    rows = gaps.join(files, on="source", how="left", maintain_order="left").with_columns(
        pl.col("previous_kernel", "next_kernel").cast(pl.String),
        cause=largest_cause(),
        duration_ns=pl.col("end_ns") - pl.col("start_ns"),
        start_ns=pl.col("start_ns") - pl.col("first_ns"),
    )
    table = rows.select(
        "run", "path", "rank", pl.col("device").cast(pl.String), "step", "start_ns", "duration_ns", "cause",
        "previous_kernel", "next_kernel", "host_op", "host_share", *(f"{cause}_ns" for cause in CAUSES),
    )  # fmt: skip
    return Gaps(table, _host_parts(cut, unnamed, others))


def launched_activity(trace: Trace) -> pl.DataFrame:
    """All device activity that times rest on (see `all_activity`), with the row of the call that started it
    (`launch`)."""
    whole = whole_of(trace)
    columns = ("source", "device", "stream", "name", "kind", "start_ns", "duration_ns")
    return whole.kernels.select(columns).with_columns(launched(whole)["launch"])


def caused_gaps(activity: pl.DataFrame, trace: Trace) -> pl.DataFrame:
    """The gaps of each device between the activity (as `launched_activity` gives it) and why: one `<cause>_ns` a cause.

    Has `source`, `device`, `start_ns`, `end_ns`, `step` (null where the activity has none), the neighbours and the call
    that started the next one; rows are in order of sources, devices and time. Gaps are cut at the edges of the windows
    of a stretch.
    """
    ends = pl.col("start_ns") + pl.col("duration_ns")
    if "step" not in activity.columns:
        activity = activity.with_columns(step=pl.lit(None, pl.UInt32))
    activity = activity.filter(pl.col("duration_ns") >= 0).with_columns(end_ns=ends)
    gaps = intervals.gaps(activity.select(*_DEVICE, "start_ns", "end_ns"), _DEVICE)
    gaps = _with_neighbours(gaps.filter(pl.col("end_ns") > pl.col("start_ns")), activity)
    if isinstance(trace, Stretch):
        gaps = _cut(gaps, trace.windows)
    gaps = _with_calls(gaps, trace)
    return pl.concat([gaps, pieces(gaps, trace)], how="horizontal")


def _cut(gaps: pl.DataFrame, windows: pl.DataFrame) -> pl.DataFrame:
    """The parts of the gaps that lie in the window of their file."""
    return (
        gaps.join(windows, on="source", maintain_order="left")
        .with_columns(start_ns=pl.max_horizontal("start_ns", "from_ns"), end_ns=pl.min_horizontal("end_ns", "until_ns"))
        .filter(pl.col("end_ns") > pl.col("start_ns"))
        .drop("from_ns", "until_ns")
    )


def by_cause(rows: pl.DataFrame) -> pl.DataFrame:
    """`cause`, `gaps` (with a piece of it), `total_ns`, `share` of the idle time of a run, the largest first."""
    parts = [
        rows.group_by("run", maintain_order=True).agg(
            cause=pl.lit(cause),
            gaps=(pl.col(f"{cause}_ns") > 0).sum().cast(pl.Int64),
            total_ns=pl.col(f"{cause}_ns").sum(),
        )
        for cause in CAUSES
    ]
    table = pl.concat(parts).filter(pl.col("total_ns") > 0)
    whole = rows.group_by("run").agg(idle_ns=pl.col("duration_ns").sum())
    table = table.join(whole, on="run", how="left")
    return (
        table.with_columns(share=ratio(table["total_ns"], table["idle_ns"]))
        .sort("run", "total_ns", "cause", descending=[False, True, False])
        .drop("idle_ns")
    )


def by_host(gaps: Gaps) -> pl.DataFrame:
    """What the host was busy with: `host_op`, `gaps`, `total_ns` of `host_busy`, the largest first; null: unknown."""
    runs = gaps.rows.select("run").with_row_index("gap")
    parts = gaps.host.join(runs, on="gap").rename({"name": "host_op"})
    table = parts.group_by("run", "host_op").agg(
        gaps=pl.col("gap").n_unique().cast(pl.Int64), total_ns=pl.col("total_ns").sum()
    )
    return table.sort("run", "total_ns", "host_op", descending=[False, True, False], nulls_last=True)


def _with_neighbours(gaps: pl.DataFrame, activity: pl.DataFrame) -> pl.DataFrame:
    """What ended where the gap begins (of several that which began last), and what began where it ends (of several that
    which was launched first): names, and of the latter `launch` and `step`.
    """
    devices = activity.select(_DEVICE).unique().with_row_index("_number")
    numbers, own = (
        each.join(devices, on=_DEVICE, how="left", nulls_equal=True, maintain_order="left")["_number"].to_numpy()
        for each in (gaps, activity)
    )
    before = np.full(gaps.height, -1, np.int64)
    after = before.copy()
    launch = activity["launch"].fill_null(2**32 - 1).to_numpy().astype(np.int64)
    start, end = activity["start_ns"].to_numpy(), activity["end_ns"].to_numpy()
    for number in range(devices.height):
        mine, rows = np.flatnonzero(numbers == number), np.flatnonzero(own == number)
        since, until = (gaps[name].to_numpy()[mine] for name in ("start_ns", "end_ns"))
        before[mine] = _at(since, rows, end[rows], -start[rows], activity["name"], last=True)
        after[mine] = _at(until, rows, start[rows], launch[rows], activity["name"], last=False)
    return gaps.with_columns(
        previous_kernel=gathered(activity["name"], as_rows(pl.Series(before))),
        next_kernel=gathered(activity["name"], as_rows(pl.Series(after))),
        launch=gathered(activity["launch"], as_rows(pl.Series(after))),
        step=gathered(activity["step"], as_rows(pl.Series(after))),
    )


def _at(edges: Ints, rows: Ints, times: Ints, rank: Ints, names: pl.Series, *, last: bool) -> Ints:
    """For each edge the row whose time it is; of several the one of the least rank, and of equals that whose name is
    the first, or the `last`. Every edge is a time of some row."""
    order = np.argsort(times, kind="stable")
    ordered = times[order]
    first = np.searchsorted(ordered, edges, "left")
    found = rows[order[first]]
    followed = np.append(ordered[1:] == ordered[:-1], False)
    tied = np.flatnonzero(followed[first])
    if not len(tied):
        return found
    many = np.searchsorted(ordered, edges[tied], "right") - first[tied]
    begins = np.cumsum(many) - many
    there = order[np.repeat(first[tied] - begins, many) + np.arange(many.sum())]
    alphabet = alphabetical(names.gather(rows[there]))
    edge = np.repeat(np.arange(len(tied)), many)
    best = np.lexsort((-alphabet if last else alphabet, rank[there], edge))[begins]
    found[tied] = rows[there[best]]
    return found


def _with_calls(gaps: pl.DataFrame, trace: Trace) -> pl.DataFrame:
    calls = trace.launches.select(
        "pid", "tid", call_ns="start_ns", call_end_ns=pl.col("start_ns") + pl.col("duration_ns"), call_name="name"
    )
    return gaps.with_columns(gathered(calls[name], gaps["launch"]).alias(name) for name in calls.columns)


def _own_code(gaps: pl.DataFrame, trace: Trace) -> pl.DataFrame:
    """The pieces of the gaps in which the launching thread ran code of its own, where that was its business."""
    busy = gaps.filter(pl.col("host_busy_ns") > 0)
    stretches = busy.select("gap", *THREAD, "start_ns", end_ns=pl.min_horizontal("call_ns", "end_ns"))
    return own_code_of(stretches, trace)


def _with_host(gaps: pl.DataFrame, own_code: pl.DataFrame, spans: pl.DataFrame, trace: Trace) -> pl.DataFrame:
    """`host_op`, `host_share`: of what the host was busy with where that is the cause, else of the calls it was in."""
    causes = pl.max_horizontal(f"{cause}_ns" for cause in CAUSES)
    is_busy = gaps.select((pl.col("host_busy_ns") > 0) & (pl.col("host_busy_ns") == causes)).to_series()
    of_code = own_code.filter(pl.col("gap").is_in(gaps["gap"].filter(is_busy).implode()))
    found = pl.concat([lowest_holders(spans, of_code, THREAD), _calls_of_most(gaps.filter(~is_busy), trace)])
    share = found["covered_ns"] / found["own_ns"]
    place = np.full(gaps.height, -1, np.int64)
    place[found["gap"].to_numpy()] = np.arange(found.height)
    rows = as_rows(pl.Series(place))
    return gaps.with_columns(host_op=gathered(found["name"], rows), host_share=gathered(share, rows)).drop("gap")


def _unnamed(cut: pl.DataFrame) -> pl.DataFrame:
    """The pieces that no range names, of the gaps in which they are worth it."""
    length = pl.col("end_ns") - pl.col("start_ns")
    rest = length.filter(pl.col("name").is_null()).sum().over("gap")
    return cut.filter((rest >= _WORTH_A_NAME * length.sum().over("gap")) & pl.col("name").is_null())


def _least(pieces: pl.DataFrame) -> int:
    """The shortest time that any gap has in these pieces."""
    sums = pieces.group_by("gap").agg(own_ns=(pl.col("end_ns") - pl.col("start_ns")).sum())["own_ns"].to_list()
    return min(sums, default=2**62)


def _host_parts(cut: pl.DataFrame, unnamed: pl.DataFrame, others: pl.DataFrame) -> pl.DataFrame:
    """See `Gaps.host`."""
    holders = lowest_holders(others, unnamed, THREAD).select("gap", holder="name")
    named = cut.join(holders, on="gap", how="left").with_columns(name=pl.coalesce("name", "holder"))
    length = pl.col("end_ns") - pl.col("start_ns")
    return named.group_by("gap", "name").agg(total_ns=length.sum()).sort("gap", "total_ns", "name")


def _calls_of_most(gaps: pl.DataFrame, trace: Trace) -> pl.DataFrame:
    """Of gaps whose cause is no other code of the host: the call of the runtime that held most of it."""
    without = gaps.filter(pl.col("call_ns").is_not_null())
    until = pl.max_horizontal(pl.min_horizontal("call_end_ns", "end_ns"), "start_ns")
    stretches = without.select("gap", *THREAD, "start_ns", end_ns=until).filter(pl.col("end_ns") > pl.col("start_ns"))
    calls = trace.launches.select("name", *THREAD, "start_ns", "duration_ns", is_range=pl.lit(value=False))
    return lowest_holders(calls, stretches, THREAD)


_SPAN = ("name", *THREAD, "start_ns", "duration_ns")


def _ranges(trace: Trace) -> pl.DataFrame:
    """Ranges that somebody named, but for the markers of steps."""
    ranges = trace.annotations.filter(~pl.col("on_device")).select(_SPAN)
    names = ranges["name"].unique().drop_nulls()
    markers = names.filter(pl.Series([is_marker(name) for name in names.cast(pl.String)], dtype=pl.Boolean))
    return ranges.filter(~pl.col("name").is_in(markers.implode()))


def _others(trace: Trace, pieces: pl.DataFrame, shortest_ns: float) -> pl.DataFrame:
    """Python functions and operators of the time of the pieces, those that are long enough to hold half of any."""
    long = pl.col("duration_ns") >= shortest_ns
    tables = [trace.scan(name).select(_SPAN).filter(long).collect() for name in ("python_calls", "ops")]
    return pl.concat([near(each, pieces) for each in tables]).with_columns(is_range=pl.lit(value=False))
