"""The store: a Parquet copy of every file's tables, so that the second question on the same file is answered at once.

Layout, in `traceanalyzer-store` below the user's cache folder::

    v<schema>-<reader>/<key>-<tables>/manifest.json        what the file is, what was found besides rows, the parts
    v<schema>-<reader>/<key>-<tables>/<table>.<n>.parquet  a batch of rows, zstd
    tmp-<host>-<pid>-<random>/                             an entry while it is written

The folder is the store's alone, wherever the user puts it, and what is removed in it bears a name of the store's in
full.

An entry is written beside its place and renamed into it, so one that is there is whole; the sizes of its parts, and the
CRC-32 of those that are wanted, are checked all the same when it is opened: no damage goes unseen, and several GB/s are
checked. The key is made of what tells a file from another version of itself without reading it all: size, modification
time in ns, and a hash of its first and last 64 KB. `verify` reads it all, and compares cryptographic hashes.
A file may have an entry with the tables of a first question and later one with all; the first stays until it was not
used for a while, because tables are read lazily and somebody may still hold them.
Nothing here raises for a store that cannot be used (read-only, full, damaged): the caller reads the file instead.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import socket
import sys
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import polars as pl

from traceanalyzer.errors import UsageError
from traceanalyzer.ingest.source import crc32
from traceanalyzer.ingest.values import printable
from traceanalyzer.schema import EVENT_TABLES, SCHEMA_VERSION

#: Bumped when the reader gives other rows for the same file.
READER_VERSION = 5
#: Files smaller than this are parsed faster than an entry is looked for,
SMALLEST_FILE = 64 << 10
#: and JSON text shorter than this faster than an entry is opened.
SMALLEST_JSON = 8 << 20
DEFAULT_LIMIT = 20 << 30
_EDGE_BYTES = 64 << 10
_CHECKED_BYTES = 256 << 10
_MANIFEST = "manifest.json"
#: The store's own folder below the one that the user may name, which may hold anything else.
_FOLDER = "traceanalyzer-store"
_TEMPORARY = "tmp-"
_TEMPORARY_NAME = re.compile(r"tmp-(?P<host>.+)-(?P<process>\d+)-[0-9a-f]{12}")
_VERSION_NAME = re.compile(r"v\d+-\d+")
_TABLE_NAMES = frozenset(table.name for table in EVENT_TABLES)
#: An entry that was used so recently is not evicted: another process may be reading it.
_IN_USE_SECONDS = 3600.0
_ABANDONED_SECONDS = 24 * 3600.0


@dataclass(frozen=True)
class Entry:
    """A file's tables in the store."""

    folder: Path
    manifest: Mapping[str, Any]

    def scan_all(self) -> dict[str, pl.LazyFrame]:
        """The tables that have rows, read when they are needed."""
        return _scan_parts(self.folder, self.manifest["parts"])

    @property
    def size(self) -> int:
        """Bytes on disk."""
        return sum(part["bytes"] for part in self.manifest["parts"])

    @property
    def source(self) -> str:
        """The file that the entry was made from, as it was named then."""
        return printable(self.manifest["path"])

    @property
    def used(self) -> float:
        """When it was last used, in seconds since 1970; 0 where it is gone."""
        return _last_used(self.folder)


@dataclass
class EntryWriter:
    """An entry being written. Usable until the first failure; `failed` then says why."""

    store: Store
    key: str
    folder: Path
    failed: str | None = None
    parts: list[dict[str, Any]] = field(default_factory=list)

    def add(self, table: str, rows: pl.DataFrame) -> Path | None:
        """Write a batch of rows; gives its file, or None where it could not be written."""
        if self.failed or not rows.height:
            return None
        path = self.folder / f"{table}.{len(self.parts)}.parquet"
        try:
            rows.write_parquet(path, compression="zstd", compression_level=1, statistics=True)
            self.parts.append({"name": path.name, "table": table, "rows": rows.height, **_marks_of(path)})
        except (OSError, pl.exceptions.PolarsError) as error:
            self.abandon(str(error))
            return None
        return path

    def scan_all(self) -> dict[str, pl.LazyFrame]:
        """What was written so far; of use until the entry is put in its place."""
        return _scan_parts(self.folder, self.parts)

    def commit(self, tables: Iterable[str], manifest: Mapping[str, Any]) -> Entry | None:
        """Put the entry in its place; None where that failed. `tables` are those that it can answer for."""
        if self.failed:
            return None
        whole = {**manifest, "tables": sorted(tables), "parts": self.parts}
        try:
            (self.folder / _MANIFEST).write_text(json.dumps(whole))
            place = self.store.place(self.key, whole["tables"])
            place.parent.mkdir(parents=True, exist_ok=True)
            _move(self.folder, place)
        except OSError as error:
            self.abandon(str(error))
            return None
        return _open(place)

    def abandon(self, reason: str) -> None:
        """Give up: nothing of the entry stays."""
        self.failed = reason
        self.parts.clear()
        shutil.rmtree(self.folder, ignore_errors=True)


