"""One file -> its tables and what is known about it, read from the file or from the store."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import astuple, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import polars as pl

from traceanalyzer.errors import NotATraceError, UnreadableError
from traceanalyzer.ingest.engines import choose
from traceanalyzer.ingest.files import STANDARD_INPUT
from traceanalyzer.ingest.identity import label_of_pid
from traceanalyzer.ingest.losses import Losses
from traceanalyzer.ingest.public import ReadFile
from traceanalyzer.ingest.raw import ALL_TABLES, Scan
from traceanalyzer.ingest.remote import is_url
from traceanalyzer.ingest.source import Progress, Source, file_size
from traceanalyzer.notes import Note
from traceanalyzer.schema import EVENT_TABLES
from traceanalyzer.store import (
    SMALLEST_FILE,
    SMALLEST_JSON,
    Entry,
    EntryWriter,
    Store,
    hash_file,
    in_background,
    key_of,
)

if TYPE_CHECKING:
    from traceanalyzer.ingest.later import LaterTraces

#: Metadata values whose text is longer are not kept in the store: nothing reads them.
_LONGEST_METADATA = 1 << 16


@dataclass(frozen=True)
class About:
    """What is known about a file besides its rows. Goes into the store's manifest."""

    scan: Scan
    producer: str
    base_ns: int
    notes: tuple[Note, ...]
    file_bytes: int
    json_bytes: int
    gzipped: bool
    checksum: int
    tables: frozenset[str]
    """The tables that were asked for: others may be empty although the file has rows of them."""
    pid_labels: tuple[str, ...]
    """Rank labels in the process ids of a merged file."""
    device_events: int
    extent: tuple[int | None, int | None]
    """First start and last end, absolute: of device activity, else of anything that has a duration."""

    def to_json(self) -> dict[str, Any]:
        """As JSON can hold it."""
        scan = self.scan
        return {
            **{name: getattr(self, name) for name in _PLAIN},
            "tables": sorted(self.tables),
            "notes": [astuple(note) for note in self.notes],
            "scan": {
                "metadata": _kept(scan.metadata),
                "threads": [[*key, names] for key, names in scan.threads.items()],
                "counts": [[*key, count] for key, count in scan.counts.items()],
                "not_events": scan.not_events,
                "container": scan.container,
                "whole": scan.whole,
            },
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any], path: str) -> About:
        """The reverse of `to_json`; notes are about the file as it is named now."""
        scan = data["scan"]
        return cls(
            **{name: data[name] for name in _PLAIN if name not in ("pid_labels", "extent")},
            pid_labels=tuple(data["pid_labels"]),
            extent=(data["extent"][0], data["extent"][1]),
            tables=frozenset(data["tables"]),
            notes=tuple(Note(level, code, message, path, count) for level, code, message, _, count in data["notes"]),
            scan=Scan(
                metadata=scan["metadata"],
                threads={(pid, tid): names for pid, tid, names in scan["threads"]},
                counts=Counter({(phase, category): count for phase, category, count in scan["counts"]}),
                not_events=scan["not_events"],
                container=scan["container"],
                whole=scan["whole"],
            ),
        )


_PLAIN = (
    "producer", "base_ns", "file_bytes", "json_bytes", "gzipped", "checksum", "pid_labels", "device_events", "extent",
)  # fmt: skip


@dataclass(frozen=True)
class LoadedFile:
    """A file that was read: its tables (public columns except source and rank, times as in the file, with pid)."""

    path: str
    tables: Mapping[str, pl.LazyFrame]
    about: About
    kept: bool = False
    """Whether its tables were written to the store, or are about to be."""

    @property
    def metadata(self) -> Mapping[str, Any]:
        """The top-level keys of the file besides the events."""
        return self.about.scan.metadata

    @property
    def distributed(self) -> Mapping[str, Any]:
        """distributedInfo, empty where there is none."""
        info = self.metadata.get("distributedInfo")
        return info if isinstance(info, dict) else {}


class _StoreFailedError(Exception):
    """Rows were to go to the store, and it took no more."""


