"""What a user expects a step to consist of: components with a pattern and a time, from a TOML file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from traceanalyzer.errors import UsageError
from traceanalyzer.text import did_you_mean
from traceanalyzer.user_toml import read_tables

#: Where a pattern is searched: in the names of device activity, or in the causes of idle and what the host did.
On = Literal["device", "idle"]
_FIELDS = ("name", "regex", "expected_us", "on")


@dataclass(frozen=True, slots=True)
class Component:
    """One expected part of a step."""

    name: str
    pattern: re.Pattern[str]
    expected_ns: int | None
    """Time a step; None: none was given."""
    on: On = "device"


def load_budget(path: Path) -> tuple[Component, ...]:
    """The components of a budget file, in its order. Raises `UsageError`, which names the file and the reason."""
    components: list[Component] = []
    for number, row in enumerate(read_tables(path, "budget file", "component", of="components"), start=1):
        try:
            component = _component(row)
            if component.name in {each.name for each in components}:
                raise ValueError(f"there is another one of the name {component.name!r}")
        except ValueError as error:
            raise UsageError(f"budget file {path}: component {number}: {error}") from error
        components.append(component)
    return tuple(components)


def _component(row: Mapping[str, Any]) -> Component:
    """One row; ValueError says what is wrong with it."""
    for key in row:
        if key not in _FIELDS:
            raise ValueError(f"unknown key {key!r}; there are {', '.join(_FIELDS)}{did_you_mean(key, _FIELDS)}")
    for key in ("name", "regex"):
        if not isinstance(row.get(key), str) or not row[key]:
            raise ValueError(f"it has no {key}" if key not in row else f"{key} must be a text")
    on = row.get("on", "device")
    if on not in get_args(On):
        raise ValueError(f"on is {on!r}, must be 'device' or 'idle'")
    try:
        pattern = re.compile(row["regex"])
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"regex {row['regex']!r} does not compile: {error}") from error
    return Component(row["name"], pattern, _nanoseconds(row.get("expected_us")), on)


def _nanoseconds(expected_us: object) -> int | None:
    if expected_us is None:
        return None
    if isinstance(expected_us, bool) or not isinstance(expected_us, int | float) or not 0 <= expected_us < 1e12:
        raise ValueError(f"expected_us is {expected_us!r}, must be a number of microseconds, 0 or more")
    return round(expected_us * 1000)
