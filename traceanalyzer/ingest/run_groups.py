"""Cutting files into runs: the rules, without the names and notes that users see (those are in `runs`, `run_notes`).

A folder is cut in these steps:

1. Who is it? What the file holds counts before the user's pattern, the pattern before the name.
2. A second copy of the same content is set aside.
3. Files that share folder, stage and the constant part of their names are one run. SGLang's stamp, which all
   ranks share, tells captures apart; the stamps of torch and vLLM differ by rank and do not.
4. A rank that occurs twice means two captures where the times are apart, a duplicate where they overlap: one
   process cannot record twice at once.
5. Files with unlike names but distinct ranks of one world, recorded together, are one run as well.
6. What has no rank stays apart, rank unknown. Merged files and those of processes without a GPU are left out
   where the files they repeat or belong to are at hand.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Literal, TypeVar

from traceanalyzer.ingest.identity import FileInfo, Identity, identity_from_label, natural_key, run_folder

#: Why a file is left out.
Reason = Literal["duplicate", "merged", "front-end"]
Window = tuple[int, int]
_Thing = TypeVar("_Thing")

#: Recordings further apart than this are not ranks of one capture: all ranks of a server start and stop together,
#: give or take the seconds that a large export takes.
NEAR_NS = 60_000_000_000

_FRONT_END_WORDS = ("async_llm", "api_server", "front_end", "frontend", "engine_core", "scheduler", "tokenizer")


@dataclass(frozen=True)
class Item:
    """A file with its settled identity; `named` is what name and pattern say, whatever the content says.

    `home` is what runs do not reach across: the folder, or nothing where the user names the runs.
    """

    order: int
    file: FileInfo
    identity: Identity
    named: Identity
    home: str

    @property
    def slot(self) -> Hashable | None:
        """What can occur only once in a run: the global rank, else the dimensions; None: nothing is known."""
        if self.identity.rank is not None:
            return self.identity.rank
        return self.identity.place if self.identity.known else None

    @property
    def window(self) -> Window | None:
        """When the file was recorded, from its events."""
        first, last = self.file.first_ns, self.file.last_ns
        return None if first is None or last is None else (first, max(first, last))

    @property
    def name(self) -> str:
        """Name without folders, for messages."""
        return self.file.path.replace("\\", "/").rpartition("/")[2]

    @property
    def on_device(self) -> bool:
        """Whether any device activity was recorded."""
        return self.file.device_events > 0


@dataclass
class Group:
    """Files that become one run. `replica` is the DP rank where each replica is a world of its own."""

    items: list[Item]
    replica: int | None = None
    left: list[tuple[Item, Reason]] = field(default_factory=list)
    name: str = ""
    session: str = ""
    missing: tuple[int, ...] = ()

    @property
    def stage(self) -> str | None:
        """EXTEND, DECODE, ...: the same for all files."""
        return self.items[0].identity.stage

    @property
    def capture(self) -> bool:
        """Whether this is the recording of a graph capture, not of a run."""
        return self.items[0].identity.capture

    @property
    def merged(self) -> bool:
        """Whether this is a single file that holds several ranks."""
        return self.items[0].identity.merged

    @property
    def folder(self) -> str:
        """Folder that the files share."""
        return self.items[0].home

    @property
    def label(self) -> str | None:
        """The constant part of the names, where there is one."""
        prefixes = {item.identity.prefix for item in self.items}
        return prefixes.pop() if len(prefixes) == 1 else None

    @property
    def stamp(self) -> str | None:
        """The stamp of the capture, or the first of its ranks' stamps."""
        stamps = [item.identity.stamp for item in self.items if item.identity.stamp]
        return min(stamps, key=natural_key, default=None)

    @property
    def world(self) -> int | None:
        """World size as most of the files have it."""
        sizes = Counter(item.file.world_size for item in self.items if item.file.world_size)
        return max(sizes, key=lambda size: (sizes[size], size), default=None)

    @property
    def ranks(self) -> set[int]:
        """Known global ranks."""
        return {item.identity.rank for item in self.items if item.identity.rank is not None}

    @property
    def on_device(self) -> bool:
        """Whether any file holds device activity."""
        return any(item.on_device for item in self.items)

    def settle(self) -> None:
        """Keep one file per rank: the one that holds the most, device activity first; of equals the first by name."""
        keepers: dict[Hashable, Item] = {}
        kept = []
        for item in sorted(self.items, key=_fullest_first):
            if item.slot is None or (keeper := keepers.setdefault(item.slot, item)) is item:
                kept.append(item)
            else:
                silent = keeper.on_device and not item.on_device
                self.left.append((item, "front-end" if silent else "duplicate"))
        self.items = sorted(kept, key=lambda item: (_place_key(item.identity), item.order))
        self.left.sort(key=lambda left: left[0].order)

    def sort_key(self) -> tuple[object, ...]:
        """Order of runs: by folder, captures last, then by what the names say."""
        texts = (self.label or "", self.stamp or "", self.replica or 0, self.stage or "")
        first = min(item.order for item in self.items)
        return (natural_key(self.folder), self.capture, *(natural_key(text) for text in texts), first)


