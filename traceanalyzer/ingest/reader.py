"""`read`: files in, one `Trace` out."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import polars as pl

from traceanalyzer import schema
from traceanalyzer.errors import UnreadableError, UsageError
from traceanalyzer.ingest.engines import choose
from traceanalyzer.ingest.files import FileToRead, find
from traceanalyzer.ingest.identity import (
    FileInfo,
    check_rank_regex,
    identity_from_label,
    identity_from_name,
    identity_from_regex,
    int_or_none,
    label_of_pid,
)
from traceanalyzer.ingest.losses import Losses
from traceanalyzer.ingest.normalize import FileTables, ReadFile, public
from traceanalyzer.ingest.raw import ALL_TABLES
from traceanalyzer.ingest.runs import RunFile, RunPlan, assign_runs
from traceanalyzer.ingest.source import Progress, Source
from traceanalyzer.ingest.values import to_text
from traceanalyzer.notes import Note
from traceanalyzer.trace import Trace

Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]
_MOST_SOURCES = (1 << 16) - 1


@dataclass(frozen=True)
class _Loaded:
    """A file that was read, with what the bytes themselves told."""

    path: str
    content: ReadFile
    notes: tuple[Note, ...]
    file_bytes: int
    json_bytes: int
    gzipped: bool
    checksum: int


def read(
    paths: Paths,
    *,
    tables: Iterable[str] | None = None,
    rank_regex: str | None = None,
    strict: bool = False,
    cache: bool = True,  # noqa: ARG001  (the store is not built yet: every read parses)
    progress: Progress | None = None,
) -> Trace:
    """Read trace files into one `Trace`.

    `paths`: a file, a folder, a quoted glob, ``-`` for standard input, or several of them.
    `tables`: names of the event tables that are wanted (default: all); the others stay empty, which saves time
    and memory. `rank_regex`: a pattern with named groups (rank, dp, pp, tp, ep, dcp, stage, run) or one unnamed
    group, for file names that no built-in pattern knows. `strict`: damage of any kind is an error. `progress` is
    called with the number of bytes of the files consumed since its last call. `cache`: reserved for the store of
    parsed tables; every read parses for now.

    Raises `UnreadableError` if no file could be read (or, with `strict`, if any could not be read whole), and
    `UsageError` for an unknown table or a bad pattern.
    """
    wanted = _wanted_tables(tables)
    if rank_regex is not None:
        check_rank_regex(rank_regex)
    loaded, refusals = _load_all(find(paths), wanted, strict=strict, progress=progress)
    infos = [_info(file, rank_regex) for file in loaded]
    plan = assign_runs(infos)
    return _assemble(loaded, infos, plan, [*refusals, *(note for file in loaded for note in file.notes)])


def _wanted_tables(tables: Iterable[str] | None) -> frozenset[str]:
    if tables is None:
        return ALL_TABLES
    wanted = frozenset(tables)
    unknown = sorted(wanted - {table.name for table in schema.TABLES})
    if unknown:
        raise UsageError(f"no such table: {unknown[0]} (there are {', '.join(sorted(ALL_TABLES))})")
    return wanted & ALL_TABLES


def _load_all(
    files: Sequence[FileToRead], tables: frozenset[str], *, strict: bool, progress: Progress | None
) -> tuple[list[_Loaded], list[Note]]:
    loaded: list[_Loaded] = []
    refusals: list[UnreadableError] = []
    notes: list[Note] = []
    for file in files:
        try:
            each = _load(file.path, tables, progress)
        except UnreadableError as error:
            if strict and file.named:
                raise
            refusals.append(error)
            level, code = ("error", "unreadable") if file.named else ("info", "not-a-trace")
            notes.append(Note(level, code, error.reason, error.path, 1))  # type: ignore[arg-type]
            continue
        if strict:
            _refuse_damage(each)
        loaded.append(each)
    if not loaded and refusals:
        raise _nothing_read(refusals)
    return loaded, notes


def _nothing_read(refusals: Sequence[UnreadableError]) -> UnreadableError:
    first = refusals[0]
    if len(refusals) == 1:
        return first
    return UnreadableError(first.path, f"{first.reason}; and none of {len(refusals) - 1} more files could be read")


def _refuse_damage(file: _Loaded) -> None:
    for note in file.notes:
        if note.level != "info":
            raise UnreadableError(file.path, f"{note.message} [{note.code}: {note.count}]")


def _load(path: str, tables: frozenset[str], progress: Progress | None) -> _Loaded:
    losses = Losses()
    source = Source(path, losses, progress)
    rows = FileTables(losses)
    scan = choose().scan(source, rows, losses, tables)
    content = rows.finish(scan)
    _refuse_what_is_no_trace(path, content)
    return _Loaded(
        path,
        content,
        tuple(losses.notes(path)),
        source.file_bytes,
        source.json_bytes,
        source.gzipped,
        source.checksum,
    )


def _refuse_what_is_no_trace(path: str, content: ReadFile) -> None:
    """A list of other things is no event trace; an empty one, or one of metadata only, is."""
    counts = content.scan.counts
    entries = sum(counts.values())
    if content.scan.container == "array" and entries == counts[None, None] and (entries or content.scan.not_events):
        raise UnreadableError(path, "is a JSON list, but not of trace events (no entry has a ph)")


def _info(file: _Loaded, rank_regex: str | None) -> FileInfo:
    """What the assignment of runs needs to know of a file."""
    metadata = file.content.scan.metadata
    distributed = metadata.get("distributedInfo")
    distributed = distributed if isinstance(distributed, dict) else {}
    kernels = file.content.table("kernels")
    first, last = _extent(file.content)
    return FileInfo(
        path=file.path,
        name_identity=identity_from_name(file.path),
        content_rank=int_or_none(distributed.get("rank")),
        world_size=int_or_none(distributed.get("world_size")),
        pid_labels=_pid_labels(file.content),
        device_events=kernels.height,
        events=sum(file.content.scan.counts.values()),
        content_key=f"{file.json_bytes}:{file.checksum:08x}",
        first_ns=first,
        last_ns=last,
        trace_id=to_text(metadata.get("trace_id")),
        regex_identity=None if rank_regex is None else identity_from_regex(file.path, rank_regex),
    )


def _extent(content: ReadFile) -> tuple[int | None, int | None]:
    """First start and last end: of device activity, else of anything that has a duration."""
    names = ["kernels"] if content.table("kernels").height else list(content.tables)
    frames = [content.table(name) for name in names]
    frames = [frame for frame in frames if "duration_ns" in frame and frame.height]
    if not frames:
        return None, None
    end = pl.col("start_ns") + pl.col("duration_ns")
    spans = [frame.select(pl.col("start_ns").min(), end.max().alias("end_ns")).row(0) for frame in frames]
    return min(first for first, _ in spans), max(last for _, last in spans)


def _pid_labels(content: ReadFile) -> tuple[str, ...]:
    """The rank labels of a merged file's process ids, such as TP00-DP01."""
    pids = {pid for frame in content.tables.values() if "pid" in frame for pid in frame["pid"].unique().to_list()}
    labels = {label_of_pid(pid) for pid in pids if pid is not None}
    return tuple(sorted(label for label in labels if label is not None))


