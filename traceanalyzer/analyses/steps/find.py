"""Which steps a trace holds, and to which of them each piece of device activity belongs."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import polars as pl

from traceanalyzer.analyses.arguments import need_trace
from traceanalyzer.analyses.launched import gathered, launched, scattered
from traceanalyzer.analyses.steps.markers import compiled, marked_steps
from traceanalyzer.analyses.steps.sequence import repeated_steps
from traceanalyzer.analyses.stretch import need_whole
from traceanalyzer.errors import UsageError
from traceanalyzer.text import listed, middle
from traceanalyzer.trace import Trace


@dataclass(frozen=True)
class Found:
    """The steps of a trace, and whose kernels are whose."""

    steps: pl.DataFrame
    """One row per step of a source: `source`, `step`, `name`, `kind`, `batch`, `tokens`, `start_ns` and `end_ns` of its
    marker on the host (null where there is none), `found_by` (marker, graph or sequence), `confidence` (0 to 1)."""
    of_kernel: pl.Series
    """For each row of `trace.kernels` the number of its step within its source; null: outside of every step."""


def find_steps(trace: Trace, *, marker: str | None = None) -> Found:
    """The steps of each source: from markers (`marker` is a regular expression for their names), else, where a source
    has none, from the sequence of kernels and replays of graphs that repeats.

    A kernel belongs to the step that holds the start of its launch call; where the sequence tells the steps, to the one
    that it starts in. Raises `UsageError` for a bad `marker`.
    """
    need_trace(trace, "find_steps")
    need_whole(trace, "find_steps")
    calls = launched(trace)
    marked, of_marked = _by_marker(trace, calls, None if marker is None else compiled(marker))
    if marker is not None and marked.is_empty():
        raise UsageError(f"no host range matches {marker!r}{_ranges_there(trace)}")
    columns = ("source", "kind", "name", "device", "stream", "start_ns", "duration_ns")
    kernels = trace.kernels.select(columns).with_columns(replay=pl.when(calls["in_graph"]).then(calls["launch"]))
    unmarked = kernels.filter(~pl.col("source").is_in(marked["source"].unique().implode()))
    repeated = repeated_steps(unmarked)
    begun = trace.kernels.select("source", at_ns="start_ns").with_row_index("kernel")
    of_repeated = _inside(begun, repeated, ["source"])
    of_kernel = scattered(begun.height, pl.concat([of_marked, of_repeated]), "step")
    by_sequence = repeated.select(
        "source", "step", name=pl.lit(None, pl.String), kind=pl.lit("step"), batch=pl.lit(None, pl.Int64),
        tokens=pl.lit(None, pl.Int64), start_ns=pl.lit(None, pl.Int64), end_ns=pl.lit(None, pl.Int64),
        found_by="found_by", confidence="confidence",
    )  # fmt: skip
    by_marker = marked.drop("pid", "tid").with_columns(found_by=pl.lit("marker"), confidence=pl.lit(1.0))
    return Found(pl.concat([by_marker, by_sequence]).sort("source", "step"), of_kernel)


def _ranges_there(trace: Trace) -> str:
    """Names of host ranges, the most frequent first: what a pattern for markers could match."""
    names = trace.annotations.filter(~pl.col("on_device"))["name"].drop_nulls()
    most = names.value_counts(sort=True)["name"].cast(pl.String).head(5).to_list()
    return f"; there are {listed([middle(name, 40) for name in most], at_most=5)}" if most else "; there are none"


def _by_marker(trace: Trace, calls: pl.DataFrame, pattern: re.Pattern[str] | None) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The marked steps, and whose kernels are whose: by a marker on the thread of the launch call, else on any.

    A source of which no kernel can be placed has no steps by markers: they tell nothing of its device.
    """
    marked = marked_steps(trace, pattern)
    at = _starts(trace, calls)
    own = _inside(at, marked, ["source", "pid", "tid"])
    others = _inside(at.filter(~_among(at["kernel"], own, calls.height)), marked, ["source"])
    placed = pl.concat([own, others])
    told = calls.select("source").filter(_among(calls["kernel"], placed, calls.height)).unique()
    busy = trace.kernels.select("source").unique()
    useless = busy.join(told, on="source", how="anti")
    return marked.join(useless, on="source", how="anti", maintain_order="left"), placed


def _starts(trace: Trace, calls: pl.DataFrame) -> pl.DataFrame:
    """`kernel`, `source`, `pid`, `tid`, `at_ns`: where and when each piece of activity was launched, if known."""
    launches = trace.scan("launches").select("pid", "tid", at_ns="start_ns").collect()
    of_call = {name: gathered(launches[name], calls["launch"]) for name in launches.columns}
    return calls.select(
        "kernel", "source", pid=pl.coalesce(of_call["pid"], "pid"), tid=pl.coalesce(of_call["tid"], "tid"),
        at_ns=pl.coalesce(of_call["at_ns"], "site_ns"),
    ).drop_nulls("at_ns")  # fmt: skip


def _among(kernels: pl.Series, placed: pl.DataFrame, size: int) -> pl.Series:
    """Which of the kernels are among those that are placed; `size` is the number of all kernels."""
    there = np.zeros(size, bool)
    there[placed["kernel"].to_numpy()] = True
    return pl.Series(there[kernels.to_numpy()])


def _inside(at: pl.DataFrame, ranges: pl.DataFrame, by: list[str]) -> pl.DataFrame:
    """`kernel`, `step` of those whose time lies in a range of their source (or thread)."""
    if ranges.is_empty() or at.is_empty():
        return pl.DataFrame(schema={"kernel": pl.UInt32, "step": pl.UInt32})
    begun = at.sort("at_ns").join_asof(
        ranges.select(*by, "step", "start_ns", "end_ns").sort("start_ns"),
        left_on="at_ns", right_on="start_ns", by=by, check_sortedness=False,
    )  # fmt: skip
    return begun.filter(pl.col("at_ns") < pl.col("end_ns")).select("kernel", "step")
