"""How near to the roof the time is spent.

On the left every operator stands as a bar: as high as the time it took, as long as the part of the roof that it
reached. What is white in a bar is time that a perfect kernel would not need. On the right the roofline of what
computes: operations a second against operations a byte, below the roof of the memory and that of the tensor units.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

from traceanalyzer import formats
from traceanalyzer.choices import PlotFormat
from traceanalyzer.hardware.rates import Rates
from traceanalyzer.plots import canvas
from traceanalyzer.plots.palette import GRID_INK, GROUND, INK, QUIET_INK, UNKNOWN_COLOUR, colour_of
from traceanalyzer.plots.placing import Anchor, Box, place
from traceanalyzer.text import middle, visible

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_WIDTH, _HEIGHT = 13.0, 6.2
#: Bars thinner than this part of the time are drawn together, and have a label only if they are thicker than that.
_THIN, _LABELLED = 0.004, 0.035
_LONGEST_NAME = 36
#: A bar stands out that has this part of the time and reaches less than that part of the roof.
_LARGE, _LOW = 0.1, 0.4
_MOST_LABELS = 6
#: Area in points² of a dot of the whole time.
_WHOLE_AREA, _LEAST_AREA = 2600.0, 18.0


@dataclass(frozen=True, slots=True)
class _Bar:
    name: str
    kernel_class: str | None
    share: float
    reached: float | None
    rate: str

    @property
    def standing_out(self) -> bool:
        return self.share >= _LARGE and self.reached is not None and self.reached < _LOW


@canvas.isolated
def draw(
    rows: pl.DataFrame, format: PlotFormat, *, roofs: Mapping[str, Rates | None], devices: Mapping[str, Sequence[str]]
) -> bytes:
    """The picture of `bandwidth`, one row of panels a run.

    `devices` are the names of the GPUs of each run, `roofs` their rates.
    """
    runs = rows["run"].unique(maintain_order=True).to_list() or [""]
    figure = canvas.new_figure(_WIDTH, _HEIGHT * len(runs))
    panels = figure.subplots(len(runs), 2, squeeze=False, width_ratios=(1.25, 1))
    for (bars, roofline), run in zip(panels, runs, strict=True):
        own = rows.filter(pl.col("run") == run)
        gpus = devices.get(run, ())
        _draw_bars(bars, _bars(own), run, ", ".join(gpus))
        _draw_roofline(roofline, own, [rates for gpu in gpus if (rates := roofs.get(gpu)) is not None])
    figure.draw_without_rendering()  # labels are placed where the layout puts the axes
    figure.set_layout_engine("none")
    for (_, roofline), run in zip(panels, runs, strict=True):
        _label_dots(roofline, _computing(rows.filter(pl.col("run") == run)))
    return canvas.to_bytes(figure, format)


# ------------------------------------------------------------------------------------------ bars


def _bars(rows: pl.DataFrame) -> list[_Bar]:
    """The longest first; what is thin comes together at the end."""
    total = int(rows["total_ns"].sum()) or 1
    bars = [
        _Bar(visible(row["short_name"] or ""), row["class"], row["total_ns"] / total, row["share_of_roof"], _rate(row))
        for row in rows.sort("total_ns", "kernel", descending=[True, False]).iter_rows(named=True)
    ]
    thick = [bar for bar in bars if bar.share >= _THIN]
    thin = bars[len(thick) :]
    if thin:
        thick.append(_Bar(f"{len(thin)} more", None, sum(bar.share for bar in thin), None, ""))
    return thick


def _rate(row: Mapping[str, Any]) -> str:
    if row["bound"] == "compute":
        return f"{row['tflop_per_s']:,.0f} TFLOP/s"
    return "" if row["gb_per_s"] is None else f"{row['gb_per_s']:,.0f} GB/s"


def _draw_bars(axes: Axes, bars: Sequence[_Bar], run: str, device: str) -> None:
    canvas.style(axes, x_label="part of the roof that is reached", y_label="device time, the longest at the top")
    axes.set_xlim(0, 1)
    axes.set_ylim(1, 0)
    ticks = [0, 0.25, 0.5, 0.75, 1]
    axes.set_xticks(ticks, [f"{tick:.0%}" for tick in ticks])
    axes.set_yticks(ticks, [f"{tick:.0%}" for tick in ticks])
    axes.grid(visible=False, axis="y")
    top = 0.0
    for bar in bars:
        _draw_bar(axes, bar, top)
        top += bar.share
    axes.set_title(_title(bars), loc="left", fontsize=canvas.size("title"), color=INK, fontweight="bold", pad=26)
    below = "  ·  ".join(
        filter(None, (visible(run), device, "height: time  ·  length: part of the roof  ·  grey: unknown"))
    )
    axes.text(0, 1.015, below, transform=axes.transAxes, fontsize=canvas.size("small"), color=QUIET_INK, va="bottom")


def _draw_bar(axes: Axes, bar: _Bar, top: float) -> None:
    middle_of = top + bar.share / 2
    height = max(bar.share - 0.003, bar.share * 0.7)
    axes.barh(middle_of, 1, height, color=GRID_INK if bar.reached is None else "#f4f5f6", linewidth=0)
    if bar.reached is not None:
        axes.barh(
            middle_of, min(bar.reached, 1), height, color=colour_of(bar.kernel_class),
            alpha=0.95 if bar.standing_out else 0.55, linewidth=0,
        )  # fmt: skip
    if bar.share < _LABELLED:
        return
    reached = "unknown" if bar.reached is None else f"{formats.share(bar.reached, 0)} of the roof"
    words = [middle(bar.name, _LONGEST_NAME), bar.rate, reached]
    weight = "bold" if bar.standing_out else "normal"
    axes.text(
        0.985, middle_of, "  ·  ".join(filter(None, words)), ha="right", va="center", color=INK,
        fontsize=canvas.size("small"), fontweight=weight, in_layout=False,
        bbox={"facecolor": GROUND, "alpha": 0.72, "edgecolor": "none", "pad": 1.5},
    )  # fmt: skip


def _title(bars: Sequence[_Bar]) -> str:
    worst = next((bar for bar in bars if bar.standing_out), None)
    if worst is not None:
        share, reached = (formats.share(value, 0) for value in (worst.share, worst.reached))
        return f"{middle(worst.name, 40)}: {share} of the time at {reached} of the roof"
    known = sum(bar.share for bar in bars if bar.reached is not None)
    if known < 0.5:
        return f"How near the roof is, is known of {formats.share(known, 0)} of the time"
    return f"Nothing with {_LARGE:.0%} or more of the time is below {_LOW:.0%} of the roof"


# ------------------------------------------------------------------------------------------ the roofline


def _computing(rows: pl.DataFrame) -> pl.DataFrame:
    """What does operations, with `intensity` (operations a byte), the longest first."""
    known = rows.filter((pl.col("flops") > 0) & (pl.col("bytes") > 0) & (pl.col("total_ns") > 0))
    total = int(rows["total_ns"].sum()) or 1
    return known.with_columns(
        intensity=pl.col("flops") / pl.col("bytes"), share=pl.col("total_ns") / total
    ).sort("total_ns", "kernel", descending=[True, False])  # fmt: skip


def _draw_roofline(axes: Axes, rows: pl.DataFrame, roofs: Sequence[Rates]) -> None:
    canvas.style(axes, x_label="operations a byte", y_label="TFLOP/s")
    computing = _computing(rows)
    if computing.is_empty():
        axes.set_axis_off()
        axes.text(0.5, 0.5, "no operations are known", transform=axes.transAxes, ha="center", color=QUIET_INK)
        return
    axes.set_xscale("log")
    axes.set_yscale("log")
    roof = roofs[0] if roofs else None
    flat = {} if roof is None else _flat_roofs(roof, computing)
    _limits(axes, computing, roof, flat)
    if roof is not None:
        _draw_roof(axes, roof, flat)
    for row in computing.iter_rows(named=True):
        axes.scatter(
            row["intensity"], row["tflop_per_s"], s=max(row["share"] * _WHOLE_AREA, _LEAST_AREA),
            color=colour_of(row["class"]) if row["class"] else UNKNOWN_COLOUR, alpha=0.6, edgecolors=GROUND,
            linewidths=0.8, zorder=3,
        )  # fmt: skip
    text = "one dot an operator of a kernel, its area the time"
    axes.text(0, 1.015, text, transform=axes.transAxes, fontsize=canvas.size("small"), color=QUIET_INK, va="bottom")


def _flat_roofs(rates: Rates, rows: pl.DataFrame) -> dict[str, float]:
    """The rates of the precisions that are worked in."""
    used = rows["precision"].drop_nulls().unique().sort().to_list()
    return {name: rates.tflop_per_s[name] for name in used if name in rates.tflop_per_s}


def _limits(axes: Axes, rows: pl.DataFrame, rates: Rates | None, flat: Mapping[str, float]) -> None:
    """Room for the dots and for the knee of the roof."""
    peak = max(flat.values(), default=0.0)
    memory = (rates.gb_per_s if rates else None) or 0.0
    x, y = rows["intensity"].to_numpy(), rows["tflop_per_s"].to_numpy()
    knee = peak * 1e3 / memory if peak and memory else float(x.max())
    axes.set_xlim(float(x.min()) / 3, max(float(x.max()), knee) * 5)
    axes.set_ylim(float(y.min()) / 4, max(float(y.max()), peak) * 2)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(lambda value, _: f"{value:,.4g}")
        axis.set_minor_formatter(lambda *_: "")
    axes.tick_params(which="minor", length=0)


def _draw_roof(axes: Axes, rates: Rates, flat: Mapping[str, float]) -> None:
    """The memory's slope, up to the highest flat roof, and the flat roofs."""
    first, last = axes.get_xlim()
    highest = max(flat.values(), default=axes.get_ylim()[1])
    line: dict[str, Any] = {"color": QUIET_INK, "linewidth": 1.4, "zorder": 2}
    small: dict[str, Any] = {"fontsize": canvas.size("small"), "color": QUIET_INK}
    if rates.gb_per_s:
        end = min(last, highest * 1e3 / rates.gb_per_s)
        axes.plot([first, end], [first * rates.gb_per_s / 1e3, end * rates.gb_per_s / 1e3], **line)
        axes.text(first, axes.get_ylim()[1], f" memory {rates.gb_per_s:,.0f} GB/s", ha="left", va="top", **small)
    for name, rate in flat.items():
        start = rate * 1e3 / rates.gb_per_s if rates.gb_per_s else first
        axes.plot([start, last], [rate, rate], **line)
        axes.text(last, rate, f"{name} {rate:,.0f} TFLOP/s ", ha="right", va="bottom", **small)


