"""The pieces of a gap: what the thread that launched the next work did while the device had none.

The gap ends with some activity, and that was started by a call on some thread. From the end of that call on the work
was `queued`: the device had it and did not begin yet. During the call it was being launched. Before the call the thread
did other things; the runtime calls among them say which: it waited for the device, it launched, or it ran code of its
own.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from traceanalyzer.analyses import covers, intervals
from traceanalyzer.analyses.launched import GRAPH_LAUNCH
from traceanalyzer.analyses.like import like
from traceanalyzer.trace import Trace

CAUSES = (
    "host_busy", "sync", "launch_bound", "queued", "comm_wait", "graph_launch", "allocation", "profiler", "unknown",
)  # fmt: skip


def largest_cause() -> pl.Expr:
    """The cause with most of a row's `<cause>_ns`; of equals the one that `CAUSES` names first."""
    most = pl.max_horizontal(f"{cause}_ns" for cause in CAUSES)
    return pl.coalesce(pl.when(pl.col(f"{cause}_ns") == most).then(pl.lit(cause)) for cause in CAUSES)


#: What the thread may have done before the call, apart from code of its own.
_BEFORE_THE_CALL = ("profiler", "comm_wait", "sync", "allocation", "launch_bound")
#: Between two calls of the runtime a thread needs so much for an operator; more is work of its own.
SHORT_NS = 50_000
#: Calls in which the host waits for the device: also copies that return only when they are done.
_WAITS = r"(?i)synchronize|^(cuda|hip)memcpy$|memcpywithstream"
#: Calls that get memory of the device or give it back; freeing waits until the device is done.
_ALLOCATES = r"(?i)^(cuda|hip|cu)(host|mem)?(malloc|free|alloc)"
#: Copies to memory that is not pinned return only when they are done.
_BLOCKING_COPY = r"(?i)dtoh.*pageable"
#: Host ranges and operators in which a thread waits for other ranks.
_WAITS_FOR_RANKS = r"(?i)(nccl|c10d|gloo|process_?group).*(wait|barrier)|^barrier$|work\.wait"
_OVERHEAD = "overhead"
#: One thread of one file.
THREAD = ["source", "pid", "tid"]


def pieces(gaps: pl.DataFrame, trace: Trace) -> pl.DataFrame:
    """One `<cause>_ns` column for each of `CAUSES`; they sum to the length of the gap.

    `gaps` has `source`, `start_ns`, `end_ns`, and of the call that started the activity behind the gap `pid`, `tid`,
    `call_ns`, `call_end_ns`, `call_name`; null where no call is known. Rows keep their order.
    """
    start, end = pl.col("start_ns"), pl.col("end_ns")
    called, returned = (pl.col(name).clip(start, end) for name in ("call_ns", "call_end_ns"))
    cut = gaps.with_columns(called=called, returned=pl.max_horizontal(called, returned))
    calls = trace.launches.with_columns(end_ns=pl.col("start_ns") + pl.col("duration_ns"))
    waiting = like(calls["name"], _WAITS) | _copies_and_waits(calls, trace)
    allocating = like(calls["name"], _ALLOCATES)
    columns = (*THREAD, "start_ns", "end_ns")
    waits = calls.filter(waiting).select(columns)
    allocations = calls.filter(~waiting & allocating).select(columns)
    others = calls.filter(~waiting & ~allocating).select(columns)
    profiler = _overhead(trace, gaps.select(THREAD).unique())
    waiting_for_ranks = _waits_for_ranks(trace)
    # each takes what those before it left
    taken = profiler.head(0)
    before = {}
    for cause, own in (
        ("profiler", profiler),
        ("comm_wait", waiting_for_ranks),
        ("sync", waits),
        ("allocation", allocations),
        ("launch_bound", others),
    ):
        left = own if taken.is_empty() or own.is_empty() else intervals.subtract(own, taken, THREAD)
        before[cause] = _covered(left, cut, "start_ns", "called")
        taken = pl.concat([taken, own])
    overhead_in_call = _covered(profiler, cut, "called", "returned")
    cut = cut.with_columns(
        _replayed=like(cut["call_name"], GRAPH_LAUNCH), waited=_waited(waits, cut),
        in_call_ns=pl.col("returned") - pl.col("called") - overhead_in_call,
        overhead_ns=overhead_in_call, **{f"before_{cause}": values for cause, values in before.items()},
    )  # fmt: skip
    return _as_causes(cut)


