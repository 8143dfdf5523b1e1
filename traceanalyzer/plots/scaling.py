"""How a step grows with the context: the whole and what grows most, measured, fitted, and projected."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from traceanalyzer import formats
from traceanalyzer.choices import PlotFormat
from traceanalyzer.plots import canvas
from traceanalyzer.plots.palette import INK, QUIET_INK

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_WIDTH, _HEIGHT = 11.0, 5.6
#: Parts that have a line, beside the whole.
_MOST = 4
_WHOLE_COLOUR = INK
_COLOURS = ("#d62828", "#f08c00", "#1565c0", "#2a9d4a")
_K = 1024


@canvas.isolated
def draw(rows: pl.DataFrame, contexts: Sequence[int], at: int | None, format: PlotFormat) -> bytes:
    """The picture of the rows of `scaling`: the step, what of it grows, and busy time; dashed where projected."""
    figure = canvas.new_figure(_WIDTH, _HEIGHT)
    axes = figure.subplots()
    canvas.style(axes, x_label="context (tokens)", y_label="ms a step")
    labels: list[tuple[float, str, str]] = []
    for row, colour in _lines(rows):
        labels.append((_draw_line(axes, row, colour, contexts, at), _label(row), colour))
    reach = max([*contexts, at or 0])
    axes.set_xlim(0, reach * 1.02)
    axes.set_ylim(bottom=0)
    ticks = sorted({*contexts, *([at] if at else [])})
    axes.set_xticks(_apart(ticks, reach), [_short(each) for each in _apart(ticks, reach)])
    _place_labels(axes, labels)
    axes.set_title(
        _title(rows), loc="left", fontsize=canvas.size("title"), color=INK, fontweight="bold", pad=26
    )  # fmt: skip
    note = "dots: mean step of a run"
    if at is not None:
        note += f"  ·  dashed: projected to {_short(at)}, shaded: 95 % of the mean, if the curve is right"
    axes.annotate(
        note, (0, 1), xytext=(0, 8), xycoords="axes fraction", textcoords="offset points", va="bottom",
        fontsize=canvas.size("small"), color=QUIET_INK,
    )  # fmt: skip
    return canvas.to_bytes(figure, format)


def _lines(rows: pl.DataFrame) -> list[tuple[dict[str, Any], str]]:
    """The whole step, busy time, and the parts that grow most: what the host did and kernels before causes."""
    whole = rows.filter((pl.col("kind") == "step") & (pl.col("component") == "wall")).row(0, named=True)
    busy = rows.filter((pl.col("kind") == "step") & (pl.col("component") == "busy")).row(0, named=True)
    growing = rows.filter(pl.col("grows") & pl.col("kind").is_in(["host", "kernel"]))
    if growing.is_empty():
        growing = rows.filter(pl.col("grows") & pl.col("kind").is_in(["cause", "class"]))
    parts = growing.sort("slope_ns_per_token", "component", descending=[True, False]).head(_MOST).to_dicts()
    return [(whole, _WHOLE_COLOUR), (busy, QUIET_INK), *zip(parts, _COLOURS, strict=False)]


def _draw_line(axes: Axes, row: dict[str, Any], colour: str, contexts: Sequence[int], at: int | None) -> float:
    """Dots, curve and projection of one part; the height of its right end."""
    means = [row[f"mean_{context}_ns"] / 1e6 for context in contexts]
    axes.plot(contexts, means, "o", color=colour, markersize=6, zorder=4)
    curve = _curve(row, contexts)
    x = np.linspace(contexts[0], contexts[-1], 100)
    axes.plot(x, curve(x), color=colour, linewidth=1.8, zorder=3)
    if at is None:
        return float(curve(np.array([contexts[-1]]))[0])
    beyond = np.linspace(min(contexts[-1], at), max(contexts[-1], at), 60)
    axes.plot(beyond, curve(beyond), color=colour, linewidth=1.5, linestyle=(0, (4, 3)), zorder=3)
    ends = [row[name] for name in ("projected_low_ns", "projected_high_ns")]
    if None not in ends:
        axes.plot(
            [at, at], [end / 1e6 for end in ends], color=colour, linewidth=7, alpha=0.3, solid_capstyle="butt", zorder=2
        )  # fmt: skip
    return float(curve(np.array([max(contexts[-1], at)]))[0])


def _curve(row: dict[str, Any], contexts: Sequence[int]) -> Any:
    """The fit in ms by context: through the means where it is constant, the fitted line or parabola else."""
    intercept, slope = row["intercept_ns"], row["slope_ns_per_token"]
    if row["model"] == "constant":
        return lambda x: np.full(len(x), intercept / 1e6)
    if row["model"] == "linear":
        return lambda x: (intercept + slope * x) / 1e6
    first, last = contexts[0], contexts[-1]
    square = _square(row, contexts)
    middle_slope = slope - square * (first + last)  # the slope between the ends is that of the parabola
    return lambda x: (intercept + middle_slope * x + square * x**2) / 1e6


def _square(row: dict[str, Any], contexts: Sequence[int]) -> float:
    """The quadratic coefficient, from the intercept, the slope between the ends, and the means."""
    x = np.array(contexts, float)
    y = np.array([row[f"mean_{context}_ns"] for context in contexts], float)
    bend = x**2 - x * (x[0] + x[-1])
    rest = y - row["intercept_ns"] - row["slope_ns_per_token"] * x
    return float((bend * rest).sum() / (bend**2).sum())


def _label(row: dict[str, Any]) -> str:
    whole = {"wall": "step", "busy": "GPU busy"} if row["kind"] == "step" else {}
    name = whole.get(row["component"], canvas.name(row["component"], 34))
    per_k = round(row["slope_ns_per_token"] * _K)
    return f"{name}: +{formats.ns(per_k)} each 1k" if row["grows"] else f"{name}: does not grow"


def _place_labels(axes: Axes, labels: list[tuple[float, str, str]]) -> None:
    """Labels right of the lines' ends, moved apart where they would overlap."""
    top = axes.get_ylim()[1]
    apart = top / 18
    at = -apart
    for height, text, colour in sorted(labels):
        at = max(height, at + apart)
        axes.annotate(
            text, (1.01, at), xycoords=("axes fraction", "data"), va="center", fontsize=canvas.size("small"),
            color=colour, annotation_clip=False,
        )  # fmt: skip


def _title(rows: pl.DataFrame) -> str:
    step = rows.filter((pl.col("kind") == "step") & (pl.col("component") == "wall")).row(0, named=True)
    if not step["grows"]:
        return "The step does not grow with the context"
    most = rows.filter(pl.col("grows") & pl.col("kind").is_in(["host", "kernel"])).sort(
        "slope_ns_per_token", "component", descending=[True, False]
    )  # fmt: skip
    if most.is_empty() or not most["share_of_growth"][0]:
        return f"A step grows by {formats.ns(round(step['slope_ns_per_token'] * _K))} each 1k tokens"
    return f"{canvas.name(most['component'][0], 50)} is {formats.share(most['share_of_growth'][0], 0)} of the growth"


def _apart(ticks: list[int], reach: int) -> list[int]:
    """Ticks that have room: none closer than a thirtieth of the width to the next larger one."""
    kept: list[int] = []
    for tick in reversed(ticks):
        if not kept or kept[-1] - tick >= reach / 30:
            kept.append(tick)
    return kept[::-1]


def _short(context: int) -> str:
    return str(context) if context < _K else f"{context / _K:.4g}k"