def _assemble(loaded: Sequence[_Loaded], infos: Sequence[FileInfo], plan: RunPlan, notes: Sequence[Note]) -> Trace:
    """Number the sources in the plan's order and put the tables of the used ones together."""
    by_info = {id(info): file for info, file in zip(infos, loaded, strict=True)}
    sources = [part for run_file in plan.files for part in _sources(run_file, by_info[id(run_file.file)])]
    if len(sources) > _MOST_SOURCES:
        raise UsageError(f"{len(sources)} files are more than one Trace holds ({_MOST_SOURCES})")
    parts: dict[str, list[pl.DataFrame]] = {table.name: [] for table in schema.TABLES}
    for number, source in enumerate(sources):
        for name, frame in source.frames(number).items():
            parts[name].append(frame)
    parts["notes"].append(_notes_frame([*notes, *plan.notes]))
    return Trace(**{table.name: _concat(parts[table.name], table) for table in schema.TABLES})


def _concat(frames: Sequence[pl.DataFrame], table: schema.Table) -> pl.DataFrame:
    return pl.concat(frames) if frames else table.empty()


def _notes_frame(notes: Sequence[Note]) -> pl.DataFrame:
    rows = [(note.level, note.code, note.message, note.path, note.count) for note in notes]
    return pl.DataFrame(rows, schema=schema.NOTES.schema, orient="row")