def _copies_and_waits(calls: pl.DataFrame, trace: Trace) -> pl.Series:
    """Which calls are copies that return when the copy is done."""
    copies = trace.kernels.filter((pl.col("kind") == "memcpy") & like(trace.kernels["name"], _BLOCKING_COPY))
    ids = copies.select("source", "correlation").drop_nulls().unique().with_columns(blocking=pl.lit(value=True))
    found = calls.select("source", "correlation").join(
        ids, on=["source", "correlation"], how="left", maintain_order="left"
    )
    return found["blocking"].fill_null(value=False)


def own_code_of(stretches: pl.DataFrame, trace: Trace) -> pl.DataFrame:
    """What is left of stretches of threads without calls of the runtime, waits and work of the profiler.

    `stretches` has `gap`, the thread's columns, `start_ns`, `end_ns`; so has the result, with a row for each piece.
    """
    calls = intervals.of_events(trace.launches, THREAD)
    taken = pl.concat([calls, _overhead(trace, stretches.select(THREAD).unique()), _waits_for_ranks(trace)])
    left = covers.uncovered(stretches, taken, THREAD)
    return left.with_columns(gap=stretches["gap"][left["row"]]).drop("row")


def _as_causes(cut: pl.DataFrame) -> pl.DataFrame:
    known = pl.col("call_ns").is_not_null()
    replayed = pl.col("_replayed")
    own_code = (
        pl.col("called") - pl.col("start_ns")
        - pl.sum_horizontal(f"before_{cause}" for cause in _BEFORE_THE_CALL)
    )  # fmt: skip
    busy = own_code > SHORT_NS
    waited = pl.col("waited") | (pl.col("before_sync") > 0)
    zero = pl.lit(0, pl.Int64)
    figures = {
        "host_busy": pl.when(busy).then(own_code).otherwise(zero),
        "sync": pl.col("before_sync") + pl.when(~busy & waited).then(own_code).otherwise(zero),
        "launch_bound": pl.col("before_launch_bound")
        + pl.when(~busy & ~waited).then(own_code).otherwise(zero)
        + pl.when(replayed).then(zero).otherwise("in_call_ns"),
        "queued": pl.col("end_ns") - pl.col("returned"),
        "comm_wait": pl.col("before_comm_wait"),
        "graph_launch": pl.when(replayed).then("in_call_ns").otherwise(zero),
        "allocation": pl.col("before_allocation"),
        "profiler": pl.col("before_profiler") + pl.col("overhead_ns"),
        "unknown": zero,
    }
    length = pl.col("end_ns") - pl.col("start_ns")
    return cut.select(
        pl.when(known).then(figures[cause]).otherwise(length if cause == "unknown" else zero).alias(f"{cause}_ns")
        for cause in CAUSES
    )


def _covered(own: pl.DataFrame, cut: pl.DataFrame, since: str, until: str) -> pl.Series:
    """How much of [since, until) of each row is covered on its thread."""
    if own.is_empty():
        return pl.Series(np.zeros(cut.height, np.int64))
    at = cut.select(*THREAD, start_ns=since, end_ns=pl.max_horizontal(since, until))
    return covers.covered_within(own, at, THREAD)


def _waited(waits: pl.DataFrame, cut: pl.DataFrame) -> pl.Series:
    """Whether the thread was in a call that waits when the gap began."""
    return _covered(waits, cut.with_columns(just=pl.col("start_ns") - 1_000), "just", "start_ns") > 0


def _overhead(trace: Trace, threads: pl.DataFrame) -> pl.DataFrame:
    """What the profiler says of its own work. That has a row of its own, whichever thread it held up: all of them."""
    category = pl.col("category").cast(pl.String).str.to_lowercase() == _OVERHEAD
    rows = trace.scan("slices").filter(category).select("source", "start_ns", "duration_ns").collect()
    return intervals.of_events(threads.join(rows, on="source"), THREAD)


def _waits_for_ranks(trace: Trace) -> pl.DataFrame:
    """Ranges and operators in which the host waits for other ranks."""
    columns = ("name", *THREAD, "start_ns", "duration_ns")
    tables = [trace.scan(name).select(columns).collect() for name in ("ops", "annotations")]
    found = [table.filter(like(table["name"], _WAITS_FOR_RANKS)) for table in tables]
    return intervals.of_events(pl.concat(found), THREAD)
