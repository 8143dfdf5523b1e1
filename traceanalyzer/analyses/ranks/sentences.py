"""What is said of a slow rank, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from traceanalyzer.analyses.words import milliseconds, percent
from traceanalyzer.text import counted, ranges


def who(rank: int | None, device: str | None) -> str:
    """`rank 3`; a device, where no rank is known."""
    return f"device {device}" if rank is None else f"rank {rank}"


def lateness(row: Mapping[str, Any]) -> str:
    """How late a rank is, from a row of `Imbalance.culprits`: without its subject, and without a stop."""
    when = f" in {counted(len(row['steps']), 'step')} ({ranges(row['steps'], most=6)})" if row["steps"] else ""
    return (
        f"comes late{when}: {milliseconds(row['behind_ns'])} behind the middle rank of group {row['group']}, "
        f"{percent(row['share'])} of the time; last in {row['last']:,} of {row['collectives']:,} collectives"
    )


def reason(row: Mapping[str, Any]) -> str:
    """Why it is late, as a sentence."""
    if row["because"] is None:
        return "No one kernel or cause of idle makes up a large part of it."
    peer, amount = who(row["peer_rank"], row["peer_device"]), milliseconds(row["extra_ns"])
    part = f"{percent(row['because_share'])} of the {milliseconds(row['delay_ns'])} that it takes longer"
    if row["because"] == "idle":
        cause, _, host = (row["name"] or "").partition(": ")
        doing = f" ({cause}{f', {host}' if host else ''})" if cause else ""
        return f"Its device is idle for {amount} more than that of {peer}{doing}: {part}."
    if row["because"] == "communication":
        return f"Against {peer} it spends {amount} more in {row['name'] or 'communication'}, waiting itself: {part}."
    more = row["extra_count"]
    launches = f" in {more:,} more launch{'' if more == 1 else 'es'}" if more > 0 else ""
    return f"Against {peer} it spends {amount} more in {row['name'] or 'kernels'}{launches}: {part}."
