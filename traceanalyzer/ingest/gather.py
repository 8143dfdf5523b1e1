"""`gather`: each file is read and made small on its own, anywhere; only what is left of it comes back.

`read` puts the tables of all files into one `Trace`. Of a thousand files that is more than a machine holds, so here the
work on a file is done where it is read, and this process keeps what the work returned. What runs, ranks and left-out
files there are is decided as in `read`, from what is known of every file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import Generic, TypeVar

import polars as pl

from traceanalyzer.errors import UnreadableError, UsageError
from traceanalyzer.ingest.files import find
from traceanalyzer.ingest.identity import check_rank_regex
from traceanalyzer.ingest.load import LoadedFile
from traceanalyzer.ingest.reader import (
    Paths,
    assemble,
    info_of,
    load_or_refuse,
    named_as_given,
    nothing_read,
    refuse_damage,
    refused,
    sources_of,
    unused_regex,
    wanted_tables,
)
from traceanalyzer.ingest.runs import assign_runs
from traceanalyzer.ingest.source import Progress
from traceanalyzer.ingest.spread import Lost, spread
from traceanalyzer.notes import Note
from traceanalyzer.store import default_store
from traceanalyzer.trace import Trace

Result = TypeVar("Result")
#: What is done with one rank of a file: it takes a trace that holds this rank alone.
Work = Callable[[Trace], Result]


@dataclass(frozen=True)
class Home:
    """Where a source comes from: its file, and which of the file's ranks it is (0 where it holds one)."""

    path: str
    number: int


@dataclass(frozen=True)
class Gathered(Generic[Result]):
    """What is left of many files."""

    head: Trace
    """All that is small: `ranks`, `devices`, `threads`, `event_counts`, `notes`; no events."""
    results: Mapping[int, Result]
    """What the work returned, by source: rows of `head.ranks` that are used."""
    homes: Mapping[int, Home]


@dataclass(frozen=True)
class _Kept(Generic[Result]):
    """What comes back of a file: all that is known of it but its tables, and the results for each of its ranks."""

    file: LoadedFile
    results: tuple[Result, ...]
    extents: tuple[tuple[int | None, int | None], ...]
    notes: tuple[Note, ...]


def gather(
    paths: Paths,
    work: Work[Result],
    *,
    tables: Iterable[str] | None = None,
    executor: Executor | None = None,
    rank_regex: str | None = None,
    single_run: bool = False,
    strict: bool = False,
    cache: bool = True,
    jobs: int | None = None,
    progress: Progress | None = None,
) -> Gathered[Result]:
    """Do `work` on every rank of every file, and keep what it returns.

    `executor` is any `concurrent.futures.Executor` (threads, processes, a Dask client's `get_executor()`, mpi4py's
    `MPIPoolExecutor`); `work` and what it returns must then be picklable. Without one, threads or processes of this
    machine are used, `jobs` at once. A file whose worker dies is tried again, at last with nothing else at work; where
    that does not help it is left out with a note, and no other file is lost. (An executor that breaks for good when one
    worker dies, as a `ProcessPoolExecutor` does, loses all that is not done by then.) All else is as in `read`.

    Raises `UnreadableError` if no file could be read (or, with `strict`, if any could not), and `UsageError` for an
    unknown table or a bad pattern.
    """
    wanted = wanted_tables(tables)
    if rank_regex is not None:
        check_rank_regex(rank_regex)
    files = find(paths)
    if not files:
        raise UsageError("no trace files were given")
    each = partial(_read_and_work, tables=wanted, work=work, cache=cache, strict=strict)
    kept: list[_Kept[Result]] = []
    refusals: list[UnreadableError] = []
    notes: list[Note] = []
    with closing(spread(each, [file.path for file in files], executor, jobs, progress)) as found:
        for file, result in zip(files, found, strict=True):
            if isinstance(result, _Kept):
                kept.append(result)
                continue
            refusal = UnreadableError(file.path, result.reason) if isinstance(result, Lost) else result
            notes.append(refused(refusal, named=file.named, strict=strict))
            refusals.append(refusal)
    if not kept and refusals:
        raise nothing_read(refusals)
    if cache and any(each.file.kept for each in kept):
        store = default_store()
        if store is not None:
            store.evict_in_background()
    return _together(kept, notes, rank_regex, single_run=single_run)