def load(path: str, wanted: frozenset[str], *, store: Store | None, progress: Progress | None) -> LoadedFile:
    """Read a file, from the store where it has the wanted tables. Raises `UnreadableError`.

    Which run and rank a file is rests on its device activity, or on all it holds where it has none: what is asked
    for must not change the answer, so those tables are read as well, and left out of the result.
    """
    # what is in a pipe is there once
    needed = wanted | {"kernels"} if _comes_again(path) else ALL_TABLES
    file = _load(path, needed, store, progress)
    if not file.about.device_events and needed < ALL_TABLES:
        file = _load(path, ALL_TABLES, store, None)
    return replace(file, tables={name: frame for name, frame in file.tables.items() if name in wanted})


def _is_regular(path: str) -> bool:
    return path != STANDARD_INPUT and os.path.isfile(path)


def _comes_again(path: str) -> bool:
    """Whether the content can be read a second time."""
    return _is_regular(path) or is_url(path)


def _load(path: str, needed: frozenset[str], store: Store | None, progress: Progress | None) -> LoadedFile:
    if store is None or not _is_regular(path) or file_size(path) < SMALLEST_FILE:
        return _parse(path, needed, None, progress)
    entry = store.find(path, needed)
    about = None if entry is None else _known(entry, path)
    if entry is not None and about is not None:
        return LoadedFile(path, entry.scan_all(), about)
    # a second kind of question about a file: keep everything from now on
    kept = ALL_TABLES if store.knows(path) else needed
    try:
        return _parse(path, kept, store.writer(path), progress)
    except _StoreFailedError as error:
        return _noting(_parse(path, needed, None, None), str(error))


def _known(entry: Entry, path: str) -> About | None:
    """What the entry says about the file; None where it says something else, which is as good as no entry."""
    try:
        return About.from_json(entry.manifest["about"], path)
    except (LookupError, TypeError, ValueError, AttributeError):
        return None


def _noting(file: LoadedFile, reason: str) -> LoadedFile:
    note = Note("info", "store-unavailable", f"the store could not be written ({reason})", file.path, 1)
    return replace(file, about=replace(file.about, notes=(*file.about.notes, note)))


def _parse(path: str, wanted: frozenset[str], writer: EntryWriter | None, progress: Progress | None) -> LoadedFile:
    """Read the file itself, again where only its end tells what stands in it."""
    from traceanalyzer.ingest.later import LaterTraces, ReadAgainError  # what lies in the store is read without it

    later = LaterTraces()
    while True:  # four times at most: where its traces begin, in damage as well, then whose they are
        try:
            return _parse_once(path, wanted, writer, progress, later)
        except ReadAgainError as error:
            if not _comes_again(path):
                reason = "holds several traces; to be told apart, they must come from a file"
                raise UnreadableError(path, reason) from error
            writer, progress, later = None, None, error.later


def _parse_once(
    path: str, wanted: frozenset[str], writer: EntryWriter | None, progress: Progress | None, later: LaterTraces
) -> LoadedFile:
    """Read the file itself; its rows go to the store on the way where they are many, and afterwards where not."""
    from traceanalyzer.ingest.normalize import FileTables  # what lies in the store is read without it

    losses = Losses()
    source = Source(path, losses, progress)
    rows = FileTables(losses, None if writer is None else partial(_spill, writer))
    try:
        scan = choose().scan(source, rows, losses, wanted, later)
        content = rows.finish(scan)
        _refuse_what_is_no_trace(path, content)
        if writer is None:
            tables = {name: frame.lazy() for name, frame in content.tables.items()}
            return LoadedFile(path, tables, _about(content, tables, source, losses, wanted))
        return _parsed_with_store(path, content, source, losses, wanted, writer)
    except BaseException as error:  # whatever stops it, an interrupt included: no half-written entry stays
        if writer is not None:
            writer.abandon("the file could not be read")
        first = next(iter(losses.notes(path)), None)
        if isinstance(error, UnreadableError) and source.cut and first is not None:
            raise UnreadableError(path, f"{first.message}; no event could be read") from error
        raise


def _spill(writer: EntryWriter, table: str, rows: pl.DataFrame) -> None:
    if writer.add(table, rows) is None:
        raise _StoreFailedError(writer.failed)


