"""TOML files that users write: read with one line of error that names the file and the reason."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from traceanalyzer.errors import UsageError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def read_tables(path: Path, what: str, table: str, *, of: str) -> list[dict[str, Any]]:
    """The tables `[[table]]` of a file, in order; `what` and `of` name the file and its tables in errors.

    Raises `UsageError` for a file that cannot be read, is no TOML, or has no such table.
    """
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise UsageError(f"{what} {path}: cannot be read: {reason}") from error
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{what} {path}: not TOML: {error}") from error
    rows = content.get(table)
    if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
        raise UsageError(f"{what} {path}: no {of} in it: each begins with a line [[{table}]]")
    return rows
