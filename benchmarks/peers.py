"""The readers that are compared: `python benchmarks/peers.py NAME FILE`, or without FILE for the start-up alone.

Each function imports what it needs and reads one gzipped trace into what the named tool works on. The benchmark runs
them as processes of their own and takes CPU time, wall time and peak memory from the operating system.
"""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Callable

Reader = Callable[[str], object]


def isal() -> Reader:
    """The floor: inflating alone, with the fastest library."""
    from isal import igzip

    def read(path: str) -> int:
        buffer, total = bytearray(1 << 20), 0
        with igzip.open(path) as file:
            while count := file.readinto(buffer):  # type: ignore[union-attr]
                total += count
        return total

    return read


def json_load() -> Reader:
    """What a script does: the standard library, no table."""

    def read(path: str) -> object:
        with gzip.open(path) as file:
            return json.load(file)

    return read


def orjson_polars() -> Reader:
    """The whole file through orjson, then a frame of the event fields."""
    import orjson
    import polars as pl

    def read(path: str) -> pl.DataFrame:
        with gzip.open(path) as file:
            events = orjson.loads(file.read())["traceEvents"]
        keys = ("ph", "cat", "name", "pid", "tid", "ts", "dur")
        return pl.DataFrame({key: [event.get(key) for event in events] for key in keys}, strict=False)

    return read


def hta() -> Reader:
    """HolisticTraceAnalysis' parser (a pandas table)."""
    from hta.common.trace import parse_trace_file  # type: ignore[import-not-found]

    return parse_trace_file  # type: ignore[no-any-return]


def _our_reader() -> Callable[..., object]:
    """Our reader, with all imported that it imports when it needs it."""
    import numpy.ma  # noqa: F401  (polars asks for it with the first array)
    import polars  # noqa: F401

    import traceanalyzer.ingest.normalize  # noqa: F401
    from traceanalyzer.ingest.engines import choose
    from traceanalyzer.ingest.reader import read

    choose()
    return read


def ours() -> Reader:
    """traceanalyzer, all tables in memory; TRACEANALYZE_ENGINE chooses the engine."""
    read = _our_reader()
    return lambda path: read(path, cache=False)


def ours_store() -> Reader:
    """traceanalyzer, all tables into the store (TRACEANALYZE_CACHE_DIR), where rows of large files go while it reads."""
    from traceanalyzer.store import wait_for_background

    read = _our_reader()

    def read_and_wait(path: str) -> object:
        trace = read(path)
        wait_for_background()
        return trace

    return read_and_wait


READERS = {"isal": isal, "json": json_load, "orjson": orjson_polars, "hta": hta, "ours": ours, "ours-store": ours_store}

if __name__ == "__main__":
    reader = READERS[sys.argv[1]]()
    result = [reader(path) for path in sys.argv[2:]]
