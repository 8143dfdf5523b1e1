"""Waits of one group, a stretch of its collectives at a time, and what is kept of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from traceanalyzer.analyses.ranks.bandwidth import bus_factor, message_bytes
from traceanalyzer.analyses.ranks.clocks import Clock
from traceanalyzer.analyses.ranks.groups import Group
from traceanalyzer.analyses.ranks.numbered import MemberCalls
from traceanalyzer.analyses.ranks.pairing import Ints, Pairing
from traceanalyzer.analyses.ranks.part import Kind
from traceanalyzer.analyses.ranks.waits import ABSENT, Bools, Waits, waits

#: Starts that are compared at once.
CHUNK = 2_000_000
#: From this part of a group's collectives on, negative transfers mean that its pairing does not hold.
DOUBTFUL = 0.2
#: What is added up by member and step.
FIGURES = ("wait_ns", "transfer_ns", "collectives", "last", "behind_ns", "waited_for_ns")
SUMS = pl.Schema({
    "member": pl.UInt32(), "group": pl.UInt32(), "step": pl.Int64(), **dict.fromkeys(FIGURES, pl.Int64())
})  # fmt: skip
TABLE = pl.Schema({
    "group": pl.UInt32(), "index": pl.Int64(), "sequence": pl.Int64(), "kind": pl.Int64(), "step": pl.Int64(),
    "member": pl.UInt32(), "start_ns": pl.Int64(), "wait_ns": pl.Int64(), "transfer_ns": pl.Int64(),
    "last": pl.UInt32(), "sound": pl.Boolean(),
})  # fmt: skip
RATES = pl.Schema({
    "group": pl.UInt32(), "kind": pl.Int64(), "count": pl.Int64(), "transfer_ns": pl.Int64(), "bytes": pl.Int64(),
    "gb_per_s": pl.Float64(), "bus_gb_per_s": pl.Float64(),
})  # fmt: skip


@dataclass
class Paired:
    """A group with its collectives paired; `measured` fills in the rest."""

    number: int
    group: Group
    calls: Sequence[MemberCalls]
    pairing: Pairing
    steps: Ints
    """The step of each collective, as the first member that knows it numbers it; -1: none."""
    kinds: Ints
    sequences: Ints | None
    negative: int = 0
    """Collectives with a negative transfer."""

    @property
    def holds(self) -> bool:
        """Whether waits may be told from it."""
        return self.pairing.count > 0 and self.negative <= DOUBTFUL * self.pairing.count

    @property
    def rows(self) -> int:
        """Calls that are paired."""
        return sum(int((each >= 0).sum()) for each in self.pairing.places)


@dataclass
class Measured:
    """Sums over all collectives of a group, and the rows that are kept of them."""

    paired: Paired
    sums: pl.DataFrame
    rates: pl.DataFrame
    table: pl.DataFrame


def measured(paired: Paired, clocks: Sequence[Clock], kinds: Sequence[Kind], *, keep: float = 1.0) -> Measured:
    """Waits of a group on one clock, one for each member of the run; `keep` is the part of its collectives, those of
    the longest waits, that the table holds."""
    count, members = paired.pairing.count, np.array(paired.group.members, np.int64)
    steps, step_rows = np.unique(paired.steps, return_inverse=True)
    totals = {name: np.zeros((len(members), len(steps)), np.int64) for name in FIGURES}
    waited, transfers = np.zeros(count, np.int64), np.full(count, -1, np.int64)
    for columns, found in _stretches(paired, clocks):
        _add(totals, found, step_rows[columns])
        negative = ((found.transfer_ns < 0) & found.present).any(axis=0)
        paired.negative += int(negative.sum())
        waited[columns] = found.wait_ns.sum(axis=0)
        transfers[columns] = np.where(found.sound, found.transfer_ns.max(axis=0, initial=0), -1)
    chosen = np.zeros(count, bool)
    most = count if keep >= 1 else max(int(count * keep), 1)
    chosen[np.argsort(-waited, kind="stable")[:most]] = True
    return Measured(
        paired,
        sums=_sums(paired, totals, steps),
        rates=_rates(paired, transfers, kinds),
        table=_table(paired, clocks, chosen),
    )


def _stretches(paired: Paired, clocks: Sequence[Clock]) -> Iterator[tuple[slice, Waits]]:
    """The group's collectives, a stretch at a time."""
    count, size = paired.pairing.count, max(CHUNK // max(len(paired.calls), 1), 1)
    times = [
        (place, *_on_one_clock(calls, clocks[member]))
        for place, calls, member in zip(paired.pairing.places, paired.calls, paired.group.members, strict=True)
    ]
    for first in range(0, count, size):
        columns = slice(first, min(first + size, count))
        start = np.full((len(times), columns.stop - first), ABSENT, np.int64)
        end = np.full_like(start, ABSENT)
        for row, (place, begun, ended) in enumerate(times):
            own = (place >= first) & (place < columns.stop)
            start[row, place[own] - first], end[row, place[own] - first] = begun[own], ended[own]
        yield columns, waits(start, end)


def _on_one_clock(calls: MemberCalls, clock: Clock) -> tuple[Ints, Ints]:
    """Start and end; the length of a call stays what it is."""
    end = clock.corrected(calls.calls.end_ns)
    return end - (calls.calls.end_ns - calls.calls.start_ns), end


def _add(totals: dict[str, Ints], found: Waits, step_rows: Ints) -> None:
    figures: dict[str, Ints | Bools] = {
        "wait_ns": found.wait_ns,
        "transfer_ns": found.transfer_ns,
        "collectives": found.present,
        "behind_ns": np.where(found.sound[None, :], found.behind_ns, 0),
    }
    for name, values in figures.items():
        for row in range(len(values)):
            np.add.at(totals[name][row], step_rows, values[row].astype(np.int64))
    sound = np.flatnonzero(found.sound)
    np.add.at(totals["last"], (found.last[sound], step_rows[sound]), 1)
    np.add.at(totals["waited_for_ns"], (found.last[sound], step_rows[sound]), found.wait_ns.sum(axis=0)[sound])


def _sums(paired: Paired, totals: dict[str, Ints], steps: Ints) -> pl.DataFrame:
    members = np.repeat(np.array(paired.group.members, np.int64), len(steps))
    rows = pl.DataFrame({
        "member": members, "group": np.full(len(members), paired.number), "step": np.tile(steps, len(totals["last"])),
        **{name: values.ravel() for name, values in totals.items()},
    })  # fmt: skip
    return rows.filter(pl.col("collectives") > 0).select(pl.col(name).cast(kind) for name, kind in SUMS.items())


def _rates(paired: Paired, transfers: Ints, kinds: Sequence[Kind]) -> pl.DataFrame:
    """The middle transfer time of each kind of collective, and what rate that is."""
    rows: list[dict[str, Any]] = []
    ranks = len(paired.group.ranks or ()) or paired.group.size or len(paired.group.members)
    for number in np.unique(paired.kinds):
        own = transfers[(paired.kinds == number) & (transfers >= 0)]
        if not len(own):
            continue
        kind, middle = kinds[int(number)], int(np.median(own))
        size = message_bytes(kind.collective, kind.element_type, kind.in_elements, kind.out_elements)
        rate = size / middle if size is not None and middle > 0 else None
        factor = bus_factor(kind.collective, ranks)
        rows.append({
            "group": paired.number, "kind": int(number), "count": len(own), "transfer_ns": middle, "bytes": size,
            "gb_per_s": rate, "bus_gb_per_s": None if rate is None or factor is None else rate * factor,
        })  # fmt: skip
    return pl.DataFrame(rows, schema=RATES)


def _table(paired: Paired, clocks: Sequence[Clock], chosen: Bools) -> pl.DataFrame:
    """The rows of the chosen collectives, by their number and member."""
    members = np.array(paired.group.members, np.int64)
    parts = []
    for columns, found in _stretches(paired, clocks):
        present = found.present & chosen[columns][None, :]
        at, row = np.nonzero(present.T)
        index = at + columns.start
        begun = found.latest_ns[at] - found.wait_ns[row, at]
        sequence = None if paired.sequences is None else pl.Series(paired.sequences[index])
        rows = {
            "group": np.full(len(at), paired.number), "index": index, "kind": paired.kinds[index],
            "step": paired.steps[index], "member": members[row], "start_ns": begun,
            "wait_ns": found.wait_ns[row, at], "transfer_ns": found.transfer_ns[row, at],
            "last": members[found.last[at]], "sound": found.sound[at],
        }  # fmt: skip
        parts.append(pl.DataFrame(rows).with_columns(sequence=pl.lit(None, pl.Int64) if sequence is None else sequence))
    frame = pl.concat(parts) if parts else pl.DataFrame(schema=TABLE)
    return frame.select(pl.col(name).cast(kind) for name, kind in TABLE.items())
