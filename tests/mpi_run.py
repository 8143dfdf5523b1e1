"""Analyses a folder on MPI processes: `mpiexec -n 3 python -m mpi4py.futures tests/mpi_run.py FOLDER OUT.json`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import traceanalyzer as ta


def main(folder: str, out: str) -> None:
    from mpi4py.futures import MPIPoolExecutor

    with MPIPoolExecutor() as pool:
        found = ta.imbalance_of(folder, executor=pool, cache=False)
    tables = {name: getattr(found.imbalance, name).to_dicts() for name in ("rows", "ranks", "collectives", "culprits")}
    Path(out).write_text(json.dumps(tables))


if __name__ == "__main__":
    main(*sys.argv[1:])