def groups_of(files: Sequence[FileInfo], *, single_run: bool) -> list[Group]:
    """The runs among the files, in a stable order, each with the files that it leaves out."""
    items = _items(files, single_run=single_run)
    groups = [
        group for home in by(items, lambda item: item.home) for group in _home_groups(home, single_run=single_run)
    ]
    for group in groups:
        group.settle()
    return sorted(groups, key=Group.sort_key)


def by(things: Iterable[_Thing], key: Callable[[_Thing], Hashable]) -> list[list[_Thing]]:
    """Things grouped by key, in order of first appearance."""
    groups: dict[Hashable, list[_Thing]] = {}
    for thing in things:
        groups.setdefault(key(thing), []).append(thing)
    return list(groups.values())


def _fullest_first(item: Item) -> tuple[int, int, int]:
    return -item.file.device_events, -item.file.events, item.order


def _place_key(identity: Identity) -> tuple[tuple[bool, int], ...]:
    return tuple((number is None, number or 0) for number in identity.place)


# ------------------------------------------------------------------------------------- who each file is


def _items(files: Sequence[FileInfo], *, single_run: bool) -> list[Item]:
    ordered = sorted(files, key=lambda file: (natural_key(file.path), repr(file)))
    homes = [run_folder(file.path) for file in ordered]
    if single_run:
        homes = [_shared_folder(homes)] * len(homes)
    items = []
    for order, (file, home) in enumerate(zip(ordered, homes, strict=True)):
        named = _overlaid(file.name_identity, file.regex_identity)
        by_user = named.scheme == "regex" and not single_run
        items.append(Item(order, file, _with_content(named, file), named, "" if by_user else home))
    return _without_lone_worlds(items)


def _shared_folder(folders: Sequence[str]) -> str:
    shared = []
    for parts in zip(*(folder.split("/") for folder in folders), strict=False):
        if len(set(parts)) > 1:
            break
        shared.append(parts[0])
    return "/".join(shared)


def _overlaid(name: Identity, regex: Identity | None) -> Identity:
    """The user's pattern over the built-in ones: whoever writes a pattern does so because those are wrong."""
    if regex is None:
        return name
    found = replace(
        name,
        stage=regex.stage or name.stage,
        rank=name.rank if regex.rank is None else regex.rank,
        dp=name.dp if regex.dp is None else regex.dp,
        pp=name.pp if regex.pp is None else regex.pp,
        tp=name.tp if regex.tp is None else regex.tp,
        ep=name.ep if regex.ep is None else regex.ep,
        dcp=name.dcp if regex.dcp is None else regex.dcp,
        rank_from=name.rank_from if regex.rank is None else "regex",
    )
    if regex.prefix is None:
        return found
    return replace(found, prefix=regex.prefix, stamp=None, scheme="regex")


