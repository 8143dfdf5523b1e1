"""The one owner of output: which format, where to, and nothing half-written.

The file name picks the format unless one was asked for. A file appears under its name only when it is whole: it is
written beside it and renamed. `-` is standard output, which binary formats refuse while it is a terminal.
"""

from __future__ import annotations

import io
import os
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from traceanalyzer.choices import Format
from traceanalyzer.errors import OutputError, UsageError
from traceanalyzer.render.pipe import abandon_standard_output
from traceanalyzer.report import Report

_BY_SUFFIX: dict[str, Format] = {
    ".txt": "table", ".json": "json", ".csv": "csv", ".md": "md", ".markdown": "md", ".parquet": "parquet",
}  # fmt: skip
_BINARY: frozenset[Format] = frozenset({"parquet"})
STANDARD_OUTPUT = "-"


@dataclass(frozen=True)
class Output:
    """Where a report goes and in which format. Made before any file is read, so that mistakes show at once."""

    path: str
    format: Format

    @classmethod
    def choose(cls, path: str | None, format: Format | None) -> Output:
        """From `-o` and `--format` as given; raises `UsageError` where they cannot work."""
        path = path or STANDARD_OUTPUT
        if path == STANDARD_OUTPUT:
            if format in _BINARY and sys.stdout.isatty():
                raise UsageError(f"{format} is binary and not for a terminal; name a file with -o")
            return cls(path, format or "table")
        if os.path.isdir(path):
            raise OutputError(path, "is a folder")
        return cls(path, format or _format_of(path))

    def write(self, report: Report) -> str | None:
        """Write the report; returns the name of the file, or None for standard output."""
        if self.path == STANDARD_OUTPUT:
            _to_standard_output(report, self.format)
            return None
        _to_file(Path(self.path), _rendered(report, self.format))
        return self.path


def write_file(path: str, content: bytes) -> None:
    """Write a file whole or not at all; raises `OutputError` where that cannot be."""
    _to_file(Path(path), content)


def _format_of(path: str) -> Format:
    suffix = Path(path).suffix.lower()
    if suffix not in _BY_SUFFIX:
        known = ", ".join(_BY_SUFFIX)
        what = f"no format goes with {suffix!r}" if suffix else "the name has no ending that says the format"
        raise UsageError(f"{path}: {what} ({known}); give it one of these or use --format")
    return _BY_SUFFIX[suffix]


def _rendered(report: Report, format: Format) -> bytes:
    # Each renderer is imported when it is used: most runs need one, and `--help` none.
    from traceanalyzer.render import data, markdown, terminal

    def table(report: Report) -> bytes:
        text = io.StringIO()
        terminal.write(report, text, plain=True)
        return text.getvalue().encode()

    renderers: dict[Format, Callable[[Report], bytes]] = {
        "table": table,
        "json": data.to_json,
        "csv": data.to_csv,
        "parquet": data.to_parquet,
        "md": lambda report: markdown.to_markdown(report).encode(),
    }
    return renderers[format](report)


def _to_standard_output(report: Report, format: Format) -> None:
    try:
        if format == "table":
            from traceanalyzer.render import terminal

            _never_fail_on_a_character()
            terminal.write(report, sys.stdout)
        else:
            sys.stdout.buffer.write(_rendered(report, format))
        sys.stdout.flush()
    except BrokenPipeError:
        abandon_standard_output()  # the reader has seen enough (`| head`), which is no error
    except OSError as error:
        abandon_standard_output()
        raise OutputError("standard output", _reason(error)) from error


def _never_fail_on_a_character() -> None:
    """Let a terminal that knows no Unicode show `?` rather than stop half-way."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")


def _to_file(path: Path, content: bytes) -> None:
    try:
        target = path.resolve()  # through a symbolic link, not over it
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.exists() and not target.is_file():
            target.write_bytes(content)  # a device or a pipe: nothing to put in its place
        else:
            _replace(target, content)
    except OSError as error:
        raise OutputError(str(path), _reason(error)) from error


def _replace(target: Path, content: bytes) -> None:
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    unfinished = Path(name)
    try:
        with open(handle, "wb") as file:
            file.write(content)
        unfinished.chmod(_usual_mode(target))
        unfinished.replace(target)
    except BaseException:  # an interrupt too: no half-written file stays
        unfinished.unlink(missing_ok=True)
        raise


def _usual_mode(target: Path) -> int:
    """The mode of the file that is replaced, else what a new file would get; mkstemp lets only the owner in."""
    if target.exists():
        return target.stat().st_mode & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


def _reason(error: OSError) -> str:
    return error.strerror or str(error)
