"""What grouping files into runs noticed, as notes: one per run or folder and kind, however many files it is about."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from traceanalyzer.ingest.run_groups import Group, Item, Reason, by
from traceanalyzer.notes import Note
from traceanalyzer.text import ranges


def notes_of(groups: Sequence[Group]) -> Iterator[Note]:
    """All notes about named and settled groups, in a stable order."""
    for group in groups:
        yield from _rank_notes(group)
        yield from _left_out_notes(group)
        yield from _world_notes(group)
    for home in by(groups, lambda group: group.folder):
        yield from _folder_notes(home)
    yield from _same_content_notes(groups)


def _rank_notes(group: Group) -> Iterator[Note]:
    """Names that contradict the content."""
    differ = [
        item
        for item in group.items
        if item.named.rank is not None and item.file.content_rank not in (None, item.named.rank)
        if not group.merged
    ]
    wrong_name = [item for item in differ if item.identity.rank_from == "content"]
    if wrong_name:
        first = wrong_name[0]
        text = (
            f"run {group.name}: {_count(wrong_name)} recorded on another rank than the name says; the record "
            f"counts ({first.name} is rank {first.identity.rank}, not {first.named.rank})"
        )
        yield _note("warning", "rank-disagreement", text, wrong_name)
    lone = [item for item in differ if item.identity.rank_from != "content"]
    if lone:
        text = (
            f"run {group.name}: every file says that it is rank {lone[0].file.content_rank} of a world of its "
            "own; the ranks in the names are used"
        )
        yield _note("warning", "rank-from-name", text, lone)


def _left_out_notes(group: Group) -> Iterator[Note]:
    merged, front_ends = _left(group, "merged"), _left(group, "front-end")
    if merged:
        text = f"run {group.name}: left out {_listed(merged)}, merged from files that are there"
        yield _note("info", "merged-left-out", text, merged)
    if front_ends:
        text = f"run {group.name}: left out {_listed(front_ends)}, without device activity beside files with some"
        yield _note("info", "front-end-left-out", text, front_ends)
    contents = {item.file.content_key for item in group.items} - {""}
    paths = {item.file.path for item in group.items}
    duplicates = _left(group, "duplicate")
    copies = [item for item in duplicates if item.file.content_key in contents or item.file.path in paths]
    if copies:
        text = f"run {group.name}: left out {_listed(copies)}, the same content as another file"
        yield _note("warning", "duplicate-file", text, copies)
    rivals = [item for item in duplicates if item not in copies]
    if rivals:
        text = (
            f"run {group.name}: two captures of one rank, which differ and whose times do not tell them apart; "
            f"left out {_listed(rivals)}"
        )
        yield _note("warning", "duplicate-rank", text, rivals)


def _left(group: Group, reason: Reason) -> list[Item]:
    return [item for item, because in group.left if because == reason]


def _world_notes(group: Group) -> Iterator[Note]:
    sizes = {item.file.world_size for item in group.items if item.file.world_size}
    if len(sizes) > 1:
        text = f"run {group.name}: the files speak of different world sizes: {ranges(sizes)}"
        yield _note("warning", "world-size-differs", text, group.items)
    outside = [item for item in group.items if (item.identity.rank or 0) >= (item.file.world_size or 1 << 31)]
    if outside:
        text = f"run {group.name}: {_listed(outside)} has a rank beyond its own world size"
        yield _note("warning", "rank-outside-world", text, outside)
    if text := _missing_text(group):
        # who opens one rank of many knows it
        level: Literal["info", "warning"] = "info" if len(group.items) == 1 else "warning"
        yield Note(level, "missing-ranks", text, _path(group.items), len(group.missing) or None)


def _missing_text(group: Group) -> str:
    unknown = sum(item.identity.rank is None for item in group.items)
    if group.missing:
        many = len(group.missing)
        ranks = f"rank{'s' if many > 1 else ''} {ranges(group.missing, most=12)}"
        text = f"run {group.name}: no file of {ranks}"
        text += f", {many} of {group.world} missing" if group.world else ""
        return text + (f"; {unknown} of the files there tell no rank" if unknown else "")
    there = len(set(group.items[0].file.pid_labels)) if group.merged else len(group.items)
    if group.world and there < group.world and not group.ranks and not group.capture:
        return f"run {group.name}: files for {there} of {group.world} ranks"
    return ""


def _folder_notes(groups: Sequence[Group]) -> Iterator[Note]:
    """What concerns the runs of one folder together."""
    items = [item for group in groups if not group.merged for item in group.items]
    unknown = [item for item in items if not item.identity.known]
    if len(unknown) > 1:
        text = f"{len(unknown)} files tell no rank and are kept apart, rank unknown: {_listed(unknown)}"
        yield _note("info", "rank-unknown", text, unknown)
    captures = [group for group in groups if group.capture]
    if 0 < len(captures) < len(groups):
        text = f"recordings of graph captures are runs of their own: {_names(captures)}"
        yield _note("info", "capture-apart", text, [item for group in captures for item in group.items])
    replicas = [group for group in groups if group.replica is not None]
    if replicas:
        text = f"data-parallel replicas that each count from rank 0 are runs of their own: {_names(replicas)}"
        yield _note("info", "separate-worlds", text, [item for group in replicas for item in group.items])


def _same_content_notes(groups: Sequence[Group]) -> Iterator[Note]:
    used = [item for group in groups for item in group.items if item.file.content_key]
    for same in by(used, lambda item: item.file.content_key):
        if len(same) > 1:
            text = f"{len(same)} files that count as different hold the same: {_listed(same)}"
            yield _note("warning", "same-content", text, same)


def _note(level: Literal["info", "warning"], code: str, text: str, items: Sequence[Item]) -> Note:
    return Note(level, code, text, _path(items), len(items))


def _path(items: Sequence[Item]) -> str | None:
    return items[0].file.path if len(items) == 1 else None


def _count(items: Sequence[Item]) -> str:
    return "1 file was" if len(items) == 1 else f"{len(items)} files were"


def _listed(items: Sequence[Item], most: int = 3) -> str:
    names = ", ".join(item.name for item in items[:most])
    return names + (f" and {len(items) - most} more" if len(items) > most else "")


def _names(groups: Sequence[Group], most: int = 5) -> str:
    names = ", ".join(group.name for group in groups[:most])
    return names + (f" and {len(groups) - most} more" if len(groups) > most else "")
