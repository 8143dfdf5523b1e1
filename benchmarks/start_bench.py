"""How long a cold process takes: `python benchmarks/start_bench.py [--small 131] [--large 2000]`.

Medians of processes one after the other, wall and CPU seconds: the help, a question about a trace of 10 MB gzipped
(131 MB of JSON) with and without the store, and a query of two columns over the stored tables of a larger trace.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from read_bench import HERE, RESULTS, machine, trace_of

#: The query on the large trace: kernels of ten milliseconds by name. Only it is timed, not the start of Python.
QUERY = """
import sys, time
import polars as pl
import traceanalyzer as ta
trace = ta.read(sys.argv[1])
began = time.perf_counter()
kernels = trace.scan("kernels")
first = kernels.select(pl.col("start_ns").min()).collect().item()
rows = (
    kernels.filter(pl.col("start_ns").is_between(first + 10**7, first + 2 * 10**7))
    .group_by("name").agg(pl.col("duration_ns").sum()).collect()
)
assert rows.height
print(time.perf_counter() - began)
"""


def run(command: Sequence[str], rounds: int) -> dict[str, float]:
    """Median wall and CPU seconds of a command, and the best wall."""
    walls, cpus = [], []
    for _ in range(rounds):
        began = time.perf_counter()
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        walls.append(time.perf_counter() - began)
        cpus.append(usage.ru_utime + usage.ru_stime)
        if status:
            raise SystemExit(f"{' '.join(command)} failed with status {status}")
    return {"wall": statistics.median(walls), "best_wall": min(walls), "cpu": statistics.median(cpus)}


def query(path: Path, rounds: int) -> dict[str, float]:
    """The query alone, as it times itself."""
    command = [sys.executable, "-c", QUERY, str(path)]
    walls = [float(subprocess.run(command, capture_output=True, text=True, check=True).stdout) for _ in range(rounds)]
    return {"wall": statistics.median(walls), "best_wall": min(walls)}


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small", type=float, default=131, help="MB of JSON of the trace that is asked about")
    parser.add_argument("--large", type=float, default=0, help="MB of JSON of the trace that is queried (0: none)")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--folder", type=Path, help="where traces are kept and taken from (default: made and removed)")
    parser.add_argument("--keep", action="store_true", help="keep the figures in benchmarks/results/")
    arguments = parser.parse_args()
    us = [sys.executable, "-m", "traceanalyzer"]
    results: dict[str, dict[str, float]] = {}
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package is compiled; its sources are not each time
    with tempfile.TemporaryDirectory() as temporary:
        os.environ["TRACEANALYZE_CACHE_DIR"] = temporary
        folder = arguments.folder or Path(temporary)
        small, _ = trace_of(arguments.small, folder)
        ask = [*us, "top-kernels", str(small)]
        results["python -c pass"] = run([sys.executable, "-c", "pass"], arguments.rounds)
        results["import polars"] = run([sys.executable, "-c", "import polars"], arguments.rounds)
        for once in ([*us, "--help"], [*ask, "--no-cache"]):
            run(once, 1)
        results["--help"] = run([*us, "--help"], arguments.rounds)
        results["top-kernels --no-cache"] = run([*ask, "--no-cache"], arguments.rounds)
        run(ask, 1)
        results["top-kernels from the store"] = run(ask, arguments.rounds)
        if arguments.large:
            large, _ = trace_of(arguments.large, folder)
            query(large, 1)
            results[f"pruned query over {arguments.large:g} MB from the store"] = query(large, arguments.rounds)
    for name, figures in results.items():
        print(f"{name:<44}" + "".join(f"{key} {value:.3f} s   " for key, value in figures.items()))
    if arguments.keep:
        out = RESULTS / f"start-{datetime.date.today().isoformat()}.json"
        shown = {"small_mb": arguments.small, "large_mb": arguments.large, "rounds": arguments.rounds}
        out.write_text(json.dumps({"machine": machine(), **shown, "results": results}, indent=1) + "\n")
        print(f"kept in {out.relative_to(HERE.parent)}")


if __name__ == "__main__":
    main()
