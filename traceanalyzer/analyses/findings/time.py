"""Rules about time as a whole: a device that stands idle, records that are not there."""

from __future__ import annotations

from collections.abc import Iterator

from traceanalyzer.analyses import trust
from traceanalyzer.analyses.findings.context import RunContext
from traceanalyzer.analyses.findings.finding import Confidence, Finding
from traceanalyzer.analyses.findings.words import each_step, milliseconds, percent

#: Idle is worth a word from this part of the span on.
IDLE_SHARE = 0.15
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
    text = (
        f"The device does nothing for {percent(share)} of its span ({milliseconds(idle)} of {milliseconds(span)}"
        f"{each_step(run, idle)}): faster kernels would not shorten that part."
    )
    if why_doubtful:
        text += f" It is an upper bound: {why_doubtful}."
    yield Finding(
        run.run, "device-idle", f"the device is idle for {percent(share)} of the time", text,
        at_stake_ns=idle, share=share, confidence=confidence,
        evidence={
            "idle_ns": idle, "span_ns": span, "share": share, "ns_per_step": run.a_step(idle),
            "thresholds": {"idle_share_of_span": IDLE_SHARE},
        },
    )  # fmt: skip


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
