"""`Trace`: the frozen holder of the public tables of one or many ranks. It computes and prints nothing by itself."""

from __future__ import annotations

from dataclasses import dataclass, fields

import polars as pl

from traceanalyzer import schema


@dataclass(frozen=True, repr=False)
class Trace:
    """Everything that was read, as the tables of `traceanalyzer.schema`.

    A `Trace` holds one or many ranks, of one or several runs; `ranks` says which. Tables hold events of used
    sources only: a duplicate, a merged file beside its parts or a front-end file has a row in `ranks` (and in
    `event_counts`) but no events.
    """

    kernels: pl.DataFrame
    launches: pl.DataFrame
    ops: pl.DataFrame
    annotations: pl.DataFrame
    python_calls: pl.DataFrame
    flows: pl.DataFrame
    counters: pl.DataFrame
    slices: pl.DataFrame
    collectives: pl.DataFrame
    threads: pl.DataFrame
    devices: pl.DataFrame
    ranks: pl.DataFrame
    event_counts: pl.DataFrame
    notes: pl.DataFrame

    @classmethod
    def empty(cls) -> Trace:
        """A trace with no events: every table is there, with its columns and no rows."""
        return cls(**{table.name: table.empty() for table in schema.TABLES})

    @property
    def tables(self) -> dict[str, pl.DataFrame]:
        """All tables by name, in the order of the schema."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @property
    def used(self) -> pl.DataFrame:
        """The rows of `ranks` that count: files left out as duplicates and the like are not in it."""
        return self.ranks.filter(pl.col("used"))

    def __repr__(self) -> str:
        used = self.used
        runs = used["run"].unique(maintain_order=True).to_list()
        head = f"<Trace: {_count(used.height, 'source')} of {_count(len(runs), 'run')}"
        if runs:
            head += f" ({', '.join(map(str, runs[:3]))}{', ...' if len(runs) > 3 else ''})"
        rows = [f"  {name:<14}{frame.height:>12,}" for name, frame in self.tables.items() if frame.height]
        return "\n".join([head, *rows]) + ">"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
