"""Occupancy against SM fill: one dot a kernel, its area the time it took.

What matters is to the left: a kernel that takes long and fills few SMs. It is drawn solid and named in the title; all
others are pale.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

from traceanalyzer import formats
from traceanalyzer.choices import PlotFormat
from traceanalyzer.plots import canvas
from traceanalyzer.plots.palette import (
    GROUND,
    INK,
    QUIET_INK,
    WARNING,
    WARNING_GROUND,
    colour_of,
)
from traceanalyzer.plots.placing import Anchor, Box, place
from traceanalyzer.text import middle, visible

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: A kernel stands out where it fills less of the SMs than this and takes at least that share of the kernel time.
LOW_FILL, LARGE_SHARE = 0.5, 0.05
#: Dots nearer to each other than this, on both axes, have one label.
_TOGETHER = 0.03
_MOST_LABELS, _LONGEST_LABEL, _LONGEST_IN_TITLE, _LEAST_LABELLED = 10, 40, 36, 0.003
#: Area in points² of a dot of the whole kernel time; no dot is smaller than the least.
_WHOLE_AREA, _LEAST_AREA = 5200.0, 14.0
#: Where dots of unknown occupancy stand.
_UNKNOWN_AT = -0.12
#: Of a panel, in inches; lower where it is a single strip, since occupancy is unknown of all.
_WIDTH, _HEIGHT, _STRIP_HEIGHT = 11.0, 6.6, 3.6


@dataclass(frozen=True, slots=True)
class _Dot:
    name: str
    kernel_class: str | None
    share: float
    fill: float
    occupancy: float | None
    standing_out: bool

    @property
    def y(self) -> float:
        return _UNKNOWN_AT if self.occupancy is None else self.occupancy

    @property
    def area(self) -> float:
        return max(self.share * _WHOLE_AREA, _LEAST_AREA)


@canvas.isolated
def draw(rows: pl.DataFrame, format: PlotFormat, *, devices: dict[str, str] | None = None) -> bytes:
    """The picture of `occupancy(by="kernel")`, one panel a run; `devices` says what each run ran on.

    Kernels whose SM fill is unknown are not drawn; how much of the time they took is said.
    """
    runs = rows["run"].unique(maintain_order=True).to_list() or [""]
    heights = [_height(_dots(rows.filter(pl.col("run") == run))) for run in runs]
    figure = canvas.new_figure(_WIDTH, sum(heights))
    panels = figure.subplots(len(runs), 1, squeeze=False, height_ratios=heights)[:, 0]
    for axes, run in zip(panels, runs, strict=True):
        _prepare(axes, rows.filter(pl.col("run") == run), run, (devices or {}).get(run, ""))
    figure.draw_without_rendering()  # labels are placed where the layout puts the axes
    figure.set_layout_engine("none")
    for axes, run in zip(panels, runs, strict=True):
        _label(axes, _dots(rows.filter(pl.col("run") == run)))
    return canvas.to_bytes(figure, format)


def _dots(rows: pl.DataFrame) -> list[_Dot]:
    """The kernels that can be drawn, the longest-running first."""
    known = rows.drop_nulls("sm_fill").sort("total_ns", "kernel", descending=[True, False])
    return [
        _Dot(
            name=visible(row["short_name"] or ""),
            kernel_class=row["class"],
            share=row["share_of_kernel_time"] or 0.0,
            fill=row["sm_fill"],
            occupancy=row["theoretical_occupancy"],
            standing_out=row["sm_fill"] < LOW_FILL
            and (row["share_of_kernel_time"] or 0.0) >= LARGE_SHARE
            and row["class"] != "communication",  # collectives are meant to run on few SMs
        )
        for row in known.iter_rows(named=True)
    ]


def _height(dots: Sequence[_Dot]) -> float:
    return _STRIP_HEIGHT if dots and all(dot.occupancy is None for dot in dots) else _HEIGHT


def _prepare(axes: Axes, rows: pl.DataFrame, run: str, device: str) -> None:
    """Everything but the labels of the dots."""
    dots = _dots(rows)
    canvas.style(axes, x_label="SM fill: blocks / SMs, at most 1", y_label="theoretical occupancy")
    unknown = any(dot.occupancy is None for dot in dots)
    axes.set_xlim(-0.04, 1.08)
    top = -0.02 if _height(dots) == _STRIP_HEIGHT else 1.1
    axes.set_ylim(-0.22 if unknown else -0.06, top)
    ticks = [0, 0.25, 0.5, 0.75, 1]
    axes.set_xticks(ticks, [f"{tick:.0%}" for tick in ticks])
    levels = {_UNKNOWN_AT: "unknown"} if unknown else {}
    levels |= {tick: f"{tick:.0%}" for tick in ticks if tick <= top}
    axes.set_yticks([*levels], [*levels.values()])
    axes.axvspan(-0.04, LOW_FILL, color=WARNING_GROUND, zorder=0, linewidth=0)
    axes.text(
        LOW_FILL - 0.008, 0.985, f"fills less than {LOW_FILL:.0%} of the SMs", ha="right", va="top", color=WARNING,
        fontsize=canvas.size("small"), transform=axes.get_xaxis_transform(),
    )  # fmt: skip
    for dot in dots:  # the largest first, so that it hides no other
        axes.scatter(
            dot.fill, dot.y, s=dot.area, color=colour_of(dot.kernel_class), alpha=0.95 if dot.standing_out else 0.45,
            edgecolors=INK if dot.standing_out else GROUND, linewidths=1.4 if dot.standing_out else 0.6,
            zorder=4 if dot.standing_out else 3, clip_on=False,
        )  # fmt: skip
    axes.set_title(_title(dots), loc="left", fontsize=canvas.size("title"), color=INK, fontweight="bold", pad=26)
    below = "  ·  ".join(
        filter(None, (visible(run), device, "one dot a kernel, its area the time it took", _not_drawn(rows)))
    )
    axes.text(0, 1.015, below, transform=axes.transAxes, fontsize=canvas.size("small"), color=QUIET_INK, va="bottom")
    _legend(axes, dots)


def _title(dots: Sequence[_Dot]) -> str:
    if not dots:
        return "SM fill of no kernel is known"
    worst = next((dot for dot in dots if dot.standing_out), None)
    if worst is None:
        return f"No compute kernel of {LARGE_SHARE:.0%} or more of the time fills less than {LOW_FILL:.0%} of the SMs"
    name = middle(worst.name, _LONGEST_IN_TITLE)
    fill, share = (formats.share(value, 0) for value in (worst.fill, worst.share))
    return f"{name} fills {fill} of the SMs and takes {share} of the kernel time"


def _not_drawn(rows: pl.DataFrame) -> str:
    hidden = float(rows.filter(pl.col("sm_fill").is_null())["share_of_kernel_time"].sum())
    return f"not drawn: {_percent(hidden)} of the kernel time" if hidden else ""


def _legend(axes: Axes, dots: Sequence[_Dot]) -> None:
    from matplotlib.lines import Line2D

    by_class: dict[str, float] = {}
    for dot in dots:
        by_class[dot.kernel_class or "unknown"] = by_class.get(dot.kernel_class or "unknown", 0.0) + dot.share
    entries = [
        Line2D(
            [], [], marker="o", linestyle="", markersize=8, color=colour_of(name), label=f"{name}  {_percent(share)}"
        )
        for name, share in sorted(by_class.items(), key=lambda item: (-item[1], item[0]))
    ]
    if entries:
        legend = axes.legend(
            handles=entries, loc="upper left", bbox_to_anchor=(1.01, 1.0), frameon=False,
            fontsize=canvas.size("small"), title="class, share of kernel time", borderaxespad=0,
        )  # fmt: skip
        legend.get_title().set_fontsize(canvas.size("small"))
        legend.get_title().set_color(QUIET_INK)


# ------------------------------------------------------------------------------------------ labels


def _label(axes: Axes, dots: Sequence[_Dot]) -> None:
    """Name the dots that matter, the standing-out first, each beside its dot and where nothing else is."""
    pixels = axes.figure.dpi / 72
    boxes = {dot: _box(axes, dot, pixels) for dot in dots}
    groups = _groups(dots)
    anchors = [_anchor(axes, group, boxes, pixels) for group in groups]
    frame = axes.get_window_extent()
    room = Box(frame.x0, frame.y0, frame.x1, frame.y1)
    written = [text.get_window_extent() for text in axes.texts]
    taken = [*boxes.values(), *(Box(each.x0, each.y0, each.x1, each.y1) for each in written)]
    for group, box in zip(groups, place(anchors, room, taken=taken), strict=True):
        if box is not None:
            x, y = axes.transData.inverted().transform(((box.left + box.right) / 2, (box.bottom + box.top) / 2))
            axes.text(x, y, _text(group), ha="center", va="center", color=INK, zorder=6, **_font(group[0]))


def _box(axes: Axes, dot: _Dot, pixels: float) -> Box:
    x, y = axes.transData.transform((dot.fill, dot.y))
    radius = dot.area**0.5 / 2 * pixels
    return Box(x - radius, y - radius, x + radius, y + radius)


def _anchor(axes: Axes, group: Sequence[_Dot], boxes: dict[_Dot, Box], pixels: float) -> Anchor:
    """Where the label of dots that lie together belongs, and how large it is."""
    x, y = axes.transData.transform((group[0].fill, group[0].y))
    radius = max(dot.area for dot in group) ** 0.5 / 2 * pixels
    drawn = axes.text(0.5, 0.5, _text(group), ha="center", **_font(group[0]))
    extent = drawn.get_window_extent()
    drawn.remove()
    return Anchor(x, y, radius, extent.width + 6, extent.height + 4, frozenset(boxes[dot] for dot in group))


def _font(dot: _Dot) -> dict[str, Any]:
    if dot.standing_out:
        return {"fontsize": canvas.size("text"), "fontweight": "bold"}
    return {"fontsize": canvas.size("small"), "fontweight": "normal"}


def _groups(dots: Sequence[_Dot]) -> list[list[_Dot]]:
    """Dots that lie together, named by the largest; the most important groups first."""
    groups: list[list[_Dot]] = []
    for dot in dots:
        near = (each for each in groups if _near(each[0], dot) and each[0].standing_out == dot.standing_out)
        group = next(near, None)
        if group is None:
            groups.append([dot])
        else:
            group.append(dot)
    worth = [group for group in groups if sum(dot.share for dot in group) >= _LEAST_LABELLED]
    return sorted(worth, key=lambda group: (not group[0].standing_out, -sum(dot.share for dot in group)))[:_MOST_LABELS]


def _near(one: _Dot, other: _Dot) -> bool:
    return abs(one.fill - other.fill) < _TOGETHER and abs(one.y - other.y) < _TOGETHER


def _text(group: Sequence[_Dot]) -> str:
    first, share = group[0], sum(dot.share for dot in group)
    more = f" and {len(group) - 1} more" if len(group) > 1 else ""
    return f"{middle(first.name, _LONGEST_LABEL)}{more}\n{_percent(share)} of kernel time"


def _percent(share: float) -> str:
    return "<0.1%" if 0 < share < 0.0005 else f"{share:.1%}"
