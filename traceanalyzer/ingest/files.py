"""From what the user names (files, folders, globs, URLs, ``-``) to the list of files to read."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from traceanalyzer.errors import UnreadableError
from traceanalyzer.ingest.identity import natural_key
from traceanalyzer.ingest.remote import is_url, list_files

STANDARD_INPUT = "-"
#: Endings by which a folder's files are taken for possible traces; their content decides.
_ENDINGS = (".json", ".json.gz", ".gz", ".trace", ".chrome_trace")
_GLOB_SIGNS = "*?["


@dataclass(frozen=True)
class FileToRead:
    """A file, and whether the user named it or a folder that holds it."""

    path: str
    named: bool
    """False: found in a folder; a file that is no trace is then passed over with a note."""


def find(paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]]) -> list[FileToRead]:
    """The files behind `paths`, each once, in natural order within a folder or glob.

    Raises `UnreadableError` for a path that does not exist, an empty folder or a glob that matches nothing.
    """
    if isinstance(paths, (str, os.PathLike)):
        paths = [paths]
    found: dict[str, FileToRead] = {}
    for path in paths:
        for file in _expand(os.fspath(path)):
            plain = file.path == STANDARD_INPUT or is_url(file.path)
            key = file.path if plain else os.path.realpath(file.path)
            found.setdefault(key, file)
    return list(found.values())


def _expand(path: str) -> list[FileToRead]:
    if path == STANDARD_INPUT:
        return [FileToRead(path, named=True)]
    if is_url(path):
        return _behind_url(path)
    if os.path.isdir(path):
        return _in_folder(path)
    if not os.path.exists(path) and any(sign in path for sign in _GLOB_SIGNS):
        matches = sorted(glob.glob(path, recursive=True), key=natural_key)
        if not matches:
            raise UnreadableError(path, "no file matches")
        return [file for match in matches for file in _expand(match)]
    return [FileToRead(path, named=True)]


def _behind_url(url: str) -> list[FileToRead]:
    found = list_files(url, _ENDINGS)
    if found is None:
        return [FileToRead(url, named=True)]
    if not found:
        raise UnreadableError(url, "no file matches, or none is a trace by its name (*.json, *.json.gz)")
    named = any(sign in url for sign in _GLOB_SIGNS)
    return [FileToRead(each, named=named) for each in sorted(found, key=natural_key)]


def _in_folder(folder: str) -> list[FileToRead]:
    inside = [
        str(path)
        for path in Path(folder).rglob("*")
        if path.name.lower().endswith(_ENDINGS)
        and not any(part.startswith(".") for part in path.relative_to(folder).parts)
        and path.is_file()
    ]
    if not os.access(folder, os.R_OK | os.X_OK):
        raise UnreadableError(folder, "permission denied")
    if not inside:
        raise UnreadableError(folder, "holds no trace files (*.json, *.json.gz)")
    return [FileToRead(path, named=False) for path in sorted(inside, key=natural_key)]