def _read_and_work(
    path: str, progress: Progress | None, *, tables: frozenset[str], work: Work[Result], cache: bool, strict: bool
) -> _Kept[Result] | UnreadableError:
    """On the worker: one file, each of its ranks alone."""
    file = load_or_refuse(path, progress, tables=tables, store=default_store() if cache else None)
    if isinstance(file, UnreadableError):
        return file
    if strict:
        refuse_damage(file)
    info = info_of(file, None)
    alone = assemble([file], [info], assign_runs([info]), [])
    own = [alone.ranks.filter(pl.col("source") == source) for source in alone.used["source"]]
    try:
        results = tuple(work(_one(alone, rows)) for rows in own)
    except Exception as error:  # one file must not cost the answer about the others
        return UnreadableError(path, f"could not be analysed ({type(error).__name__}: {str(error)[:200]})")
    lone = tuple(Note(**row) for row in alone.notes.iter_rows(named=True) if row["code"] == "rows-without-rank")
    extents = tuple((rows["first_ns"].item(), rows["last_ns"].item()) for rows in own)
    return _Kept(replace(file, tables={}), results, extents, lone)


def _one(trace: Trace, rows: pl.DataFrame) -> Trace:
    """The trace with one of its sources."""
    if trace.ranks.height == 1:
        return trace
    inside = pl.col("source") == rows["source"].item()
    tables = {name: frame.lazy().filter(inside) for name, frame in trace.tables.items() if "source" in frame.columns}
    return trace.replace(**tables)


def _together(
    kept: Sequence[_Kept[Result]], notes: Sequence[Note], rank_regex: str | None, *, single_run: bool
) -> Gathered[Result]:
    """Decide who is who, and number the sources."""
    files = [each.file for each in kept]
    infos = [info_of(file, rank_regex) for file in files]
    plan = assign_runs(infos, single_run=single_run)
    said = [*notes, *(note for each in kept for note in (*each.file.about.notes, *each.notes))]
    said += [*named_as_given(plan.notes, files), *unused_regex(infos, rank_regex)]
    head = assemble(files, infos, plan, said)
    by_path = {each.file.path: each for each in kept}
    results: dict[int, Result] = {}
    homes: dict[int, Home] = {}
    extents: dict[int, tuple[int | None, int | None]] = {}
    for source, number in enumerate(sources_of(plan, infos, files)):
        own = by_path[head.ranks["path"][source]]
        if head.ranks["used"][source] and number < len(own.results):
            results[source], homes[source] = own.results[number], Home(own.file.path, number)
            extents[source] = own.extents[number]
    return Gathered(_with_extents(head, extents), results, homes)


def _with_extents(head: Trace, extents: Mapping[int, tuple[int | None, int | None]]) -> Trace:
    """The extents of a merged file's ranks, which only its events tell."""
    rows = pl.DataFrame(
        [(source, *extent) for source, extent in extents.items()],
        schema={"source": pl.UInt16, "own_first_ns": pl.Int64, "own_last_ns": pl.Int64}, orient="row",
    )  # fmt: skip
    joined = head.ranks.join(rows, on="source", how="left", maintain_order="left")
    told = pl.col("source").is_in(list(extents))
    ranks = joined.with_columns(
        first_ns=pl.when(told).then("own_first_ns").otherwise("first_ns"),
        last_ns=pl.when(told).then("own_last_ns").otherwise("last_ns"),
    ).drop("own_first_ns", "own_last_ns")
    return head.replace(ranks=ranks)
