"""Which steps a trace holds, and to which of them each piece of device activity belongs."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from traceanalyzer.analyses.arguments import need_trace
from traceanalyzer.analyses.launched import launched
from traceanalyzer.analyses.steps.markers import compiled, marked_steps
from traceanalyzer.analyses.steps.sequence import repeated_steps
from traceanalyzer.trace import Trace


@dataclass(frozen=True)
class Found:
    """The steps of a trace, and whose kernels are whose."""

    steps: pl.DataFrame
    """One row per step of a source: `source`, `step`, `name`, `kind`, `batch`, `tokens`, `start_ns` and `end_ns` of its
    marker on the host (null where there is none), `found_by` (marker or sequence), `confidence` (0 to 1)."""
    of_kernel: pl.Series
    """For each row of `trace.kernels` the number of its step within its source; null: outside of every step."""


def find_steps(trace: Trace, *, marker: str | None = None) -> Found:
    """The steps of each source: from markers (`marker` is a regular expression for their names), else, where a source
    has none, from the sequence of kernels that repeats.

    A kernel belongs to the step that holds the start of its launch call; where the sequence tells the steps, to the one
    that it starts in. Raises `UsageError` for a bad `marker`.
    """
    need_trace(trace, "find_steps")
    marked = marked_steps(trace, None if marker is None else compiled(marker))
    kernels = trace.kernels.select("source", "kind", "name", "device", "stream", "start_ns", "duration_ns")
    unmarked = kernels.filter(~pl.col("source").is_in(marked["source"].unique().implode()))
    repeated = repeated_steps(unmarked)
    at = pl.concat([
        _starts(trace).join(marked.select("source").unique(), on="source", how="semi"),
        trace.kernels.select("source", at_ns="start_ns").with_row_index("kernel")
        .join(repeated.select("source").unique(), on="source", how="semi"),
    ])  # fmt: skip
    ranges = pl.concat([each.select("source", "step", "start_ns", "end_ns") for each in (marked, repeated)])
    rows = pl.DataFrame({"kernel": pl.arange(trace.kernels.height, dtype=pl.UInt32, eager=True)})
    of_kernel = rows.join(_inside(at, ranges), on="kernel", how="left", maintain_order="left")["step"]
    by_sequence = repeated.select(
        "source", "step", name=pl.lit(None, pl.String), kind=pl.lit("step"), batch=pl.lit(None, pl.Int64),
        tokens=pl.lit(None, pl.Int64), start_ns=pl.lit(None, pl.Int64), end_ns=pl.lit(None, pl.Int64),
        found_by=pl.lit("sequence"), confidence="confidence",
    )  # fmt: skip
    by_marker = marked.with_columns(found_by=pl.lit("marker"), confidence=pl.lit(1.0))
    return Found(pl.concat([by_marker, by_sequence]).sort("source", "step"), of_kernel)


def _starts(trace: Trace) -> pl.DataFrame:
    """`kernel`, `source`, `at_ns`: when each piece of device activity was launched, where that is known."""
    calls = trace.scan("launches").select(at_ns="start_ns").with_row_index("launch").collect()
    found = launched(trace).select("kernel", "source", "launch", "site_ns").join(
        calls, on="launch", how="left", maintain_order="left"
    )  # fmt: skip
    return found.select("kernel", "source", at_ns=pl.coalesce("at_ns", "site_ns")).drop_nulls("at_ns")


def _inside(at: pl.DataFrame, ranges: pl.DataFrame) -> pl.DataFrame:
    """`kernel`, `step` of those whose time lies in a range of their source."""
    begun = at.sort("at_ns").join_asof(
        ranges.sort("start_ns"), left_on="at_ns", right_on="start_ns", by="source", check_sortedness=False
    )
    return begun.filter(pl.col("at_ns") < pl.col("end_ns")).select("kernel", "step")
