"""How often `imbalance` calls a rank slow where none is: `python benchmarks/false_alarms.py [--runs 200]`.

Runs of ranks that differ by chance alone, straight from the simulation in `tests/coherent.py`: kernels and the host
scatter by a part of their length, every run with a seed of its own. Then the same with one planted slow rank.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
#: Relative scatter of kernels, and scatter of the host's delay in ns; a step takes 1.6 ms.
NOISES = ((0.01, 3_000), (0.05, 20_000), (0.15, 100_000))
#: Ranks, tensor-parallel ranks, and the part of the runs that is made of that size.
SIZES = ((2, 2, 1.0), (3, 3, 1.0), (4, 4, 1.0), (8, 8, 1.0), (64, 8, 0.2))


def main() -> None:
    """Count the alarms for each size and noise."""
    from coherent import Plan, Slow, members

    from traceanalyzer.analyses.ranks.reduce import reduce_run
    from traceanalyzer.analyses.ranks.verdict import slow_ranks

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=200)
    options = parser.parse_args()
    for ranks, tp, part in SIZES:
        for noise, host in NOISES:
            runs = max(int(options.runs * part), 1)
            alarms = found = others = 0
            for seed in range(runs):
                plan = Plan(ranks=ranks, tp=tp, steps=20, noise=noise, host_noise_ns=host, seed=seed)
                alarms += bool(slow_ranks(reduce_run(members(plan))))
                slow = Slow(seed % ranks, factor=1.3)
                plan = Plan(ranks=ranks, tp=tp, steps=20, noise=noise, host_noise_ns=host, seed=seed, slow=(slow,))
                named = {each.member for each in slow_ranks(reduce_run(members(plan)))}
                found += slow.rank in named
                others += bool(named - {slow.rank})
            print(
                f"{ranks:>5} ranks, kernels scatter by {noise:.0%}, host by {host / 1e3:.0f} us: {runs} runs, "
                f"{alarms} false alarms; planted (7 % of the step): found in {found}, another named in {others}",
                flush=True,
            )


if __name__ == "__main__":
    main()
