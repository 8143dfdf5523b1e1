"""GPU producers other than Kineto: whose file it is, and which of its slices are device work.

Kineto's categories (kernel, gpu_memcpy, gpu_memset and their old names) are handled by the normalizer. Everything else
that has a duration first lands in `slices`; the rules here move what belongs to `kernels`, `launches`, `ops` or
`annotations`. One module per producer: its docstring says where the rule was learned and what it decides.

A rule goes by content, never by the name of a file, and turns a foreign file down from its `FileFacts` alone, so that
Kineto files pay nothing.
"""

from __future__ import annotations

import polars as pl

from traceanalyzer.ingest.producers import (
    ascend,
    autograd,
    cupti,
    grof,
    intra_kernel,
    kineto,
    nsys,
    proton,
    rocprof,
    unitrace,
    xla,
)
from traceanalyzer.ingest.producers.base import FileFacts, Reclassified, Rule
from traceanalyzer.ingest.producers.identity import writer

__all__ = ["FileFacts", "Reclassified", "identify", "reclassify"]

#: In order of how plain their mark is. No two match the same file.
RULES: tuple[Rule, ...] = (
    ascend, rocprof, nsys, cupti, xla, unitrace, proton, kineto, autograd, grof, intra_kernel,
)  # fmt: skip


def identify(facts: FileFacts, slices: pl.DataFrame) -> str:
    """Name of the producer for display, as far as the content tells; "unknown" where it does not."""
    rule = _rule(facts, slices)
    return writer(facts, slices) if rule is None else rule.NAME


def reclassify(facts: FileFacts, slices: pl.DataFrame) -> Reclassified | None:
    """The slices of a foreign producer's file, moved to the tables they belong to; None: no rule matches."""
    rule = _rule(facts, slices)
    return None if rule is None else rule.convert(facts, slices)


def _rule(facts: FileFacts, slices: pl.DataFrame) -> Rule | None:
    return next((rule for rule in RULES if rule.matches(facts, slices)), None)