def _with_content(named: Identity, file: FileInfo) -> Identity:
    labels = sorted(set(file.pid_labels))
    if named.merged or len(labels) > 1:
        # its distributedInfo is a copy of the first part's, and says nothing about the whole
        place = identity_from_label(labels[0]) if len(labels) == 1 else Identity()
        return replace(place, stamp=named.stamp, prefix=named.prefix, stage=named.stage, merged=True)
    if file.content_rank is None:
        return named
    return replace(named, rank=file.content_rank, rank_from="content")


def _without_lone_worlds(items: list[Item]) -> list[Item]:
    """Where files all claim one rank, each of a world of one, and their names tell distinct ranks: believe these.

    Processes that never joined a process group are all rank 0 of their own world.
    """
    lone = [
        item
        for item in items
        if item.identity.rank_from == "content" and (item.file.world_size or 1) == 1
        if item.named.rank is not None and not item.identity.merged
    ]
    believed: set[int] = set()
    for same in by(lone, lambda item: (item.home, item.named.prefix, item.named.stage, item.named.capture)):
        claimed = {item.identity.rank for item in same}
        if len(claimed) == 1 and len({item.named.rank for item in same}) > 1:
            believed.update(item.order for item in same)
    return [replace(item, identity=item.named) if item.order in believed else item for item in items]


# ------------------------------------------------------------------------------------------------ times


@dataclass(frozen=True)
class _Times:
    """When files were recorded: from their events, or else from the stamps in their names, which tell the export.

    `apart` is the least pause that sets two recordings of one process apart, `reach` the longest between files
    that count as recorded at the same time.
    """

    windows: list[Window]
    apart: int
    reach: int

    @classmethod
    def of(cls, items: Sequence[Item]) -> _Times | None:
        """None where some file has neither the one nor the other."""
        return cls.of_events(items) or cls.of_stamps(items)

    @classmethod
    def of_events(cls, items: Sequence[Item]) -> _Times | None:
        windows = [item.window for item in items]
        known = [window for window in windows if window is not None]
        return cls(known, apart=1, reach=0) if len(known) == len(items) else None

    @classmethod
    def of_stamps(cls, items: Sequence[Item]) -> _Times | None:
        stamps = [_stamp_ns(item.identity.stamp) for item in items]
        moments = [(stamp, stamp) for stamp in stamps if stamp is not None]
        return cls(moments, apart=1_000_000_000, reach=NEAR_NS) if len(moments) == len(items) else None

    def ordered(self, items: Sequence[Item]) -> list[tuple[Window, Item]]:
        return sorted(zip(self.windows, items, strict=True), key=lambda pair: (pair[0], pair[1].order))


_TimesOf = Callable[[Sequence[Item]], "_Times | None"]


def _stamp_ns(stamp: str | None) -> int | None:
    """A stamp in seconds, ms, us or ns since 1970, told apart by its number of digits."""
    whole, _, fraction = (stamp or "").partition(".")
    if not (whole.isascii() and whole.isdigit() and 9 <= len(whole) <= 20):
        return None
    if len(whole) <= 11:
        return int(whole) * 1_000_000_000 + int((fraction + "000000000")[:9])
    scale = 1_000_000 if len(whole) <= 14 else 1_000 if len(whole) <= 17 else 1
    return int(whole) * scale


def _hull(windows: Sequence[Window]) -> Window:
    return min(start for start, _ in windows), max(end for _, end in windows)


def _distance(item: Item, others: Sequence[Item]) -> tuple[int, int] | None:
    """Pause between a recording and others (0 or less: they overlap), and how long it may be for the same time."""
    times = _Times.of([item, *others])
    if times is None:
        return None
    own, theirs = times.windows[0], _hull(times.windows[1:])
    return max(own[0] - theirs[1], theirs[0] - own[1]), times.reach


def _same_time(item: Item, others: Sequence[Item]) -> bool:
    distance = _distance(item, others)
    return distance is not None and distance[0] <= distance[1]


# ----------------------------------------------------------------------------------- the runs of a folder


