"""The colours of all plots: one a class of work, so that a class looks the same in every picture. Light background."""

from __future__ import annotations

#: Classes that do alike work have neighbouring hues; communication is the only red.
CLASS_COLOURS = {
    "attention": "#b5179e",
    "moe": "#7b2cbf",
    "gemm": "#2a9d4a",
    "convolution": "#7cb518",
    "norm": "#00838f",
    "activation": "#26a69a",
    "elementwise": "#4ea8de",
    "reduction": "#1565c0",
    "copy_cast": "#f08c00",
    "quantize": "#b26a00",
    "memory": "#e0b000",
    "embedding": "#5c6bc0",
    "index_sort": "#8f9bd9",
    "sampling": "#7f86b8",
    "optimizer": "#6d4c41",
    "loss": "#a1887f",
    "communication": "#d62828",
    "triton_other": "#9e9e9e",
    "other": "#757575",
}
UNKNOWN_COLOUR = "#bdbdbd"
IDLE_COLOUR = "#e9ecef"

#: Causes of idle are pale, so that work stands out; what is the program's fault is warm.
CAUSE_COLOURS = {
    "host_busy": "#ffd9a8",
    "sync": "#fff0b3",
    "launch_bound": "#f7d6e6",
    "queued": "#e9ecef",
    "comm_wait": "#ffc9c9",
    "graph_launch": "#e5dbff",
    "allocation": "#ffc078",
    "profiler": "#d3f9d8",
    "unknown": "#c9ced3",
}

INK, QUIET_INK, GRID_INK = "#212529", "#6c757d", "#dee2e6"
WARNING, WARNING_GROUND = "#c1121f", "#fdecea"
GROUND = "#ffffff"


def colour_of(kernel_class: str | None) -> str:
    """The colour of a class of work; a grey for one that is unknown."""
    return CLASS_COLOURS.get(kernel_class or "", UNKNOWN_COLOUR)
