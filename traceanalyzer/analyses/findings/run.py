"""All rules over all runs of a trace."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import polars as pl

from traceanalyzer.analyses.arguments import need_trace
from traceanalyzer.analyses.findings.context import RunContext, contexts
from traceanalyzer.analyses.findings.copies import copies_more_than_is_read, copies_take_the_time
from traceanalyzer.analyses.findings.finding import SCHEMA, Finding
from traceanalyzer.analyses.findings.kernels import far_from_the_roof, underfilled_kernel
from traceanalyzer.analyses.findings.ranks import a_rank_is_slow, communication_stands_in_the_way
from traceanalyzer.analyses.findings.time import device_is_idle, records_are_missing
from traceanalyzer.analyses.stretch import need_whole
from traceanalyzer.classify.rules import RuleTable
from traceanalyzer.hardware.rates import RateTable
from traceanalyzer.trace import Trace

Rule = Callable[[RunContext], Iterator[Finding]]
#: Every rule; what one has said of a kernel, a later one of the same matter does not say again.
RULES: tuple[Rule, ...] = (
    underfilled_kernel,
    copies_more_than_is_read,
    copies_take_the_time,
    far_from_the_roof,
    device_is_idle,
    a_rank_is_slow,
    communication_stands_in_the_way,
    records_are_missing,
)
#: Rules of one matter.
_ALIKE = (
    frozenset({"copies-more-than-is-read", "copies-take-the-time", "far-from-roof"}),
    frozenset({"underfilled-kernel", "far-from-roof"}),
)
_SEVERITIES = ("high", "medium", "low")


def findings(
    trace: Trace,
    *,
    rules: RuleTable | None = None,
    rates: RateTable = (),
    checks: Sequence[Rule] = RULES,
) -> pl.DataFrame:
    """One row per finding, as `SCHEMA` says: by run, the most severe first, then by what is at stake.

    `rules` are class rules and `rates` those of devices that count before the built-in ones; `checks` are functions
    from a run's context to its findings. A run with nothing to say has no row.
    """
    need_trace(trace, "findings")
    need_whole(trace, "findings")
    found: list[Finding] = []
    for context in contexts(trace, rules, rates):
        of_run: list[Finding] = []
        if context.kernel_ns or context.span_ns:
            for check in checks:
                of_run += [finding for finding in check(context) if not _is_said(finding, of_run)]
        of_run.sort(key=lambda finding: (_SEVERITIES.index(finding.severity), -finding.at_stake_ns, finding.rule))
        found += of_run
    return pl.DataFrame([finding.row() for finding in found], schema=SCHEMA)


def _is_said(finding: Finding, before: Sequence[Finding]) -> bool:
    kernel = finding.evidence.get("kernel")
    return kernel is not None and any(
        other.evidence.get("kernel") == kernel and any({finding.rule, other.rule} <= matter for matter in _ALIKE)
        for other in before
    )
