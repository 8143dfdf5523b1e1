"""`read`: files in, one `Trace` out."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import polars as pl

from traceanalyzer import schema
from traceanalyzer.errors import NotATraceError, TraceAnalyzerError, UnreadableError, UsageError
from traceanalyzer.ingest.describe import devices_frame, event_counts_frame, threads_frame
from traceanalyzer.ingest.files import STANDARD_INPUT, FileToRead, find
from traceanalyzer.ingest.identity import (
    FileInfo,
    check_rank_regex,
    identity_from_label,
    identity_from_name,
    identity_from_regex,
    int_or_none,
    label_of_pid,
)
from traceanalyzer.ingest.load import LoadedFile, load
from traceanalyzer.ingest.losses import REST_KEPT
from traceanalyzer.ingest.parallel import worth
from traceanalyzer.ingest.public import public
from traceanalyzer.ingest.raw import ALL_TABLES
from traceanalyzer.ingest.remote import is_url
from traceanalyzer.ingest.runs import RunFile, RunPlan, assign_runs
from traceanalyzer.ingest.source import Progress
from traceanalyzer.ingest.spread import Lost, spread
from traceanalyzer.ingest.values import printable, to_text
from traceanalyzer.notes import Note
from traceanalyzer.store import Store, default_store
from traceanalyzer.text import counted
from traceanalyzer.trace import Trace

Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]
_MOST_SOURCES = (1 << 16) - 1
#: Set to 1, this environment variable lets through what goes wrong inside the reader.
DEBUG_VARIABLE = "TRACEANALYZE_DEBUG"
_LONGEST_REASON = 200


def read(
    paths: Paths,
    *,
    tables: Iterable[str] | None = None,
    rank_regex: str | None = None,
    single_run: bool = False,
    strict: bool = False,
    cache: bool = True,
    jobs: int | None = None,
    progress: Progress | None = None,
) -> Trace:
    """Read trace files into one `Trace`.

    `paths`: a file, a folder, a quoted glob, a URL that fsspec knows, ``-`` for standard input, or several of them.
    `tables`: names of the event tables that are wanted (default: all); the others stay empty, which saves time
    and memory. `rank_regex`: a pattern with named groups (rank, dp, pp, tp, ep, dcp, stage, run) or one unnamed
    group, for file names that no built-in pattern knows. `single_run`: all files are ranks of one run, whatever their
    folders. `strict`: damage of any kind is an error. `cache`: use the store of parsed tables in the user's cache
    folder (files from 64 KB whose JSON is 8 MB or more). `jobs`: how many files are read at once (default: one a
    core). `progress` is called with the number of bytes of the files consumed since its last call.

    Raises `UnreadableError` if no file could be read (or, with `strict`, if any could not be read whole), and
    `UsageError` for an unknown table or a bad pattern.
    """
    wanted = wanted_tables(tables)
    if rank_regex is not None:
        check_rank_regex(rank_regex)
    store = default_store() if cache else None
    files = find(paths)
    if not files:
        raise UsageError("no trace files were given")
    loaded, refusals = _load_all(files, wanted, store, strict=strict, jobs=jobs, progress=progress)
    if store is not None and any(file.kept for file in loaded):
        store.evict_in_background()
    infos = [info_of(file, rank_regex) for file in loaded]
    plan = assign_runs(infos, single_run=single_run)
    notes = [*refusals, *(note for file in loaded for note in file.about.notes), *named_as_given(plan.notes, loaded)]
    notes += unused_regex(infos, rank_regex)
    return assemble(loaded, infos, plan, notes)


def wanted_tables(tables: Iterable[str] | None) -> frozenset[str]:
    """The event tables of these names, all for None. Raises `UsageError` for an unknown one."""
    if tables is None:
        return ALL_TABLES
    wanted = frozenset(tables)
    unknown = sorted(wanted - {table.name for table in schema.TABLES})
    if unknown:
        raise UsageError(f"no such table: {unknown[0]} (there are {', '.join(sorted(ALL_TABLES))})")
    return wanted & ALL_TABLES


def _load_all(
    files: Sequence[FileToRead],
    tables: frozenset[str],
    store: Store | None,
    *,
    strict: bool,
    jobs: int | None,
    progress: Progress | None,
) -> tuple[list[LoadedFile], list[Note]]:
    loaded: list[LoadedFile] = []
    refusals: list[UnreadableError] = []
    notes: list[Note] = []
    work = partial(load_or_refuse, tables=tables, store=store)
    paths = [file.path for file in files]
    with closing(spread(work, paths, None, worth(jobs, paths), progress)) as found:
        for file, result in zip(files, found, strict=True):
            if isinstance(result, LoadedFile):
                if strict:
                    refuse_damage(result)
                loaded.append(result)
                continue
            refusal = UnreadableError(file.path, result.reason) if isinstance(result, Lost) else result
            notes.append(refused(refusal, named=file.named, strict=strict))
            refusals.append(refusal)
    if not loaded and refusals:
        raise nothing_read(refusals)
    return loaded, notes


def refused(error: UnreadableError, *, named: bool, strict: bool) -> Note:
    """The note on a file that cannot be read. Raises the error where `strict`, but for what is no trace at all and was
    only found in a folder."""
    passed_over = isinstance(error, NotATraceError) and not named
    if strict and not passed_over:
        raise error
    return Note("info" if passed_over else "error", "not-a-trace" if passed_over else "unreadable", error.reason,
                error.path, 1)  # fmt: skip


def load_or_refuse(
    path: str, progress: Progress | None, *, tables: frozenset[str], store: Store | None
) -> LoadedFile | UnreadableError:
    """Read a file; what is wrong with it is returned, whatever it is, and what is wrong with the request raised."""
    try:
        return load(path, tables, store=store, progress=progress)
    except UnreadableError as error:
        return error
    except TraceAnalyzerError:  # the request is wrong, not the file
        raise
    except (Exception, pl.exceptions.PanicException) as error:
        # files hold what nobody thought of, and one such file must not cost the answer about the others
        if os.environ.get(DEBUG_VARIABLE) == "1":
            raise
        text = " ".join(str(error).split())[:_LONGEST_REASON]
        what = f"{type(error).__name__}: {text}" if text else type(error).__name__
        return UnreadableError(path, f"could not be read ({what})")


def nothing_read(refusals: Sequence[UnreadableError]) -> UnreadableError:
    """The error for files of which none could be read."""
    first = refusals[0]
    if len(refusals) == 1:
        return first
    return UnreadableError(first.path, f"{first.reason}; and none of {len(refusals) - 1} more files could be read")


def refuse_damage(file: LoadedFile) -> None:
    """Raise `UnreadableError` for a file that was not read whole."""
    for note in file.about.notes:
        if note.level != "info":
            raise UnreadableError(file.path, f"{note.message} [{note.code}: {note.count}]")


def need_events(trace: Trace) -> None:
    """Raise `UnreadableError` where damage left no event in any file: an answer about nothing would look like one.

    Whole files that hold no events are in order. `read` lets through both: what stands around the events is known.
    """
    ranks = trace.ranks.select("path", "events", "whole")
    damaged = ranks.filter(~pl.col("whole"))
    if damaged.is_empty() or ranks["events"].sum():
        return
    path = damaged["path"][0]
    grave = trace.notes.filter(pl.col("level") != "info")
    reasons = grave.filter(pl.col("path") == path)["message"]
    reason = reasons[0].removesuffix(REST_KEPT) if len(reasons) else "is cut or damaged"
    refused_too = grave.filter(pl.col("code") == "unreadable")["path"]
    others = len({*ranks["path"], *refused_too} - {path})
    nor = f", nor from {counted(others, 'more file')}" if others else ""
    raise UnreadableError(path, f"{reason}; no event could be read{nor}")


def info_of(file: LoadedFile, rank_regex: str | None) -> FileInfo:
    """What the assignment of runs needs to know of a file."""
    about, path = file.about, _full_path(file.path)
    return FileInfo(
        path=path,
        name_identity=identity_from_name(path),
        content_rank=int_or_none(file.distributed.get("rank")),
        world_size=int_or_none(file.distributed.get("world_size")),
        pid_labels=about.pid_labels,
        device_events=about.device_events,
        events=sum(about.scan.counts.values()),
        content_key=f"{about.json_bytes}:{about.checksum:08x}",
        first_ns=about.extent[0],
        last_ns=about.extent[1],
        trace_id=to_text(file.metadata.get("trace_id")),
        regex_identity=None if rank_regex is None else identity_from_regex(path, rank_regex),
    )


def unused_regex(infos: Sequence[FileInfo], rank_regex: str | None) -> list[Note]:
    """A note where a pattern was given that no name matches."""
    if rank_regex is None or any(info.regex_identity and info.regex_identity.known for info in infos):
        return []
    return [Note("warning", "rank-regex-unused", f"no file name matches --rank-regex {rank_regex}", None, None)]


def _full_path(path: str) -> str:
    """What runs are named after: the same however the path was typed."""
    if is_url(path):
        return path
    return "standard input" if path == STANDARD_INPUT else os.path.abspath(path)


def named_as_given(notes: Iterable[Note], files: Sequence[LoadedFile]) -> list[Note]:
    """Notes about files under the paths that the user gave."""
    given = {_full_path(file.path): file.path for file in files}
    return [replace(note, path=given.get(note.path or "", note.path)) for note in notes]


def assemble(loaded: Sequence[LoadedFile], infos: Sequence[FileInfo], plan: RunPlan, notes: Sequence[Note]) -> Trace:
    """Number the sources in the plan's order and put the tables of the used ones together."""
    sources = [source for source, _ in _numbered(plan, infos, loaded)]
    if len(sources) > _MOST_SOURCES:
        raise UsageError(f"{len(sources)} files are more than one Trace holds ({_MOST_SOURCES})")
    parts: dict[str, list[pl.LazyFrame]] = {table.name: [] for table in schema.TABLES}
    for number, source in enumerate(sources):
        for name, frame in source.frames(number).items():
            parts[name].append(frame)
    parts["notes"].append(_notes_frame([*notes, *_notes_on_rows_without_rank(sources)]).lazy())
    return Trace(**{name: pl.concat(frames) for name, frames in parts.items() if frames})


