"""Comparing many ranks: `python benchmarks/ranks_bench.py [--ranks 64 256 1024] [--steps 20] [--keep]`.

One coherent run of each size is generated (`tests/coherent.py`: TP 8 x DP, a slow rank, clocks that are off and drift,
one missing, one truncated and one empty file) and compared by one thread, two threads, two processes and, where Dask is
installed, a cluster of two worker processes over TCP; each in a process of its own. Told are wall and CPU seconds, the
peak memory of the driver and of the largest worker, and whether the slow rank was named. The tables of all ways have
to be the same.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import multiprocessing
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "tests"))
RESULTS = HERE / "results"
WAYS = ("1 thread", "2 threads", "2 processes", "Dask, 2 workers")
TABLES = ("rows", "ranks", "steps", "collectives", "clocks", "groups", "culprits")


@contextmanager
def executor_of(way: str) -> Iterator[Executor | None]:
    """The executor of a way; None for threads."""
    if way == "2 processes":
        with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
            yield pool
    elif way.startswith("Dask"):
        from distributed import Client, LocalCluster

        options: dict[str, Any] = {"dashboard_address": None, "worker_dashboard_address": None, "silence_logs": 50}
        with (
            LocalCluster(n_workers=2, threads_per_worker=1, protocol="tcp", **options) as cluster,
            Client(cluster) as client,
        ):
            yield client.get_executor(pure=False)
    else:
        yield None


def measure(folder: str, way: str) -> dict[str, Any]:
    """In a process of its own: one comparison."""
    import traceanalyzer as ta

    jobs = 1 if way == "1 thread" else 2
    began = time.perf_counter()
    with executor_of(way) as executor:
        started = time.perf_counter()
        found = ta.imbalance_of(folder, executor=executor, jobs=jobs, cache=False)
        wall = time.perf_counter() - started
    own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    digest = hashlib.sha256()
    for name in TABLES:
        digest.update(getattr(found.imbalance, name).write_json().encode())
    return {
        "way": way,
        "wall_s": round(wall, 2),
        "with_start_s": round(time.perf_counter() - began, 2),
        "driver_cpu_s": round(own.ru_utime + own.ru_stime, 2),
        "workers_cpu_s": round(children.ru_utime + children.ru_stime, 2),
        "driver_peak_mb": round(own.ru_maxrss / 1024),
        "worker_peak_mb": round(children.ru_maxrss / 1024),
        "slow": found.imbalance.culprits["rank"].to_list(),
        "notes": found.head.notes.height,
        "tables": digest.hexdigest()[:16],
    }


def generated(ranks: int, steps: int, folder: Path) -> dict[str, Any]:
    """Write the run; gives what is planted."""
    from coherent import Plan, Slow, write_run

    slow = ranks * 5 // 8
    plan = Plan(
        ranks=ranks, steps=steps, slow=(Slow(slow, factor=1.3),), offset_ns=2_000_000, drift_ppm=30,
        missing=(1,), truncated=(2,), empty=(3,),
    )  # fmt: skip
    write_run(folder, plan)
    files = list(folder.iterdir())
    return {"ranks": ranks, "steps": steps, "slow": slow, "files": len(files),
            "gzip_mb": round(sum(path.stat().st_size for path in files) / 1e6, 1)}  # fmt: skip


def main() -> None:
    """Measure all sizes and ways."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, nargs="+", default=[64, 256, 1024])
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=WAYS)
    parser.add_argument("--keep", action="store_true", help="keep the figures in benchmarks/results/")
    parser.add_argument("--measure", nargs=2, metavar=("FOLDER", "WAY"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(*options.measure)))
        return
    results = []
    for ranks in options.ranks:
        with tempfile.TemporaryDirectory() as folder:
            about = generated(ranks, options.steps, Path(folder) / "run")
            print(about, flush=True)
            for way in options.ways:
                if way.startswith("Dask") and importlib.util.find_spec("distributed") is None:
                    print("  Dask is not installed", flush=True)
                    continue
                command = [sys.executable, __file__, "--measure", f"{folder}/run", way]
                output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
                row = {**about, **json.loads(output.splitlines()[-1]), "load": round(os.getloadavg()[0], 1)}
                row["right"] = row.pop("slow") == [about["slow"]]
                print(" ", {key: value for key, value in row.items() if key not in about}, flush=True)
                results.append(row)
            if len({row["tables"] for row in results if row["ranks"] == ranks}) > 1:
                raise SystemExit("the ways give different tables")
    if options.keep:
        now = datetime.now(timezone.utc)
        machine = {"platform": platform.platform(), "cores": os.cpu_count(), "python": platform.python_version()}
        path = RESULTS / f"ranks-{now:%Y-%m-%d}.json"
        path.write_text(
            json.dumps({"date": f"{now:%Y-%m-%d}", "machine": machine, "results": results}, indent=1) + "\n"
        )
        print(f"kept in {path}")


if __name__ == "__main__":
    main()
