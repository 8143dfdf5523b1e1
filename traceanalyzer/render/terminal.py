"""A report for the terminal: tables that fit the width, with names whose both ends stay readable.

The width is that of COLUMNS, else of the terminal. Output that goes elsewhere (a pipe, a file) without COLUMNS
has no width: every column is there and names are whole up to `layout.LONGEST_NAME` characters, so that `grep`
and `less` find what they look for. Where the width is short, the least wanted columns are left out, which is
said below the table, and names are shortened (see `cutting`). Colours are used on a terminal only, and never
where NO_COLOR is set.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import IO

from traceanalyzer.render import cells, layout
from traceanalyzer.render.styled import Line, Pen, Piece, line
from traceanalyzer.report import Report, Section
from traceanalyzer.text import visible

_TO_SEE_THEM = " (to see them: COLUMNS=200, --format csv or -o FILE)"
_BOLD, _DIM, _MARK = "bold", "dim", "bold red"
_CLASS_STYLES = {
    "attention": "magenta", "moe": "bright_magenta", "gemm": "green", "convolution": "green", "norm": "cyan",
    "activation": "cyan", "elementwise": "cyan", "reduction": "cyan", "copy_cast": "yellow", "embedding": "blue",
    "index_sort": "blue", "sampling": "blue", "quantize": "yellow", "optimizer": "bright_blue",
    "loss": "bright_blue", "communication": "red", "memory": "yellow",
}  # fmt: skip
_LEVEL_STYLES = {"warning": "yellow", "error": "red"}


def write(report: Report, file: IO[str], *, plain: bool = False) -> None:
    """Draw the whole report on a text stream; `plain` is without colours whatever the environment says."""
    pen = Pen(file, plain=plain)
    for each in _lines(report, _width(file)):
        pen.write(each)


def _width(file: IO[str]) -> int | None:
    """Columns to draw on; None: as many as it takes."""
    wanted = os.environ.get("COLUMNS", "")
    if wanted.isdecimal() and int(wanted) > 0:
        return int(wanted)
    if not file.isatty():
        return None
    try:
        return os.get_terminal_size(file.fileno()).columns or None
    except OSError:
        return 80


def _lines(report: Report, width: int | None) -> Iterator[Line]:
    tables = [list(layout.with_bars(cells.text_columns(section), section)) for section in report.sections]
    fitted = layout.fit(tables, width)
    for number, (section, fitting) in enumerate(zip(report.sections, fitted, strict=True)):
        if number:
            yield line("")
        yield from _section(section, fitting, width)
    shown = [fitting for section, fitting in zip(report.sections, fitted, strict=True) if not section.frame.is_empty()]
    left_out = dict.fromkeys(heading for fitting in shown for heading in fitting.left_out)
    if left_out:
        yield from _dim(f"not shown at this width: {', '.join(left_out)}{_TO_SEE_THEM}", width)
    if report.definitions:
        yield line("")
        yield from _definitions(report, width)


def _section(section: Section, fitted: layout.Fitted, width: int | None) -> Iterator[Line]:
    if section.title:
        yield line(visible(section.title), _BOLD)
    yield from map(line, layout.filled(map(cells.fact, section.facts), "  ·  ", width))
    if section.columns and (section.title or section.facts):
        yield line("")
    if not section.columns:
        return
    if section.frame.is_empty():
        yield line(section.empty)
    else:
        yield from _table(section, fitted)
    if section.remainder:
        yield from _dim(cells.remainder(section.remainder), width)
    for footnote in section.footnotes:
        yield from _dim(footnote, width)


def _dim(text: str, width: int | None) -> Iterator[Line]:
    return (line(each, _DIM) for each in layout.wrapped(text, width))


def _table(section: Section, fitted: layout.Fitted) -> Iterator[Line]:
    for each, style in zip(layout.heading_lines(fitted), (_BOLD, _DIM), strict=False):
        yield line(layout.GAP.join(each), style)
    yield line("─" * (sum(fitted.widths) + len(layout.GAP) * (len(fitted.widths) - 1)), _DIM)
    for row, styles in enumerate(_styles(section, fitted)):
        for each in layout.row_lines(fitted, row):
            found = [(Piece(layout.GAP), Piece(*cell)) for cell in zip(each, styles, strict=True)]
            yield tuple(piece for pair in found for piece in pair)[1:]


def _styles(section: Section, fitted: layout.Fitted) -> Iterator[list[str]]:
    """The style of each cell of each row: the class colours what stands for it, a mark stands out."""
    classes = section.frame["class"] if "class" in section.frame.columns else [None] * section.frame.height
    for row, class_ in enumerate(classes):
        styles = []
        for each in fitted.columns:
            style = ""
            if each.column.kind in ("class", "bar"):
                style = _CLASS_STYLES.get(class_ or "", "")
            elif each.column.kind == "level":
                style = _LEVEL_STYLES.get(each.cells[row], "")
            styles.append(_MARK if each.marked[row] else style)
        yield styles


def _definitions(report: Report, width: int | None) -> Iterator[Line]:
    headings = {column.name: column.heading for section in report.sections for column in section.columns}
    yield line("What the figures mean", _BOLD)
    for name, meaning in report.definitions.items():
        heading = headings.get(name) or name.removesuffix("_ns").replace("_", " ")
        first, *more = layout.wrapped(f"{heading}: {meaning}", width, indent="  ")
        yield Piece(heading, _BOLD), Piece(first[len(heading) :])
        yield from map(line, more)