def _parsed_with_store(
    path: str, content: ReadFile, source: Source, losses: Losses, wanted: frozenset[str], writer: EntryWriter
) -> LoadedFile:
    spilled = writer.scan_all()
    tables = {name: frame.lazy() for name, frame in content.tables.items()}
    for name, frame in spilled.items():
        tables[name] = pl.concat([frame, tables[name]]) if name in tables else frame
    about = _about(content, tables, source, losses, wanted)
    if not spilled and source.json_bytes < SMALLEST_JSON:
        writer.abandon("parsed again as fast as it is looked up")
        return LoadedFile(path, tables, about)
    if not spilled:
        in_background(_keep, path, content, about, writer)
        return LoadedFile(path, tables, about, kept=True)
    entry = _keep(path, content, about, writer)
    if entry is None:
        raise _StoreFailedError(writer.failed)
    return LoadedFile(path, entry.scan_all(), about, kept=True)


def _keep(path: str, content: ReadFile, about: About, writer: EntryWriter) -> Entry | None:
    """Write what is in memory and put the entry in its place. Nobody hears of what this raises in the background, so
    whatever it is, the entry is given up."""
    try:
        for name, frame in content.tables.items():
            writer.add(name, frame)
        manifest = {"path": os.path.abspath(path), "content_hash": hash_file(path), "about": about.to_json()}
        if key_of(path) != writer.key:
            writer.abandon("the file changed while it was read")
            return None
        return writer.commit(about.tables, manifest)
    except Exception as error:  # the store is a convenience: whatever it meets, the answer stands without it
        writer.abandon(str(error) or type(error).__name__)
        return None


def _refuse_what_is_no_trace(path: str, content: ReadFile) -> None:
    """A list of other things is no event trace; an empty one, or one of metadata only, is."""
    counts = content.scan.counts
    entries = sum(counts.values())
    if content.scan.container == "array" and entries == counts[None, None] and (entries or content.scan.not_events):
        raise NotATraceError(path, "is a JSON list, but not of trace events (no entry has a ph)")


def _about(
    content: ReadFile, tables: Mapping[str, pl.LazyFrame], source: Source, losses: Losses, wanted: frozenset[str]
) -> About:
    kernels = tables.get("kernels")
    return About(
        scan=content.scan,
        producer=content.producer,
        base_ns=content.base_ns,
        notes=tuple(losses.notes(source.path)),
        file_bytes=source.file_bytes,
        json_bytes=source.json_bytes,
        gzipped=source.gzipped,
        checksum=source.checksum,
        tables=wanted,
        pid_labels=_pid_labels(tables),
        device_events=0 if kernels is None else kernels.select(pl.len()).collect().item(),
        extent=_extent(tables, content.base_ns),
    )


def _extent(tables: Mapping[str, pl.LazyFrame], base: int) -> tuple[int | None, int | None]:
    spans = [tables["kernels"]] if "kernels" in tables else [tables[name] for name in _SPAN_TABLES if name in tables]
    end = (pl.col("start_ns") + pl.col("duration_ns")).max()
    rows = [span.select(pl.col("start_ns").min(), end.alias("end_ns")).collect().row(0) for span in spans]
    rows = [row for row in rows if row[0] is not None]
    if not rows:
        return None, None
    return min(first for first, _ in rows) + base, max(last for _, last in rows) + base


def _pid_labels(tables: Mapping[str, pl.LazyFrame]) -> tuple[str, ...]:
    """The rank labels of a merged file's process ids, such as TP00-DP01."""
    frames = [tables["kernels"]] if "kernels" in tables else list(tables.values())
    pids = {pid for frame in frames for pid in frame.select(pl.col("pid").unique()).collect()["pid"]}
    labels = {label_of_pid(pid) for pid in pids if pid is not None}
    return tuple(sorted(label for label in labels if label is not None))


def _kept(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Metadata as the manifest holds it."""
    texts = {key: json.dumps(value, default=float) for key, value in metadata.items()}
    return {key: json.loads(text) for key, text in texts.items() if len(text) <= _LONGEST_METADATA}


_SPAN_TABLES = tuple(table.name for table in EVENT_TABLES if "duration_ns" in table.schema)
