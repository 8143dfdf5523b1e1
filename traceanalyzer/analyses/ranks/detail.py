"""Why a rank comes late: what it did since the collective before, against a rank that came in time.

Both are looked at in the same stretches of the program: from the end of one collective of their group to the start of
the next, where the late one was late. The same kernels are compared over the two, and idle time by its cause. This
takes the events of two ranks, whatever the number of ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from traceanalyzer.analyses.idle import idle_gaps
from traceanalyzer.analyses.labels import label
from traceanalyzer.analyses.ranks.clocks import Ints
from traceanalyzer.analyses.ranks.reduce import Reduced
from traceanalyzer.analyses.ranks.verdict import Slow
from traceanalyzer.classify.names import short_name
from traceanalyzer.classify.rules import RuleTable
from traceanalyzer.trace import Trace

#: Ranks of a run that are looked at in detail, the worst first.
MOST_SLOW = 8
#: A cause is named that makes up this part of the delay.
NAMED = 0.3
WORK = pl.Schema({"what": pl.String(), "name": pl.String(), "total_ns": pl.Int64(), "count": pl.Int64()})
REASONS = pl.Schema({
    "what": pl.String(), "name": pl.String(), "short_name": pl.String(), "late_ns": pl.Int64(), "peer_ns": pl.Int64(),
    "extra_ns": pl.Int64(), "late_count": pl.Int64(), "peer_count": pl.Int64(), "share": pl.Float64(),
})  # fmt: skip


@dataclass(frozen=True)
class Stretches:
    """Stretches of time of one member, on its own clock, in order and apart from each other."""

    source: int
    device: str | None
    start_ns: Ints
    end_ns: Ints


@dataclass(frozen=True)
class Question:
    """A late rank, the one that it is compared with, and where to look."""

    slow: Slow
    peer: int
    late: Stretches
    in_time: Stretches
    delay_ns: int
    """How much longer the late one took in those stretches."""


def questions(run: Reduced, slow: Sequence[Slow]) -> list[Question]:
    """What to look at for each of the slow ranks (the worst `MOST_SLOW`)."""
    return [asked for each in slow[:MOST_SLOW] if (asked := _question(run, each)) is not None]


def _question(run: Reduced, slow: Slow) -> Question | None:
    paired = run.groups[slow.group]
    behind = dict.fromkeys(paired.group.members, 0)
    sums = run.sums.filter(pl.col("group") == slow.group).group_by("member").agg(pl.col("behind_ns").sum())
    behind |= dict(sums.iter_rows())
    others = sorted((late, member) for member, late in behind.items() if member != slow.member)
    if not others:
        return None
    peer = others[(len(others) - 1) // 2][1]
    (begun, ended), (peer_begun, peer_ended) = (_calls(run, slow.group, member) for member in (slow.member, peer))
    both = (begun[1:] >= 0) & (peer_begun[1:] >= 0) & (ended[:-1] >= 0) & (peer_ended[:-1] >= 0)
    if slow.steps:
        both &= np.isin(paired.steps[1:], slow.steps)
    took, peer_took = begun[1:] - ended[:-1], peer_begun[1:] - peer_ended[:-1]
    both &= (took > peer_took) & (took > 0) & (peer_took >= 0)
    if not both.any():
        return None
    return Question(
        slow, peer,
        late=_stretches(run, slow.member, ended[:-1][both], begun[1:][both]),
        in_time=_stretches(run, peer, peer_ended[:-1][both], peer_begun[1:][both]),
        delay_ns=int((took - peer_took)[both].sum()),
    )  # fmt: skip


def _calls(run: Reduced, group: int, member: int) -> tuple[Ints, Ints]:
    """Starts and ends of a member by number of collective, on its own clock; -1 where it was absent."""
    paired = run.groups[group]
    at = list(paired.group.members).index(member)
    place, calls = paired.pairing.places[at], paired.calls[at].calls
    begun, ended = (np.full(paired.pairing.count, -1, np.int64) for _ in range(2))
    begun[place[place >= 0]], ended[place[place >= 0]] = calls.start_ns[place >= 0], calls.end_ns[place >= 0]
    return begun, ended


def _stretches(run: Reduced, member: int, start: Ints, end: Ints) -> Stretches:
    part = run.members[member].part
    return Stretches(part.source, part.device, start, end)


# ------------------------------------------------------------------------------------------- the events of a rank


def work_in(trace: Trace, stretches: Stretches, *, rules: RuleTable | None = None) -> pl.DataFrame:
    """`WORK` of a device in stretches of time: kernels by name, communication, copies and sets, and idle time by cause.

    `trace` holds the source (others do not matter). What reaches over an edge counts with the part inside.
    """
    source = pl.col("source") == stretches.source
    own = trace.kernels.filter(source & pl.col("device").cast(pl.String).eq_missing(stretches.device))
    classes = label(own.select("kind", "name"), rules).select("kind", "name", "class")
    own = own.join(classes, on=["kind", "name"], how="left", nulls_equal=True, maintain_order="left")
    inside = _inside(own["start_ns"].to_numpy(), own["duration_ns"].to_numpy(), stretches)
    kernels = own.select(
        what=pl.when(pl.col("class") == "communication").then(pl.lit("communication")).otherwise(pl.lit("kernel")),
        name=pl.col("name").cast(pl.String), inside_ns=pl.Series(inside),
    )  # fmt: skip
    one = trace.replace(**{name: trace.scan(name).filter(source) for name in _EVENTS})
    gaps = idle_gaps(one.replace(ranks=trace.ranks.filter(source)))
    gaps = gaps.filter(pl.col("device").eq_missing(stretches.device))
    origin = trace.ranks.filter(source)["first_ns"].item() or 0
    idle = _inside(gaps["start_ns"].to_numpy() + origin, gaps["duration_ns"].to_numpy(), stretches)
    named = pl.concat_str([pl.col("cause"), pl.col("host_op")], separator=": ", ignore_nulls=True)
    waits = gaps.select(what=pl.lit("idle"), name=named, inside_ns=pl.Series(idle))
    rows = pl.concat([kernels, waits]).filter(pl.col("inside_ns") > 0)
    sums = rows.group_by("what", "name").agg(total_ns=pl.col("inside_ns").sum(), count=pl.len().cast(pl.Int64))
    return sums.select(pl.col(name).cast(kind) for name, kind in WORK.items()).sort("what", "name")


_EVENTS = ("kernels", "launches", "ops", "annotations", "python_calls", "flows", "slices", "collectives")


def _inside(start: Ints, duration: Ints, stretches: Stretches) -> Ints:
    """How much of each event lies in the stretches."""
    before = np.concatenate([[0], np.cumsum(stretches.end_ns - stretches.start_ns)])

    def covered_until(at: Ints) -> Ints:
        behind = np.searchsorted(stretches.start_ns, at, "right")
        last = np.clip(behind - 1, 0, None)
        in_last = np.minimum(at, stretches.end_ns[last]) - stretches.start_ns[last]
        return np.where(behind > 0, before[last] + in_last, 0)

    return covered_until(start + np.maximum(duration, 0)) - covered_until(start)


def reasons(question: Question, late: pl.DataFrame, in_time: pl.DataFrame) -> pl.DataFrame:
    """`REASONS`: what the late rank spent more on than the other, the most first; `share` is of the delay."""
    key = ["what", "name"]
    both = late.join(in_time, on=key, how="full", coalesce=True, suffix="_peer").with_columns(
        pl.col("total_ns", "count", "total_ns_peer", "count_peer").fill_null(0)
    )
    delay = max(question.delay_ns, 1)
    rows = both.with_columns(extra_ns=pl.col("total_ns") - pl.col("total_ns_peer")).with_columns(
        share=pl.col("extra_ns") / delay
    )
    kernels = pl.col("what") != "idle"
    return rows.sort("extra_ns", "name", descending=[True, False]).select(
        "what", "name",
        short_name=pl.when(kernels).then(pl.col("name").map_elements(short_name, return_dtype=pl.String)).otherwise(
            "name"),
        late_ns="total_ns", peer_ns="total_ns_peer", extra_ns="extra_ns", late_count="count", peer_count="count_peer",
        share="share",
    ).cast(dict(REASONS))  # type: ignore[arg-type]  # fmt: skip


@dataclass(frozen=True)
class Because:
    """The reason in a word: what most of the delay is made of."""

    what: str | None
    """kernel, idle or communication; None where no one of them is a large part."""
    name: str | None
    """The kernel, or the cause of idle and what the host was busy with; None where it is many together."""
    extra_ns: int
    extra_count: int
    share: float


def because(rows: pl.DataFrame, delay_ns: int) -> Because:
    """One row that makes up `NAMED` of the delay, else the kind of thing that does, with its largest part.

    The peer may have idled under another name meanwhile: of a row no more counts than its kind has in all.
    """
    extra = dict(rows.group_by("what").agg(pl.col("extra_ns").sum()).iter_rows())
    for row in rows.head(1).iter_rows(named=True):
        amount = min(row["extra_ns"], extra[row["what"]])
        if amount >= NAMED * delay_ns:
            more = row["late_count"] - row["peer_count"]
            return Because(row["what"], row["short_name"], amount, more, amount / max(delay_ns, 1))
    what = max(extra, key=lambda each: (extra[each], each), default=None)
    if what is not None and extra[what] >= NAMED * delay_ns:
        return Because(
            what, _main_cause(rows) if what == "idle" else None, extra[what], 0, extra[what] / max(delay_ns, 1)
        )
    return Because(None, None, 0, 0, 0.0)


def _main_cause(rows: pl.DataFrame) -> str | None:
    """The cause of idle that most of the extra idle time has."""
    causes = rows.filter(pl.col("what") == "idle").group_by(pl.col("name").str.split(": ").list.first()).agg(
        pl.col("extra_ns").sum()
    )  # fmt: skip
    names: list[str] = causes.sort("extra_ns", "name", descending=[True, False])["name"].to_list()
    return names[0] if names else None
