"""Check the sample traces: what each run holds, and whether its step times agree with `truth.json`.

Usage::

    python3 sample_traces/check.py [FOLDER]               # this folder by default
    python3 sample_traces/check.py --markdown [FOLDER]    # the tables of README.md

Standard library only, and independent of `traceanalyzer` on purpose: these figures are a second opinion.
"""

from __future__ import annotations

import gzip
import json
import re
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DEVICE_CATEGORIES = ("kernel", "gpu_memcpy", "gpu_memset")
LAUNCH_CATEGORIES = ("cuda_runtime", "cuda_driver")
Event = dict[str, Any]


@dataclass(frozen=True)
class KernelRow:
    name: str
    count: int
    total_us: float
    share_of_kernel_time: float
    blocks: float  # duration-weighted
    sm_fill: float  # duration-weighted min(1, blocks / SMs)


@dataclass(frozen=True)
class RankReport:
    rank: int
    size: int
    events: int
    kernels: list[KernelRow]
    span_us: float
    busy_us: float
    markers: int
    runtime_events: int
    collective_us: list[float]
    event_step_us: float  # medians of the truth
    host_step_us: float
    unprofiled_step_us: float
    worst_step_error: float | None
    problems: list[str]


def measure(folder: Path, entry: dict[str, Any], truth: dict[str, Any]) -> RankReport:
    path = folder / entry["file"]
    trace = json.loads(gzip.decompress(path.read_bytes()))
    events: list[Event] = [event for event in trace["traceEvents"] if event.get("ph") == "X"]
    device = [event for event in events if event.get("cat") in DEVICE_CATEGORIES]
    markers = sorted(
        (event for event in events if event.get("cat") == "user_annotation" and event["name"] == truth["marker"]),
        key=lambda event: event["ts"],
    )
    profiled, unprofiled = entry["profiled"], entry["unprofiled"]
    windows = _windows(device, events, markers)
    errors = [
        abs(ours * 1e3 / theirs - 1)
        for ours, theirs in zip(windows[1:], profiled["cuda_event_step_ns"][1:], strict=False)
    ]
    sms = int(trace["deviceProperties"][entry["device"]]["numSms"])
    return RankReport(
        rank=entry["rank"],
        size=path.stat().st_size,
        events=len(trace["traceEvents"]),
        kernels=_kernel_rows(device, sms),
        span_us=max(map(_end, device)) - min(event["ts"] for event in device),
        busy_us=_union(device),
        markers=len(markers),
        runtime_events=sum(event.get("cat") in LAUNCH_CATEGORIES for event in events),
        collective_us=[event["dur"] for event in device if event["name"].startswith("nccl")],
        event_step_us=_median_us(profiled["cuda_event_step_ns"][1:]),
        host_step_us=_median_us(profiled["host_step_ns"][1:]),
        unprofiled_step_us=_median_us(unprofiled["cuda_event_step_ns"][1:]),
        worst_step_error=max(errors) if errors else None,
        problems=_problems(trace, entry, truth, path, len(markers)),
    )


def _end(event: Event) -> float:
    return float(event["ts"] + event["dur"])


def _union(events: Iterable[Event]) -> float:
    busy, reached = 0.0, float("-inf")
    for event in sorted(events, key=lambda event: event["ts"]):
        busy += max(0.0, _end(event) - max(reached, event["ts"]))
        reached = max(reached, _end(event))
    return busy


def _median_us(values: list[int]) -> float:
    return statistics.median(values) / 1e3


def _kernel_rows(device: list[Event], sms: int) -> list[KernelRow]:
    by_name: dict[str, list[Event]] = defaultdict(list)
    for event in device:
        if event["cat"] == "kernel":
            by_name[event["name"]].append(event)
    everything = sum(event["dur"] for events in by_name.values() for event in events)
    rows = []
    for name, events in by_name.items():
        total = sum(event["dur"] for event in events)
        blocks = [(x * y * z, event["dur"]) for event in events for x, y, z in [event["args"]["grid"]]]
        rows.append(
            KernelRow(
                name=name,
                count=len(events),
                total_us=total,
                share_of_kernel_time=total / everything,
                blocks=sum(count * duration for count, duration in blocks) / total,
                sm_fill=sum(min(1.0, count / sms) * duration for count, duration in blocks) / total,
            )
        )
    return sorted(rows, key=lambda row: -row.total_us)


def _windows(device: list[Event], events: list[Event], markers: list[Event]) -> list[float]:
    """Length of each step on the GPU: from the end of the one before (first: own start) to its own end."""
    launches = {e["args"]["correlation"]: e["ts"] for e in events if e.get("cat") in LAUNCH_CATEGORIES}
    starts, ends = [float("inf")] * len(markers), [float("-inf")] * len(markers)
    for event in device:
        launched = launches.get(event["args"].get("correlation"))
        if launched is None:
            continue
        for index, marker in enumerate(markers):
            if marker["ts"] <= launched < _end(marker):
                starts[index] = min(starts[index], event["ts"])
                ends[index] = max(ends[index], _end(event))
    return [end - (ends[index - 1] if index else starts[0]) for index, end in enumerate(ends)]


def _problems(
    trace: dict[str, Any], entry: dict[str, Any], truth: dict[str, Any], path: Path, markers: int
) -> list[str]:
    problems = []
    info = trace.get("distributedInfo", {})
    if (info.get("rank"), info.get("world_size")) != (entry["rank"], truth["environment"]["gpus"]):
        problems.append(f"distributedInfo says rank {info.get('rank')} of {info.get('world_size')}")
    if markers != (0 if truth["mode"] == "gpu-only" else truth["steps"]):
        problems.append(f"{markers} markers for {truth['steps']} steps")
    if path.stat().st_size > 205_000:
        problems.append("over 205 kB")
    problems += [f"a path: {text}" for text in sorted(_paths(trace))[:3]]
    return problems