def _home_groups(items: list[Item], *, single_run: bool) -> list[Group]:
    """The runs of one folder."""
    copies = _copies(items)
    kept = [item for item in items if item.order not in copies]
    merged = [item for item in kept if item.identity.merged]
    parts = [item for item in kept if not item.identity.merged]
    silent = _silent(parts)
    ranked = [item for item in parts if item.slot is not None]
    unranked = [item for item in parts if item.slot is None and item.order not in silent]

    groups = _together(ranked + unranked) if single_run else _apart(ranked, unranked)
    stray = _leave_out([item for item in parts if item.order in silent], "front-end", groups, _served)
    if single_run:
        _join_any(stray, groups)
    else:
        groups += _unranked_groups(stray, [])
    groups += [Group([item]) for item in _leave_out(merged, "merged", groups, _merged_from)]

    group_of = {item.order: group for group in groups for item in group.items}
    group_of |= {item.order: group for group in groups for item, _ in group.left}
    for item, keeper in copies.values():
        group_of[keeper.order].left.append((item, "duplicate"))
    return groups


def _copies(items: Sequence[Item]) -> dict[int, tuple[Item, Item]]:
    """Files whose content another file of the folder has too, with that file.

    Names that claim different ranks for the same content are believed: it may be a set made up for a test.
    """
    copies: dict[int, tuple[Item, Item]] = {}
    for same in by(items, lambda item: item.file.content_key or f"at {item.file.path}"):
        kept: list[Item] = []
        for item in sorted(same, key=lambda item: (item.slot is None, item.order)):
            keeper = next((other for other in kept if _repeats(item, other)), None)
            if keeper:
                copies[item.order] = (item, keeper)
            else:
                kept.append(item)
    return copies


def _repeats(item: Item, other: Item) -> bool:
    one, two = item.identity, other.identity
    same_kind = (one.stage, one.capture, one.merged) == (two.stage, two.capture, two.merged)
    return same_kind and (item.slot is None or item.slot == other.slot)


def _silent(items: Sequence[Item]) -> set[int]:
    """Files without rank and device activity beside files that have some: perhaps a server's other processes."""
    runs = [item for item in items if not item.identity.capture]
    if not any(item.on_device for item in runs):
        return set()
    return {item.order for item in runs if item.slot is None and not item.on_device}


def _together(items: Sequence[Item]) -> list[Group]:
    """All files as one run, by the user's word; stages, graph captures and replicas apart."""
    return [
        Group(world, replica)
        for same in by(items, lambda item: (item.identity.capture, item.identity.stage))
        for replica, world in _worlds(same)
    ]


def _join_any(items: Sequence[Item], groups: list[Group]) -> None:
    for item in items:
        host = next((g for g in groups if not g.capture and g.stage == item.identity.stage), None)
        if host:
            host.items.append(item)
        else:
            groups.append(Group([item]))


def _apart(ranked: Sequence[Item], unranked: Sequence[Item]) -> list[Group]:
    """Runs by name, stamp, world and time; files without a rank beside them."""
    groups = [
        Group(capture, replica)
        for same in by(ranked, lambda i: (i.identity.capture, i.identity.stage, i.identity.prefix))
        for stamped in _by_shared_stamp(same)
        for replica, world in _worlds(stamped)
        for capture in _captures(world)
    ]
    groups = _joined(groups)
    return groups + _unranked_groups(unranked, groups)


def _by_shared_stamp(items: list[Item]) -> list[list[Item]]:
    """Captures of SGLang by its stamp, which all ranks share.

    Releases before profile ids took the time on each rank: there the stamps of one capture are only close.
    """
    if any(item.identity.scheme != "sglang" or item.identity.stamp is None for item in items):
        return [items]
    by_stamp = by(items, lambda item: item.identity.stamp)
    if any(len({item.slot for item in same}) > 1 for same in by_stamp):
        return by_stamp
    stamps = {item.order: _stamp_ns(item.identity.stamp) or 0 for item in items}
    ordered = sorted(items, key=lambda item: (stamps[item.order], item.order))
    clusters = [ordered[:1]]
    for before, item in pairwise(ordered):
        if stamps[item.order] - stamps[before.order] > NEAR_NS:
            clusters.append([])
        clusters[-1].append(item)
    return clusters