@dataclass(frozen=True)
class _Source:
    """One row of `ranks`: a file, or one rank of a merged file."""

    run_file: RunFile
    file: _Loaded
    label: str | None

    def frames(self, number: int) -> dict[str, pl.DataFrame]:
        content, rank = self.file.content, self.run_file.identity.rank
        tables = {name: self._own(frame) for name, frame in content.tables.items()}
        frames = {"ranks": self._ranks_row(number, tables)}
        if self.run_file.used:
            frames |= {name: public(name, frame, number, rank) for name, frame in tables.items()}
            for name, frame in (("threads", self._own(content.threads())), ("devices", content.devices())):
                frames[name] = public(name, frame, number, rank)
        if self.label in (None, self._first_label()):
            frames["event_counts"] = public("event_counts", content.event_counts(), number, rank)
        return frames

    def _first_label(self) -> str | None:
        return min(self.run_file.file.pid_labels, default=None)

    def _own(self, frame: pl.DataFrame) -> pl.DataFrame:
        """The rows of this rank, where a merged file holds several."""
        if self.label is None or "pid" not in frame:
            return frame
        texts = frame["pid"].unique().cast(pl.String).to_list()
        mine = [text for text in texts if text is not None and label_of_pid(text) == self.label]
        return frame.filter(pl.col("pid").cast(pl.String).is_in(mine))

    def _ranks_row(self, number: int, tables: dict[str, pl.DataFrame]) -> pl.DataFrame:
        scan, identity = self.file.content.scan, self.run_file.identity
        metadata = scan.metadata
        distributed = metadata.get("distributedInfo")
        distributed = distributed if isinstance(distributed, dict) else {}
        first, last = _device_extent(tables.get("kernels"))
        row = {
            "source": number,
            "path": self.file.path,
            "run": self.run_file.run,
            "stage": self.run_file.stage,
            **{name: getattr(identity, name) for name in ("rank", "dp", "pp", "tp", "ep", "dcp", "rank_from")},
            "world_size": self.run_file.file.world_size,
            "used": self.run_file.used,
            "reason": self.run_file.reason,
            "producer": self.file.content.producer,
            "backend": to_text(distributed.get("backend")),
            "host": to_text(metadata.get("host_name")),
            "trace_id": self.run_file.file.trace_id,
            "base_ns": self.file.content.base_ns,
            "file_bytes": self.file.file_bytes,
            "json_bytes": self.file.json_bytes,
            "gzipped": self.file.gzipped,
            "events": sum(scan.counts.values()),
            "whole": scan.whole,
            "first_ns": first,
            "last_ns": last,
        }
        return pl.DataFrame([row], schema=schema.RANKS.schema)


def _device_extent(kernels: pl.DataFrame | None) -> tuple[int | None, int | None]:
    if kernels is None or not kernels.height:
        return None, None
    end = pl.col("start_ns") + pl.col("duration_ns")
    return kernels.select(pl.col("start_ns").min(), end.max().alias("end_ns")).row(0)  # type: ignore[return-value]


def _sources(run_file: RunFile, file: _Loaded) -> list[_Source]:
    """One source per rank that a used merged file holds, else one for the file."""
    labels = run_file.file.pid_labels
    if not run_file.used or len(labels) < 2:
        return [_Source(run_file, file, None)]
    return [_Source(_as_rank(run_file, label), file, label) for label in labels]


def _as_rank(run_file: RunFile, label: str) -> RunFile:
    identity = identity_from_label(label)
    return replace(run_file, identity=replace(identity, rank_from="content"))