class Store:
    """All entries below one folder."""

    def __init__(self, root: Path, limit: int = DEFAULT_LIMIT) -> None:
        self.root = root
        self.limit = limit

    @property
    def versioned(self) -> Path:
        """The folder of entries that this version can use."""
        return self.root / f"v{SCHEMA_VERSION}-{READER_VERSION}"

    def place(self, key: str, tables: Iterable[str]) -> Path:
        """Where an entry with these tables stands."""
        names = hashlib.blake2b(",".join(sorted(tables)).encode(), digest_size=4).hexdigest()
        return self.versioned / f"{key}-{names}"

    def find(self, path: str, tables: Iterable[str] = ()) -> Entry | None:
        """A whole entry of the file as it is now that can answer for these tables. Marks it as used."""
        key = key_of(path)
        wanted = set(tables)
        for folder in sorted(self.versioned.glob(f"{key}-*")) if key else ():
            manifest = _read_manifest(folder)
            if manifest is not None and wanted <= set(manifest["tables"]) and (entry := _open(folder, wanted)):
                return entry
        return None

    def knows(self, path: str) -> bool:
        """Whether there is any entry of the file as it is now."""
        return self.find(path) is not None

    def writer(self, path: str) -> EntryWriter | None:
        """Begin an entry for a file; None where the store cannot be written."""
        key = key_of(path)
        if key is None:
            return None
        folder = self.root / _temporary_name()
        try:
            folder.mkdir(parents=True)
        except OSError:
            return None
        return EntryWriter(self, key, folder)

    def entries(self) -> list[Entry]:
        """All usable entries, the one that was not used for longest first."""
        try:
            folders = list(self.versioned.iterdir())
        except OSError:
            return []
        manifests = [(folder, _read_manifest(folder)) for folder in folders]
        entries = [Entry(folder, manifest) for folder, manifest in manifests if manifest is not None]
        return sorted(entries, key=lambda entry: (entry.used, entry.folder.name))

    def evict(self) -> list[Entry]:
        """Remove what earlier crashes and versions left, then the entries unused for longest, down to the limit."""
        self._remove_leftovers()
        entries = self.entries()
        total = sum(entry.size for entry in entries)
        gone = []
        for entry in entries:
            if total <= self.limit or _is_in_use(entry.folder):
                break
            shutil.rmtree(entry.folder, ignore_errors=True)
            total -= entry.size
            gone.append(entry)
        return gone

    def evict_in_background(self) -> None:
        """`evict`, once what is being written is in its place."""
        in_background(self.evict)

    def clear(self) -> int:
        """Remove everything that is the store's own; gives the bytes that were freed."""
        freed = 0
        for child in [*self._versions(), *self._temporaries()]:
            before = _bytes_in(child)
            shutil.rmtree(child, ignore_errors=True)
            freed += before - _bytes_in(child)
        return freed

    def verify(self) -> Iterator[tuple[Entry, str | None]]:
        """Every entry with what is wrong with it: parts that changed, or a source file that did. None: all is well.

        An entry with a fault is removed.
        """
        for entry in self.entries():
            fault = _fault(entry)
            if fault is not None:
                shutil.rmtree(entry.folder, ignore_errors=True)
            yield entry, fault

    def _versions(self) -> list[Path]:
        """The folders of entries, of this version and of others."""
        return [child for child in _folders_in(self.root) if _VERSION_NAME.fullmatch(child.name)]

    def _temporaries(self) -> list[Path]:
        return [child for child in _folders_in(self.root) if _TEMPORARY_NAME.fullmatch(child.name)]

    def _remove_leftovers(self) -> None:
        for folder in self._temporaries():
            if _is_abandoned(folder):
                shutil.rmtree(folder, ignore_errors=True)
        for version in self._versions():
            if version == self.versioned:
                continue
            for entry in _folders_in(version):
                if not _is_in_use(entry):
                    shutil.rmtree(entry, ignore_errors=True)
            with contextlib.suppress(OSError):  # some are in use
                version.rmdir()