def _numbered(plan: RunPlan, infos: Sequence[FileInfo], loaded: Sequence[LoadedFile]) -> Iterator[tuple[_Source, int]]:
    """The sources in the plan's order, each with its number within its file."""
    by_info = {id(info): file for info, file in zip(infos, loaded, strict=True)}
    for run_file in plan.files:
        for number, source in enumerate(_sources(run_file, by_info[id(run_file.file)])):
            yield source, number


def sources_of(plan: RunPlan, infos: Sequence[FileInfo], loaded: Sequence[LoadedFile]) -> list[int]:
    """For each source, in the order of `ranks`, its number within its file."""
    return [number for _, number in _numbered(plan, infos, loaded)]


def _notes_on_rows_without_rank(sources: Sequence[_Source]) -> Iterator[Note]:
    """Rows of merged files that belong to none of the file's ranks."""
    message = "rows of a merged file whose process id bears the label of none of its ranks were left out"
    for file in {id(source.file): source.file for source in sources if source.label is not None}.values():
        labels = set(file.about.pid_labels)
        counts = [
            frame.group_by(pl.col("pid").cast(pl.String)).agg(pl.len()).collect() for frame in file.tables.values()
        ]
        count = sum(
            number for rows in counts for pid, number in rows.iter_rows() if label_of_pid(pid or "") not in labels
        )
        if count:
            yield Note("warning", "rows-without-rank", message, file.path, count)


