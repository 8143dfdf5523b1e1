"""Ranks side by side: who is behind in which step, and the collective that cost most, close up on one clock."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from traceanalyzer.analyses.ranks import Imbalance
from traceanalyzer.analyses.ranks.closeup import Closeup, Lane
from traceanalyzer.analyses.ranks.sentences import who
from traceanalyzer.choices import PlotFormat
from traceanalyzer.errors import UsageError
from traceanalyzer.plots import canvas
from traceanalyzer.plots.palette import GRID_INK, GROUND, IDLE_COLOUR, INK, QUIET_INK, WARNING, colour_of
from traceanalyzer.text import middle

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_WIDTH = 13.0
_HEAD, _ROW, _TALLEST_MAP, _LOWEST_MAP = 1.5, 0.24, 6.0, 1.4
_LANE, _LANES_HEAD = 0.46, 1.7
#: Labels of ranks beside the map.
_MOST_LABELS = 24
#: What is narrower than this part of the picture has no name in it.
_NAMED = 0.05
#: ns that a time may differ from itself when its clock was moved.
_ROUNDED = 2
#: Classes in the legend.
_MOST_CLASSES, _LEGEND_COLUMNS = 9, 6


@canvas.isolated
def draw(found: Imbalance, closeup: Closeup | None, format: PlotFormat) -> bytes:
    """The picture of one run: of the one that `closeup` is of, else the first.

    Raises `UsageError` where it has one device.
    """
    run = closeup.run if closeup else found.ranks["run"].first()
    steps = found.steps.filter(pl.col("run") == run)
    ranks = steps.select("rank", "device").unique(maintain_order=True)
    if ranks.height < 2:
        raise UsageError("there is one device and nothing to compare it with, so there is nothing to draw")
    tall = min(max(_ROW * ranks.height, _LOWEST_MAP), _TALLEST_MAP)
    heights = [tall + _HEAD] + ([_LANE * len(closeup.lanes) + _LANES_HEAD] if closeup else [])
    figure = canvas.new_figure(_WIDTH, sum(heights))
    panels = figure.subplots(len(heights), 1, squeeze=False, height_ratios=heights)[:, 0]
    _draw_map(figure, panels[0], steps, found.culprits.filter(pl.col("run") == run), str(run))
    if closeup:
        _draw_closeup(panels[1], closeup)
    return canvas.to_bytes(figure, format)


def _draw_map(figure: Figure, axes: Axes, steps: pl.DataFrame, culprits: pl.DataFrame, run: str) -> None:
    """A row for each rank, a column for each step (one for all where there are no steps)."""
    from matplotlib.colors import LinearSegmentedColormap

    ranks = steps.select("rank", "device").unique(maintain_order=True)
    columns = steps["step"].drop_nulls().unique().sort().to_list() or [None]
    values = np.full((ranks.height, len(columns)), np.nan)
    rows = {key: at for at, key in enumerate(ranks.iter_rows())}
    places = {step: at for at, step in enumerate(columns)}
    for rank, device, step, behind in steps.select("rank", "device", "step", "own_behind_ns").iter_rows():
        if step in places and behind is not None:
            values[rows[rank, device], places[step]] = behind / 1e6
    inks = [GROUND, "#ffd9a8", "#f08c00", WARNING, "#5c0011"]
    colours = LinearSegmentedColormap.from_list("behind", inks).with_extremes(bad=IDLE_COLOUR)
    top = float(np.nanmax(values)) if np.isfinite(values).any() else 0.0
    image = axes.imshow(
        np.ma.masked_invalid(values), aspect="auto", cmap=colours, vmin=0, vmax=top or 1.0, interpolation="nearest"
    )
    for side in axes.spines.values():
        side.set_color(GRID_INK)
    axes.tick_params(labelsize=canvas.size("small"), colors=QUIET_INK, length=0)
    _label_ranks(axes, ranks, culprits)
    if columns == [None]:
        axes.set_xticks([])
    else:
        every = -(-len(columns) // 25)
        at = range(0, len(columns), every)
        axes.set_xticks(at, [str(columns[each]) for each in at])
        axes.set_xlabel("step", fontsize=canvas.size("text"), color=INK)
    bar = figure.colorbar(image, ax=axes, pad=0.01, fraction=0.03)
    bar.set_label("ms behind the middle rank", fontsize=canvas.size("small"), color=INK)
    bar.ax.tick_params(labelsize=canvas.size("small"), colors=QUIET_INK, length=0)
    bar.outline.set_visible(False)
    axes.set_title(
        f"{middle(run, 50)}: {_title(culprits)}", loc="left", fontsize=canvas.size("title"), color=INK,
        fontweight="bold", pad=10,
    )  # fmt: skip


def _label_ranks(axes: Axes, ranks: pl.DataFrame, culprits: pl.DataFrame) -> None:
    """Names of so many ranks as fit, of those that are slow in any case."""
    keys = ranks.rows()
    slow = {keys.index(key) for key in culprits.select("rank", "device").rows() if key in keys}
    every = -(-len(keys) // _MOST_LABELS)
    near = {at + off for at in slow for off in range(-(every // 2), every // 2 + 1)}
    shown = sorted((set(range(0, len(keys), every)) - near) | slow)
    axes.set_yticks(shown, [who(*keys[at]) for at in shown])
    for at, text in zip(shown, axes.get_yticklabels(), strict=True):
        if at in slow:
            text.set_color(WARNING)
            text.set_fontweight("bold")


def _title(culprits: pl.DataFrame) -> str:
    if culprits.is_empty():
        return "no rank is late beyond chance"
    names = [who(*each) for each in culprits.select("rank", "device").head(3).iter_rows()]
    more = culprits.height - len(names)
    verb = "comes" if culprits.height == 1 else "come"
    return f"{', '.join(names)}{f' and {more} more' if more else ''} {verb} late to collectives"


def _draw_closeup(axes: Axes, what: Closeup) -> None:
    for number, lane in enumerate(what.lanes):
        _draw_lane(axes, what, number, lane)
    axes.axvline(0, color=WARNING, linewidth=1.4)
    axes.set_xlim(what.from_ns / 1e3, what.until_ns / 1e3)
    axes.set_ylim(len(what.lanes) - 0.4, -0.6)
    canvas.style(axes, x_label="µs after the last rank came, on one clock", y_label="")
    axes.set_yticks(range(len(what.lanes)), [who(lane.rank, lane.device) for lane in what.lanes])
    text = axes.get_yticklabels()[what.last]
    text.set_color(WARNING)
    text.set_fontweight("bold")
    axes.grid(visible=False, axis="y")
    last = what.lanes[what.last]
    where = "" if what.step is None else f", step {what.step}"
    hidden = f"; {what.left_out:,} ranks not shown" if what.left_out else ""
    axes.set_title(
        f"The collective that cost most: {middle(what.name, 40)} no. {what.index} of group {middle(what.group, 40)}"
        f"{where}",
        loc="left", fontsize=canvas.size("text") + 1, color=INK, fontweight="bold", pad=24,
    )  # fmt: skip
    axes.annotate(
        f"the others wait {what.wait_ns / 1e6:,.3g} ms in all for {who(last.rank, last.device)} (hatched){hidden}",
        (0, 1), xytext=(0, 8), xycoords="axes fraction", textcoords="offset points", fontsize=canvas.size("small"),
        color=QUIET_INK,
    )  # fmt: skip
    _legend(axes, what)


def _draw_lane(axes: Axes, what: Closeup, number: int, lane: Lane) -> None:
    span = (what.until_ns - what.from_ns) / 1e3
    near = (pl.col("start_ns") - lane.start_ns).abs() <= _ROUNDED
    own = near & (pl.col("class") == "communication")
    for name, kind, start, end, is_own in lane.kernels.with_columns(own=own).select(
        "name", "class", "start_ns", "end_ns", "own"
    ).iter_rows():  # fmt: skip
        since, until = max(start, what.from_ns) / 1e3, min(end, what.until_ns) / 1e3
        if until <= since:
            continue
        axes.broken_barh(
            [(since, until - since)], (number - 0.34, 0.68), facecolors=colour_of(kind), alpha=0.45 if is_own else 1.0,
            edgecolors=GROUND, linewidth=0.4,
        )  # fmt: skip
        if until - since >= _NAMED * span and kind != "communication":
            axes.text(
                (since + until) / 2, number, middle(name, max(int((until - since) / span * 150), 5)), ha="center",
                va="center", fontsize=canvas.size("small") - 1, color=GROUND, clip_on=True,
            )  # fmt: skip
    if lane.start_ns < 0:
        axes.broken_barh(
            [(lane.start_ns / 1e3, -lane.start_ns / 1e3)], (number - 0.34, 0.68), facecolors="none",
            edgecolors=colour_of("communication"), hatch="////", linewidth=0,
        )  # fmt: skip
    if lane.end_ns > 0:
        axes.broken_barh(
            [(0, lane.end_ns / 1e3)], (number - 0.34, 0.68), facecolors=colour_of("communication"), linewidth=0
        )


def _legend(axes: Axes, what: Closeup) -> None:
    from matplotlib.patches import Patch

    times = pl.concat([lane.kernels for lane in what.lanes]).group_by("class").agg(
        (pl.col("end_ns") - pl.col("start_ns")).sum().alias("total_ns")
    )  # fmt: skip
    names = times.sort("total_ns", "class", descending=[True, False])["class"].drop_nulls().to_list()
    others = [name for name in names if name != "communication"][:_MOST_CLASSES]
    red = colour_of("communication")
    patches = [
        Patch(facecolor=GROUND, edgecolor=red, hatch="////", linewidth=0, label="wait"),
        Patch(facecolor=red, label="transfer"),
        *(Patch(facecolor=colour_of(name), label=name) for name in others),
    ]
    axes.legend(
        handles=patches, loc="upper center", bbox_to_anchor=(0.5, -0.55 / len(what.lanes) - 0.06),
        ncols=_LEGEND_COLUMNS, frameon=False, fontsize=canvas.size("small"), labelcolor=INK,
    )  # fmt: skip
