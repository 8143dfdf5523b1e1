"""Hypothesis strategies for the events of a trace file, the odd ones included."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

#: Names that have fooled splitters, and ordinary ones.
NAMES = st.sampled_from([
    "gemm", "void k<1, 2>(int)", '}, {"ph": "X", "cat": "kernel"}, ]}', "ends with backslash \\", 'quote " inside',
    "},\n  {\n    \"ph\": \"X\"", "]", "naïve_μ", "tab\there", '{"device": "cuda", "x": [1,2]}', "", "[memory]",
])  # fmt: skip
_LABELS = st.one_of(st.integers(0, 9), st.sampled_from(["7", "stream 7", "Spans", "", "0x55d0"]))
_IDS = st.one_of(st.integers(0, 50), st.sampled_from([-1, 0, 2**40, "12"]))


def _microseconds(most: int) -> st.SearchStrategy[Any]:
    exact = st.integers(1, most).map(lambda ns: Decimal(ns) / 1000)
    whole = st.integers(1, most // 1000 + 1)
    finer = st.integers(1, most * 1000).map(lambda ps: Decimal(ps) / 1_000_000)
    return st.one_of(exact, exact, exact, whole, finer, exact.map(str))


_GPU_ARGS = st.fixed_dictionaries({}, optional={
    "device": _LABELS, "stream": _LABELS, "correlation": _IDS, "External id": _IDS, "external id": _IDS,
    "grid": st.sampled_from([[1, 2, 3], [64, 1, 1], "odd", [1]]), "block": st.just([128, 1, 1]),
    "registers per thread": st.integers(0, 255), "shared memory": st.sampled_from([0, 49152, "1024"]),
    "blocks per SM": st.sampled_from([0.5, 3, Decimal("1.25")]), "bytes": st.sampled_from([4, 2**33]),
    "Collective name": st.sampled_from(["allreduce", "send"]), "Seq": st.integers(0, 5), "Group size": st.just(8),
    "Process Group Ranks": st.sampled_from(["[0, 1]", [0, 1]]), "In msg nelems": st.integers(0, 9),
    "graph node id": st.sampled_from([0, 5, 2**63 - 1]),
})  # fmt: skip
_HOST_ARGS = st.fixed_dictionaries({}, optional={
    "External id": _IDS, "correlation": _IDS, "Input Dims": st.sampled_from([[[4, 5], []], "[[4, 5], []]", []]),
    "Input type": st.just(["float", ""]), "Sequence number": st.sampled_from([-1, 3]), "Python id": st.integers(0, 9),
    "Python parent id": st.sampled_from([None, 1]), "Python module id": st.integers(0, 3), "Ev Idx": st.integers(0, 9),
    "Collective name": st.just("broadcast"), "dtype": st.just("Float"),
    "Process Group Name": st.sampled_from([0, "0"]),
})  # fmt: skip
_GPU_CATS = st.sampled_from(["kernel", "gpu_memcpy", "gpu_memset", "Kernel", "Memcpy", "gpu_user_annotation"])
_HOST_CATS = st.sampled_from([
    "cpu_op", "cuda_runtime", "cuda_driver", "user_annotation", "python_function", "Operator", "Runtime", "overhead",
    "hip_runtime", "something new", None,
])  # fmt: skip
_FREE_ARGS = st.dictionaries(st.sampled_from(["a", "Bytes", "Total Allocated", "Device Type", "Device Id"]),
                             st.sampled_from([1, 0, Decimal("2.5"), "3", "x", None, [1, {"b": Decimal("0.1")}]])
)  # fmt: skip


def _event(most: int) -> st.SearchStrategy[Any]:
    times = {"ts": _microseconds(most), "pid": _LABELS, "tid": _LABELS, "name": NAMES}
    span = {**times, "ph": st.just("X"), "dur": _microseconds(10**8)}
    gpu = st.fixed_dictionaries({**span, "cat": _GPU_CATS, "args": _GPU_ARGS})
    host = st.fixed_dictionaries({**span, "cat": _HOST_CATS}, optional={"args": _HOST_ARGS})
    flow = st.fixed_dictionaries(
        {**times, "ph": st.sampled_from("stf"), "id": _IDS, "cat": st.sampled_from(["ac2g", "x"])}
    )
    point = {**times, "ph": st.sampled_from(["C", "i"]), "cat": st.sampled_from(["cpu_instant_event", "c"])}
    counter = st.fixed_dictionaries({**point, "args": _FREE_ARGS}, optional={"id": st.integers(0, 3)})
    mark = st.fixed_dictionaries(
        {**times, "ph": st.sampled_from("BEbeSF"), "cat": st.just("m")},
        optional={"args": _FREE_ARGS, "id": st.integers(0, 2)},
    )
    odd = st.sampled_from([{}, 5, None, "x", {"ph": 3}, {"ph": "X"}, {"ph": "X", "ts": 1},
                           {"ph": "X", "ts": 1, "dur": -2},
                           {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "python"}},
                           {"ph": "i", "name": "Record Window End", "pid": "", "tid": "", "ts": 1},
                           {"ph": "X", "cat": "kernel", "name": "lost", "ts": 0, "dur": 0}])  # fmt: skip
    return st.one_of(gpu, gpu, host, host, host, flow, counter, mark, odd).map(_without_nulls)


def _without_nulls(event: Any) -> Any:
    return {k: v for k, v in event.items() if v is not None} if isinstance(event, dict) else event


def events(most_us: int = 7_900_000_000_000) -> st.SearchStrategy[list[Any]]:
    """Lists of events: times as Kineto writes them now (below 2^43 µs), or absolute ones since 1970."""
    absolute = 1_790_000_000_000_000_000
    small, large = 10**12, most_us * 1000
    return st.sampled_from([small, large, absolute]).flatmap(lambda most: st.lists(_event(most), max_size=25))
