"""What the rules look at: figures of one run, each computed once, when the first rule asks for it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import polars as pl

from traceanalyzer.analyses.bandwidth import bandwidth
from traceanalyzer.analyses.device_time import device_time
from traceanalyzer.analyses.idle import idle_gaps
from traceanalyzer.analyses.labels import label
from traceanalyzer.analyses.select import select
from traceanalyzer.analyses.sm_fill import with_blocks_and_sms
from traceanalyzer.analyses.steps import find_steps
from traceanalyzer.analyses.top_kernels import top_kernels
from traceanalyzer.classify.rules import RuleTable
from traceanalyzer.hardware.rates import RateTable
from traceanalyzer.text import natural_key
from traceanalyzer.trace import Trace

#: Events that are given as examples.
_EXAMPLES = 3


class RunContext:
    """One run of a trace and what is known of it."""

    def __init__(self, run: str, trace: Trace, rules: RuleTable | None, rates: RateTable) -> None:
        self.run = run
        self.trace = trace
        self.rules = rules
        self.rates = rates

    @cached_property
    def kernels(self) -> pl.DataFrame:
        """`top_kernels` by name."""
        return top_kernels(self.trace, rules=self.rules)

    @cached_property
    def kernel_ns(self) -> int:
        """Time of all kernels."""
        return int(self.kernels["total_ns"].sum())

    @cached_property
    def launches(self) -> pl.DataFrame:
        """Kernels with `blocks`, `sms`."""
        kernels = self.trace.kernels.filter((pl.col("kind") == "kernel") & (pl.col("duration_ns") >= 0))
        return with_blocks_and_sms(kernels, self.trace.devices)

    @cached_property
    def labels(self) -> pl.DataFrame:
        """Class and short name by kind and name."""
        return label(self.trace.kernels.select("kind", "name"), self.rules)

    @cached_property
    def devices(self) -> pl.DataFrame:
        """`device_time`."""
        return device_time(self.trace)

    @cached_property
    def bandwidth(self) -> pl.DataFrame:
        """`bandwidth` by shape."""
        return bandwidth(self.trace, by_shape=True, rates=self.rates, rules=self.rules)

    @cached_property
    def steps(self) -> int | None:
        """How many steps all files of the run hold together; None where none were found."""
        found = find_steps(self.trace).steps
        return found.height or None

    @cached_property
    def gaps(self) -> pl.DataFrame:
        """`idle_gaps`."""
        return idle_gaps(self.trace)

    def a_step(self, amount: int) -> float | None:
        """An amount of the whole run as that of one step of one rank."""
        return None if self.steps is None else amount / self.steps

    def examples(self, kernel: str) -> list[dict[str, Any]]:
        """The longest launches of a kernel: file, start (ns after its first device activity) and length."""
        own = self.trace.kernels.filter(pl.col("name").cast(pl.String) == kernel)
        files = self.trace.ranks.select("source", "path", "first_ns")
        longest = own.top_k(_EXAMPLES, by="duration_ns").join(files, on="source", how="left")
        starts = longest.sort("duration_ns", "start_ns", descending=[True, False]).select(
            "path", start_ns=pl.col("start_ns") - pl.col("first_ns"), duration_ns="duration_ns"
        )
        return starts.to_dicts()


def contexts(trace: Trace, rules: RuleTable | None, rates: RateTable) -> Iterator[RunContext]:
    """One for each run, in order of name."""
    runs = sorted(trace.used["run"].unique().to_list(), key=natural_key)
    for run in runs:
        yield RunContext(run, trace if len(runs) == 1 else select(trace, runs=run), rules, rates)
