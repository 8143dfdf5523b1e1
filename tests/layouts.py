"""The same events in every layout in which trace files are found. Numbers keep the digits they were given."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

Event = dict[str, Any]
Metadata = dict[str, Any]


def dumps(value: Any, *, comma: str = ", ", colon: str = ": ") -> str:
    """JSON text in which a `Decimal` stands with its own digits."""
    if isinstance(value, dict):
        return (
            "{"
            + comma.join(f"{json.dumps(k)}{colon}{dumps(v, comma=comma, colon=colon)}" for k, v in value.items())
            + "}"
        )
    if isinstance(value, (list, tuple)):
        return "[" + comma.join(dumps(v, comma=comma, colon=colon) for v in value) + "]"
    return format(value, "f") if isinstance(value, Decimal) else json.dumps(value, ensure_ascii=False)


def kineto_new(events: Sequence[Event], metadata: Metadata) -> str:
    """One key a line, args on a line of their own, metadata first (torch 2.13)."""

    def line(event: Any) -> str:
        if not isinstance(event, dict):
            return f"\n  {dumps(event)}"
        keys = [f'\n    "{k}": {dumps(v)}' for k, v in event.items() if k != "args"]
        args = event.get("args")
        tail = "" if args is None else f'\n    ,\n    "args": {{\n      {dumps(args)[1:-1]}\n    }}'
        return "\n  {" + ",".join(keys) + (tail if isinstance(args, dict) else "") + "\n  }"

    head = "".join(f'\n    "{k}": {dumps(v)},' for k, v in metadata.items())
    return f'\n  {{{head}\n    "traceEvents": [\n  {",".join(map(line, events))}\n  ],"traceName": "t.json" }}'


def kineto_old(events: Sequence[Event], metadata: Metadata) -> str:
    """Packed head lines, metadata behind the events."""

    def line(event: Any) -> str:
        if not isinstance(event, dict):
            return dumps(event)
        keys = [f'"{k}": {dumps(v)}' for k, v in event.items()]
        return "{\n    " + ",\n    ".join(", ".join(keys[i : i + 5]) for i in range(0, len(keys), 5)) + "\n  }"

    tail = "".join(f',\n "{k}": {dumps(v)}' for k, v in metadata.items())
    return '\n{\n  "traceEvents": [\n  ' + ",\n  ".join(map(line, events)) + f"\n]{tail}\n}}\n"


def compact(events: Sequence[Event], metadata: Metadata) -> str:
    """One line, as json.dump writes it again."""
    return dumps({**metadata, "traceEvents": list(events)})


def minimal(events: Sequence[Event], metadata: Metadata) -> str:
    """One line without any space, metadata behind."""
    return dumps({"traceEvents": list(events), **metadata}, comma=",", colon=":")


def reversed_keys(events: Sequence[Event], metadata: Metadata) -> str:
    """Indented, keys of the events in reverse order, traps for a splitter in the metadata."""
    turned = [dict(reversed(event.items())) if isinstance(event, dict) else event for event in events]
    trap = {"other": [{"ph": "X"}, {"ph": "X", "traceEvents": [{"ph": "X"}]}], "note": '"traceEvents": [{"a": 1},'}
    return dumps({"first": trap, **metadata, "traceEvents": turned, "last": trap}, comma=",\n  ")


LAYOUTS: dict[str, Callable[[Sequence[Event], Metadata], str]] = {
    "kineto-new": kineto_new,
    "kineto-old": kineto_old,
    "compact": compact,
    "minimal": minimal,
    "reversed-keys": reversed_keys,
}


def bare_array(events: Sequence[Event]) -> str:
    """The list alone, a line an event."""
    return "[" + ",\n".join(dumps(event) for event in events) + "]\n"
