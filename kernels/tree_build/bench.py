"""The benchmark: trees of several sizes from the log-probabilities of a draft model of 16 steps."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from traceanalyzer.kernels.common.bench import Bench, Row
from traceanalyzer.kernels.tree_build import baseline
from traceanalyzer.kernels.tree_build.op import Trees, tree_build

_DEPTHS, _RANKS = 16, 64
#: Requests and budget.
_SIZES = ((1, 8), (1, 64), (16, 32), (64, 64))


def rows(bench: Bench) -> Iterator[Row]:
    """One row for each number of requests and budget."""
    for requests, budget in _SIZES:
        logits = 3 * torch.randn(requests, _DEPTHS, 4096, device=bench.device)
        best = torch.log_softmax(logits, -1).topk(min(_RANKS, budget), -1)
        scores, ids = best.values.contiguous(), best.indices.contiguous()
        prefixes = torch.randint(0, 100_000, (requests,), dtype=torch.int32, device=bench.device)
        out = tree_build(scores, ids, prefixes, budget)

        def replacement(
            scores: torch.Tensor = scores,
            ids: torch.Tensor = ids,
            prefixes: torch.Tensor = prefixes,
            budget: int = budget,
            out: Trees = out,
        ) -> Trees:
            return tree_build(scores, ids, prefixes, budget, out=out)

        expected = baseline.tree_build(scores, ids, prefixes, budget)
        result = replacement()
        time = bench.on_gpu(replacement)
        yield Row(
            kernel="tree_build",
            case=f"{requests} requests, budget {budget}",
            baseline="heap on the CPU, with copies",
            baseline_ns=bench.timer.on_host(
                lambda scores=scores, ids=ids, prefixes=prefixes, budget=budget: baseline.tree_build(
                    scores, ids, prefixes, budget
                )
            ).median_ns,
            replacement_ns=time.median_ns,
            replacement_p10_ns=time.p10_ns,
            replacement_p90_ns=time.p90_ns,
            floor_ns=bench.ceilings.launch_ns,
            equal=all(torch.equal(mine, theirs) for mine, theirs in zip(result, expected, strict=True)),
        )
