"""Notes: what was noticed on the way (damage, losses, oddities), each with a stable code."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Level = Literal["info", "warning", "error"]


@dataclass(frozen=True)
class Note:
    """One observation. `code` is stable; `path` is None where it concerns several files."""

    level: Level
    code: str
    message: str
    path: str | None = None
    count: int | None = None
