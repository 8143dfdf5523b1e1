"""A step's time against its parts: what it consists of, what was expected, and what of it nobody expected."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from traceanalyzer.analyses.arguments import need_trace
from traceanalyzer.analyses.budget import Component
from traceanalyzer.analyses.ratio import ratio
from traceanalyzer.analyses.step_time import KEY, step_time
from traceanalyzer.analyses.steps import find_steps, plain_steps, steps
from traceanalyzer.classify.rules import RuleTable
from traceanalyzer.errors import UsageError
from traceanalyzer.text import listed
from traceanalyzer.trace import Trace

#: What each figure is, word for word as it is shown with `--explain`.
DEFINITIONS = {
    "component": "part of a step; the parts add up to the wall time of the step",
    "kind": "budget: a component of the budget file; class: a class of compute kernels; communication: collectives "
    "while no compute runs; memory: copies and sets while neither does; kernel: one kernel, where a budget is given; "
    "host: what the host was busy with while the device was idle; cause: any other cause of idle; step: the whole, and "
    "what of it is there only under the profiler",
    "measured_ns_per_step": "mean over the whole steps of the kind of step that there is most of, on all devices of "
    "the run; each instant of a step is given to one part, as in breakdown",
    "budget_ns_per_step": "what the budget file expects",
    "share": "measured / wall time of the step",
}


@dataclass(frozen=True)
class Account:
    """What a step of each run consists of."""

    rows: pl.DataFrame
    """`run`, `component`, `kind`, `measured_ns_per_step`, `budget_ns_per_step`, `share`. Of each run first the whole
    (kind `step`), then the budget in the order of its file, then the rest, the largest first."""
    totals: pl.DataFrame
    """One row per run: `run`, `step_kind`, `steps` (whole ones, of all devices), `found_by`, `wall_ns`, `busy_ns`,
    `idle_ns` (means), `left_out` (steps of the kind that are partial, slow or the first), `left_out_idle_ns` (their
    idle time in all), `measured_step_ns`, `inflation_ns` (wall minus measured step), `inflated_idle_ns` (part of it
    that idle time can hold), `budget_ns` (null where no component has a time), `in_budget_ns` (measured, of the
    components of the budget)."""


def account(
    trace: Trace,
    *,
    budget: Sequence[Component] = (),
    measured_step_ns: int | None = None,
    kind: str | None = None,
    marker: str | None = None,
    rules: RuleTable | None = None,
) -> pl.DataFrame:
    """The `rows` of `full_account`, whose arguments it takes."""
    return full_account(
        trace, budget=budget, measured_step_ns=measured_step_ns, kind=kind, marker=marker, rules=rules
    ).rows  # fmt: skip


def full_account(
    trace: Trace,
    *,
    budget: Sequence[Component] = (),
    measured_step_ns: int | None = None,
    kind: str | None = None,
    marker: str | None = None,
    rules: RuleTable | None = None,
) -> Account:
    """The parts of a mean step of each run; see `DEFINITIONS`.

    `budget` are the components of `load_budget`: the first whose pattern is found has a part. `measured_step_ns` is
    the time of a step without a profiler. `kind` chooses among kinds of steps (decode, prefill). Runs without steps
    have no rows. Raises `UsageError` for a kind that there is none of.
    """
    need_trace(trace, "account")
    found = find_steps(trace, marker=marker)
    rows = steps(trace, found=found, rules=rules)
    parts = step_time(trace, found=found, rows=rows, rules=rules)
    plain = plain_steps(rows, kind)
    if kind is not None and plain.is_empty():
        kinds = rows.filter(pl.col("kind") != "outside")["kind"].unique().sort().to_list()
        there = f"there are {listed(kinds)}" if kinds else "no steps were found"
        raise UsageError(f"no steps of kind {kind!r}; {there}")
    totals = _totals(plain, rows, measured_step_ns)
    own = parts.join(plain.select("run", *KEY), on=KEY, how="inner", nulls_equal=True)
    named = _named(own, budget)
    count = totals.select("run", "steps")
    sums = named.group_by("run", "component", "kind").agg(pl.col("total_ns").sum()).join(count, on="run")
    measured = sums.with_columns(measured_ns_per_step=pl.col("total_ns") / pl.col("steps")).drop("total_ns", "steps")
    table = _with_budget(measured, totals, budget)
    whole = _wholes(totals)
    everything = pl.concat([whole, table], how="diagonal").join(totals.select("run", "wall_ns"), on="run", how="left")
    everything = everything.with_columns(share=ratio(everything["measured_ns_per_step"], everything["wall_ns"]))
    return Account(_in_order(everything, budget), _rounded(totals, table))


def _totals(plain: pl.DataFrame, rows: pl.DataFrame, measured_step_ns: int | None) -> pl.DataFrame:
    means = plain.group_by("run", maintain_order=True).agg(
        step_kind=pl.col("kind").first(), steps=pl.len().cast(pl.Int64), found_by=pl.col("found_by").first(),
        confidence=pl.col("confidence").min(), wall_ns=pl.col("wall_ns").mean(), busy_ns=pl.col("busy_ns").mean(),
        idle_ns=pl.col("idle_ns").mean(),
    )  # fmt: skip
    kinds = means.select("run", kind="step_kind")
    alike = rows.join(kinds, on=["run", "kind"], how="semi")
    dropped = alike.join(plain.select("run", *KEY), on=["run", *KEY], how="anti", nulls_equal=True)
    left_out = dropped.group_by("run").agg(left_out=pl.len().cast(pl.Int64), left_out_idle_ns=pl.col("idle_ns").sum())
    means = means.join(left_out, on="run", how="left", maintain_order="left").with_columns(
        pl.col("left_out", "left_out_idle_ns").fill_null(0)
    )
    inflation = pl.col("wall_ns") - pl.col("measured_step_ns")
    return means.with_columns(measured_step_ns=pl.lit(measured_step_ns, pl.Int64)).with_columns(
        inflation_ns=inflation,
        inflated_idle_ns=pl.when(pl.col("measured_step_ns").is_not_null()).then(
            pl.min_horizontal(inflation.clip(lower_bound=0), "idle_ns")
        ),
    )  # fmt: skip


def _rounded(totals: pl.DataFrame, table: pl.DataFrame) -> pl.DataFrame:
    """The totals in whole ns, with those of the budget."""
    of_budget = table.filter(pl.col("kind") == "budget").group_by("run").agg(
        budget_ns=pl.when(pl.col("budget_ns_per_step").is_not_null().any()).then(pl.col("budget_ns_per_step").sum()),
        in_budget_ns=pl.col("measured_ns_per_step").sum()
    )  # fmt: skip
    times = pl.selectors.ends_with("_ns")
    joined = totals.join(of_budget, on="run", how="left", maintain_order="left")
    return joined.with_columns(times.round().cast(pl.Int64))


def _named(parts: pl.DataFrame, budget: Sequence[Component]) -> pl.DataFrame:
    """Parts with their `component` and `kind`: of the budget where a pattern is found, else by what they are."""
    idle = pl.col("state") == "idle"
    compute = pl.col("state") == "compute"
    by_name = pl.coalesce("family", "kernel", pl.lit("unknown"))
    of_device = by_name if budget else pl.when(compute).then("class").otherwise("state")
    kind = pl.lit("kernel") if budget else pl.when(compute).then(pl.lit("class")).otherwise("state")
    named_host = pl.col("host_op").is_not_null()
    rest = parts.with_columns(
        component=pl.when(idle).then(pl.coalesce("host_op", "cause")).otherwise(of_device),
        kind=pl.when(idle & named_host).then(pl.lit("host")).when(idle).then(pl.lit("cause")).otherwise(kind),
    )
    expected = _expected(parts, budget)
    return rest.join(expected, on=["kernel", "cause", "host_op"], how="left", nulls_equal=True).with_columns(
        component=pl.coalesce("expected", "component"),
        kind=pl.when(pl.col("expected").is_not_null()).then(pl.lit("budget")).otherwise("kind"),
    )


def _expected(parts: pl.DataFrame, budget: Sequence[Component]) -> pl.DataFrame:
    """The component of the budget, if any, of each `kernel`, `cause` and `host_op` that there is."""
    names = parts.select("kernel", "cause", "host_op").unique()
    found = [
        next((each.name for each in budget if _is_of(each, kernel, cause, host_op)), None)
        for kernel, cause, host_op in names.iter_rows()
    ]
    return names.with_columns(expected=pl.Series(found, dtype=pl.String))


def _is_of(component: Component, kernel: str | None, cause: str | None, host_op: str | None) -> bool:
    texts = (kernel,) if component.on == "device" else (cause, host_op)
    if component.on == "device" and cause is not None:
        return False
    return any(text is not None and component.pattern.search(text) for text in texts)


def _with_budget(measured: pl.DataFrame, totals: pl.DataFrame, budget: Sequence[Component]) -> pl.DataFrame:
    """The measured rows with what was expected, and the components of which nothing was measured at 0."""
    expected = pl.DataFrame(
        {"component": [each.name for each in budget], "budget_ns_per_step": [each.expected_ns for each in budget]},
        schema={"component": pl.String, "budget_ns_per_step": pl.Int64},
    )
    of_budget = totals.select("run").join(expected.with_columns(kind=pl.lit("budget")), how="cross").join(
        measured, on=["run", "component", "kind"], how="left"
    )  # fmt: skip
    rest = measured.filter(pl.col("kind") != "budget")
    return pl.concat([of_budget.with_columns(pl.col("measured_ns_per_step").fill_null(0.0)), rest], how="diagonal")


def _wholes(totals: pl.DataFrame) -> pl.DataFrame:
    """The rows of kind `step`: the wall time, and where it is known the part, if any, that only the profiler makes."""
    wall = totals.select("run", component=pl.lit("wall"), measured_ns_per_step="wall_ns")
    known = totals.drop_nulls("measured_step_ns")
    without = known.select(
        "run", component=pl.lit("without a profiler"), measured_ns_per_step=pl.col("measured_step_ns").cast(pl.Float64)
    )
    longer = known.filter(pl.col("inflation_ns") > 0)
    more = longer.select("run", component=pl.lit("only under the profiler"), measured_ns_per_step="inflation_ns")
    return pl.concat([wall, without, more]).with_columns(kind=pl.lit("step"))


def _in_order(rows: pl.DataFrame, budget: Sequence[Component]) -> pl.DataFrame:
    place = {each.name: number for number, each in enumerate(budget)}
    first = pl.col("kind").replace_strict({"step": 0, "budget": 1}, default=2, return_dtype=pl.UInt8)
    step = {"wall": 0, "without a profiler": 1, "only under the profiler": 2}
    of_budget = pl.when(pl.col("kind") == "budget").then(
        pl.col("component").replace_strict(place, default=0, return_dtype=pl.Int64)
    ).when(pl.col("kind") == "step").then(
        pl.col("component").replace_strict(step, default=0, return_dtype=pl.Int64)
    )  # fmt: skip
    ordered = rows.sort(
        "run", first, of_budget, "measured_ns_per_step", "component", "kind",
        descending=[False, False, False, True, False, False],
    )  # fmt: skip
    return ordered.select(
        "run", "component", "kind", "measured_ns_per_step",
        pl.col("budget_ns_per_step").cast(pl.Int64), "share",
    )  # fmt: skip
