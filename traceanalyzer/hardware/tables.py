"""Reads the tables of this folder: rows of text, and numbers out of cells."""

from __future__ import annotations

import csv
import re
from functools import cache
from importlib import resources

_LEADING_NUMBER = re.compile(r"\d+(?:\.\d+)?")


@cache
def rows(name: str) -> tuple[dict[str, str], ...]:
    """All rows of a table of this folder, by column."""
    text = resources.files(__package__).joinpath(name).read_text(encoding="utf-8")
    return tuple(csv.DictReader(text.splitlines(), delimiter="\t", quoting=csv.QUOTE_NONE))


def number(cell: str) -> float | None:
    """The number that a cell begins with; None for `unknown`, `n/a` and any other text."""
    found = _LEADING_NUMBER.match(cell)
    return float(found[0]) if found else None


def whole(cell: str) -> int | None:
    """The whole number that a cell begins with; None where there is none."""
    value = number(cell)
    return None if value is None else int(value)
