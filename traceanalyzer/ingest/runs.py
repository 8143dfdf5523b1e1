"""Which files make up a run, which rank each of them is, and which are left out of every figure.

Takes what is known of the files once they were read (`FileInfo`), gives a `RunPlan`. Pure: no file is opened, and
the order in which the files come does not matter. How a folder is cut into runs is told in `run_groups`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from traceanalyzer.ingest.identity import FileInfo, Identity
from traceanalyzer.ingest.run_groups import Group, Reason, by, groups_of
from traceanalyzer.ingest.run_notes import notes_of
from traceanalyzer.notes import Note


@dataclass(frozen=True)
class RunFile:
    """A file, the run it belongs to, and whether it counts."""

    file: FileInfo
    run: str
    stage: str | None
    identity: Identity
    used: bool
    reason: Reason | None = None

    @property
    def path(self) -> str:
        """The file as given."""
        return self.file.path


@dataclass(frozen=True)
class Run:
    """Files that may be compared and added up. `session` is shared by the stages of one capture.

    `missing` are the ranks without a file, as far as the world size or the ranks themselves tell.
    """

    name: str
    stage: str | None
    session: str
    capture: bool
    world_size: int | None
    ranks: tuple[int, ...]
    missing: tuple[int, ...]


@dataclass(frozen=True)
class RunPlan:
    """Every file once, ordered by run and rank; the runs; and what was noticed."""

    files: tuple[RunFile, ...]
    runs: tuple[Run, ...]
    notes: tuple[Note, ...]


def assign_runs(files: Sequence[FileInfo], *, single_run: bool = False) -> RunPlan:
    """Group files into runs, settle who each file is, and say which are left out and why.

    `single_run` takes the user's word that all files belong together, whatever folders and names say; stages,
    graph captures and replicas with worlds of their own stay apart even then.
    """
    groups = groups_of(files, single_run=single_run)
    _name(groups)
    _find_missing(groups)
    return RunPlan(
        files=tuple(file for group in groups for file in _run_files(group)),
        runs=tuple(_run(group) for group in groups),
        notes=tuple(notes_of(groups)),
    )


def _run_files(group: Group) -> Iterator[RunFile]:
    for item in group.items:
        yield RunFile(item.file, group.name, group.stage, item.identity, used=True)
    for item, reason in group.left:
        yield RunFile(item.file, group.name, item.identity.stage, item.identity, used=False, reason=reason)


def _run(group: Group) -> Run:
    return Run(
        name=group.name,
        stage=group.stage,
        session=group.session,
        capture=group.capture,
        world_size=group.world,
        ranks=tuple(sorted(group.ranks)),
        missing=group.missing,
    )


def _find_missing(groups: Sequence[Group]) -> None:
    """Ranks that have no file. Graph captures are recorded on chosen ranks only, merged files hold them all.

    Without a world size, the highest rank of any stage of the capture is all that is known of it, and a single
    file tells nothing about others.
    """
    for session in by(groups, lambda group: group.session):
        alone = sum(len(group.items) for group in session) == 1
        seen = 0 if alone else max(rank for group in session for rank in (-1, *group.ranks)) + 1
        for group in session:
            if group.ranks and not group.capture and not group.merged:
                group.missing = tuple(sorted(set(range(group.world or seen)) - group.ranks))


# ------------------------------------------------------------------------------------------- names of runs


def _stage(group: Group) -> str | None:
    return group.stage


#: What is added to the folder's name where several runs would have the same, most telling first.
_DESCRIPTIONS: tuple[Callable[[Group], str | None], ...] = (
    lambda group: "capture" if group.capture else None,
    lambda group: group.label,
    lambda group: group.stamp,
    lambda group: None if group.replica is None else f"DP-{group.replica}",
    _stage,
    lambda group: group.items[0].name if len(group.items) == 1 else None,
)


def _name(groups: Sequence[Group]) -> None:
    """Give every run the name of its folder, and as much more as tells it from the other runs."""
    folders = _short_folders({group.folder for group in groups})
    for group in groups:
        group.name = folders[group.folder] or group.label or group.stamp or group.items[0].name
        group.session = group.name
    for describe in _DESCRIPTIONS:
        for same in by(groups, lambda group: group.name):
            if len({describe(group) for group in same}) > 1:
                _extend(same, describe)
    _number(groups)


def _extend(groups: Sequence[Group], describe: Callable[[Group], str | None]) -> None:
    for group in groups:
        text = describe(group)
        if text is not None:
            group.name += f"/{text}"
            group.session += "" if describe is _stage else f"/{text}"


def _number(groups: Sequence[Group]) -> None:
    """Where even the names of the files are the same: x, x#2, x#3."""
    taken: Counter[str] = Counter()
    for group in groups:
        name, number = group.name, 1
        while taken[group.name]:
            number += 1
            group.name = f"{name}#{number}"
        taken[group.name] += 1


def _short_folders(folders: Iterable[str]) -> dict[str, str]:
    """The last part of every folder, with as many parts before it as it takes to tell it from the others."""
    parts = {folder: folder.split("/") for folder in folders}
    short = {folder: each[-1:] for folder, each in parts.items()}
    while clashes := [same for same in by(sorted(short), lambda name: tuple(short[name])) if len(same) > 1]:
        for folder in (folder for same in clashes for folder in same):
            short[folder] = parts[folder][-len(short[folder]) - 1 :]
    return {folder: "/".join(each) for folder, each in short.items()}
