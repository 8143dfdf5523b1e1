"""From the values of a section to the text of its cells, the same for every renderer that people read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from traceanalyzer import formats
from traceanalyzer.notes import Note
from traceanalyzer.report import Column, Fact, Kind, Remainder, Section
from traceanalyzer.text import counted, visible

#: Kinds that are read from the left; numbers stand on the right, so that their digits line up.
_LEFT: frozenset[Kind] = frozenset({"text", "prose", "name", "path", "class", "level", "flag", "bar"})


@dataclass(frozen=True)
class TextColumn:
    """A column as text: heading, unit (`ms`, or nothing) and one cell a row."""

    column: Column
    unit: str
    cells: tuple[str, ...]
    marked: tuple[bool, ...]

    @property
    def left(self) -> bool:
        """Whether the column is aligned to the left."""
        return self.column.kind in _LEFT


def text_columns(section: Section) -> list[TextColumn]:
    """All columns of a section as text, in its order."""
    scales = _scales(section)
    return [_text_column(section, column, scales.get(_scale_key(column))) for column in section.columns]


def fact(each: Fact) -> str:
    """`busy 800 ms (64.8%)`."""
    text = " ".join(part for part in (each.label, _single(each.value, each.kind)) if part)
    return text if each.share is None else f"{text} ({formats.share(each.share)})"


def remainder(rest: Remainder) -> str:
    """`12 more kernels, 3.20 ms, 0.4%`."""
    parts = [f"{rest.count:,} more {rest.noun}"]
    if rest.total_ns is not None:
        parts.append(formats.ns(rest.total_ns))
    if rest.share is not None:
        parts.append(formats.share(rest.share))
    return ", ".join(parts)


def note(each: Note, *, files: int = 1) -> str:
    """`warning: rank0.json: records were lost (3)`; the first of several `files` speaks for all."""
    where = f"{each.path}: " if each.path else ""
    count = f" ({each.count:,})" if each.count and each.count > 1 else ""
    others = f", and in {counted(files - 1, 'more file')}" if files > 1 else ""
    return visible(f"{each.level}: {where}{each.message}{count}{others}")


def _text_column(section: Section, column: Column, scale: formats.Scale | None) -> TextColumn:
    values = section.frame[column.name].to_list()
    cells = [scale.write(value) if scale else _single(value, column.kind) for value in values]
    marks = section.frame[column.mark].fill_null(value=False).to_list() if column.mark else [False] * len(cells)
    return TextColumn(column, scale.unit if scale else "", tuple(cells), tuple(marks))


def _scales(section: Section) -> dict[str, formats.Scale]:
    """One scale per column of times, or per group of columns that share one."""
    values: dict[str, list[int | None]] = {}
    for column in section.columns:
        if column.kind == "time":
            values.setdefault(_scale_key(column), []).extend(section.frame[column.name].to_list())
    return {key: formats.Scale.of(found) for key, found in values.items()}


def _scale_key(column: Column) -> str:
    return column.unit_of or column.name


def _single(value: Any, kind: Kind) -> str:
    if value is None:
        return formats.UNKNOWN
    if kind == "time":
        return formats.ns(value)
    if kind == "count":
        return formats.count(value)
    if kind == "share":
        return formats.share(value)
    if kind == "bytes":
        return formats.size(value)
    if kind == "si_bytes":
        return formats.si_size(value)
    if kind == "rate":
        return formats.rate(value)
    if kind == "flag":
        return "yes" if value else "no"
    return visible(_joined(value)) or '""'


def _joined(value: Any) -> str:
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ", ".join(map(str, value))
    return str(value)
