"""Which ranks of a run no file is from: the rule by which the reader warns of them, for the tables as they are.

Graph captures are recorded on chosen ranks only, and merged files hold all ranks there were: of neither is any missing.
Without a world size, the highest rank of any stage of the recording is all that is known of it, and a single file tells
nothing about others. Which files are captures or merged, only their names tell; they are read where all names are.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from traceanalyzer.analyses.select import NOT_SELECTED
from traceanalyzer.ingest.identity import identity_from_name

#: A damaged world size must not make a list of a billion missing ranks.
_MOST_RANKS = 1 << 17
_SCHEMA = pl.Schema({"run": pl.String(), "world_size": pl.Int32(), "ranks_missing": pl.List(pl.Int32())})


@dataclass(frozen=True)
class _Run:
    """What the rows of a run say of its ranks. `complete`: a graph capture or a merged file."""

    name: str
    session: str
    world: int | None
    ranks: frozenset[int]
    files: int
    complete: bool


def missing_ranks(ranks: pl.DataFrame) -> pl.DataFrame:
    """One row per run of `ranks`: `world_size`, as most of its files have it, and `ranks_missing`.

    `ranks_missing` is null where nobody knows: no file tells its rank, or nothing tells how many there were. Files that
    were not selected are there all the same; those that were left out for another reason do not count.
    """
    there = ranks.filter(pl.col("used") | pl.col("reason").eq_missing(NOT_SELECTED))
    rows = there.select("path", "run", "stage", "rank", "world_size").to_dicts()
    runs = [_run(name, same) for name, same in _by("run", rows).items()]
    sessions = defaultdict(list)
    for run in runs:
        sessions[run.session].append(run)
    found = [(run.name, run.world, _missing(run, sessions[run.session])) for run in runs]
    return pl.DataFrame(found, schema=_SCHEMA, orient="row")


def _by(key: str, rows: Iterable[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    groups = defaultdict(list)
    for row in rows:
        groups[row[key]].append(row)
    return groups


def _run(name: str, rows: Sequence[Mapping[str, Any]]) -> _Run:
    sizes = Counter(row["world_size"] for row in rows if row["world_size"])
    paths = {row["path"] for row in rows}
    named = identity_from_name(rows[0]["path"])
    merged = named.merged or len(paths) < len(rows)  # a merged file has a row for each of its ranks
    return _Run(
        name=name,
        session=_session(name, rows[0]["stage"]),
        world=max(sizes, key=lambda size: (sizes[size], size), default=None),
        ranks=frozenset() if merged else frozenset(row["rank"] for row in rows if row["rank"] is not None),
        files=len(paths),
        complete=merged or named.capture,
    )


def _session(run: str, stage: str | None) -> str:
    """The name of a run without its stage: stages of one recording share it."""
    name = re.sub(r"#[0-9]+$", "", run)
    before, found, after = f"{name}/".rpartition(f"/{stage}/")
    return f"{before}/{after}".rstrip("/") if found else name


def _missing(run: _Run, session: Sequence[_Run]) -> list[int] | None:
    if run.complete:
        return []
    alone = sum(each.files for each in session) == 1
    if not run.ranks or (run.world is None and alone):
        return None
    count = run.world or max(rank for each in session for rank in (-1, *each.ranks)) + 1
    return sorted(set(range(min(count, _MOST_RANKS))) - run.ranks)
