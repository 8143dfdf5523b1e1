"""Further traces in one file, behind the first or inside it: where they begin, and whether they belong to it.

Files come to hold several traces when they are appended to, or when several processes write to one path at once. What
stands in them is read as one trace only where nothing says that it is of another rank: rows of two ranks that lie in
one cannot be told apart any more, and every figure would be wrong.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

from traceanalyzer.ingest.finder import Finder
from traceanalyzer.ingest.losses import Losses
from traceanalyzer.ingest.values import to_integer

#: The first keys of traces as an object; no event begins with them.
_HEAD_KEYS = (
    "schemaVersion", "traceEvents", "displayTimeUnit", "deviceProperties", "distributedInfo", "baseTimeNanoseconds",
    "systemTraceEvents", "otherData", "traceName", "trace_id", "record_shapes", "with_stack", "profile_memory",
)  # fmt: skip
_HEAD = re.compile(r'\{\s*"(?:' + "|".join(_HEAD_KEYS) + r')"\s*:|\[\s*\{\s*"ph"\s*:\s*"')
_EVENTS_KEY = re.compile(r'"traceEvents"\s*:\s*\[')
_ENDS_WITH_EVENTS_KEY = re.compile(r'traceEvents"\s*:\s*\Z')
_LONGEST_KEY = 40
_PHASE_KEY = re.compile(r'"ph"\s*:')
#: The events of a trace begin within so many characters.
_LONGEST_HEAD = 1 << 18
#: Bases that are further apart than this are no two recordings of one machine.
_LARGEST_SHIFT = 10**18


#: What a list of events among the events of an object is: another trace unless an entry is due there, or always
#: another trace, or always behind a stray bracket.
Lists = Literal["by place", "traces", "stray"]


class Head(NamedTuple):
    """Where a trace begins, or seems to: the text may end before that can be told."""

    at: int
    sure: bool


class HeadFinder:
    """Finds where traces begin in a text."""

    def __init__(self, text: str) -> None:
        self._text = text

    @cached_property
    def _marks(self) -> Finder:
        return Finder(_HEAD, self._text)

    @cached_property
    def _events(self) -> Finder:
        return Finder(_EVENTS_KEY, self._text)

    @cached_property
    def _phases(self) -> Finder:
        return Finder(_PHASE_KEY, self._text)

    def find(self, start: int, end: int | None = None, *, here: bool = False) -> Head | None:
        """The first place from `start` to `end` where a trace begins (or may begin, if the text went on); with `here`,
        only at `start` itself."""
        end = len(self._text) if end is None else end
        found = _HEAD.match(self._text, start) if here else self._marks.behind(start)
        while found and found.start() < end:
            head = self._judge(found.start())
            if head:
                return head
            found = None if here else self._marks.behind(found.start() + 1)
        return None

    def _judge(self, at: int) -> Head | None:
        """Whether a trace begins where something begins that traces begin with."""
        text = self._text
        if text[at] == "[":
            is_its_array = _ENDS_WITH_EVENTS_KEY.search(text, max(at - _LONGEST_KEY, 0), at)
            return None if is_its_array else Head(at, sure=True)
        limit = at + _LONGEST_HEAD
        events, phase = self._events.behind(at), self._phases.behind(at)
        if phase and phase.end() <= limit and not (events and events.start() < phase.start()):
            return None
        is_trace = events is not None and events.end() <= limit
        return Head(at, sure=is_trace) if is_trace or len(text) < limit else None


def find_head(text: str, start: int, end: int | None = None, *, here: bool = False) -> Head | None:
    """As `HeadFinder.find`, in a text that is looked at once."""
    return HeadFinder(text).find(start, end, here=here)


@dataclass(frozen=True)
class Identity:
    """What a trace says of itself."""

    rank: int | None
    base_ns: int | None

    @classmethod
    def of(cls, metadata: Mapping[str, Any]) -> Identity:
        """From the metadata of a trace, as far as it was read."""
        distributed = metadata.get("distributedInfo")
        rank = to_integer(distributed.get("rank")) if isinstance(distributed, dict) else None
        return cls(rank, to_integer(metadata.get("baseTimeNanoseconds")))


class Judgement(NamedTuple):
    """What is to be done with a later trace."""

    ours: bool
    """Whether its events are read as part of the first."""
    shift_ns: int
    """How much later its times are than they would be in the first."""


class ReadAgainError(Exception):
    """What later traces are was known too late: the file is to be read again with that knowledge, as `later`."""

    def __init__(self, known: Sequence[Identity] = (), *, lists: Lists = "by place") -> None:
        super().__init__("what stands in the file is known only behind it")
        self.later = LaterTraces(known, lists=lists)


class LaterTraces:
    """Judges the later traces of one file, in their order."""

    def __init__(self, known: Sequence[Identity] = (), *, lists: Lists = "by place") -> None:
        """`known`: what an earlier reading found, for each later trace. `lists`: what a list of events among the events
        of an object is, as an earlier reading found at its end, or wants to know."""
        self._known = known
        self.lists: Lists = lists
        self._first = Identity(None, None)
        self._identities: list[Identity] = []
        self._judgements: list[Judgement] = []
        self._misjudged = False

    def begin(self, first: Mapping[str, Any], metadata: Mapping[str, Any]) -> Judgement:
        """Judge a trace whose events come next, by the metadata before them. `first` is the metadata of the first."""
        number = len(self._identities)
        if number == 0:
            self._first = Identity.of(first)
        known = self._known[number] if number < len(self._known) else Identity.of(metadata)
        self._identities.append(known)
        self._judgements.append(self._judge(known))
        return self._judgements[-1]

    def end(self, metadata: Mapping[str, Any]) -> bool:
        """The trace begun last is read, and all its metadata; whether it is part of the first."""
        self._identities[-1] = Identity.of(metadata)
        self._misjudged |= self._judge(self._identities[-1]) != self._judgements[-1]
        return self._judgements[-1].ours

    def _judge(self, later: Identity) -> Judgement:
        first = self._first
        shift = 0 if first.base_ns is None or later.base_ns is None else later.base_ns - first.base_ns
        return Judgement(first.rank == later.rank and abs(shift) <= _LARGEST_SHIFT, shift)

    def finish(self, losses: Losses) -> None:
        """Count them. Raises `ReadAgainError` if one was not what it seemed to be before its events."""
        if self._misjudged:
            raise ReadAgainError(self._identities, lists=self.lists)
        pairs = list(zip(self._identities, self._judgements, strict=True))
        kept = [identity for identity, judgement in pairs if judgement.ours]
        left = [identity for identity, judgement in pairs if not judgement.ours]
        losses.add("other-rank-inside", self._message_of_left(left), count=len(left))
        losses.add("concatenated", self._message_of_kept(kept), count=len(kept))

    def _message_of_left(self, left: Sequence[Identity]) -> str:
        others = {each.rank for each in left} - {self._first.rank}
        ranks = ", ".join(map(str, sorted(rank for rank in others if rank is not None)))
        whose = f"rank {ranks}" if ranks else "an unknown rank" if others else "another time"
        return f"further traces in the file are of {whose} and were left out: several processes wrote to one path"

    def _message_of_kept(self, kept: Sequence[Identity]) -> str:
        if kept and kept[0].rank is not None:
            return "further traces in the file, of the same rank, were read as part of the first"
        return (
            "further traces in the file were read as part of the first; none says its rank, and if several ranks wrote "
            "to it, they cannot be told apart"
        )
