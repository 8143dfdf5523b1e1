"""What callers may hand to an analysis: a wrong argument is a `UsageError` that says what would be right."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from traceanalyzer.errors import UsageError
from traceanalyzer.text import did_you_mean
from traceanalyzer.trace import Trace

#: One value or several. Labels may be numbers, and a number may be given as text.
Values = str | int | Collection[str] | Collection[int]


def need_trace(value: Any, function: str) -> None:
    """Refuse what is no `Trace`: a path has to be read first, and a single table is not enough."""
    if not isinstance(value, Trace):
        what = f"{value!r}" if isinstance(value, str) else f"a {type(value).__name__}"
        raise UsageError(f"{function} takes a Trace, as read(PATH) gives it, not {what}")


def need_choice(name: str, value: Any, choices: Iterable[str]) -> None:
    """Refuse a word that is none of the choices."""
    known = list(choices)
    if value not in known:
        hint = did_you_mean(str(value), known)
        raise UsageError(f"{name}: {value!r} is not one of {', '.join(known)}{hint}")


def labels(name: str, value: Any) -> list[str]:
    """Labels as text; one value stands for itself."""
    values = list(value) if isinstance(value, Collection) and not isinstance(value, str) else [value]
    for each in values:
        if not isinstance(each, str | int) or isinstance(each, bool):
            raise UsageError(f"{name}: {each!r} is neither text nor a whole number")
    return [str(each) for each in values]


def numbers(name: str, value: Any) -> list[int]:
    """Whole numbers, also as text; one value stands for itself."""
    texts = labels(name, value)
    if wrong := [text for text in texts if not text.strip().isdecimal()]:
        raise UsageError(f"{name}: {wrong[0]!r} is no whole number")
    return [int(text) for text in texts]
