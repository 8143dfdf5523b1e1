"""A report as Markdown, for a pull request or an issue: every column, full width."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from traceanalyzer.render import cells
from traceanalyzer.render.cells import TextColumn
from traceanalyzer.report import Kind, Report, Section
from traceanalyzer.text import visible

#: What has a meaning in Markdown wherever it stands; an underscore only at the rim of a word.
_SPECIAL = re.compile(r"([\\`*\[\]<>|~#&$]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9]))")
_CODE_KINDS: frozenset[Kind] = frozenset({"name", "path"})


def to_markdown(report: Report) -> str:
    """The whole report as GitHub-flavoured Markdown."""
    blocks = [f"# {escape(report.title)}"]
    for section in report.sections:
        blocks += _section(section)
    if report.definitions:
        blocks.append("## Definitions")
        blocks.append("\n".join(f"- **{name}**: {escape(text)}" for name, text in report.definitions.items()))
    if report.notes:
        blocks.append("## Notes")
        blocks.append("\n".join(f"- {prose(cells.note(note))}" for note in report.notes))
    return "\n\n".join(blocks) + "\n"


def escape(text: str) -> str:
    """Text that Markdown leaves as it is."""
    return _SPECIAL.sub(r"\\\1", text)


def code(text: str) -> str:
    """Text as a code span inside a table, whatever backticks and bars it holds."""
    longest = max(map(len, re.findall("`+", text)), default=0)
    fence, pad = "`" * (longest + 1), " " if longest else ""
    return f"{fence}{pad}{text}{pad}{fence}".replace("|", "\\|")


def prose(text: str) -> str:
    """Sentences, in which what stands between backticks is code already."""
    pieces = re.split("(`[^`]+`)", text)  # every second one is code
    return "".join(code(piece[1:-1]) if at % 2 else escape(piece) for at, piece in enumerate(pieces))


def _section(section: Section) -> Iterator[str]:
    if section.title:
        yield f"## {escape(visible(section.title))}"
    if section.facts:
        yield " · ".join(escape(cells.fact(fact)) for fact in section.facts)
    if not section.columns:
        return
    if section.frame.is_empty():
        yield f"*{escape(section.empty)}*"
    else:
        yield "\n".join(_table(section))
    if section.remainder:
        yield escape(cells.remainder(section.remainder))
    for footnote in section.footnotes:
        yield escape(footnote)


def _table(section: Section) -> Iterator[str]:
    columns = cells.text_columns(section)
    yield _row(escape(f"{each.column.heading} ({each.unit})" if each.unit else each.column.heading) for each in columns)
    yield _row(":--" if each.left else "--:" for each in columns)
    yield from (_row(row) for row in zip(*map(_cells, columns), strict=True))


def _cells(column: TextColumn) -> list[str]:
    write = code if column.column.kind in _CODE_KINDS else prose if column.column.kind == "prose" else escape
    return [
        write(cell) + (" **!**" if marked else "") for cell, marked in zip(column.cells, column.marked, strict=True)
    ]


def _row(texts: Iterable[str]) -> str:
    return f"| {' | '.join(texts)} |"