def _worlds(items: list[Item]) -> list[tuple[int | None, list[Item]]]:
    """Replicas (DP) that each count their ranks from 0 are worlds of their own: no collective crosses them."""
    replicas: dict[Hashable, set[int | None]] = defaultdict(set)
    for item in items:
        if item.identity.rank is not None:
            replicas[item.slot].add(item.identity.dp)
    if all(len(seen) == 1 for seen in replicas.values()):
        return [(None, items)]
    return [(same[0].identity.dp, same) for same in by(items, lambda item: item.identity.dp)]


# -------------------------------------------------------------------------- one rank, recorded repeatedly


def _captures(items: list[Item]) -> list[list[Item]]:
    """Cut files of one name so that no rank occurs twice, as far as their times allow."""
    done, todo = [], [items]
    while todo:
        part = todo.pop()
        pieces = _pieces(part) if _collide(part) else None
        if pieces:
            todo.extend(pieces)
        else:
            done.append(part)
    return done


def _pieces(items: Sequence[Item]) -> list[list[Item]] | None:
    """By the times of the events; stamps help where damaged times make recordings overlap that cannot.

    But not where some files lack device activity: these are other processes, which exported when they liked.
    """
    pieces = _turns(items, _Times.of_events) or _cut(items, _Times.of_events)
    if pieces is None and len({item.on_device for item in items}) == 1:
        pieces = _turns(items, _Times.of_stamps) or _cut(items, _Times.of_stamps)
    return pieces


def _collide(items: Sequence[Item]) -> bool:
    slots = [item.slot for item in items if item.slot is not None]
    return len(set(slots)) < len(slots)


def _turns(items: Sequence[Item], times_of: _TimesOf) -> list[list[Item]] | None:
    """Every rank recorded equally often, one recording after the other: the k-th ones are capture k.

    Needs no common clock of the ranks, so it is tried before `_cut`.
    """
    by_rank = by(items, lambda item: item.slot)
    if len({len(same) for same in by_rank}) != 1:
        return None
    turns: list[list[Item]] = [[] for _ in by_rank[0]]
    for same in by_rank:
        times = times_of(same)
        if times is None:
            return None
        ordered = times.ordered(same)
        if any(late[0][0] - early[0][1] < times.apart for early, late in pairwise(ordered)):
            return None
        for turn, (_, item) in zip(turns, ordered, strict=True):
            turn.append(item)
    return turns


def _cut(items: Sequence[Item], times_of: _TimesOf) -> list[list[Item]] | None:
    """Two parts, cut at the longest pause in the recordings; None where there is no pause."""
    times = times_of(items)
    if times is None:
        return None
    ordered = times.ordered(items)
    longest, at, reach = 0, 0, ordered[0][0][1]
    for index, ((start, end), _) in enumerate(ordered):
        if start - reach > longest:
            longest, at = start - reach, index
        reach = max(reach, end)
    if longest < times.apart:
        return None
    return [[item for _, item in ordered[:at]], [item for _, item in ordered[at:]]]


# ------------------------------------------------------------------------- unlike names, and no rank at all


def _joined(groups: Sequence[Group]) -> list[Group]:
    """Join groups whose names differ but which are distinct ranks of one world, recorded together.

    An example are names that hold a random id per rank.
    """
    joined = [group for group in groups if _world_key(group) is None]
    for same in by((group for group in groups if _world_key(group) is not None), _world_key):
        if not _collide([item for group in same for item in group.items]):
            captures = [same]
        else:  # several runs of one world size: groups of like names are certain, only lone files are doubtful
            joined += [group for group in same if len(group.items) > 1]
            captures = list(_lone_captures([group for group in same if len(group.items) == 1]))
        for capture in captures:
            joined += [
                Group([item for group in near for item in group.items], near[0].replica)
                for near in _clusters(capture, NEAR_NS)
            ]
    return joined