def _label_dots(axes: Axes, rows: pl.DataFrame) -> None:
    """Names of the largest dots, each beside its dot and where nothing else is."""
    if rows.is_empty():
        return
    pixels = axes.figure.dpi / 72
    points = axes.transData.transform(rows.select("intensity", "tflop_per_s").to_numpy())
    radii = [max(share * _WHOLE_AREA, _LEAST_AREA) ** 0.5 / 2 * pixels for share in rows["share"]]
    boxes = [Box(x - r, y - r, x + r, y + r) for (x, y), r in zip(points, radii, strict=True)]
    anchors: list[Anchor] = []
    names: list[str] = []
    for row, (x, y), radius, box in zip(rows.iter_rows(named=True), points, radii, boxes, strict=True):
        if len(anchors) == _MOST_LABELS:
            break
        names.append(f"{middle(row['short_name'] or '', 26)}\n{row['op'] or ''}  ·  {row['share']:.1%}")
        drawn = axes.text(0.5, 0.5, names[-1], fontsize=canvas.size("small") - 1)
        extent = drawn.get_window_extent()
        drawn.remove()
        anchors.append(Anchor(x, y, radius, extent.width + 6, extent.height + 4, frozenset({box})))
    frame = axes.get_window_extent()
    written = [text.get_window_extent() for text in axes.texts]
    taken = [*boxes, *(Box(each.x0, each.y0, each.x1, each.y1) for each in written)]
    room = Box(frame.x0, frame.y0, frame.x1, frame.y1)
    for name, free in zip(names, place(anchors, room, taken=taken), strict=True):
        if free is not None:
            x, y = axes.transData.inverted().transform(((free.left + free.right) / 2, (free.bottom + free.top) / 2))
            axes.text(x, y, name, ha="center", va="center", color=INK, fontsize=canvas.size("small") - 1, zorder=6)
