"""What the rules look at: figures of one run, each computed once, when the first rule asks for it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Any

import polars as pl

from traceanalyzer.analyses.bandwidth import bandwidth
from traceanalyzer.analyses.device_time import device_time
from traceanalyzer.analyses.idle import Gaps, gaps_and_host
from traceanalyzer.analyses.labels import label
from traceanalyzer.analyses.ranks import Imbalance, imbalance
from traceanalyzer.analyses.select import select
from traceanalyzer.analyses.sm_fill import with_blocks_and_sms
from traceanalyzer.analyses.steps import Found, find_steps, steps
from traceanalyzer.analyses.top_kernels import top_kernels
from traceanalyzer.classify.rules import RuleTable
from traceanalyzer.hardware.rates import RateTable
from traceanalyzer.text import natural_key
from traceanalyzer.trace import Trace

#: Events that are given as examples.
_EXAMPLES = 3
#: Steps are spoken of from this confidence and so many on.
_SURE, _FEWEST_STEPS = 0.8, 3


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
    def span_ns(self) -> int:
        """Span summed over the devices."""
        return int(self.devices["span_ns"].sum())

    @cached_property
    def found(self) -> Found:
        """The steps, and whose kernels are whose."""
        return find_steps(self.trace)

    @cached_property
    def imbalance(self) -> Imbalance:
        """`imbalance`."""
        return imbalance(self.trace, found=self.found, rules=self.rules)

    @cached_property
    def gaps_and_host(self) -> Gaps:
        """`idle_gaps`, and all that the host was busy with in them."""
        return gaps_and_host(self.trace, found=self.found)

    @property
    def gaps(self) -> pl.DataFrame:
        """`idle_gaps`."""
        return self.gaps_and_host.rows

    @cached_property
    def host(self) -> pl.DataFrame:
        """What the host was busy with while a device was idle: `name`, `total_ns`, and `path`, `device`, `step` of the
        gap."""
        gaps = self.gaps.select("path", "device", "step").with_row_index("gap")
        return gaps.join(self.gaps_and_host.host, on="gap").drop("gap")

    @cached_property
    def usual_steps(self) -> pl.DataFrame | None:
        """What "a step" means: whole steps of the kind there is most of, a row a device; None where not sure."""
        rows = steps(self.trace, found=self.found, rules=self.rules)
        sure = rows.filter(
            (pl.col("kind") != "outside") & (pl.col("kernels") > 0) & pl.col("mark").is_null()
            & (pl.col("confidence") >= _SURE)
        )  # fmt: skip
        kinds = sure.group_by("kind").agg(pl.len()).sort("len", "kind", descending=[True, False])
        usual = sure.filter(pl.col("kind") == kinds["kind"][0]) if kinds.height else sure
        return usual if usual["step"].n_unique() >= _FEWEST_STEPS else None

    @cached_property
    def _in_steps(self) -> pl.DataFrame | None:
        """Device activity of the usual steps."""
        if self.usual_steps is None:
            return None
        paths = self.trace.ranks.select("source", "path")
        rows = self.trace.kernels.select("source", "name", "duration_ns", pl.col("device").cast(pl.String))
        placed = rows.with_columns(step=self.found.of_kernel).join(paths, on="source", how="left")
        keys = self.usual_steps.select("path", "device", "step")
        return placed.join(keys, on=["path", "device", "step"], how="semi", nulls_equal=True)

    def kernels_a_step(self, names: Iterable[str]) -> tuple[float, float] | None:
        """Time in ns and launches of these kernels in one step of one device; None where steps are not sure."""
        rows, usual = self._in_steps, self.usual_steps
        if rows is None or usual is None:
            return None
        own = rows.filter(pl.col("name").cast(pl.String).is_in(list(names)))
        return int(own["duration_ns"].sum()) / usual.height, own.height / usual.height

    def idle_a_step(self, host_op: str | None = None) -> float | None:
        """Idle ns in one step of one device: all, or what the host was busy with."""
        usual = self.usual_steps
        if usual is None:
            return None
        if host_op is None:
            return int(usual["idle_ns"].sum()) / usual.height
        keys = usual.select("path", "device", "step")
        own = self.host.filter(pl.col("name") == host_op).join(
            keys, on=["path", "device", "step"], how="semi", nulls_equal=True
        )
        return int(own["total_ns"].sum()) / usual.height

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
