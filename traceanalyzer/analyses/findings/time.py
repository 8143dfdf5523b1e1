"""Rules about time as a whole: a device that stands idle, records that are not there."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from traceanalyzer.analyses import trust
from traceanalyzer.analyses.findings.context import RunContext
from traceanalyzer.analyses.findings.finding import Confidence, Finding
from traceanalyzer.analyses.findings.words import each_step, milliseconds, percent
from traceanalyzer.analyses.idle import by_cause, by_host

#: Idle is worth a word from this part of the span on.
IDLE_SHARE = 0.15
#: What the host was busy with is named if it has this part of that time; so many names are in the evidence.
_NAMED, _HOSTS = 0.3, 5
#: Notes that put figures in doubt.
_DOUBTS = ("launch-without-kernel", "impossible-duration", "kernel-before-launch", "duplicate-record")


def device_is_idle(run: RunContext) -> Iterator[Finding]:
    """The devices of the run stand idle for a large part of their span."""
    idle, span = (int(run.devices[name].sum()) for name in ("idle_ns", "span_ns"))
    if not span or idle < IDLE_SHARE * span:
        return
    share = idle / span
    why_doubtful = _inflated(run)
    confidence: Confidence = "low" if why_doubtful else "high"
    causes, hosts = by_cause(run.gaps), by_host(run.gaps)
    text = (
        f"The device does nothing for {percent(share)} of its span ({milliseconds(idle)} of {milliseconds(span)}"
        f"{each_step(run, idle)}): faster kernels would not shorten that part. {_why(run, causes, hosts, idle)}"
    )
    if why_doubtful:
        text += f" It is an upper bound: {why_doubtful}."
    yield Finding(
        run.run, "device-idle", f"the device is idle for {percent(share)} of the time", text,
        at_stake_ns=idle, share=share, confidence=confidence,
        evidence={
            "idle_ns": idle, "span_ns": span, "share": share, "ns_per_step": run.a_step(idle),
            "causes": dict(causes.select("cause", "total_ns").iter_rows()),
            "host": [{"name": name, "total_ns": total} for name, total in
                     hosts.select("host_op", "total_ns").head(_HOSTS).iter_rows()],
            "thresholds": {"idle_share_of_span": IDLE_SHARE},
        },
    )  # fmt: skip


def _why(run: RunContext, causes: pl.DataFrame, hosts: pl.DataFrame, idle: int) -> str:
    """What the host did for most of the idle time."""
    first = causes.row(0, named=True)
    words = f"For {percent(first['share'])} of it {_WORDS[first['cause']]}"
    named = hosts.drop_nulls("host_op").head(1)
    if first["cause"] != "host_busy" or named.is_empty():
        return f"{words}."
    name, total = named.row(0, named=True)["host_op"], int(named["total_ns"][0])
    if total < _NAMED * int(first["total_ns"]):
        return f"{words}."
    return (
        f"{words}, most of it {name} ({milliseconds(total)}{each_step(run, total)}, {percent(total / idle)} of idle)."
    )


_WORDS = {
    "host_busy": "the host ran other code before it launched the next kernel",
    "sync": "the host waited for the device and then had to launch anew",
    "launch_bound": "the host was launching and could not keep the device fed",
    "queued": "the next kernel was launched but did not start yet",
    "comm_wait": "the host waited for other ranks",
    "graph_launch": "the host was inside the launch of a graph",
    "profiler": "the profiler was at work",
    "unknown": "no reason is known: no launch calls were recorded (ProfilerActivity.CPU)",
}


def _inflated(run: RunContext) -> str:
    """Why idle may be of the profiler's making."""
    if run.trace.scan("python_calls").head(1).collect().height:
        return "stacks were recorded (with_stack), which slows the host"
    lost = [note for note in trust.record_notes(run.trace) if note.code == "launch-without-kernel"]
    if any(note.level == "warning" for note in lost):
        return f"{sum(note.count or 0 for note in lost):,} launch calls have no device record"
    return ""


def records_are_missing(run: RunContext) -> Iterator[Finding]:
    """What makes the trace itself doubtful."""
    for note in [*trust.notes(run.trace), *trust.record_notes(run.trace)]:
        if note.level == "warning" and note.code in _DOUBTS:
            yield Finding(
                run.run, note.code, note.code.replace("-", " "), f"{note.path}: {note.message}",
                at_stake_ns=0, share=0.0, is_doubt=True,
                evidence={"path": note.path, "count": note.count},
            )  # fmt: skip
