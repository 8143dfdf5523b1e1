"""Every kind of input, the ordinary and the odd; all of them are small enough for the emulator."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from traceanalyzer.kernels.common.case import Case, expect_equal
from traceanalyzer.kernels.common.program import Backend
from traceanalyzer.kernels.tree_build import reference
from traceanalyzer.kernels.tree_build.launch import run

Array = npt.NDArray[Any]
Change = Callable[[Array, np.random.Generator], Array]


def log_softmax_top(random: np.random.Generator, shape: tuple[int, int, int], spread: float = 3.0) -> Array:
    """Log-probabilities (float32) [requests, depths, ranks] of the best of a random vocabulary, best first."""
    requests, depths, ranks = shape
    logits = random.normal(size=(requests, depths, max(ranks, 40))) * spread
    logits -= np.log(np.exp(logits).sum(-1, keepdims=True))
    return -np.sort(-logits.astype(np.float32), axis=-1)[..., :ranks]


def _same(log_probs: Array, _: np.random.Generator) -> Array:
    return log_probs


def _whole_numbers(log_probs: Array, _: np.random.Generator) -> Array:
    """Most sums are equal to others."""
    return np.round(log_probs)


def _few_equal(log_probs: Array, _: np.random.Generator) -> Array:
    """Now and then just two sums are equal."""
    return np.round(log_probs * 32) / 32


def _rounded_away(log_probs: Array, _: np.random.Generator) -> Array:
    """Sums so large that what is added is rounded: the order of adding decides."""
    changed = np.round(log_probs)
    changed[:, 0] = -(2.0**54)
    return changed


def _all_equal(log_probs: Array, _: np.random.Generator) -> Array:
    return np.full_like(log_probs, -1.5)


def _zeros(log_probs: Array, random: np.random.Generator) -> Array:
    """0 and -0 are equal scores."""
    return np.where(random.random(log_probs.shape) < 0.5, np.float32(0.0), np.float32(-0.0))


def _cut_tails(log_probs: Array, random: np.random.Generator) -> Array:
    """-inf from a random rank on, in some depths from the first."""
    first = random.integers(0, log_probs.shape[2] + 1, (*log_probs.shape[:2], 1))
    return np.where(np.arange(log_probs.shape[2]) >= first, np.float32(-np.inf), log_probs)


def _nan(log_probs: Array, random: np.random.Generator) -> Array:
    return np.where(random.random(log_probs.shape) < 0.1, np.float32(np.nan), log_probs)


def _huge(log_probs: Array, random: np.random.Generator) -> Array:
    """Sums so large that sibling and parent round to the same; unsorted and positive too."""
    return (random.normal(size=log_probs.shape) * 10.0 ** random.integers(-3, 38, log_probs.shape)).astype(np.float32)


@dataclass(frozen=True)
class Inputs:
    """Sizes, and how the log-probabilities are changed."""

    requests: int
    depths: int
    ranks: int
    budget: int
    change: Change = _same
    seed: int = 3

    def make(self) -> tuple[Array, Array, Array]:
        """Log-probabilities, token ids, prefix lengths."""
        random = np.random.default_rng(self.seed)
        shape = (self.requests, self.depths, self.ranks)
        log_probs = self.change(log_softmax_top(random, shape), random).astype(np.float32)
        ids = random.integers(0, 200_000, shape, dtype=np.int64)
        return np.ascontiguousarray(log_probs), ids, random.integers(0, 100_000, self.requests, dtype=np.int32)

    def check(self, backend: Backend) -> None:
        """Run the kernel and compare all outputs with the reference's."""
        log_probs, ids, prefixes = self.make()
        outputs = reference.empty_outputs(self.requests, self.budget, fill=-77)
        run(backend, log_probs, ids, prefixes, self.budget, outputs)
        expected = reference.tree_build(log_probs, ids, prefixes, self.budget)
        for name, _ in reference.OUTPUTS:
            expect_equal(name, outputs[name], expected[name])


def cases() -> Iterator[Case]:
    """All cases."""
    for name, inputs in _inputs():
        yield Case(name, inputs.check)
    for seed in range(12):
        random = np.random.default_rng(1000 + seed)
        change = (_same, _whole_numbers, _cut_tails)[seed % 3]
        requests, depths, ranks, budget = (int(random.integers(*each)) for each in ((1, 4), (1, 17), (1, 33), (0, 65)))
        yield Case(f"random sizes {seed}", Inputs(requests, depths, ranks, budget, change, seed).check)
    yield Case("64 requests, budget 64", Inputs(64, 16, 64, 64).check, full=True)
    yield Case("1,000 requests, equal sums", Inputs(1000, 8, 16, 32, _whole_numbers).check, full=True)


def _inputs() -> Iterator[tuple[str, Inputs]]:
    plain = Inputs(2, 8, 8, 16)
    yield "plain", plain
    yield "budget 0", replace(plain, budget=0)
    yield "budget 1", replace(plain, budget=1)
    yield "no depths", replace(plain, depths=0)
    yield "one rank: a chain", replace(plain, ranks=1)
    yield "one depth", replace(plain, depths=1)
    yield "more ranks than the budget", replace(plain, ranks=40, budget=8)
    yield "budget beyond what there is", replace(plain, depths=2, ranks=3, budget=30)
    yield "equal sums", replace(plain, change=_whole_numbers, budget=50)
    yield "few equal sums", replace(plain, change=_few_equal, budget=64, requests=40)
    yield "sums that are rounded", replace(plain, change=_rounded_away, budget=40, requests=8)
    yield "all equal", replace(plain, change=_all_equal, depths=6, budget=70)
    yield "zeros of both signs", replace(plain, change=_zeros, budget=40, requests=8)
    yield "-inf tails", replace(plain, change=_cut_tails, requests=6)
    yield "-inf at the start", replace(plain, change=lambda values, _: np.full_like(values, -np.inf))
    yield "NaN", replace(plain, change=_nan, requests=4, budget=30)
    yield "huge, unsorted, positive", replace(plain, change=_huge, requests=4, budget=40)
    yield "two words of bits", replace(plain, budget=64, requests=1)
    yield "three words of bits", replace(plain, budget=130, ranks=20, requests=1)
    yield "all limits", Inputs(1, 16, 256, 256, _whole_numbers)
    yield "the largest budget", Inputs(1, 16, 256, 1024)
