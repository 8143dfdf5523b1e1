"""Work that kills its worker. Processes import this module, so it imports nothing that takes long."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any


def dies_once(path: str, _: object) -> str:
    """The first process that works on a file whose name ends in 3 dies."""
    mark = Path(f"{path}.mark")
    if path.endswith("3") and not mark.exists():
        mark.touch()
        os._exit(1)
    return f"{path} read"


def kills(path: str, _: object) -> str:
    """Every process that works on a killer dies; others are slow. A byte is added to the file each time."""
    with open(path, "a") as begun:
        begun.write(".")
    if Path(path).name.startswith("killer"):
        os._exit(1)
    time.sleep(0.3)
    return f"{path} read"


def divides(path: str, _: object) -> float:
    """Raises an error on file 0, as work with a fault in it does."""
    return 1 / int(Path(path).name)


def dies_reading_rank_1(path: str, progress: Any, **asked: Any) -> Any:
    """Reads a file as `read` does, but that of rank 1 takes the process with it."""
    from traceanalyzer.ingest.reader import load_or_refuse

    if "TP-1." in path:
        os._exit(1)
    return load_or_refuse(path, progress, **asked)
