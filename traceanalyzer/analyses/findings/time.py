"""Rules about time as a whole: devices that stand idle, records that are not there."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from traceanalyzer.analyses import trust
from traceanalyzer.analyses.findings.context import RunContext
from traceanalyzer.analyses.findings.finding import Confidence, Finding
from traceanalyzer.analyses.idle import by_cause, idle_doubts
from traceanalyzer.analyses.words import each_step, milliseconds, percent
from traceanalyzer.text import middle

#: Idle is worth a word from this part of the span on, and from so much time.
IDLE_SHARE, SHORT_NS = 0.15, 100_000
#: What the host was busy with, or a call, is named if it has this part of that time; so many names are in the evidence.
_NAMED, _HOSTS = 0.3, 5
#: One gap is worth a word of its own from this part of the idle time on.
_ONE_GAP = 0.5
#: Lost records make idle doubtful if they could fill this part of it.
_FILLS = 0.01
#: Notes that put figures in doubt.
_DOUBTS = ("launch-without-kernel", "impossible-duration", "kernel-before-launch", "duplicate-record")


def device_is_idle(run: RunContext) -> Iterator[Finding]:
    """Devices of the run that stand idle for a large part of their span."""
    share = pl.col("idle_ns") / pl.col("span_ns")
    devices = (
        run.devices.filter(pl.col("span_ns") > 0).with_columns(share=share).sort("share", "source", descending=True)
    )
    idle = devices.filter((pl.col("share") >= IDLE_SHARE) & (pl.col("idle_ns") >= SHORT_NS))
    if idle.is_empty():
        return
    worst = idle.row(0, named=True)
    gaps = _of_devices(run, run.gaps, idle)
    total, span = int(idle["idle_ns"].sum()), int(idle["span_ns"].sum())
    doubt = _inflated(run, total)
    confidence: Confidence = "low" if doubt else "high"
    causes, hosts = by_cause(gaps), _hosts(_of_devices(run, run.host, idle))
    per_step = run.idle_a_step()
    whose = "its" if _as_one(devices, idle) else "their"
    each = f"{milliseconds(total / idle.height)} of {milliseconds(span / idle.height)}{each_step(per_step)}"
    text = (
        f"{_subject(devices, idle)} for {percent(total / span)} of {whose} span ({each}): faster kernels would not "
        f"shorten that part. "
        f"{_why(run, gaps, causes, hosts, total)}{_one_gap(gaps, worst)}"
    )
    if doubt:
        text += f" It is an upper bound: {doubt}."
    yield Finding(
        run.run, "device-idle", f"idle for {percent(total / span)} of the time", text,
        at_stake_ns=total, share=total / span, confidence=confidence,
        evidence={
            "idle_ns": total, "span_ns": span, "share": total / span, "ns_per_step": per_step,
            "devices": idle.select("rank", pl.col("device").cast(pl.String), "idle_ns", "span_ns", "share").to_dicts(),
            "causes": dict(causes.select("cause", "total_ns").iter_rows()),
            "host": [{"name": name, "total_ns": amount} for name, amount in
                     hosts.head(_HOSTS).iter_rows()],
            "thresholds": {"idle_share_of_span": IDLE_SHARE, "idle_ns": SHORT_NS},
        },
    )  # fmt: skip


def _subject(devices: pl.DataFrame, idle: pl.DataFrame) -> str:
    if devices.height == 1:
        return "The device does nothing"
    if idle.height == devices.height:
        return f"Each of {devices.height} devices does nothing"
    ranks = idle["rank"].drop_nulls().sort().to_list()
    whose = f" (rank {', '.join(map(str, ranks[:8]))}{', ...' if len(ranks) > 8 else ''})" if ranks else ""
    verb = "does" if idle.height == 1 else "do"
    return f"{idle.height} of {devices.height} devices{whose} {verb} nothing"


def _as_one(devices: pl.DataFrame, idle: pl.DataFrame) -> bool:
    """Whether the subject is in the singular."""
    return idle.height in (1, devices.height)


def _hosts(parts: pl.DataFrame) -> pl.DataFrame:
    """`host_op`, `total_ns` of what the host was busy with, the largest first; null: nothing has a name."""
    sums = parts.group_by(host_op="name").agg(pl.col("total_ns").sum())
    return sums.sort("total_ns", "host_op", descending=[True, False], nulls_last=True)


def _of_devices(run: RunContext, rows: pl.DataFrame, devices: pl.DataFrame) -> pl.DataFrame:
    wanted = devices.join(run.trace.ranks.select("source", "path"), on="source", how="left").select(
        "path", pl.col("device").cast(pl.String)
    )
    return rows.join(wanted, on=["path", "device"], how="semi", nulls_equal=True)


def _why(run: RunContext, gaps: pl.DataFrame, causes: pl.DataFrame, hosts: pl.DataFrame, idle: int) -> str:
    """What the host did for most of the idle time."""
    first = causes.row(0, named=True)
    words = f"For {percent(first['share'])} of it {_WORDS[first['cause']]}"
    if first["cause"] == "host_busy":
        named = hosts.drop_nulls("host_op").head(1)
    else:
        own = gaps.filter(pl.col("cause") == first["cause"]).drop_nulls("host_op")
        sums = own.group_by("host_op").agg(total_ns=pl.col(f"{first['cause']}_ns").sum())
        named = sums.sort("total_ns", "host_op", descending=[True, False]).head(1)
    if named.is_empty() or int(named["total_ns"][0]) < _NAMED * int(first["total_ns"]):
        return f"{words}."
    name, total = str(named["host_op"][0]), int(named["total_ns"][0])
    per_step = run.idle_a_step(name) if first["cause"] == "host_busy" else None
    amount = milliseconds(total) + (" in all" if gaps.select("path", "device").n_unique() > 1 else "")
    cleared = _cleared(run, hosts, name, idle) if first["cause"] == "host_busy" else ""
    share = percent(total / idle)
    return f"{words}, most of it {middle(name, 80)} ({amount}{each_step(per_step)}, {share} of idle).{cleared}"


def _cleared(run: RunContext, hosts: pl.DataFrame, culprit: str, idle: int) -> str:
    """The other work of the host in the gaps that somebody named, and how little it is."""
    ranges = run.trace.annotations.filter(~pl.col("on_device"))["name"].unique().cast(pl.String)
    others = hosts.filter((pl.col("host_op") != culprit) & pl.col("host_op").is_in(ranges.implode()))
    if others.is_empty() or int(others["total_ns"][0]) >= _NAMED * idle:
        return ""
    name, total = others.select("host_op", "total_ns").row(0)
    return f" It is not {middle(str(name), 60)} ({percent(total / idle)}{each_step(run.idle_a_step(str(name)))})."


_WORDS = {
    "host_busy": "the host ran other code before it launched the next kernel",
    "sync": "the host waited for the device and then had to launch anew",
    "launch_bound": "the host was in calls of the runtime, or between two of them, and could not keep the device fed",
    "queued": "the next kernel was launched but did not start yet",
    "comm_wait": "the host waited for other ranks",
    "graph_launch": "the host was inside the launch of a graph",
    "allocation": "the host was getting device memory or giving it back",
    "profiler": "the profiler was at work",
    "unknown": "no reason is known, because the launch of what came next is not",
}


def _one_gap(gaps: pl.DataFrame, worst: dict[str, object]) -> str:
    """Whether the most idle device owes it to one gap."""
    own = gaps.filter((pl.col("rank").eq_missing(worst["rank"])) & (pl.col("device").eq_missing(str(worst["device"]))))
    longest = own.sort("duration_ns", descending=True).head(1)
    if longest.is_empty() or longest["duration_ns"][0] < _ONE_GAP * float(str(worst["idle_ns"])):
        return ""
    length, start = milliseconds(longest["duration_ns"][0]), milliseconds(longest["start_ns"][0])
    return f" One gap of {length} at {start} is most of it."


def _inflated(run: RunContext, idle: int) -> str:
    """Why idle may be of the profiler's making: reasons without a figure, and those that could fill much of it."""
    doubts = idle_doubts(run.trace, run.gaps)
    matter = doubts.filter(pl.col("at_most_ns").is_null() | (pl.col("at_most_ns") >= _FILLS * idle))
    words = [
        text + (f" ({milliseconds(at_most)} at most)" if at_most is not None else "")
        for text, at_most in matter.select("text", "at_most_ns").iter_rows()
    ]
    return "; ".join(words)


def records_are_missing(run: RunContext) -> Iterator[Finding]:
    """What makes the trace itself doubtful."""
    for note in [*trust.notes(run.trace), *trust.record_notes(run.trace)]:
        if note.level == "warning" and note.code in _DOUBTS:
            yield Finding(
                run.run, note.code, note.code.replace("-", " "), f"{note.path}: {note.message}",
                at_stake_ns=0, share=0.0, is_doubt=True,
                evidence={"path": note.path, "count": note.count},
            )  # fmt: skip
