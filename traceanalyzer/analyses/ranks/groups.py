"""Which ranks belong together: the process groups over all parts of a run, and what they are for."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from traceanalyzer.analyses.ranks.part import ProcessGroup, RankPart

#: Axes along which ranks are told apart, as names of files have them.
AXES = ("dp", "pp", "tp", "ep", "dcp")


@dataclass(frozen=True)
class Member:
    """A device of a rank: who it is, and its part."""

    run: str
    rank: int | None
    path: str
    axes: Mapping[str, int | None]
    world: int | None
    process_groups: str | None
    """pg_config, as JSON."""
    part: RankPart

    @property
    def device(self) -> str | None:
        """The device."""
        return self.part.device


@dataclass
class Group:
    """One process group, or what is taken for one."""

    label: str
    """Name to show: name, description and ranks where known."""
    axis: str | None
    """world, tp, dp, pp, ep, cp: what the group runs along; None where nothing tells."""
    ranks: tuple[int, ...] | None
    """Ranks as recorded; None where not recorded."""
    size: int | None
    known: bool
    """False: no metadata; calls of ranks that may belong together, on streams in the order of their first use."""
    members: list[int] = field(default_factory=list)
    """Rows of the members."""
    codes: list[int] = field(default_factory=list)
    """For each of them the number of the group in its part."""

    missing: tuple[int, ...] = ()
    """Ranks of its record that no file is from."""


def find_groups(members: Sequence[Member]) -> list[Group]:
    """The groups of one run, in order of their label's first rank; each part's own numbers are in `codes`."""
    found: dict[tuple[Any, ...], Group] = {}
    for at, member in enumerate(members):
        only = _only_group(member)
        for code, told in enumerate(member.part.groups):
            own = only if only and _is_unknown(told) else told
            key = _key(own, member)
            if key not in found:
                found[key] = _group(own)
            found[key].members.append(at)
            found[key].codes.append(code)
    for group in found.values():
        ranks = {members[at].rank for at in group.members}
        group.axis = group.axis or _axis(group, members)
        if group.ranks is not None:
            group.missing = tuple(rank for rank in group.ranks if rank not in ranks)
    _tell_apart(found.values())
    return list(found.values())


def _is_unknown(own: ProcessGroup) -> bool:
    return own.process_group is None and own.group_ranks is None


def _only_group(member: Member) -> ProcessGroup | None:
    """The group of calls that name none, where pg_config has a single one of several ranks: as in a replayed graph."""
    groups = {own.group_ranks: own for own in configured_groups(member) if (own.group_size or 0) > 1}
    return next(iter(groups.values())) if len(groups) == 1 else None


def configured_groups(member: Member) -> list[ProcessGroup]:
    """The process groups of pg_config, of which all ranks are told."""
    try:
        entries = json.loads(member.process_groups or "[]")
    except ValueError:
        return []
    found = []
    for entry in entries if isinstance(entries, list) else ():
        ranks = _ranks(json.dumps(entry.get("ranks"))) if isinstance(entry, dict) else None
        if ranks is not None:
            found.append(ProcessGroup(str(entry.get("pg_name")), entry.get("pg_desc"), json.dumps(ranks), len(ranks)))
    return found


def stage_of(member: Member) -> int | None:
    """The pipeline stage of a rank: as its file's name has it, else its place in the group that runs along stages."""
    if member.axes.get("pp") is not None:
        return member.axes["pp"]
    for own in (*configured_groups(member), *member.part.groups):
        ranks = _ranks(own.group_ranks)
        if ranks and member.rank in ranks and len(ranks) > 1 and _axis_of_words(own.group_description) == "pp":
            return ranks.index(member.rank)
    return None


def _key(own: ProcessGroup, member: Member) -> tuple[Any, ...]:
    if _is_unknown(own):
        # custom all-reduces and the like run along tensor parallelism: other axes, where known, keep ranks apart
        apart = tuple(member.axes[axis] for axis in ("dp", "pp")) if member.axes.get("tp") is not None else ()
        return ("unknown", own.stream, *apart)
    ranks = _ranks(own.group_ranks)
    return ("known", own.process_group, ranks, own.group_description if ranks is None else None)


@cache
def _ranks(text: str | None) -> tuple[int, ...] | None:
    """The ranks of a record; None where there is none, or where it was cut (`[0, 1, ..., 1023]`)."""
    try:
        ranks = json.loads(text or "null")
        ranks = json.loads(ranks) if isinstance(ranks, str) else ranks
    except ValueError:
        return None
    if not isinstance(ranks, list) or not ranks or not all(type(each) is int for each in ranks):
        return None
    return tuple(ranks)


def _group(own: ProcessGroup) -> Group:
    known = not _is_unknown(own)
    description = own.group_description if own.group_description not in ("undefined", "") else None
    label = (own.process_group or description or "?") if known else "no metadata"
    if known and description not in (None, label):
        label = f"{label} ({description})"
    return Group(label, _axis_of_words(description), _ranks(own.group_ranks), own.group_size, known)


_WORDS = (
    ("tp", r"tensor|(^|[^a-z])tp([^a-z]|$)"), ("pp", r"pipe|(^|[^a-z])pp([^a-z]|$)"),
    ("ep", r"expert|(^|[^a-z])ep([^a-z]|$)"), ("cp", r"context|(^|[^a-z])d?cp([^a-z]|$)"),
    ("dp", r"data|(^|[^a-z])dp([^a-z]|$)|fsdp|replicate|shard"), ("world", r"world|default_pg"),
)  # fmt: skip


def _axis_of_words(description: str | None) -> str | None:
    text = (description or "").lower()
    return next((axis for axis, pattern in _WORDS if re.search(pattern, text)), None)


def _axis(group: Group, members: Sequence[Member]) -> str | None:
    """The one axis along which the members differ, as their names tell."""
    own = [members[at] for at in group.members]
    varying = [axis for axis in AXES if len({member.axes.get(axis) for member in own}) > 1]
    if len(varying) == 1:
        return "cp" if varying[0] == "dcp" else varying[0]
    world = own[0].world
    return "world" if world and len({member.rank for member in own}) == world > 1 else None


def _tell_apart(groups: Iterable[Group]) -> None:
    """Groups of one name are told apart by their ranks."""
    same = defaultdict(list)
    for group in groups:
        same[group.label].append(group)
    for label, alike in same.items():
        for number, group in enumerate(alike if len(alike) > 1 else ()):
            ranks = None if group.ranks is None else ",".join(map(str, group.ranks[:9]))
            cut = "" if group.ranks is None or len(group.ranks) <= 9 else ",..."
            group.label = f"{label} #{number + 1}" if ranks is None else f"{label} [{ranks}{cut}]"
