"""What was noticed while ranks were compared: what does not fit, what is missing, what was corrected."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from traceanalyzer.analyses.ranks.measure import Paired
from traceanalyzer.analyses.ranks.reduce import Reduced
from traceanalyzer.notes import Note
from traceanalyzer.text import counted, listed

#: Recordings are alike in length if the shortest has this part of the longest.
_ALIKE = 0.9


def notes(run: Reduced) -> Iterable[Note]:
    for each in run.groups:
        yield from _notes_on(run.members[0].run, each)
    moved = sum(clock.applied for clock in run.clocks)
    if moved:
        largest = max((clock for clock in run.clocks if clock.applied), key=lambda clock: abs(clock.offset_ns))
        text = (
            f"run {run.members[0].run}: clocks of {counted(moved, 'rank')} were moved onto that of the first, by up "
            f"to {abs(largest.offset_ns) / 1e3:,.1f} µs"
        )
        yield Note("info", "clocks-aligned", text, None, moved)
    spans = sorted(member.part.facts["span_ns"] for member in run.members)
    if len(spans) > 1 and spans[0] < _ALIKE * spans[-1]:
        text = (
            f"run {run.members[0].run}: recordings of its ranks differ in length ({spans[0] / 1e6:,.3g} to "
            f"{spans[-1] / 1e6:,.3g} ms); totals are of what each recorded"
        )
        yield Note("info", "recordings-differ", text, None, len(spans))
    if run.left_out:
        text = (
            f"run {run.members[0].run}: rows of collectives of short waits are left out of the table; all count in "
            "every other figure"
        )
        yield Note("info", "collectives-left-out", text, None, run.left_out)


def _notes_on(run: str, each: Paired) -> Iterable[Note]:
    where = f"run {run}: group {each.group.label}"
    if each.group.missing:
        text = f"{where}: no file of {_ranks(each.group.missing)}; who waits for them is not seen"
        yield Note("warning", "group-incomplete", text, None, len(each.group.missing))
    calls = sum(len(own.calls) for own in each.calls)
    if not calls:
        return
    if not each.holds:
        why = (
            f"{each.negative:,} of {each.pairing.count:,} collectives would end before the last rank came"
            if each.pairing.count
            else "their order, kernels and ends do not fit together"
        )
        text = f"{where}: the calls of its ranks could not be paired ({why}); no wait is told"
        yield Note("warning", "pairing-failed", text, None, calls)
        return
    if each.negative:
        text = f"{where}: collectives that end on a rank before the last one came; nobody is blamed for them"
        yield Note("warning", "negative-transfer", text, None, each.negative)
    if each.pairing.unpaired:
        text = f"{where}: calls of communication without a partner on another rank"
        yield Note("warning", "collective-unpaired", text, None, each.pairing.unpaired)
    if each.pairing.mismatched:
        text = f"{where}: paired calls that differ in kernel or size"
        yield Note("warning", "collective-mismatch", text, None, each.pairing.mismatched)
    if each.pairing.method in ("shifted", "time"):
        how = "from another first call on" if each.pairing.method == "shifted" else "by the time of their ends"
        unsure = f", and {each.pairing.ambiguous} could be paired in other ways" if each.pairing.ambiguous else ""
        text = f"{where}: the ranks recorded different calls; they were paired {how}{unsure}"
        level = "warning" if each.pairing.ambiguous else "info"
        yield Note(level, "pairing-shifted", text, None, calls)  # type: ignore[arg-type]
    if not each.group.known:
        text = f"{where}: calls that name no process group are taken for those of one group of all ranks"
        yield Note("info", "group-unknown", text, None, calls)


def _ranks(numbers: Sequence[int]) -> str:
    return f"rank{'' if len(numbers) == 1 else 's'} {listed([str(each) for each in numbers], at_most=8)}"
