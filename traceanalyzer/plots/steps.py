"""Steps side by side: what each consists of, busy time by class and idle time by cause."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import polars as pl

from traceanalyzer import formats
from traceanalyzer.analyses.idle import CAUSES
from traceanalyzer.choices import PlotFormat
from traceanalyzer.classify.rules import CLASSES
from traceanalyzer.errors import UsageError
from traceanalyzer.plots import canvas
from traceanalyzer.plots.palette import CAUSE_COLOURS, GRID_INK, INK, QUIET_INK, colour_of
from traceanalyzer.text import counted

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

_WIDTH, _HEAD = 13.0, 1.4
#: Height of a panel, of a few devices and of many.
_TALL, _LOW, _FEW = 2.5, 1.5, 3
#: More devices than this are not drawn; how many are left out is said.
_MOST_DEVICES = 8
#: Up to so many steps bars have a gap between them. More are one outline: drawing bar by bar would take minutes.
_APART = 150
#: Labels of odd steps on a device, the longest steps first: more would cover each other.
_MOST_LABELS = 30
#: A step this much longer than the 95th percentile is cut, so that the others can be seen.
_CUT = 3.0
_KEY = ["path", "device"]


@canvas.isolated
def draw(rows: pl.DataFrame, parts: pl.DataFrame, format: PlotFormat) -> bytes:
    """The picture of the rows of `steps` and of `step_time`: a panel a device, a bar a step.

    Raises `UsageError` where there are no steps.
    """
    steps = rows.filter(pl.col("kind") != "outside")
    if steps.is_empty():
        raise UsageError("no steps found, so there is nothing to draw")
    devices = steps.select("run", "rank", *_KEY).unique(maintain_order=True)
    shown = devices.head(_MOST_DEVICES)
    figure = canvas.new_figure(_WIDTH, shown.height * (_TALL if shown.height <= _FEW else _LOW) + _HEAD)
    panels = figure.subplots(shown.height, 1, squeeze=False, sharex=True, sharey=True)[:, 0]
    top = _highest(steps)
    for axes, device in zip(panels, shown.iter_rows(named=True), strict=True):
        same = (pl.col("path") == device["path"]) & pl.col("device").eq_missing(device["device"])
        _draw_device(axes, device, steps.filter(same), parts.filter(same), top)
    panels[-1].set_xlabel("step", fontsize=canvas.size("text"), color=INK)
    panels[0].set_title(
        _title(steps, parts), loc="left", fontsize=canvas.size("title"), color=INK, fontweight="bold", pad=28
    )  # fmt: skip
    panels[0].annotate(
        _below(steps, devices.height - shown.height), (0, 1), xytext=(0, 10), xycoords="axes fraction",
        textcoords="offset points", va="bottom", fontsize=canvas.size("small"), color=QUIET_INK,
    )  # fmt: skip
    _legend(figure, parts)
    return canvas.to_bytes(figure, format)


def _highest(steps: pl.DataFrame) -> float:
    """The top of the axis in ms: the longest step, unless a few are far longer than all others."""
    wall = steps["wall_ns"].to_numpy() / 1e6
    usual = float(np.quantile(wall, 0.95))
    longest = float(wall.max())
    return (longest if longest <= _CUT * usual else _CUT * usual) * 1.08 or 1.0


def _draw_device(axes: Axes, device: dict[str, Any], steps: pl.DataFrame, parts: pl.DataFrame, top: float) -> None:
    from matplotlib.ticker import MaxNLocator

    canvas.style(axes, x_label="", y_label=f"{_name(device)}\nms")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.yaxis.set_major_locator(MaxNLocator(5))
    number = steps["step"].to_numpy().astype(np.int64)
    place = {int(step): at for at, step in enumerate(number)}
    floor = np.zeros(len(number))
    for name, colour in _stacked(parts):
        own = parts.filter(_part() == name).group_by("step").agg(pl.col("total_ns").sum())
        heights = np.zeros(len(number))
        heights[[place[int(step)] for step in own["step"]]] = own["total_ns"].to_numpy() / 1e6
        _draw_part(axes, number, floor, heights, colour)
        floor = floor + heights
    _label_odd_steps(axes, steps, top)
    axes.set_ylim(0, top)
    axes.set_xlim(float(number.min()) - 0.6, float(number.max()) + 0.6)
    axes.grid(visible=False, axis="x")


def _draw_part(axes: Axes, number: Ints, floor: Floats, heights: Floats, colour: str) -> None:
    """A part of every step, from `floor` on: as bars, or as what lies between two outlines."""
    if len(number) <= _APART:
        axes.bar(
            number, heights, bottom=floor, width=0.86, color=colour, edgecolor=GRID_INK, linewidth=0.3, zorder=3
        )  # fmt: skip
        return
    first = int(number.min())
    below, above = np.zeros((2, int(number.max()) - first + 2))  # a step without activity is a gap
    below[number - first], above[number - first] = floor, floor + heights
    edges = np.arange(len(below)) + first - 0.5
    axes.fill_between(edges, below, above, step="post", color=colour, linewidth=0, zorder=3)


def _label_odd_steps(axes: Axes, steps: pl.DataFrame, top: float) -> None:
    """The mark of a step above its bar, or its time where the bar is cut."""
    odd = steps.filter(pl.col("mark").is_not_null() | (pl.col("wall_ns") > top * 1e6))
    for row in odd.sort("wall_ns", "step", descending=[True, False]).head(_MOST_LABELS).iter_rows(named=True):
        wall = row["wall_ns"] / 1e6
        axes.text(
            row["step"], min(wall, top * 0.93), f"{wall:,.3g} ms" if wall > top else row["mark"], ha="center",
            va="bottom", fontsize=canvas.size("small") - 2, color=INK, rotation=90 if steps.height > 30 else 0,
            zorder=5,
        )  # fmt: skip


def _part() -> pl.Expr:
    """What a part is drawn as: `idle:<cause>`, or its class."""
    return pl.when(pl.col("state") == "idle").then(pl.lit("idle:") + pl.col("cause")).otherwise(
        pl.coalesce("class", pl.lit("unknown"))
    )  # fmt: skip


def _stacked(parts: pl.DataFrame) -> list[tuple[str, str]]:
    """Names and colours from below: classes, then causes of idle."""
    there = set(parts.select(_part().alias("name")).unique()["name"])
    classes = [(name, colour_of(name)) for name in (*CLASSES, "unknown") if name in there]
    causes = [(f"idle:{cause}", CAUSE_COLOURS[cause]) for cause in CAUSES if f"idle:{cause}" in there]
    return [*classes, *causes]


def _name(device: dict[str, Any]) -> str:
    rank = "rank ?" if device["rank"] is None else f"rank {device['rank']}"
    return f"{rank}, GPU {canvas.name(device['device'], 8)}"


def _title(steps: pl.DataFrame, parts: pl.DataFrame) -> str:
    """Of the steps without a mark, where there are any, as in the table."""
    plain = steps.filter(pl.col("mark").is_null())
    steps = plain if plain.height else steps
    parts = parts.join(steps.select(*_KEY, "step"), on=[*_KEY, "step"], how="semi", nulls_equal=True)
    middle_ns = round(float(steps["wall_ns"].median() or 0))  # type: ignore[arg-type]
    total = int(parts["total_ns"].sum()) or 1
    sums = parts.group_by(_part().alias("name")).agg(pl.col("total_ns").sum()).sort(
        "total_ns", "name", descending=[True, False]
    )  # fmt: skip
    if sums.is_empty():
        return f"A step takes {formats.ns(middle_ns)}"
    name, amount = sums.row(0)
    what = name.replace("idle:", "idle, ")
    hosts = parts.drop_nulls("host_op").group_by("host_op").agg(pl.col("total_ns").sum()).sort(
        "total_ns", "host_op", descending=[True, False]
    )  # fmt: skip
    if name == "idle:host_busy" and hosts.height and hosts["total_ns"][0] > amount / 2:
        what, amount = f"idle behind {canvas.name(hosts['host_op'][0], 40)}", hosts["total_ns"][0]
    return f"A step takes {formats.ns(middle_ns)}; {formats.share(amount / total, 0)} is {what}"


def _below(steps: pl.DataFrame, left_out: int) -> str:
    kinds = steps.group_by("kind", maintain_order=True).agg(pl.col("step").n_unique()).rows()
    words = [
        canvas.runs(steps),
        ", ".join(f"{count} {kind if kind != 'step' else ''}".strip() + " steps" for kind, count in kinds),
        "busy by class from below, idle by cause above",
        f"{counted(left_out, 'more device')} not drawn" if left_out else "",
    ]
    return "  ·  ".join(filter(None, words))


def _legend(figure: Any, parts: pl.DataFrame) -> None:
    from matplotlib.patches import Patch

    total = int(parts["total_ns"].sum()) or 1
    sums = dict(parts.group_by(_part().alias("name")).agg(pl.col("total_ns").sum()).iter_rows())
    entries = [
        Patch(
            facecolor=colour, edgecolor=GRID_INK,
            label=f"{name.replace(':', ': ')}  {formats.share(sums[name] / total)}",
        )
        for name, colour in _stacked(parts)
        if sums[name] / total >= 0.0005
    ]  # fmt: skip
    figure.legend(
        handles=entries[::-1], loc="outside right upper", frameon=False, fontsize=canvas.size("small"),
        title="of all steps", alignment="left",
    )  # fmt: skip
