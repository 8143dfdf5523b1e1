"""A stretch of time of a trace: which part of the activity lies in it, although kernels are listed whole.

A kernel belongs to the stretch that holds its start. Time does not: what runs over an edge is busy on both sides of
it. So a narrowed trace knows the activity that it was cut from, and where its windows are.
"""

from __future__ import annotations

import polars as pl

from traceanalyzer import schema
from traceanalyzer.errors import UsageError
from traceanalyzer.trace import Trace

#: From and to, in ns after the first device activity of each file; None: open.
Between = tuple[int | None, int | None]


class Stretch(Trace):
    """A trace of which `kernels` holds the activity that starts in a stretch of time.

    `activity` is all device activity of what was asked for, and `windows` has one row per file with activity:
    `source`, `from_ns`, `until_ns`. `device_time` takes its figures from these.
    """

    __slots__ = ("activity", "windows")

    activity: pl.DataFrame
    windows: pl.DataFrame

    def replace(self, **tables: pl.DataFrame | pl.LazyFrame) -> Trace:
        """The same stretch with other rows in some tables; with other kernels it is a trace like any other."""
        changed = super().replace(**tables)
        return changed if "kernels" in tables else _stretch(changed, self.activity, self.windows)


def need_whole(trace: Trace, function: str) -> None:
    """Raises `UsageError` for a stretch of time, where a function takes whole traces alone."""
    if isinstance(trace, Stretch):
        raise UsageError(f"{function} takes a whole trace, not a stretch of time cut out of it with between_ns")


def whole_of(trace: Trace) -> Trace:
    """The trace that a stretch of time was cut from; any other trace as it is."""
    return trace.replace(kernels=trace.activity) if isinstance(trace, Stretch) else trace


def windows_of(ranks: pl.DataFrame, between_ns: Between, *, within: pl.DataFrame | None = None) -> pl.DataFrame:
    """`source`, `from_ns`, `until_ns` of a stretch counted from the first device activity of each file.

    `within` are windows that were chosen before: what lies in both is left. Raises `UsageError` where no file reaches
    the stretch.
    """
    lower, upper = between_ns
    if lower is not None and upper is not None and upper <= lower:
        raise UsageError(f"a stretch between {_named(between_ns)} ends before it begins")
    files = ranks.drop_nulls("first_ns")
    length = max((files["last_ns"] - files["first_ns"]).to_list(), default=None)
    if length is not None and (((lower or 0) > 0 and (lower or 0) >= length) or (upper is not None and upper <= 0)):
        raise UsageError(f"nothing is between {_named(between_ns)}: the trace ends at {_ms(length)}")
    windows = files.select(
        "source",
        from_ns=pl.col("first_ns") + lower if lower is not None else pl.col("first_ns"),
        # The last activity may be a point at the very end, which a stretch without an end holds.
        until_ns=pl.col("first_ns") + upper if upper is not None else pl.col("last_ns") + 1,
    )
    if within is None:
        return windows
    both = windows.join(within, on="source", suffix="_before")
    return both.select(
        "source",
        from_ns=pl.max_horizontal("from_ns", "from_ns_before"),
        until_ns=pl.min_horizontal("until_ns", "until_ns_before"),
    )


def narrowed(trace: Trace, activity: pl.DataFrame, windows: pl.DataFrame) -> Stretch:
    """The trace with the kernels of `activity` that start in the window of their file."""
    inside = (pl.col("start_ns") >= pl.col("from_ns")) & (pl.col("start_ns") < pl.col("until_ns"))
    placed = activity.join(windows, on="source", maintain_order="left")
    return _stretch(trace.replace(kernels=placed.filter(inside).select(activity.columns)), activity, windows)


def _named(between_ns: Between) -> str:
    """`10 and 20.5 ms`; open ends are named by what they are."""
    lower, upper = between_ns
    return f"{'the start' if lower is None else _ms(lower)} and {'the end' if upper is None else _ms(upper)}"


def _ms(time_ns: int) -> str:
    return f"{time_ns / 1e6:,.6f}".rstrip("0").rstrip(".") + " ms"


def _stretch(trace: Trace, activity: pl.DataFrame, windows: pl.DataFrame) -> Stretch:
    narrowed = Stretch(**{table.name: trace.scan(table.name) for table in schema.TABLES})
    narrowed.activity, narrowed.windows = activity, windows
    return narrowed
