"""The timeline: for each device when it was busy with which class of work, and when and why it was idle."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from traceanalyzer import formats
from traceanalyzer.analyses.timeline import ORDER, Timeline
from traceanalyzer.choices import PlotFormat
from traceanalyzer.plots import canvas
from traceanalyzer.plots.palette import CAUSE_COLOURS, GRID_INK, INK, QUIET_INK, colour_of
from traceanalyzer.text import middle

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_WIDTH = 14.0
_DEVICE_HEIGHT, _STREAM_HEIGHT, _HEAD = 1.3, 0.42, 1.6
#: A step has a number where it is wider than this part.
_WIDE = 0.012
#: Pixels of a lane from its floor to its top.
_ROWS = 96
#: More lanes than this are not drawn; how many are left out is said.
_MOST_LANES = 32
#: What is narrower than this part of the width has no label.
_LABELLED = 0.045
_MOST_STEPS = 60


@canvas.isolated
def draw(what: Timeline, format: PlotFormat) -> bytes:
    """The picture, one lane a device and one a stream where a device has several."""
    lanes = what.lanes.head(_MOST_LANES)
    heights = [_DEVICE_HEIGHT if stream is None else _STREAM_HEIGHT for stream in lanes["stream"]]
    figure = canvas.new_figure(_WIDTH, sum(heights) + _HEAD)
    panels = figure.subplots(lanes.height, 1, squeeze=False, sharex=True, height_ratios=heights)[:, 0]
    for axes, lane in zip(panels, lanes.iter_rows(named=True), strict=True):
        _draw_lane(axes, what, lane)
    _decorate(panels, what, lanes)
    return canvas.to_bytes(figure, format)


def _draw_lane(axes: Axes, what: Timeline, lane: dict[str, Any]) -> None:
    from matplotlib.colors import to_rgb

    width = (what.end_ns - what.start_ns) / what.count
    own = what.bins.filter(
        (pl.col("path") == lane["path"])
        & pl.col("device").eq_missing(lane["device"])
        & pl.col("stream").eq_missing(lane["stream"])
    )
    picture = np.ones((_ROWS, what.count, 3))
    level = (np.arange(_ROWS) + 0.5) / _ROWS
    floor = np.zeros(what.count)
    for kind, name in _stacked(own):
        part = own.filter((pl.col("kind") == kind) & pl.col("name").eq_missing(name))
        heights = np.zeros(what.count)
        heights[part["bin"].to_numpy()] = part["covered_ns"].to_numpy() / width
        inside = (level[:, None] >= floor) & (level[:, None] < floor + heights)
        picture[inside] = to_rgb(colour_of(name) if kind == "class" else CAUSE_COLOURS[name])
        floor = floor + heights
    extent = (what.start_ns / 1e6, what.end_ns / 1e6, 0.0, 1.0)
    axes.imshow(picture, extent=extent, aspect="auto", interpolation="nearest", origin="lower")
    axes.set_ylim(0, 1)
    axes.set_xlim(what.start_ns / 1e6, what.end_ns / 1e6)
    axes.set_yticks([])
    for side in axes.spines.values():
        side.set_visible(False)
    axes.tick_params(labelsize=canvas.size("small"), colors=QUIET_INK, length=0)
    axes.set_ylabel(
        _name(lane), rotation=0, ha="right", va="center", fontsize=canvas.size("small"), color=INK, labelpad=8
    )
    if lane["stream"] is None:
        _label(axes, what, lane)


def _stacked(own: pl.DataFrame) -> list[tuple[str, str]]:
    """Classes from below, then the causes of idle on top."""
    found = own.select("kind", "name").unique().rows()
    place = {name: at for at, name in enumerate(ORDER)}
    return sorted(found, key=lambda each: (each[0] == "idle", place.get(each[1] or "", len(ORDER)), str(each[1])))


def _name(lane: dict[str, Any]) -> str:
    if lane["stream"] is not None:
        return f"stream {middle(str(lane['stream']), 12)}"
    rank = "rank ?" if lane["rank"] is None else f"rank {lane['rank']}"
    return f"{rank}\nGPU {middle(str(lane['device']), 12)}"


def _label(axes: Axes, what: Timeline, lane: dict[str, Any]) -> None:
    """Names inside of what is wide enough: kernels, and gaps with what the host did."""
    least = _LABELLED * (what.end_ns - what.start_ns)
    same = (pl.col("path") == lane["path"]) & pl.col("device").eq_missing(lane["device"])
    long = (pl.col("end_ns") - pl.col("start_ns")) >= least
    kernels = what.kernels.filter(same & long).select("name", "start_ns", "end_ns")
    gaps = what.gaps.filter(same & long).select(
        name=pl.concat_str([pl.lit("idle: "), pl.coalesce("host_op", "cause")]), start_ns="start_ns", end_ns="end_ns"
    )
    for name, start, end in pl.concat([kernels, gaps]).iter_rows():
        first, last = max(start, what.start_ns), min(end, what.end_ns)
        room = (last - first) / (what.end_ns - what.start_ns)
        if room < _LABELLED:
            continue
        text = f"{middle(name, max(int(room * 150), 6))}\n{(end - start) / 1e6:,.3g} ms"
        axes.text(
            (first + last) / 2e6, 0.5, text, ha="center", va="center", fontsize=canvas.size("small") - 1, color=INK,
            clip_on=True,
        )  # fmt: skip


def _decorate(panels: Any, what: Timeline, lanes: pl.DataFrame) -> None:
    top, bottom = panels[0], panels[-1]
    bottom.set_xlabel("ms after the first device activity", fontsize=canvas.size("text"), color=INK)
    shown = what.steps.select("path", "step", "start_ns", "end_ns").unique(["path", "step"]).sort("path", "step")
    wide = _WIDE * (what.end_ns - what.start_ns)
    inside = pl.min_horizontal("end_ns", what.end_ns) - pl.max_horizontal("start_ns", what.start_ns)
    shown = shown.filter(inside >= wide)  # of others there is no room for the number
    first_path = lanes["path"][0]
    for axes, lane in zip(panels, lanes.iter_rows(named=True), strict=True):
        own = shown.filter(pl.col("path") == lane["path"])
        if own.height <= _MOST_STEPS:
            for step, start in own.select("step", "start_ns").iter_rows():
                if start > what.start_ns:
                    axes.axvline(start / 1e6, color=INK, linewidth=0.7, alpha=0.55)
                if lane["path"] == first_path and axes is top:
                    axes.text(
                        max(start, what.start_ns) / 1e6, 1.02, f" {step}", fontsize=canvas.size("small") - 1,
                        color=QUIET_INK, va="bottom", transform=axes.get_xaxis_transform(),
                    )  # fmt: skip
    top.set_title(_title(what), loc="left", fontsize=canvas.size("title"), color=INK, fontweight="bold", pad=40)
    below = _below(what, lanes)
    top.annotate(
        below, (0, 1), xytext=(0, 22), xycoords="axes fraction", textcoords="offset points", va="bottom",
        fontsize=canvas.size("small"), color=QUIET_INK,
    )  # fmt: skip
    _legend(top.figure, what)


def _title(what: Timeline) -> str:
    devices = what.bins.filter(pl.col("stream").is_null())
    total = float(devices["covered_ns"].sum())
    idle = devices.filter(pl.col("kind") == "idle").group_by("name").agg(pl.col("covered_ns").sum()).sort(
        "covered_ns", "name", descending=[True, False]
    )  # fmt: skip
    share = float(idle["covered_ns"].sum()) / total if total else 0.0
    if share < 0.05:
        classes = devices.filter(pl.col("kind") == "class").group_by("name").agg(pl.col("covered_ns").sum()).sort(
            "covered_ns", "name", descending=[True, False]
        )  # fmt: skip
        name, covered = classes.row(0)
        busy, most = formats.share(1 - share, 0), formats.share(covered / total, 0)
        return f"The GPU is busy for {busy} of the time, {most} with {name or 'unknown work'}"
    host = what.gaps.drop_nulls("host_op").group_by("host_op").agg(pl.col("host_busy_ns").sum()).sort(
        "host_busy_ns", "host_op", descending=[True, False]
    )  # fmt: skip
    why = str(idle["name"][0])
    named = host.head(1)
    if why == "host_busy" and named.height and named["host_busy_ns"][0] > 0.3 * total * share:
        why = f"host_busy, {middle(named['host_op'][0], 60)}"
    return f"The GPU is idle for {formats.share(share, 0)} of the time: {why}"


def _below(what: Timeline, lanes: pl.DataFrame) -> str:
    runs = ", ".join(lanes["run"].unique(maintain_order=True).to_list()[:3])
    left_out = what.lanes.height - lanes.height
    words = [
        runs,
        f"{what.start_ns / 1e6:,.4g} to {what.end_ns / 1e6:,.4g} ms",
        "numbers above: steps" if what.steps.height > 0 else "",
        f"{left_out} more lanes not drawn" if left_out else "",
    ]
    return "  ·  ".join(filter(None, words))


def _legend(figure: Any, what: Timeline) -> None:
    from matplotlib.patches import Patch

    devices = what.bins.filter(pl.col("stream").is_null())
    total = float(devices["covered_ns"].sum()) or 1.0
    sums = devices.group_by("kind", "name").agg(pl.col("covered_ns").sum())
    rows = sums.sort(pl.col("kind") == "idle", "covered_ns", "name", descending=[False, True, False]).rows()
    entries = [
        Patch(
            facecolor=colour_of(name) if kind == "class" else CAUSE_COLOURS[name], edgecolor=GRID_INK,
            label=f"{'idle: ' if kind == 'idle' else ''}{name or 'unknown'}  {covered / total:.1%}",
        )
        for kind, name, covered in rows
        if covered / total >= 0.0005
    ]  # fmt: skip
    figure.legend(
        handles=entries, loc="outside right upper", frameon=False, fontsize=canvas.size("small"),
        title="part of the time", alignment="left",
    )  # fmt: skip
