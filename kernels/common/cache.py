"""Compiled kernels on disk, so that each is compiled once for a user, an architecture and a compiler."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from pathlib import Path

_FOLDER = "traceanalyzer-kernels"


def folder() -> Path:
    """Below TRACEANALYZE_CACHE_DIR or the cache folder of the platform."""
    root = os.environ.get("TRACEANALYZE_CACHE_DIR")
    if not root:
        from platformdirs import user_cache_dir

        root = user_cache_dir("traceanalyzer")
    return Path(root) / _FOLDER


def key(*parts: str) -> str:
    """A name that only the same parts in the same order have."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode()
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()[:40]


def load(name: str) -> bytes | None:
    """What was kept under a name; None where nothing was, or it cannot be read."""
    try:
        return (folder() / name).read_bytes()
    except OSError:
        return None


def save(name: str, content: bytes) -> None:
    """Keep content under a name, whole or not at all. Where the folder cannot be written, it is compiled again."""
    with contextlib.suppress(OSError):
        folder().mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=folder())
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
            os.replace(temporary, folder() / name)
        except OSError:
            os.unlink(temporary)
            raise
