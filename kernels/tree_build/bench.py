"""The benchmark: trees of several sizes from the log-probabilities of a draft model of 16 steps."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from traceanalyzer.kernels.common.bench import Bench
from traceanalyzer.kernels.common.bench_result import Row
from traceanalyzer.kernels.tree_build import baseline
from traceanalyzer.kernels.tree_build.op import Trees, tree_build

_DEPTHS, _RANKS, _VOCABULARY = 16, 64, 4096
#: Requests and budget.
_SIZES = ((1, 8), (1, 64), (16, 32), (64, 64))


def rows(bench: Bench) -> Iterator[Row]:
    """One row for each number of requests and budget."""
    for requests, budget in _SIZES:
        logits = 3 * torch.randn(requests, _DEPTHS, _VOCABULARY, device=bench.device)
        best = torch.log_softmax(logits, -1).topk(min(_RANKS, budget), -1)
        prefixes = torch.randint(0, 100_000, (requests,), dtype=torch.int32, device=bench.device)
        yield _row(bench, best.values.contiguous(), best.indices.contiguous(), prefixes, budget)


def _row(bench: Bench, log_probs: torch.Tensor, ids: torch.Tensor, prefixes: torch.Tensor, budget: int) -> Row:
    out = tree_build(log_probs, ids, prefixes, budget)

    def replacement() -> Trees:
        return tree_build(log_probs, ids, prefixes, budget, out=out)

    def on_cpu() -> Trees:
        return baseline.tree_build(log_probs, ids, prefixes, budget)

    time = bench.on_gpu(replacement)
    return Row(
        kernel="tree_build",
        case=f"{len(prefixes)} request{'s' * (len(prefixes) > 1)}, budget {budget}",
        baseline="heap on the CPU, with copies",
        baseline_ns=bench.timer.on_host(on_cpu).median_ns,
        replacement_ns=time.median_ns,
        replacement_p10_ns=time.p10_ns,
        replacement_p90_ns=time.p90_ns,
        replacement_clean_ns=bench.clean_ns(replacement),
        floor_ns=bench.ceilings.launch_ns,
        agree=all(torch.equal(mine, theirs) for mine, theirs in zip(replacement(), on_cpu(), strict=True)),
    )
