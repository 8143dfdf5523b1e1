"""Which columns of a table fit a width, and how wide each may be. Text in, padded lines out; no colours."""

from __future__ import annotations

import textwrap
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from rich.cells import cell_len

from traceanalyzer.render import cutting
from traceanalyzer.render.cells import TextColumn
from traceanalyzer.report import Column, Kind, Section

#: Names are cut to this where nothing else limits them: some C++ names have thousands of characters.
LONGEST_NAME = 120
GAP = "  "
_BAR_WIDTH = 10
_EIGHTHS = " ▏▎▍▌▋▊▉"
#: Rather than give names less than this part of the width, or this many characters, columns are left out.
_NAME_PART, _SHORTEST_NAME = 0.35, 24
#: Kinds that can be narrower than their longest value: names are shortened in the middle, prose is wrapped.
_CUT: frozenset[Kind] = frozenset({"name", "path"})
_ELASTIC = _CUT | {"prose"}


@dataclass(frozen=True)
class Fitted:
    """The columns that fit, each with its width, and the headings of those that do not."""

    columns: list[TextColumn]
    widths: list[int]
    left_out: list[str]


def with_bars(columns: Sequence[TextColumn], section: Section) -> Iterator[TextColumn]:
    """The columns, with a drawn bar after each that wants one; a full bar is all of it."""
    for each in columns:
        yield each
        if each.column.bar:
            bars = tuple(_bar(min(share or 0.0, 1.0)) for share in section.frame[each.column.name])
            yield TextColumn(Column(each.column.name, "", "bar", optional=1), "", bars, (False,) * len(bars))


def fit(tables: Sequence[Sequence[TextColumn]], width: int | None) -> list[Fitted]:
    """Leave out the least wanted columns until names have room, then share out what room there is.

    Tables with the same columns (one a run, say) keep the same columns, so that they can be compared.
    """
    alike: dict[tuple[str, ...], set[str]] = defaultdict(set)
    for columns in tables:
        alike[_headings(columns)] |= _too_many(columns, width)
    return [_fitted(columns, alike[_headings(columns)], width) for columns in tables]


def _headings(columns: Sequence[TextColumn]) -> tuple[str, ...]:
    return tuple(each.column.heading for each in columns)


def _too_many(columns: Sequence[TextColumn], width: int | None) -> set[str]:
    """The headings of the columns that have to go."""
    kept, going = list(columns), set()
    while width is not None and not _roomy(kept, width) and any(each.column.optional for each in kept):
        next_to_go = max(reversed(kept), key=lambda each: each.column.optional)  # the last one of equals
        kept.remove(next_to_go)
        going.add(next_to_go.column.heading)
    bars = {each.column.heading for each in kept if each.column.kind == "bar"}
    return going if _apart(kept, width) else going | bars


def _apart(columns: Sequence[TextColumn], width: int | None) -> bool:
    """Whether names that differ still do when they are cut to what room there is."""
    return all(
        cutting.plainly_apart(each.cells, room, names=each.column.kind == "name")
        for each, room in zip(columns, _widths(columns, width), strict=True)
        if each.column.kind in _CUT
    )


def _fitted(columns: Sequence[TextColumn], going: set[str], width: int | None) -> Fitted:
    kept = [each for each in columns if each.column.heading not in going]
    widths = _widths(kept, width)
    kept = [_cut(each, room) for each, room in zip(kept, widths, strict=True)]
    left_out = [each.column.heading for each in columns if each.column.heading in going and each.column.heading]
    return Fitted(kept, widths, left_out)


def _cut(column: TextColumn, width: int) -> TextColumn:
    """The column with cells that fit its width, where they can be cut."""
    if column.column.kind not in _CUT:
        return column
    return replace(column, cells=tuple(cutting.cut(column.cells, width, names=column.column.kind == "name")))


