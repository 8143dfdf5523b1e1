"""Figures without a display and without global state: made, styled and turned into bytes.

matplotlib is imported inside functions only, when a plot is drawn. Names in a picture are those of a trace, so they
may hold anything: a dollar sign is no formula, and a sign that the font lacks is a box and no warning. A user's own
settings of matplotlib change nothing.
"""

from __future__ import annotations

import functools
import io
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ParamSpec

import polars as pl

from traceanalyzer.choices import PlotFormat
from traceanalyzer.errors import UsageError
from traceanalyzer.plots.palette import GRID_INK, GROUND, INK, QUIET_INK
from traceanalyzer.text import listed, middle, visible

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_Arguments = ParamSpec("_Arguments")

#: Of a PNG; a width of 11 inches fills a usual screen.
_DPI = 150
_TALLEST = 30_000  # pixels; what is taller few programs show, and from 2**16 on none is drawn
_SETTINGS: tuple[tuple[Any, Any], ...] = (
    ("text.parse_math", False),
    ("svg.hashsalt", "traceanalyzer"),
    ("svg.fonttype", "path"),
)
_SIZES = {"title": 13, "text": 10, "small": 9}


def isolated(draw: Callable[_Arguments, bytes]) -> Callable[_Arguments, bytes]:
    """A function that draws, with settings of its own, whatever those of the user or of the program around it are."""

    @functools.wraps(draw)
    def drawn(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> bytes:
        import matplotlib as mpl

        with mpl.rc_context(), warnings.catch_warnings():
            mpl.rcdefaults()
            for name, value in _SETTINGS:
                mpl.rcParams[name] = value
            warnings.filterwarnings("ignore", message=r"Glyph \d+ .* missing from")
            return draw(*args, **kwargs)

    return drawn


def new_figure(width: float, height: float) -> Figure:
    """An empty figure, in inches. Raises `UsageError` where it would be taller than programs show."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    if height * _DPI > _TALLEST:
        raise UsageError(f"the picture would be {height * _DPI:,.0f} pixels tall; choose fewer runs with --run")
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


def name(text: object, width: int) -> str:
    """A name of a trace in one line of at most so many letters."""
    return middle(visible(str(text)), width)


def runs(rows: pl.DataFrame) -> str:
    """The names of the runs that the rows are of, in one line."""
    return listed([name(each, 40) for each in rows["run"].unique(maintain_order=True)], at_most=3)


def to_bytes(figure: Figure, format: PlotFormat) -> bytes:
    """The picture; the same figure gives the same bytes."""
    content = io.BytesIO()
    metadata = {"Date": None} if format == "svg" else {"Software": None}
    figure.savefig(content, format=format, metadata=metadata, facecolor=GROUND)
    return content.getvalue()