def default_store() -> Store:
    """The user's store: TRACEANALYZE_CACHE_DIR or the cache folder of the platform; the limit in GB from
    TRACEANALYZE_CACHE_GB. Raises `UsageError` for a limit that is no number."""
    root = os.path.expanduser(os.environ.get("TRACEANALYZE_CACHE_DIR") or _cache_folder())
    # absolute: tables are read later, perhaps from another folder
    return Store(Path(os.path.abspath(root)) / _FOLDER, _limit(os.environ.get("TRACEANALYZE_CACHE_GB")))


def _cache_folder() -> str:
    if sys.platform == "linux":  # as platformdirs has it, which takes a while to import
        home = os.environ.get("XDG_CACHE_HOME", "").strip() or os.path.expanduser("~/.cache")
        return os.path.join(home, "traceanalyzer")
    from platformdirs import user_cache_dir

    return user_cache_dir("traceanalyzer")


def _limit(gigabytes: str | None) -> int:
    if not gigabytes:
        return DEFAULT_LIMIT
    try:
        limit = int(float(gigabytes) * (1 << 30))
    except (ValueError, OverflowError):
        limit = -1
    if limit < 0:
        raise UsageError(f"TRACEANALYZE_CACHE_GB must be a number of gigabytes, not {gigabytes!r}")
    return limit


def key_of(path: str) -> str | None:
    """What tells the file as it is now from any other; None where it cannot be read or is no regular file."""
    if not os.path.isfile(path):  # asked first: opening a pipe takes from it
        return None
    try:
        with open(path, "rb") as file:
            status = os.fstat(file.fileno())
            edges = file.read(_EDGE_BYTES)
            file.seek(max(status.st_size - _EDGE_BYTES, 0))
            edges += file.read(_EDGE_BYTES)
    except (OSError, ValueError):
        return None
    digest = hashlib.blake2b(f"{status.st_size}:{status.st_mtime_ns}:".encode() + edges, digest_size=16)
    return digest.hexdigest()


def hash_file(path: Path | str) -> str:
    """A hash of the whole content of a file."""
    with open(path, "rb") as file:
        digest = hashlib.blake2b(digest_size=16)
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _checksum_of(path: Path) -> int:
    """The CRC-32 of a file."""
    checksum, room = 0, memoryview(bytearray(_CHECKED_BYTES))
    with open(path, "rb", buffering=0) as file:
        while count := file.readinto(room):
            checksum = crc32(room[:count], checksum)
    return checksum


def _marks_of(path: Path) -> dict[str, Any]:
    """What tells a part from a damaged one."""
    return {"bytes": path.stat().st_size, "crc": _checksum_of(path), "hash": hash_file(path)}


def _open(folder: Path, wanted: Iterable[str] = ()) -> Entry | None:
    """The entry in a folder, if it is whole and the parts of the wanted tables are what was written. Marks it as
    used."""
    manifest = _read_manifest(folder)
    if manifest is None or not _parts_are_right(folder, manifest, frozenset(wanted)):
        return None
    with contextlib.suppress(OSError):  # a read-only store is used all the same
        os.utime(folder / _MANIFEST)
    return Entry(folder, manifest)


def _move(folder: Path, place: Path) -> None:
    """Put a written entry in its place. One that is there already goes: it is damaged, or the same, put there by a
    process that was faster."""
    try:
        os.rename(folder, place)
    except OSError:
        aside = folder.with_name(_temporary_name())
        with contextlib.suppress(OSError):
            os.rename(place, aside)
        shutil.rmtree(aside, ignore_errors=True)
        os.rename(folder, place)


def _scan_parts(folder: Path, parts: Iterable[Mapping[str, Any]]) -> dict[str, pl.LazyFrame]:
    by_table: defaultdict[str, list[Path]] = defaultdict(list)
    for part in parts:
        by_table[part["table"]].append(folder / part["name"])
    return {table: pl.scan_parquet(paths, glob=False) for table, paths in by_table.items()}