def _notes_frame(notes: Sequence[Note]) -> pl.DataFrame:
    return pl.DataFrame([_printable(asdict(note)) for note in notes], schema=schema.NOTES.schema)


def _json_or_none(value: Any) -> str | None:
    return None if value is None else json.dumps(value, default=str)


def _printable(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row as a table can hold it: names of files need not be UTF-8."""
    return {name: printable(value) if isinstance(value, str) else value for name, value in row.items()}


@dataclass(frozen=True)
class _Source:
    """One row of `ranks`: a file, or one rank of a merged file."""

    run_file: RunFile
    file: LoadedFile
    label: str | None

    def frames(self, number: int) -> dict[str, pl.LazyFrame]:
        about, rank = self.file.about, self.run_file.identity.rank
        tables = {name: self._own(frame) for name, frame in self.file.tables.items()}
        frames = {"ranks": self._ranks_row(number, tables.get("kernels")).lazy()}
        if self.run_file.used:
            frames |= {name: public(name, frame, number, rank, about.base_ns) for name, frame in tables.items()}
            threads = self._own(threads_frame(about.scan).lazy())
            frames["threads"] = public("threads", threads, number, rank)
            frames["devices"] = public("devices", devices_frame(about.scan).lazy(), number, rank)
        if self.label in (None, about.pid_labels[0] if about.pid_labels else None):
            frames["event_counts"] = public("event_counts", event_counts_frame(about.scan).lazy(), number, rank)
        return frames

    def _own(self, frame: pl.LazyFrame) -> pl.LazyFrame:
        """The rows of this rank, where a merged file holds several."""
        if self.label is None:
            return frame
        pids = frame.select(pl.col("pid").unique().cast(pl.String)).collect()["pid"].drop_nulls()
        mine = [pid for pid in pids if label_of_pid(pid) == self.label]
        return frame.filter(pl.col("pid").cast(pl.String).is_in(mine))

    def _ranks_row(self, number: int, kernels: pl.LazyFrame | None) -> pl.DataFrame:
        about, identity = self.file.about, self.run_file.identity
        metadata = self.file.metadata
        first, last = self._device_extent(kernels)
        row = {
            "source": number,
            "path": self.file.path,
            "run": self.run_file.run,
            "stage": self.run_file.stage,
            **{name: getattr(identity, name) for name in ("rank", "dp", "pp", "tp", "ep", "dcp", "rank_from")},
            "world_size": self.run_file.file.world_size,
            "used": self.run_file.used,
            "reason": self.run_file.reason,
            "producer": about.producer,
            "backend": to_text(self.file.distributed.get("backend")),
            "process_groups": _json_or_none(self.file.distributed.get("pg_config")),
            "host": to_text(metadata.get("host_name")),
            "trace_id": self.run_file.file.trace_id,
            **{name: getattr(about, name) for name in ("base_ns", "file_bytes", "json_bytes", "gzipped")},
            "events": sum(about.scan.counts.values()),
            "whole": about.scan.whole,
            "first_ns": first,
            "last_ns": last,
        }
        return pl.DataFrame([_printable(row)], schema=schema.RANKS.schema)

    def _device_extent(self, kernels: pl.LazyFrame | None) -> tuple[int | None, int | None]:
        """First start and last end of the source's device activity, absolute."""
        if kernels is None or self.label is None:
            return self.file.about.extent if self.file.about.device_events else (None, None)
        base, end = self.file.about.base_ns, pl.col("start_ns") + pl.col("duration_ns")
        row = kernels.select(pl.col("start_ns").min() + base, (end.max() + base).alias("end_ns")).collect().row(0)
        return row[0], row[1]


def _sources(run_file: RunFile, file: LoadedFile) -> list[_Source]:
    """One source per rank that a used merged file holds, else one for the file."""
    labels = run_file.file.pid_labels
    if not run_file.used or len(labels) < 2:
        return [_Source(run_file, file, None)]
    return [_Source(_as_rank(run_file, label), file, label) for label in labels]


def _as_rank(run_file: RunFile, label: str) -> RunFile:
    identity = identity_from_label(label)
    return replace(run_file, identity=replace(identity, rank_from="content"))
