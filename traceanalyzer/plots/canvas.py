"""Figures without a display and without global state: made, styled and turned into bytes. matplotlib is imported here,
and here only when a plot is drawn."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from traceanalyzer.choices import PlotFormat
from traceanalyzer.plots.palette import GRID_INK, GROUND, INK, QUIET_INK

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Of a PNG; a width of 11 inches fills a usual screen.
_DPI = 150
_SIZES = {"title": 13, "text": 10, "small": 9}


def new_figure(width: float, height: float) -> Figure:
    """An empty figure, in inches."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=_DPI, facecolor=GROUND, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def size(what: str) -> int:
    """The font size, in points, of a title, text or small print."""
    return _SIZES[what]


def style(axes: Axes, *, x_label: str, y_label: str) -> None:
    """Quiet axes: no box, thin grid behind everything, labels in ink."""
    axes.set_xlabel(x_label, fontsize=size("text"), color=INK)
    axes.set_ylabel(y_label, fontsize=size("text"), color=INK)
    axes.tick_params(labelsize=size("small"), colors=QUIET_INK, length=0)
    axes.grid(visible=True, color=GRID_INK, linewidth=0.8)
    axes.set_axisbelow(True)
    for side in axes.spines.values():
        side.set_visible(False)


def to_bytes(figure: Figure, format: PlotFormat) -> bytes:
    """The picture; the same figure gives the same bytes."""
    import matplotlib as mpl

    content = io.BytesIO()
    metadata = {"Date": None} if format == "svg" else {"Software": None}
    with mpl.rc_context({"svg.hashsalt": "traceanalyzer", "svg.fonttype": "path"}):
        figure.savefig(content, format=format, metadata=metadata, facecolor=GROUND)
    return content.getvalue()
