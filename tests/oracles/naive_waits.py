"""Waits of NCCL kernels as simple as can be: files of one host, calls paired from the last one backwards.

Shares no code with the package. All ranks of the recordings that it is used on stop behind the same collective, and
their clocks are one.
"""

from __future__ import annotations

import gzip
import json
from decimal import Decimal
from pathlib import Path
from typing import Any


def load(path: Path) -> dict[str, Any]:
    data = path.read_bytes()
    text = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
    trace: dict[str, Any] = json.loads(text, parse_float=str, strict=False)
    return trace


def nanoseconds(microseconds: str | int) -> int:
    return int(Decimal(microseconds) * 1000)


def collectives(path: Path) -> tuple[int, list[tuple[str, int, int]]]:
    """Rank, and name, start and end (ns) of each NCCL kernel in order of its start."""
    trace = load(path)
    base = int(trace.get("baseTimeNanoseconds", 0))
    calls = [
        (event["name"], base + nanoseconds(event["ts"]), base + nanoseconds(event["ts"]) + nanoseconds(event["dur"]))
        for event in trace["traceEvents"]
        if event.get("cat") in ("kernel", "Kernel") and event["name"].startswith("nccl")
    ]
    return int(trace["distributedInfo"]["rank"]), sorted(calls, key=lambda call: call[1])


def waits(paths: list[Path]) -> dict[int, dict[str, int]]:
    """By rank: `wait_ns`, `transfer_ns`, `last`, `waited_for_ns`, summed over the collectives of two ranks or more."""
    ranks = dict(collectives(path) for path in paths)
    totals = {rank: dict.fromkeys(("wait_ns", "transfer_ns", "last", "waited_for_ns"), 0) for rank in ranks}
    for number in range(1, max(len(calls) for calls in ranks.values()) + 1):
        there = {rank: calls[-number] for rank, calls in ranks.items() if len(calls) >= number}
        if len(there) < 2:
            continue
        assert len({name for name, _, _ in there.values()}) == 1
        latest = max(start for _, start, _ in there.values())
        last = min(rank for rank, (_, start, _) in there.items() if start == latest)
        totals[last]["last"] += 1
        for rank, (_, start, end) in there.items():
            totals[rank]["wait_ns"] += latest - start
            totals[rank]["transfer_ns"] += end - latest
            totals[last]["waited_for_ns"] += latest - start
    return totals
