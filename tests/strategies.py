"""Generated traces for the conservation laws."""

from __future__ import annotations

import polars as pl
from builders import Event, annotation, kernel, launch, memcpy, memset, op, python_call, traces
from builders import trace as build
from hypothesis import strategies as st

from traceanalyzer.trace import Trace

NAMES = ("gemm_a", "gemm_b", "void flash_fwd<64>(Params)", "ncclDevKernel_AllReduce", "red|weird`name\n")
GRIDS = (None, (1, 1, 1), (10, 5, 1), (50, 1, 1), (400, 1, 1))


@st.composite
def activity(draw: st.DrawFn) -> Event:
    """One kernel, copy or set on a small board of devices and streams, so that they meet often."""
    at, dur = draw(st.integers(0, 40)), draw(st.integers(0, 15))
    stream, device = draw(st.integers(7, 9)), draw(st.integers(0, 1))
    kind = draw(st.sampled_from(["kernel", "kernel", "kernel", "memcpy", "memset"]))
    if kind == "memcpy":
        return memcpy(at=at, dur=dur, stream=stream, device=device)
    if kind == "memset":
        return memset(at=at, dur=dur, stream=stream, device=device)
    grid = draw(st.sampled_from(GRIDS))
    return kernel(draw(st.sampled_from(NAMES)), at=at, dur=dur, grid=grid, stream=stream, device=device)


def traces_of_ranks(max_ranks: int = 3, max_events: int = 15) -> st.SearchStrategy[Trace]:
    """A run of one to `max_ranks` ranks."""
    events = st.lists(activity(), max_size=max_events)
    return st.lists(events, min_size=1, max_size=max_ranks).map(
        lambda ranks: traces(*(build(events, rank=rank) for rank, events in enumerate(ranks)))
    )


_OPS = ("aten::linear", "aten::addmm", "aten::mm", "aten::copy_")
_FRAMES = ("nn.Module: Linear_0", "nn.Module: Block_1", "model.py(3): forward", "<built-in function linear>")


@st.composite
def _host_tree(draw: st.DrawFn, at: int = 0, length: int = 32, depth: int = 0) -> list[Event]:
    """Spans of one thread that nest: each half of a span may hold further ones."""
    if length < 1 or depth > 4 or not draw(st.booleans()):
        return []
    dur = draw(st.integers(1, length))
    spans: list[Event] = [
        op(draw(st.sampled_from(_OPS)), at=at, dur=dur),
        annotation(draw(st.sampled_from(("ProfilerStep#1", "forward"))), at=at, dur=dur),
        python_call(draw(st.sampled_from(_FRAMES)), at=at, dur=dur),
    ]
    span = draw(st.sampled_from(spans))
    half = dur // 2
    return [
        span,
        *draw(_host_tree(at, half, depth + 1)),
        *draw(_host_tree(at + half, dur - half, depth + 1)),
        *draw(_host_tree(at + dur, length - dur, depth + 1)),
    ]


@st.composite
def _linked_events(draw: st.DrawFn) -> list[Event]:
    """A host thread or two, calls on them, and kernels that may or may not have one."""
    ids = st.sampled_from([None, 0, 1, 2, 3, 4])
    events = [*draw(_host_tree()), *({**event, "tid": 4002} for event in draw(_host_tree()))]
    for number, event in enumerate(events):
        if event["cat"] == "cpu_op":
            numbers = {"External id": number + 1, "Sequence number": draw(st.integers(0, 2))}
            event["args"] |= numbers | {"Fwd thread id": draw(st.integers(0, 1))}
    for _ in range(draw(st.integers(0, 5))):
        name = draw(st.sampled_from(["cudaLaunchKernel", "cuLaunchKernelEx", "cudaGraphLaunch", "hipGraphLaunch"]))
        tid = draw(st.sampled_from([4001, 4002]))
        # A call of no length meets no operator that starts after it.
        events.append(launch(name, at=draw(st.integers(0, 40)), dur=0, correlation=draw(ids), tid=tid))
    for _ in range(draw(st.integers(0, 8))):
        event = draw(activity())
        event["args"] |= {"correlation": draw(ids), "External id": draw(st.integers(0, 9))}
        events.append(event)
    return events


def linked_ranks(max_ranks: int = 2) -> st.SearchStrategy[Trace]:
    """A run of one to `max_ranks` ranks with host spans, launch calls and kernels that share ids."""
    return st.lists(_linked_events(), min_size=1, max_size=max_ranks).map(
        lambda ranks: traces(*(build(events, rank=rank) for rank, events in enumerate(ranks)))
    )


def stretched(recorded: Trace, factor: int) -> Trace:
    """The same trace with all times that much further apart."""
    names = ("kernels", "launches", "ops", "annotations", "python_calls")
    starts = [recorded.scan(name).select(pl.col("start_ns").min()).collect().item() for name in names]
    origin = min((start for start in starts if start is not None), default=0)
    apart = origin + (pl.col("start_ns") - origin) * factor
    tables = {
        name: recorded.table(name).with_columns(start_ns=apart, duration_ns=pl.col("duration_ns") * factor)
        for name in names
    }
    times = [(origin + (pl.col(name) - origin) * factor).alias(name) for name in ("first_ns", "last_ns")]
    return recorded.replace(**tables, ranks=recorded.ranks.with_columns(times))
