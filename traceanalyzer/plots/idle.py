"""Why devices stand idle: each device's idle time by cause, and how long the gaps are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from traceanalyzer import formats
from traceanalyzer.analyses.idle import CAUSES, by_length
from traceanalyzer.choices import PlotFormat
from traceanalyzer.errors import UsageError
from traceanalyzer.plots import canvas
from traceanalyzer.plots.palette import CAUSE_COLOURS, GRID_INK, INK, QUIET_INK
from traceanalyzer.text import counted

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_WIDTH = 12.0
_BAR, _HISTOGRAM, _HEAD = 0.55, 3.4, 1.5
#: More devices than this are not drawn; how many are left out is said.
_MOST_DEVICES = 16
#: What is narrower than this part of the longest bar has no label.
_LABELLED = 0.07
#: Of a bar, letters that fit in its whole width.
_LETTERS = 105


@canvas.isolated
def draw(rows: pl.DataFrame, format: PlotFormat) -> bytes:
    """The picture of the rows of `idle_gaps`: a bar a device, and below a histogram of lengths by cause.

    Raises `UsageError` where no device is ever idle.
    """
    if rows.is_empty():
        raise UsageError("no device is ever idle, so there is nothing to draw")
    devices = _devices(rows)
    shown = devices.head(_MOST_DEVICES)
    bars = max(shown.height * _BAR, 1.0)
    figure = canvas.new_figure(_WIDTH, bars + _HISTOGRAM + _HEAD)
    top, bottom = figure.subplots(2, 1, height_ratios=[bars, _HISTOGRAM])
    _draw_devices(top, shown, rows)
    _draw_lengths(bottom, by_length(rows))
    top.set_title(_title(rows), loc="left", fontsize=canvas.size("title"), color=INK, fontweight="bold", pad=26)
    left_out = devices.height - shown.height
    below = f"{canvas.runs(rows)}  ·  {counted(rows.height, 'gap')}" + (
        f"  ·  {counted(left_out, 'more device')} not drawn" if left_out else ""
    )
    top.annotate(
        below, (0, 1), xytext=(0, 8), xycoords="axes fraction", textcoords="offset points", va="bottom",
        fontsize=canvas.size("small"), color=QUIET_INK,
    )  # fmt: skip
    _legend(figure, rows)
    return canvas.to_bytes(figure, format)


def _devices(rows: pl.DataFrame) -> pl.DataFrame:
    """One row a device: its name, its idle time and the pieces of it; the most idle first of those beyond the limit."""
    sums = rows.group_by("run", "rank", "path", "device", maintain_order=True).agg(
        pl.col("duration_ns", *(f"{cause}_ns" for cause in CAUSES)).sum()
    )  # fmt: skip
    if sums.height > _MOST_DEVICES:
        sums = sums.sort("duration_ns", descending=True)
    return sums


def _draw_devices(axes: Axes, devices: pl.DataFrame, rows: pl.DataFrame) -> None:
    canvas.style(axes, x_label="idle (ms)", y_label="")
    hosts = _hosts(rows)
    longest = float(devices["duration_ns"].to_numpy().max()) / 1e6
    ordered = sorted(CAUSES, key=lambda each: -int(rows[f"{each}_ns"].sum()))
    for place, device in enumerate(devices.iter_rows(named=True)):
        left = 0.0
        for cause in ordered:
            width = device[f"{cause}_ns"] / 1e6
            if not width:
                continue
            axes.barh(place, width, left=left, height=0.72, color=CAUSE_COLOURS[cause], edgecolor=GRID_INK, zorder=3)
            if width > _LABELLED * longest:
                text = _bar_text(cause, device, hosts, int(_LETTERS * width / longest))
                axes.text(
                    left + width / 2, place, text, ha="center", va="center", fontsize=canvas.size("small"), color=INK,
                    zorder=4,
                )  # fmt: skip
            left += width
    axes.set_yticks(range(devices.height), [_name(each, devices) for each in devices.iter_rows(named=True)])
    axes.set_ylim(devices.height - 0.5, -0.5)
    axes.set_xlim(0, longest * 1.01)
    axes.grid(visible=False, axis="y")


def _name(device: dict[str, Any], devices: pl.DataFrame) -> str:
    rank = "rank ?" if device["rank"] is None else f"rank {device['rank']}"
    run = f"{canvas.name(device['run'], 18)} " if devices["run"].n_unique() > 1 else ""
    gpu = f" GPU {canvas.name(device['device'], 8)}" if devices.select("run", "rank").is_duplicated().any() else ""
    return run + rank + gpu


def _hosts(rows: pl.DataFrame) -> dict[tuple[Any, Any, str], tuple[str, int]]:
    """For each device and cause what the host was at for most of it, and for how much of the time of that cause."""
    of_cause = pl.coalesce(pl.when(pl.col("cause") == cause).then(f"{cause}_ns") for cause in CAUSES)
    named = rows.drop_nulls("host_op")
    sums = named.group_by("path", "device", "cause", "host_op").agg(total_ns=of_cause.sum())
    most = sums.sort("total_ns", "host_op", descending=[True, False]).unique(
        ["path", "device", "cause"], keep="first", maintain_order=True
    )
    return {(path, device, cause): (host, amount) for path, device, cause, host, amount in most.iter_rows()}


def _bar_text(cause: str, device: dict[str, Any], hosts: dict[tuple[Any, Any, str], tuple[str, int]], room: int) -> str:
    share = device[f"{cause}_ns"] / device["duration_ns"]
    text = f"{cause} {formats.share(share, 0)}"
    host, amount = hosts.get((device["path"], device["device"], cause), ("", 0))
    if amount > device[f"{cause}_ns"] / 2 and room - len(text) > 8:
        text = f"{text}: {canvas.name(host, room - len(text) - 2)}"
    return text if len(text) <= max(room, 6) else f"{formats.share(share, 0)}"


def _draw_lengths(axes: Axes, lengths: pl.DataFrame) -> None:
    canvas.style(axes, x_label="length of a gap", y_label="idle (ms) in gaps of that length")
    causes = [f"{cause}_ns" for cause in CAUSES]
    sums = lengths.group_by("from_ns").agg(pl.col("gaps", *causes).sum()).sort("from_ns")
    at = np.round(np.log10(sums["from_ns"].to_numpy()) * 2) / 2 + 0.25
    floor = np.zeros(len(at))
    for cause in CAUSES:
        heights = sums[f"{cause}_ns"].to_numpy() / 1e6
        axes.bar(at, heights, bottom=floor, width=0.47, color=CAUSE_COLOURS[cause], edgecolor=GRID_INK, zorder=3)
        floor = floor + heights
    for x, height, count in zip(at, floor, sums["gaps"], strict=True):
        if count:
            axes.text(
                x, height, f"{count:,}", ha="center", va="bottom", fontsize=canvas.size("small"), color=QUIET_INK
            )  # fmt: skip
    low, high = float(at.min()) - 0.25, float(at.max()) + 0.25
    ticks = [power for power in range(int(np.floor(low)), int(np.ceil(high)) + 1) if low <= power <= high]
    axes.set_xticks(ticks, [formats.power_of_ten(each) for each in ticks])
    axes.set_xlim(low - 0.05, high + 0.05)
    axes.set_ylim(0, float(floor.max()) * 1.1 or 1.0)
    axes.grid(visible=False, axis="x")
    axes.set_title(
        "numbers: how many gaps", loc="left", fontsize=canvas.size("small"), color=QUIET_INK, pad=6
    )  # fmt: skip


def _title(rows: pl.DataFrame) -> str:
    total = int(rows["duration_ns"].sum())
    sums = {cause: int(rows[f"{cause}_ns"].sum()) for cause in CAUSES}
    cause = max(sums, key=lambda each: sums[each])
    text = f"{formats.share(sums[cause] / total, 0)} of {formats.ns(total)} idle is {cause}"
    named = rows.filter(pl.col("cause") == cause).drop_nulls("host_op").group_by("host_op").agg(
        pl.col(f"{cause}_ns").sum()
    ).sort(f"{cause}_ns", "host_op", descending=[True, False])  # fmt: skip
    if named.height and named[f"{cause}_ns"][0] > sums[cause] / 2:
        text += f", most of it {canvas.name(named['host_op'][0], 50)}"
    return text


def _legend(figure: Any, rows: pl.DataFrame) -> None:
    from matplotlib.patches import Patch

    total = int(rows["duration_ns"].sum())
    sums = sorted(((int(rows[f"{cause}_ns"].sum()), cause) for cause in CAUSES), reverse=True)
    entries = [
        Patch(facecolor=CAUSE_COLOURS[cause], edgecolor=GRID_INK, label=f"{cause}  {formats.share(amount / total)}")
        for amount, cause in sums
        if amount
    ]
    figure.legend(
        handles=entries, loc="outside right upper", frameon=False, fontsize=canvas.size("small"),
        title="of idle", alignment="left",
    )  # fmt: skip
