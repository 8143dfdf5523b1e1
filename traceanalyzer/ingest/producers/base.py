"""What every producer's rule takes and gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import polars as pl

from traceanalyzer.notes import Note
from traceanalyzer.schema import ANNOTATIONS, KERNELS, LAUNCHES, OPS, Table


@dataclass(frozen=True)
class FileFacts:
    """What a file says about itself, apart from its slices. Enough to turn most rules down at no cost."""

    metadata: Mapping[str, Any]
    """Top-level keys of the file other than `traceEvents`; may be empty."""
    process_names: Mapping[str, str]
    """Process id as text -> name, from metadata events."""
    process_labels: Mapping[str, str]
    """Process id as text -> labels, from metadata events."""
    thread_names: Mapping[tuple[str, str], str]
    """(Process id, thread id) as text -> name, from metadata events."""
    counts: Mapping[tuple[str | None, str | None], int]
    """(Phase, category) -> events of the whole file, those of other tables included."""

    @property
    def span_categories(self) -> frozenset[str | None]:
        """Categories of the events that have a duration; None stands for events without one."""
        return frozenset(category for phase, category in self.counts if phase in ("X", "B"))

    @property
    def uncategorised(self) -> bool:
        """Whether no event with a duration has a category: never so in a Kineto file."""
        return self.span_categories <= {None, ""}

    def pids_named(self, *names: str) -> list[str]:
        """Ids of the processes that have one of these names."""
        return [pid for pid, name in self.process_names.items() if name in names]


@dataclass(frozen=True)
class Reclassified:
    """The slices of a file after its producer's rule: what moved to which table, and what stays."""

    kernels: pl.DataFrame
    launches: pl.DataFrame
    ops: pl.DataFrame
    annotations: pl.DataFrame
    slices: pl.DataFrame
    notes: tuple[Note, ...] = ()


class Rule(Protocol):
    """A producer's module: its display name, whether it wrote a file, and what its slices are."""

    @property
    def NAME(self) -> str:  # noqa: N802 - a module constant
        """Name of the producer for display."""

    def matches(self, facts: FileFacts, slices: pl.DataFrame) -> bool:
        """Whether the content of the file is this producer's."""

    def convert(self, facts: FileFacts, slices: pl.DataFrame) -> Reclassified:
        """Move the slices that belong to another table; called only for files that match."""


def reclassified(
    slices: pl.DataFrame,
    *,
    kernels: pl.DataFrame | None = None,
    launches: pl.DataFrame | None = None,
    ops: pl.DataFrame | None = None,
    annotations: pl.DataFrame | None = None,
    notes: tuple[Note, ...] = (),
) -> Reclassified:
    """A `Reclassified` whose columns have the types of the public tables, text as `String`."""
    return Reclassified(
        kernels=typed(kernels, KERNELS),
        launches=typed(launches, LAUNCHES),
        ops=typed(ops, OPS),
        annotations=typed(annotations, ANNOTATIONS),
        slices=slices,
        notes=notes,
    )


def typed(frame: pl.DataFrame | None, table: Table) -> pl.DataFrame:
    """`frame` with the column types of `table` and text as `String`; no frame: the table's columns, no rows."""
    types = {
        column.name: pl.String() if isinstance(column.dtype, (pl.Categorical, pl.Enum)) else column.dtype
        for column in table.columns
        if column.name not in ("source", "rank")
    }
    if frame is None:
        return pl.DataFrame(schema=types)
    return frame.select(
        pl.col(name).cast(dtype, strict=False) for name, dtype in types.items() if name in frame.columns
    )
