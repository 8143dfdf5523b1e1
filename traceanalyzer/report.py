"""`Report`: what a command found, ready to be drawn in any form. Data only: nothing here formats or prints.

A report holds its figures twice, for two kinds of readers: `data` are whole frames for programs (JSON, CSV,
Parquet), `sections` are views of them for people (terminal, Markdown), with columns in order of importance.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import polars as pl

from traceanalyzer.notes import Note

#: What a value is, which decides how it is written and aligned. Times are ns, shares are of 1.
#: `bytes` are in binary units (MiB), `si_bytes` in those of rates (MB); a `rate` is a plain number of any size.
#: A name or path may be shortened in the middle, prose may be wrapped; a bar is drawn text.
Kind = Literal[
    "text",
    "prose",
    "name",
    "path",
    "class",
    "level",
    "flag",
    "bar",
    "count",
    "time",
    "share",
    "bytes",
    "si_bytes",
    "rate",
]


@dataclass(frozen=True)
class Column:
    """One column of a section: where its values are, what they are and how badly they are wanted."""

    name: str
    heading: str
    kind: Kind
    optional: int = 0
    """0: always shown. Otherwise columns with the largest number are the first to go where width is short."""
    unit_of: str = ""
    """Times with the same word here share unit and decimals, so that they can be compared by eye."""
    bar: bool = False
    """For shares: draw a bar beside the number, where there is room."""
    mark: str | None = None
    """A boolean column of the frame: where it is true the value is marked with `!`."""


@dataclass(frozen=True)
class Fact:
    """One labelled value above a table, such as the busy time of a run; `share` follows in brackets."""

    label: str
    value: str | int | None
    kind: Kind = "text"
    share: float | None = None


@dataclass(frozen=True)
class Remainder:
    """What a limit left out: so many more, with their total and share."""

    count: int
    noun: str
    """In the number that fits `count`."""
    total_ns: int | None = None
    share: float | None = None


@dataclass(frozen=True)
class Section:
    """One table with what stands above and below it; without columns it is facts alone."""

    frame: pl.DataFrame
    columns: Sequence[Column]
    title: str = ""
    facts: Sequence[Fact] = ()
    empty: str = "nothing to show"
    """What is said instead of a table without rows."""
    remainder: Remainder | None = None
    footnotes: Sequence[str] = ()


def no_traces() -> pl.DataFrame:
    """The `traces` of a command that reads no trace."""
    times = dict.fromkeys(("span_ns", "busy_ns", "idle_ns"), pl.Int64)
    return pl.DataFrame(schema={"path": pl.String, "run": pl.String, "rank": pl.Int32, "device": pl.String, **times})


@dataclass(frozen=True)
class Report:
    """All that a command has to say."""

    command: str
    title: str
    sections: Sequence[Section]
    data: Mapping[str, pl.DataFrame]
    """`rows` is the table of the JSON contract; other keys stand beside it in JSON."""
    traces: pl.DataFrame = field(default_factory=no_traces)
    """One row per file and device: path, run, rank, device, span_ns, busy_ns, idle_ns."""
    notes: Sequence[Note] = ()
    definitions: Mapping[str, str] = field(default_factory=dict)
    """What each figure is, for `--explain`; empty where nobody asked."""

    json_texts: frozenset[str] = frozenset()
    """Columns of `data` whose texts are JSON: in JSON they are what they say, in tables of programs they stay text."""

    @property
    def rows(self) -> pl.DataFrame:
        """The main table, which CSV and Parquet hold."""
        return self.data["rows"]