def in_background(function: Callable[..., object], *arguments: object) -> None:
    """Do it while the caller goes on; the interpreter waits for it at its end."""
    future = _executor().submit(function, *arguments)
    with _PENDING_LOCK:
        _PENDING[:] = [*(each for each in _PENDING if not each.done()), future]


def wait_for_background() -> None:
    """Wait until everything is written that was begun in this process."""
    while _PENDING:
        with _PENDING_LOCK:
            waiting = _PENDING[:]
            _PENDING.clear()
        for future in waiting:
            future.result()


@cache
def _executor() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max_workers=1, thread_name_prefix="store")


_PENDING: list[Future[object]] = []
_PENDING_LOCK = threading.Lock()


def _read_manifest(folder: Path) -> dict[str, Any] | None:
    """The manifest of an entry; None where there is none, or one that this version did not write."""
    try:
        manifest = json.loads((folder / _MANIFEST).read_text())
    except (OSError, ValueError, RecursionError):
        return None
    return manifest if _is_manifest(manifest) else None


def _is_manifest(manifest: Any) -> bool:
    if not isinstance(manifest, dict):
        return False
    types = {"path": str, "content_hash": str, "about": dict, "tables": list, "parts": list}
    return (
        all(isinstance(manifest.get(key), kind) for key, kind in types.items())
        and all(isinstance(table, str) for table in manifest["tables"])
        and all(map(_is_part, manifest["parts"]))
    )


def _is_part(part: Any) -> bool:
    if not isinstance(part, dict):
        return False
    types = {"name": str, "table": str, "hash": str, "crc": int, "rows": int, "bytes": int}
    return (
        all(isinstance(part.get(key), kind) for key, kind in types.items())
        and part["table"] in _TABLE_NAMES
        and os.path.basename(part["name"]) == part["name"]
    )


def _parts_are_right(folder: Path, manifest: Mapping[str, Any], wanted: frozenset[str]) -> bool:
    """Whether all parts are there, and those of the wanted tables hold what was written."""
    try:
        return all(
            (folder / part["name"]).stat().st_size == part["bytes"]
            and (part["table"] not in wanted or _checksum_of(folder / part["name"]) == part["crc"])
            for part in manifest["parts"]
        )
    except OSError:
        return False


def _last_used(folder: Path) -> float:
    """When an entry was last used; 0 where it is gone."""
    for path in (folder / _MANIFEST, folder):
        with contextlib.suppress(OSError):
            return path.stat().st_mtime
    return 0.0


def _is_in_use(folder: Path) -> bool:
    """Whether another process may be reading an entry."""
    return time.time() - _last_used(folder) < _IN_USE_SECONDS


def _folders_in(folder: Path) -> list[Path]:
    try:
        return [child for child in folder.iterdir() if child.is_dir() and not child.is_symlink()]
    except OSError:
        return []


def _bytes_in(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):
            total += path.stat().st_size if path.is_file() else 0
    return total


def _temporary_name() -> str:
    return f"{_TEMPORARY}{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:12]}"


def _fault(entry: Entry) -> str | None:
    for part in entry.manifest["parts"]:
        try:
            if hash_file(entry.folder / part["name"]) != part["hash"]:
                return f"{part['name']} is not what was written"
        except OSError as error:
            return f"{part['name']} cannot be read ({error.strerror})"
    source = Path(entry.manifest["path"])
    if not source.exists() or key_of(str(source)) != entry.folder.name.partition("-")[0]:
        return None  # the file is gone or has changed: the entry is of no more use, but not wrong
    return (
        None if hash_file(source) == entry.manifest["content_hash"] else "the file changed without a trace in its date"
    )


def _is_abandoned(folder: Path) -> bool:
    """Whether the process that wrote a temporary folder is gone; judged by age where it ran on another host."""
    name = _TEMPORARY_NAME.fullmatch(folder.name)
    try:
        if name and name["host"] == socket.gethostname() and os.name == "posix":  # elsewhere, asking would end it
            return not _is_running(int(name["process"]))
        return time.time() - folder.stat().st_mtime > _ABANDONED_SECONDS
    except (OSError, ValueError, OverflowError):
        return False


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # it belongs to somebody else
        return True
    return True
