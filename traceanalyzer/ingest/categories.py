"""Which table an event belongs to, by its phase and category. Decided by category, never by pid, tid or stream:
profilers put annotations, sync records and stray host events on the GPU's rows."""

from __future__ import annotations

from typing import NamedTuple

from traceanalyzer.schema import DEVICE_KINDS, LAUNCH_KINDS


class Placement(NamedTuple):
    """A table, and which of its kinds (an index into the kinds the table knows; 0 where it knows none)."""

    table: str
    kind: int = 0


_KERNEL, _MEMCPY, _MEMSET = (Placement("kernels", kind) for kind in range(len(DEVICE_KINDS)))
_RUNTIME, _DRIVER = (Placement("launches", kind) for kind in range(len(LAUNCH_KINDS)))
_HOST_RANGE, _DEVICE_RANGE = Placement("annotations", 0), Placement("annotations", 1)

#: Categories of complete events, spelled as Kineto writes them now or wrote them in 2021 (capitals). Other tools use
#: other spellings (CUDA_Runtime) for events of their own form; a producer's rule takes those.
SPAN_CATEGORIES: dict[str, Placement] = {
    "cuda_runtime": _RUNTIME,
    "Runtime": _RUNTIME,
    "hip_runtime": _RUNTIME,
    "xpu_runtime": _RUNTIME,
    "mtia_runtime": _RUNTIME,
    "glow_runtime": _RUNTIME,
    "privateuse1_runtime": _RUNTIME,
    "cuda_driver": _DRIVER,
    "Driver": _DRIVER,
    "xpu_driver": _DRIVER,
    "privateuse1_driver": _DRIVER,
    "cpu_op": Placement("ops"),
    "Operator": Placement("ops"),
    "user_annotation": _HOST_RANGE,
    "gpu_user_annotation": _DEVICE_RANGE,
    "python_function": Placement("python_calls"),
}
#: Device work, whatever the case of its category.
DEVICE_CATEGORIES: dict[str, Placement] = {
    "kernel": _KERNEL,
    "gpu_memcpy": _MEMCPY,
    "memcpy": _MEMCPY,
    "gpu_memset": _MEMSET,
    "memset": _MEMSET,
}
#: Spellings that occur in Kineto's files.
KNOWN_SPELLINGS = (*SPAN_CATEGORIES, "kernel", "Kernel", "gpu_memcpy", "Memcpy", "gpu_memset", "Memset")

FLOW_CATEGORIES = ("ac2g", "fwdbwd", "async", "async_cpu_to_gpu")
FLOW_PHASES = ("s", "t", "f")
#: Phases of which two make a slice: nested pairs of a thread, and the old and new asynchronous ones.
MARK_PHASES = ("B", "E", "b", "e", "S", "F")
INSTANT_PHASES = ("i", "I")
MEMORY_EVENT = "[memory]"
MEMORY_CATEGORY = "cpu_instant_event"


def place_span(category: str | None) -> Placement | None:
    """The table of complete events of a category; None: they are plain slices."""
    if category is None:
        return None
    return SPAN_CATEGORIES.get(category) or DEVICE_CATEGORIES.get(category.lower())


def place(phase: str | None, category: str | None, name: str | None) -> Placement | None:
    """Where an event goes; None for one that is only counted."""
    if phase == "X":
        return place_span(category) or Placement("slices")
    if phase in FLOW_PHASES:
        return Placement("flows", FLOW_PHASES.index(phase))
    if phase == "C" or (name == MEMORY_EVENT and phase in INSTANT_PHASES):
        return Placement("counters")
    if phase in MARK_PHASES:
        return Placement("marks", MARK_PHASES.index(phase))
    return None
