"""Small traces cut out of real files, written anew so that it is known where every event stands and how it is told."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

#: Categories whose events every table but `marks` takes; others may belong to a producer with rules of its own.
CATEGORIES = {
    "kernel", "gpu_memcpy", "gpu_memset", "cuda_runtime", "cuda_driver", "cpu_op", "user_annotation",
    "gpu_user_annotation", "python_function", "ac2g", "fwdbwd", "overhead", "cuda_sync",
}  # fmt: skip
_LARGEST_FILE = 3 << 20
#: Start of event number n, in nanoseconds: 10 n µs, and one that is never 0.
TICK_NS, FIRST_NS = 10_000, 1_000

Event = dict[str, Any]


@dataclass(frozen=True)
class Excerpt:
    """A small trace as text. Event number n begins at `TICK_NS` n + `FIRST_NS`."""

    events: dict[int, Event]
    spans: dict[int, tuple[int, int]]
    """By number: where its text begins and ends."""
    text: bytes
    rank: int

    @property
    def first(self) -> int:
        """Where the events begin."""
        return min(start for start, _ in self.spans.values())

    @property
    def last(self) -> int:
        """Where they end."""
        return max(end for _, end in self.spans.values())

    def numbers_outside(self, start: int, end: int) -> set[int]:
        """The events of which no byte lies in a part of the text."""
        return {number for number, (a, b) in self.spans.items() if b <= start or a >= end}


def start_ns(number: int) -> int:
    """When an event begins."""
    return TICK_NS * number + FIRST_NS


def number_at(nanoseconds: int) -> int | None:
    """The event that begins then."""
    number, rest = divmod(nanoseconds - FIRST_NS, TICK_NS)
    return number if rest == 0 else None


def real_events(files: list[Path]) -> list[list[Event]]:
    """For each file that can be read simply: its events of the known categories."""
    return [events for path in files if len(events := list(_known_events(path))) >= 20]


def _known_events(path: Path) -> Iterator[Event]:
    data = path.read_bytes()
    try:
        top = json.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data, strict=False)
    except (ValueError, OSError, EOFError):
        return
    entries = top.get("traceEvents", ()) if isinstance(top, dict) else top
    for entry in entries:
        if isinstance(entry, dict) and entry.get("ph") in ("X", "s", "f") and entry.get("cat") in CATEGORIES:
            yield entry


def files_under(*folders: Path) -> list[Path]:
    """Trace files small enough to be cut up, in a fixed order."""
    found = [path for folder in folders for path in sorted(folder.rglob("*.json*"))]
    return [path for path in found if path.stat().st_size <= _LARGEST_FILE]


def excerpt(rng: random.Random, sources: list[list[Event]], *, first_number: int = 0, rank: int = 3) -> Excerpt:
    """Some 5 to 40 events of one file, in one of the layouts."""
    source = rng.choice(sources)
    count = rng.randint(5, 40)
    begin = rng.randrange(max(len(source) - count, 1))
    chosen = source[begin : begin + count] if rng.random() < 0.5 else rng.sample(source, min(count, len(source)))
    events = {first_number + i: _renumbered(event, first_number + i) for i, event in enumerate(chosen)}
    return _written(rng.choice(sorted(LAYOUTS)), events, rank)


def _renumbered(event: Event, number: int) -> Event:
    whole, part = divmod(start_ns(number), 1000)
    assert part == 0
    new = {**event, "ts": whole}
    if event["ph"] == "X":
        new["dur"] = 1 + number % 7
    return new


@dataclass(frozen=True)
class _Layout:
    head: str
    between: str
    tail: str
    indent: bool
    bare: bool = False


_META = '"schemaVersion": 1, "distributedInfo": {"backend": "nccl", "rank": RANK, "world_size": 8}, "deviceProperties": [{"id": 0, "name": "GPU", "numSms": 132}]'  # noqa: E501
LAYOUTS = {
    "kineto": _Layout(
        "\n{\n  " + _META + ',\n  "traceEvents": [\n', ",\n", '\n  ],\n  "traceName": "t.json"\n}', indent=True
    ),
    "behind": _Layout('{"traceEvents": [\n', ",\n", "\n], " + _META + "}\n", indent=False),
    "compact": _Layout("{" + _META + ', "traceEvents": [', ", ", "]}", indent=False),
    "bare": _Layout("[", ",\n", "]\n", indent=False, bare=True),
}


def _written(layout_name: str, events: dict[int, Event], rank: int) -> Excerpt:
    layout = LAYOUTS[layout_name]
    parts, spans, at = [], {}, 0

    def put(text: str) -> tuple[int, int]:
        nonlocal at
        data = text.encode("utf-8", "replace")
        parts.append(data)
        at += len(data)
        return at - len(data), at

    put(layout.head.replace("RANK", str(rank)))
    for index, (number, event) in enumerate(events.items()):
        if index:
            put(layout.between)
        spans[number] = put(_event_text(event, indent=layout.indent))
    put(layout.tail.replace("RANK", str(rank)))
    return Excerpt(events, spans, b"".join(parts), -1 if layout.bare else rank)


def _event_text(event: Event, *, indent: bool) -> str:
    if not indent:
        return json.dumps(event, ensure_ascii=False)
    fields = [f'"{key}": {json.dumps(value, ensure_ascii=False)}' for key, value in event.items() if key != "args"]
    args = f',\n    "args": {json.dumps(event["args"], ensure_ascii=False)}' if "args" in event else ""
    return "  {\n    " + ",\n    ".join(fields) + args + "\n  }"
