"""Calls of collectives as arrays of numbers, the same number for the same thing on every rank."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from traceanalyzer.analyses.ranks.groups import Group, Member
from traceanalyzer.analyses.ranks.pairing import Calls, Ints
from traceanalyzer.analyses.ranks.part import Kind, RankPart

#: Collectives whose counts may differ between ranks.
_UNEVEN = re.compile(r"(?i)all_?to_?all|a2a|gather_?v|scatter_?v|^_?gather\b|^_?scatter\b|send|recv|coalesced")
#: Operations that some ranks may leave before others arrive: their ends say nothing of clocks.
_LOOSE = re.compile(
    r"(?i)broadcast|^_?reduce\b|_reduce_oop|send|recv|^_?gather\b|^_?scatter\b|Kernel_(Reduce|Broadcast)_"
)
#: What exchanges between two ranks: not a collective of its group.
_POINT_TO_POINT = re.compile(r"(?i)^(i?send|i?recv|batch_isend_irecv)\b")


@dataclass(frozen=True)
class MemberCalls:
    """The calls of one member in one group."""

    calls: Calls
    kinds: Ints
    """Rows of `Codes.kinds`."""
    steps: Ints
    """Number of the step in its own file; -1: in none."""
    loose: npt.NDArray[np.bool_]
    """Operations that ranks may leave before others arrive."""


class Codes:
    """Numbers for what calls do."""

    def __init__(self) -> None:
        self._kernels: dict[str, int] = {}
        self._sizes: dict[tuple[Any, ...], int] = {}
        self._kinds: dict[Kind, int] = {}

    @property
    def kinds(self) -> list[Kind]:
        """What each number of a kind stands for."""
        return list(self._kinds)

    def calls(self, part: RankPart, group: int) -> MemberCalls:
        """The calls of a part in the group of that number, in order of their start; sends and receives left out."""
        kept = np.array([not _POINT_TO_POINT.search(kind.collective or "") for kind in part.kinds], bool)
        own = part.calls.group == group
        if not kept.all():
            own &= kept[part.calls.kind]
        rows = part.calls.where(own)
        calls = Calls(
            sequence=_sequence(rows.sequence),
            kernels=_looked_up([_code(self._kernels, kind.kernel) for kind in part.kinds], rows.kind),
            sizes=_looked_up([self._size(kind) for kind in part.kinds], rows.kind),
            start_ns=rows.start_ns,
            end_ns=rows.start_ns + rows.duration_ns,
        )
        return MemberCalls(
            calls,
            kinds=_looked_up([_code(self._kinds, kind) for kind in part.kinds], rows.kind),
            steps=rows.step.astype(np.int64),
            loose=_looked_up([_is_loose(kind) for kind in part.kinds], rows.kind).astype(bool),
        )

    def _size(self, kind: Kind) -> int:
        """-1 where it is not known, or may differ between ranks."""
        if kind.in_elements is None or _UNEVEN.search(kind.collective or kind.kernel):
            return -1
        size = (kind.collective, kind.element_type, kind.in_elements, kind.out_elements)
        return _code(self._sizes, size)


def numbered(group: Group, members: Sequence[Member], codes: Codes) -> list[MemberCalls]:
    """The calls of each member of a group."""
    return [codes.calls(members[at].part, code) for at, code in zip(group.members, group.codes, strict=True)]


def _is_loose(kind: Kind) -> bool:
    return bool(_LOOSE.search(kind.collective or kind.kernel))


def _code(known: dict[Any, int], key: Any) -> int:
    return known.setdefault(key, len(known))


def _looked_up(values: Sequence[int], rows: npt.NDArray[Any]) -> Ints:
    return np.array(values, np.int64)[rows] if len(values) else np.empty(0, np.int64)


def _sequence(numbers: Ints | None) -> Ints | None:
    """Recorded numbers; None where one is unknown or there twice."""
    if numbers is None or (numbers < 0).any() or len(np.unique(numbers)) < len(numbers):
        return None
    return numbers
