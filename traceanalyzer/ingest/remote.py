"""Files behind URLs (`s3://bucket/run/`, `gs://`, `http://`, `memory://`), by way of fsspec where it is installed."""

from __future__ import annotations

import os
import re
from typing import Any, BinaryIO

from traceanalyzer.errors import UnreadableError

_URL = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]+)://")
#: Bytes that are fetched ahead while a file is read from its start.
_BLOCK = 4 << 20
#: Packages that schemes need beside fsspec.
_NEEDS = {"s3": "traceanalyzer[s3]", "s3a": "traceanalyzer[s3]"}


def is_url(path: str) -> bool:
    """Whether a path names a scheme. A file may be called like that: what exists is a file."""
    return _URL.match(path) is not None and not os.path.exists(path)


def list_files(url: str, endings: tuple[str, ...]) -> list[str] | None:
    """The files behind a folder or a glob; None for a file. Raises `UnreadableError`."""
    system, path = _system(url)
    try:
        if any(sign in path for sign in "*?["):
            return [system.unstrip_protocol(each) for each in system.glob(path)]
        if not system.isdir(path):
            return None
        found = [each for each in system.find(path) if each.lower().endswith(endings)]
    except Exception as error:  # every store has errors of its own
        raise UnreadableError(url, _reason(error)) from error
    return [system.unstrip_protocol(each) for each in found]


def open_url(url: str) -> BinaryIO:
    """The bytes of a file, which can be read again from their start. Raises `UnreadableError`."""
    system, path = _system(url)
    try:
        handle: BinaryIO = system.open(path, "rb", block_size=_BLOCK, cache_type="readahead")
    except Exception as error:
        raise UnreadableError(url, _reason(error)) from error
    return handle


def url_size(url: str) -> int:
    """Size in bytes, 0 where it cannot be known."""
    try:
        system, path = _system(url)
        return int(system.size(path) or 0)
    except Exception:
        return 0


def _system(url: str) -> tuple[Any, str]:
    scheme = url.partition("://")[0].lower()
    extra = _NEEDS.get(scheme, f"fsspec and its package for {scheme}://")
    try:
        import fsspec
    except ImportError as error:
        raise UnreadableError(url, f"needs fsspec: pip install '{_NEEDS.get(scheme, 'fsspec')}'") from error
    try:
        system, path = fsspec.core.url_to_fs(url)
    except (ImportError, ValueError) as error:
        raise UnreadableError(url, f"cannot be opened ({' '.join(str(error).split())}); it needs {extra}") from error
    except Exception as error:
        raise UnreadableError(url, _reason(error)) from error
    return system, path


def _reason(error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        return "no such file or directory"
    if isinstance(error, PermissionError):
        return "permission denied"
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
