"""Generated traces for the conservation laws."""

from __future__ import annotations

from builders import Event, kernel, memcpy, memset, traces
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