def _paths(value: object) -> set[str]:
    """Strings anywhere in the trace that look like a path of the recording machine."""
    if isinstance(value, dict):
        return {path for key, item in value.items() for path in _paths(item) | _paths(key)}
    if isinstance(value, list):
        return {path for item in value for path in _paths(item)}
    return {value} if isinstance(value, str) and re.search(r"(^|\s)/\w|\.py\b|\\\\", value) else set()


def print_report(folder: Path, kernels: int = 3) -> bool:
    """A few lines a run; True if nothing is wrong."""
    sound = True
    for path in sorted(folder.glob("*/truth.json")):
        truth = json.loads(path.read_text(encoding="utf-8"))
        print(f"{truth['run']}  ({truth['steps']} steps, {truth['marker']})")
        for entry in truth["ranks"]:
            report = measure(path.parent, entry, truth)
            sound &= not report.problems
            _print_rank(report, entry, kernels)
    return sound


def _print_rank(report: RankReport, entry: dict[str, Any], kernels: int) -> None:
    error = "-" if report.worst_step_error is None else f"{report.worst_step_error:.2%}"
    nccl = report.collective_us or [0.0]
    print(
        f"  rank {report.rank}: {report.size / 1e3:.0f} kB, {report.events} events, "
        f"{report.runtime_events} calls, {report.markers} markers; busy {report.busy_us / report.span_us:.1%}; "
        f"step {report.event_step_us:.0f} us by events, {report.host_step_us:.0f} by host, "
        f"{report.unprofiled_step_us:.0f} unprofiled; worst step error {error}; "
        f"nccl median {statistics.median(nccl):.1f} us, {sum(nccl) / report.busy_us:.1%} of busy"
    )
    for key in ("host_tree_ns", "host_mask_ns"):
        if key in entry["profiled"]:
            with_profiler, without = (_median_us(entry[run][key][1:]) for run in ("profiled", "unprofiled"))
            print(f"    {key}: {with_profiler:.0f} us profiled, {without:.0f} us unprofiled")
    for row in report.kernels[:kernels]:
        print(
            f"    {row.share_of_kernel_time:6.1%} x{row.count} {row.total_us / row.count:8.1f} us  "
            f"{row.blocks:.0f} blocks, fill {row.sm_fill:.2f}  {row.name[:90]}"
        )
    for problem in report.problems:
        print(f"    PROBLEM: {problem}")


def print_markdown(folder: Path) -> None:
    """One row a run, both ranks' figures as `rank 0 / rank 1`."""
    print(
        "| run | steps | step, profiled | step, no profiler | GPU idle | largest kernel: share, blocks, fill | NCCL |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for path in sorted(folder.glob("*/truth.json")):
        truth = json.loads(path.read_text(encoding="utf-8"))
        ranks = [measure(path.parent, entry, truth) for entry in truth["ranks"]]
        top = ranks[0].kernels[0]
        cells = (
            f"`{truth['run']}`",
            str(truth["steps"]),
            _both(f"{rank.event_step_us / 1e3:.3f}" for rank in ranks) + " ms",
            _both(f"{rank.unprofiled_step_us / 1e3:.3f}" for rank in ranks) + " ms",
            _both(f"{1 - rank.busy_us / rank.span_us:.1%}" for rank in ranks),
            f"`{_short(top.name)}` {_both(f'{_share(rank, top.name):.1%}' for rank in ranks)}, "
            f"{top.blocks:.0f}, {top.sm_fill:.2f}",
            _both(f"{sum(rank.collective_us) / rank.busy_us:.1%}" for rank in ranks),
        )
        print(f"| {' | '.join(cells)} |")


def print_host_markdown(folder: Path) -> None:
    """One row a mask run: medians of rank 0, without and with the profiler."""
    print("| run | step | `build_tree_mask` | `build_draft_tree` | GPU busy a step |")
    print("| --- | --- | --- | --- | --- |")
    for path in sorted(folder.glob("mask-*/truth.json")):
        truth = json.loads(path.read_text(encoding="utf-8"))
        entry = truth["ranks"][0]
        cells = [f"`{truth['run']}`"]
        for key in ("cuda_event_step_ns", "host_mask_ns", "host_tree_ns"):
            values = [_median_us(entry[run][key][1:]) / 1e3 for run in ("unprofiled", "profiled")]
            cells.append(_both(f"{value:.3f}" for value in values) + " ms")
        busy = measure(path.parent, entry, truth).busy_us / truth["steps"]
        print(f"| {' | '.join(cells)} | {busy / 1e3:.3f} ms |")


def _share(report: RankReport, name: str) -> float:
    return sum(row.share_of_kernel_time for row in report.kernels if row.name == name)


def _short(name: str) -> str:
    return name.removeprefix("void ").removeprefix("at::native::").split("<")[0].split("(")[0]


def _both(values: Iterable[str]) -> str:
    return " / ".join(values)


def main(arguments: list[str]) -> int:
    markdown = "--markdown" in arguments
    folders = [Path(argument) for argument in arguments if argument != "--markdown"]
    folder = folders[0] if folders else Path(__file__).parent
    if markdown:
        print_markdown(folder)
        print()
        print_host_markdown(folder)
        return 0
    return 0 if print_report(folder) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
