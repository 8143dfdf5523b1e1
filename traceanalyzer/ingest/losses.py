"""Counting what was damaged, lost or odd while a file was read: one note per kind, however often it happened."""

from __future__ import annotations

from dataclasses import dataclass

from traceanalyzer.notes import Level, Note

#: What notes on a cut end with: true of every file, and no comfort where there was no such event.
REST_KEPT = "; every whole event before that was kept"


@dataclass
class _Loss:
    message: str
    level: Level
    at: int | None
    count: int = 0


class Losses:
    """A counter by stable code, which keeps the first message and position of each kind."""

    def __init__(self) -> None:
        self._by_code: dict[str, _Loss] = {}

    def add(self, code: str, message: str, *, at: int | None = None, count: int = 1, level: Level = "warning") -> None:
        """Count `count` more of `code`; `at` is a byte position in the JSON text or the file."""
        if count > 0:
            self._by_code.setdefault(code, _Loss(message, level, at)).count += count

    def include(self, other: Losses) -> None:
        """Count what another counter counted, as if it happened now."""
        for code, loss in other._by_code.items():
            self.add(code, loss.message, at=loss.at, count=loss.count, level=loss.level)

    def __contains__(self, code: str) -> bool:
        return code in self._by_code

    def notes(self, path: str | None) -> list[Note]:
        """One note per kind, in the order in which they were first met."""
        return [
            Note(loss.level, code, loss.message + _place(loss.at), path, loss.count)
            for code, loss in self._by_code.items()
        ]


def _place(at: int | None) -> str:
    return "" if at is None else f", first at byte {at:,}"