def heading_lines(fitted: Fitted) -> Iterator[list[str]]:
    """The headings, and below them the units where any column has one."""
    yield [_aligned(each.column.heading + _mark_room(each), each, width) for each, width in _pairs(fitted)]
    if any(each.unit for each in fitted.columns):
        yield [_aligned(each.unit + _mark_room(each), each, width) for each, width in _pairs(fitted)]


def row_lines(fitted: Fitted, row: int) -> Iterator[list[str]]:
    """The padded cells of a row: one line, or more where prose is wrapped."""
    written = [_cell_lines(each, row, width) for each, width in _pairs(fitted)]
    for line in range(max(map(len, written))):
        yield [
            _aligned(lines[line] if line < len(lines) else "", each, width)
            for lines, (each, width) in zip(written, _pairs(fitted), strict=True)
        ]


def filled(pieces: Iterable[str], separator: str, width: int | None) -> Iterator[str]:
    """Pieces one after another, in as many lines as it takes, broken between pieces only."""
    line = ""
    for piece in pieces:
        longer = f"{line}{separator}{piece}" if line else piece
        if line and width is not None and cell_len(longer) > width:
            yield line
            longer = piece
        line = longer
    if line:
        yield line


def wrapped(text: str, width: int | None, indent: str = "") -> list[str]:
    """Lines of at most `width`, all but the first indented."""
    if width is None:
        return [text]
    return textwrap.wrap(text, max(width, len(indent) + 8), subsequent_indent=indent) or [""]


def _pairs(fitted: Fitted) -> Iterable[tuple[TextColumn, int]]:
    return zip(fitted.columns, fitted.widths, strict=True)


def _bar(part: float) -> str:
    full, rest = divmod(round(part * _BAR_WIDTH * 8), 8)
    return ("█" * full + _EIGHTHS[rest]).rstrip()


def _elastic(column: TextColumn) -> bool:
    return column.column.kind in _ELASTIC


def _natural(column: TextColumn) -> int:
    """Width that shows everything."""
    if column.column.kind == "bar":
        return _BAR_WIDTH  # the empty part says what a full bar is
    texts = (column.column.heading, column.unit, *column.cells)
    longest = max(map(cell_len, texts)) + len(_mark_room(column))
    return min(longest, LONGEST_NAME) if column.column.kind in _CUT else longest


def _room(columns: Sequence[TextColumn], width: int) -> int:
    """What the columns that cannot shrink leave for those that can."""
    fixed = sum(_natural(each) for each in columns if not _elastic(each))
    return width - fixed - len(GAP) * (len(columns) - 1)


def _roomy(columns: Sequence[TextColumn], width: int) -> bool:
    elastic = [each for each in columns if _elastic(each)]
    fair = max(_SHORTEST_NAME, int(_NAME_PART * width)) // max(len(elastic), 1)
    return sum(min(_natural(each), fair) for each in elastic) <= _room(columns, width)


def _widths(columns: Sequence[TextColumn], width: int | None) -> list[int]:
    """Natural widths; the elastic columns share what is left, and none takes more than it needs."""
    widths = [_natural(each) for each in columns]
    if width is None:
        return widths
    room = _room(columns, width)
    waiting = sorted((widths[at], at) for at, each in enumerate(columns) if _elastic(each))
    for taken, (natural, at) in enumerate(waiting):
        widths[at] = min(natural, max(room // (len(waiting) - taken), 8))
        room -= widths[at]
    return widths


def _cell_lines(column: TextColumn, row: int, width: int) -> list[str]:
    text = column.cells[row]
    if column.column.kind == "prose":
        return wrapped(text, width)
    return [text + (" !" if column.marked[row] else _mark_room(column))]


def _mark_room(column: TextColumn) -> str:
    """What stands where a mark could stand."""
    return "  " if any(column.marked) else ""


def _aligned(text: str, column: TextColumn, width: int) -> str:
    padding = " " * max(width - cell_len(text), 0)
    return text + padding if column.left else padding + text
