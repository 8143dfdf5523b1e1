"""Many ranks at once: files -> a small part of each -> one answer. No two files are ever held together.

The parts are made wherever an executor puts them: threads or processes of this machine, the workers of a Dask cluster,
MPI processes. This process holds the parts, which grow with steps and classes and not with events.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import polars as pl

from traceanalyzer.analyses import overview, trust
from traceanalyzer.analyses.arguments import Values
from traceanalyzer.analyses.ranks import Imbalance, RankPart, rank_parts
from traceanalyzer.analyses.ranks.closeup import SEEN, Closeup, activity_in, closeup
from traceanalyzer.analyses.ranks.compare import runs_of, together
from traceanalyzer.analyses.ranks.detail import WORK, Stretches, work_in
from traceanalyzer.analyses.ranks.reduce import reduce_run
from traceanalyzer.analyses.select import select
from traceanalyzer.analyses.steps.find import find_steps
from traceanalyzer.classify.rules import RuleTable
from traceanalyzer.errors import UnreadableError, UsageError
from traceanalyzer.ingest.gather import Home, gather
from traceanalyzer.ingest.reader import Paths, need_events, read
from traceanalyzer.ingest.source import Progress
from traceanalyzer.ingest.spread import Lost, spread
from traceanalyzer.notes import Note
from traceanalyzer.trace import Trace

#: What the part of a file takes; the two ranks of a question are read again, with all that the host did.
_TABLES = ("kernels", "launches", "annotations", "flows", "collectives")
_DETAIL = (*_TABLES, "ops", "python_calls", "slices")


@dataclass(frozen=True)
class ManyRanks:
    """The comparison of ranks, and what was read."""

    imbalance: Imbalance
    head: Trace
    """The small tables (`ranks`, `devices`, `notes`, ...); no events."""
    devices: pl.DataFrame
    """As `overview.devices` gives it."""
    closeup: Closeup | None = None
    """The collective that cost most, where it was asked for."""


#: What is asked about stretches of time of a rank; its arguments can be pickled.
Question = Callable[[Trace, Stretches], pl.DataFrame]


@dataclass(frozen=True)
class _FilePart:
    """What comes back of one rank of a file."""

    parts: tuple[RankPart, ...]
    notes: tuple[Note, ...]
    marked: bool
    """Whether the marker that was asked for is in it."""


def imbalance_of(
    paths: Paths,
    *,
    executor: Executor | None = None,
    jobs: int | None = None,
    marker: str | None = None,
    rules: RuleTable | None = None,
    runs: Values = (),
    ranks: Values = (),
    near: bool = False,
    cache: bool = True,
    progress: Progress | None = None,
    **reading: Any,
) -> ManyRanks:
    """`imbalance` of trace files, each read on its own by a worker of `executor`.

    `executor` is any `concurrent.futures.Executor`; without one, `jobs` threads or processes of this machine are used
    (default: one a core). `marker` and `rules` are as for `imbalance`, `runs` and `ranks` as for `select`, and
    `reading` are the other arguments of `read`. `near` asks for the collective that cost most, close up.

    A file whose worker dies is tried again, and one that cannot be read is left out with a note. Raises what `read`
    raises, and `UnreadableError` where damage left no event in any file.
    """
    work = partial(_part, marker=marker, rules=rules)
    gathered = gather(
        paths, work, tables=_TABLES, executor=executor, jobs=jobs, cache=cache, progress=progress, **reading
    )
    need_events(gathered.head)
    parts = [
        replace(part, source=source, facts={**part.facts, "source": source})
        for source, own in gathered.results.items()
        for part in own.parts
    ]
    notes = [note for own in gathered.results.values() for note in own.notes]
    head = gathered.head.replace(notes=_with(gathered.head.notes, notes))
    if runs or ranks:
        head = select(head, runs=runs, ranks=ranks)
    used = set(head.used["source"])
    parts = [part for part in parts if part.source in used]
    if marker is not None and not any(own.marked for own in gathered.results.values()):
        raise UsageError(f"no host range matches {marker!r}")
    again = _Again(gathered.homes, executor, jobs, cache)
    runs_found = [reduce_run(members) for members in runs_of(head.ranks, parts).values()]
    found = together(runs_found, lambda wanted: again.ask(wanted, partial(work_in, rules=rules), WORK))
    close = (
        closeup(runs_found, lambda wanted: again.ask(wanted, partial(activity_in, rules=rules), SEEN)) if near else None
    )
    return ManyRanks(found, head, _devices(head, parts), close)


def _part(trace: Trace, *, marker: str | None, rules: RuleTable | None) -> _FilePart:
    """On the worker: the part of one rank."""
    try:
        found, marked = find_steps(trace, marker=marker), True
    except UsageError:  # this rank has no such marker; another one may
        found, marked = find_steps(trace), False
    notes = [note for note in trust.notes(trace) if note.code != "no-device-activity"]
    return _FilePart(tuple(rank_parts(trace, found=found, rules=rules)), tuple(notes), marked)


def _with(table: pl.DataFrame, notes: Sequence[Note]) -> pl.DataFrame:
    rows = [vars(note) for note in notes]
    return pl.concat([table, pl.DataFrame(rows, schema=table.schema)]) if rows else table


def _devices(head: Trace, parts: Sequence[RankPart]) -> pl.DataFrame:
    """What `overview.devices` would give for all files together."""
    silent = overview.devices(head)
    rows = pl.DataFrame(
        [dict(part.facts) for part in parts], schema_overrides=dict(silent.schema), infer_schema_length=None
    )
    if not parts:
        return silent
    about = head.used.select("source", "path", "run", "stage", "rank")
    told = rows.drop("path", "run", "stage", "rank").join(about, on="source", how="inner")
    rest = silent.filter(~pl.col("source").is_in(told["source"].implode()))
    every = pl.concat([told.select(pl.col(name) for name in rows.columns), rest], how="diagonal_relaxed")
    return every.sort("source", maintain_order=True)


# ------------------------------------------------------------------------------------------- a second look


@dataclass(frozen=True)
class _Again:
    """Reads a few files again, where the parts of all leave a question open."""

    homes: Mapping[int, Home]
    executor: Executor | None
    jobs: int | None
    cache: bool

    def ask(self, wanted: Sequence[Stretches], question: Question, nothing: pl.Schema) -> list[pl.DataFrame]:
        """The answer about each of the stretches; `nothing` about those of a file that cannot be read any more."""
        by_file: dict[str, list[int]] = defaultdict(list)
        for number, each in enumerate(wanted):
            by_file[self.homes[each.source].path].append(number)
        asked = {
            path: [(self.homes[wanted[number].source].number, wanted[number]) for number in own]
            for path, own in by_file.items()
        }
        work = partial(_answers, asked=asked, question=question, cache=self.cache)
        found: dict[int, pl.DataFrame] = {}
        with closing(spread(work, list(asked), self.executor, self.jobs, None)) as answered:
            for path, answers in zip(asked, answered, strict=True):
                if not isinstance(answers, Lost):
                    found |= dict(zip(by_file[path], answers, strict=False))
        return [found.get(number, pl.DataFrame(schema=nothing)) for number in range(len(wanted))]


def _answers(
    path: str,
    progress: Progress | None,
    *,
    asked: Mapping[str, Sequence[tuple[int, Stretches]]],
    question: Question,
    cache: bool,
) -> list[pl.DataFrame]:
    """On the worker: read a file again, with all that the host did; nothing where it is gone meanwhile."""
    try:
        trace = read(path, tables=_DETAIL, cache=cache, progress=progress)
    except UnreadableError:
        return []
    sources = trace.used["source"].to_list()
    return [question(trace, replace(each, source=sources[number])) for number, each in asked[path]]