def _world_key(group: Group) -> Hashable | None:
    """What groups must share to be joined; None for those whose names tell runs apart on purpose."""
    explicit = any(item.identity.scheme in ("sglang", "vllm", "regex") for item in group.items)
    certain = all(item.identity.rank_from == "content" for item in group.items)
    worlds = {item.file.world_size or 0 for item in group.items}
    if explicit or not certain or len(worlds) > 1 or max(worlds) <= 1:
        return None
    return (group.capture, group.stage, max(worlds), group.replica)


def _lone_captures(groups: Sequence[Group]) -> Iterator[list[Group]]:
    group_of = {group.items[0].order: group for group in groups}
    for capture in _captures([group.items[0] for group in groups]) if groups else ():
        singles = [group_of[item.order] for item in capture]
        if _collide(capture):
            yield from ([single] for single in singles)
        else:
            yield singles


def _clusters(groups: Sequence[Group], reach: int) -> list[list[Group]]:
    """Groups with pauses of at most `reach` between them; all of them where some time is unknown."""
    times = _Times.of([item for group in groups for item in group.items])
    if times is None or not groups:
        return [list(groups)] if groups else []
    windows = iter(times.windows)
    hulls = [_hull([next(windows) for _ in group.items]) for group in groups]
    order = sorted(range(len(groups)), key=lambda at: (hulls[at], groups[at].items[0].order))
    clusters, end = [[groups[order[0]]]], hulls[order[0]][1]
    for at in order[1:]:
        if hulls[at][0] - end > reach:
            clusters.append([])
        clusters[-1].append(groups[at])
        end = max(end, hulls[at][1])
    return clusters


def _unranked_groups(items: Sequence[Item], groups: Sequence[Group]) -> list[Group]:
    """Files without a rank: into the run that shares their name, with those recorded beside them, or alone."""
    workers, alone = [], []
    for item in items:
        host = next((group for group in groups if _shares_name(item, group)), None)
        if host:
            host.items.append(item)
        elif item.identity.scheme == "handler" and item.identity.prefix is None:
            workers.append(Group([item]))
        else:
            alone.append(Group([item]))
    for same in by(workers, lambda group: (group.capture, group.stage)):
        times = _Times.of([group.items[0] for group in same])
        clusters = [[group] for group in same] if times is None else _clusters(same, times.reach)
        alone += [Group([group.items[0] for group in cluster]) for cluster in clusters]
    return alone


def _shares_name(item: Item, group: Group) -> bool:
    one, two = item.identity, group.items[0].identity
    if (one.capture, one.stage, one.prefix, one.scheme) != (two.capture, two.stage, group.label, two.scheme):
        return False
    distance = _distance(item, group.items)
    return distance[0] <= NEAR_NS if distance else one.prefix is not None


# ------------------------------------------------------------------------------------------ files left out


def _leave_out(
    items: Sequence[Item],
    reason: Reason,
    groups: Sequence[Group],
    host_of: Callable[[Item, Sequence[Group]], Group | None],
) -> list[Item]:
    """Leave out the files that have a run to belong to; hand back the others."""
    stray = []
    for item in items:
        host = host_of(item, groups)
        if host:
            host.left.append((item, reason))
        else:
            stray.append(item)
    return stray


def _served(item: Item, groups: Sequence[Group]) -> Group | None:
    """The run that a process without device activity served: recorded at that time, or told by its name."""
    hosts = [group for group in groups if group.on_device and not group.capture]
    near = [group for group in hosts if _same_time(item, group.items)]
    if near or not any(word in item.name.lower() for word in _FRONT_END_WORDS):
        return near[0] if near else None
    return hosts[0] if hosts else None


def _merged_from(item: Item, groups: Sequence[Group]) -> Group | None:
    """The run whose files a merged file repeats: the same stamp, or else the same time."""
    parts = [
        group
        for group in groups
        if not group.capture and not group.merged and any(part.slot is not None for part in group.items)
    ]
    stamped = [group for group in parts if group.stamp is not None and group.stamp == item.identity.stamp]
    near = [group for group in parts if item.window is not None and _same_time(item, group.items)]
    return next(iter(stamped or near), None)
