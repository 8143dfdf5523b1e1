#!/usr/bin/env python3
"""producers_oracle.py CORPUS : one JSON object per trace file of a producer other than Kineto, with its device figures.

An independent oracle for `traceanalyzer.ingest.producers` (standard library only): it loads a whole file,
does exact decimal arithmetic, and does not detect anything: the table at the end says what each file is and which of
its events are device work. Its output is kept as `tests/golden/producers.jsonl`:

    python tests/oracles/producers_oracle.py ../shared/corpus > tests/golden/producers.jsonl

Definitions:

* A time is whole nanoseconds: microseconds as written x 1000, half to even, start and length each on their own.
  rocprof writes both in whole microseconds; its args hold the measured BeginNs and EndNs, which are taken instead.
* kernel, memcpy, memset: events of that kind, and the plain sum of their lengths.
* Per device (null: the file does not say): busy_ns is the length of the union of [start, start + length) over all
  three kinds, span_ns last end minus first start.
* top_kernels: the five names with the most kernel time; ties by name.
* launches, ops, annotations, slices: rows of these tables, counted from the categories (or processes) of the file;
  events that Kineto's categories place are included.

How the figures were checked by hand, beside the two programs agreeing:

* grof `ffd58d6e9e__gpu_trace.json`: three events; 355.936 + 338.848 us of copies and one kernel of 110.72 us, none
  overlapping, so that busy is their sum, 805.504 us. In `gpu_trace.json` nothing overlaps either.
* rocprof-hip: one kernel of 5280 ns (EndNs - BeginNs; `dur` says 5) and six copies: 8480 + 6240 + 656281 + 5280 + 5280
  + 5120 = 686681 ns. Nothing overlaps: busy is 691961 ns. dev-id is 2, the process is called GPU2.
* cupti-ebpf: the sixteen copies, 4.064 + 3.296 + 5.984 + ... us, are 79.2 us, added up by hand. The kernels: four one
  after another (1236.057851 ms in all), then four at once (494.581471 ms from the first start to the last end), then
  eight at once on two threads (494.109694 ms); with the copies, which overlap none, busy is 2224.828216 ms.
* aiter-rocprof2: DurationNs, which the writer computed itself, adds up to the same kernel time; the first kernel is
  1208011538312973 - 1208011538294573 = 18400 ns, where `dur` says 18 us.
* msprof-view: the 274 "Computing" rows of the file's own overlap analysis have the starts of the 274 kernels and add
  up to 1788.2505 us, the kernels to 1788.250624 us before rounding (1788.267 after: lengths like 1.2695 us are rounded
  one by one, and most of these go up). The two MEMCPY_ASYNC tasks, 1.11 + 1.08 us, are what that analysis leaves out.
* ncompass-nsys: end_ns - start_ns of the args adds up to the same kernel time. 1614 kernels start before the one in
  front of them ends (dependent launches, up to 1.7 us): the overlaps are 330212 ns, and kernel time less that is busy.
"""

from __future__ import annotations

import gzip
import json
import sys
from collections import Counter, defaultdict
from collections.abc import Callable
from decimal import ROUND_HALF_EVEN, Decimal
from pathlib import Path
from typing import Any, NamedTuple

Event = dict[str, Any]
Names = dict[str, str]


class Work(NamedTuple):
    """A piece of device work."""

    kind: str
    device: str | None
    name: str


def load(path: Path) -> list[Event]:
    data = path.read_bytes()
    if data[:2] == b"\x1f\x8b":
        data = gzip.decompress(data)
    top = json.loads(data, parse_float=Decimal)
    return [event for event in (top if isinstance(top, list) else top["traceEvents"]) if event.get("ph")]


def ns(microseconds: Any) -> int:
    return int((Decimal(microseconds) * 1000).to_integral_value(ROUND_HALF_EVEN))


def times(event: Event) -> tuple[int, int]:
    args = event.get("args") or {}
    if "BeginNs" in args:
        return int(args["BeginNs"]), int(args["EndNs"])
    start = ns(event["ts"])
    return start, start + ns(event["dur"])


def union(intervals: list[tuple[int, int]]) -> int:
    total, reach = 0, None
    for start, end in sorted(intervals):
        if reach is None or start > reach:
            total, reach = total + end - start, end
        elif end > reach:
            total, reach = total + end - reach, end
    return total


# -- which events are device work: one function per file format ----------------------------------------------------


def rocprof(event: Event, names: Names) -> Work | None:
    section = names.get(str(event["pid"]), "")
    args = event["args"]
    if section == "COPY":
        return Work("memset" if "fill" in event["name"].lower() else "memcpy", args.get("dev-id"), event["name"])
    if section.startswith("GPU") and section[3:].isdigit():
        return Work("kernel", args.get("dev-id", args.get("gpu-id", section[3:])), event["name"])
    return None


def ascend(event: Event, names: Names) -> Work | None:
    if names.get(str(event["pid"])) != "Ascend Hardware":
        return None
    return Work("memcpy" if event["name"] == "MEMCPY_ASYNC" else "kernel", str(event["pid"]), event["name"])


def nsys(event: Event, names: Names) -> Work | None:  # noqa: ARG001
    return Work("kernel", str(event["args"]["deviceId"]), event["name"]) if event["cat"] == "cuda" else None


def cupti(event: Event, names: Names) -> Work | None:  # noqa: ARG001
    kind = {"GPU_Kernel": "kernel", "MemCopy": "memcpy"}.get(event["cat"])
    return Work(kind, None, event["name"].replace("Kernel: ", "", 1)) if kind else None


def grof(event: Event, names: Names) -> Work | None:  # noqa: ARG001
    return Work("memcpy" if event["name"].startswith("[MEMCPY]") else "kernel", str(event["pid"]), event["name"])


def nothing(event: Event, names: Names) -> Work | None:  # noqa: ARG001
    return None


# -- which events go to the other tables ---------------------------------------------------------------------------


def table(event: Event, names: Names) -> str:
    category, process = event.get("cat"), names.get(str(event.get("pid")), "")
    if category in ("cuda_api", "CUDA_Runtime", "CUDA_Driver", "mtia_runtime"):
        return "launches"
    if process in ("CPU HIP API", "CPU HSA API", "CANN"):
        return "launches"
    if category == "cpu_op" or event.get("pid") == "CPU functions":
        return "ops"
    if category in ("nvtx", "nvtx-kernel", "user_annotation"):
        return "annotations"
    return "slices"


def figures(events: list[Event], device_work: Callable[[Event, Names], Work | None]) -> dict[str, Any]:
    names = {
        str(event["pid"]): event["args"]["name"]
        for event in events
        if event["ph"] == "M" and event["name"] == "process_name"
    }
    counts, sums = Counter[str](), Counter[str]()
    tables = Counter({"launches": 0, "ops": 0, "annotations": 0, "slices": 0})
    by_name: dict[str, list[int]] = defaultdict(list)
    by_device: dict[str | None, list[tuple[int, int]]] = defaultdict(list)
    for event in events:
        if event["ph"] != "X":
            continue
        work = device_work(event, names)
        if work is None:
            tables[table(event, names)] += 1
            continue
        start, end = times(event)
        counts[work.kind] += 1
        sums[work.kind] += end - start
        by_device[work.device].append((start, end))
        if work.kind == "kernel":
            by_name[work.name].append(end - start)
    kernels = sorted(((-sum(lengths), name, len(lengths)) for name, lengths in by_name.items()))
    return {
        **{f"{kind}_count": counts[kind] for kind in ("kernel", "memcpy", "memset")},
        **{f"{kind}_ns": sums[kind] for kind in ("kernel", "memcpy", "memset")},
        "devices": [
            {
                "device": device,
                "busy_ns": union(by_device[device]),
                "span_ns": max(end for _, end in by_device[device]) - min(start for start, _ in by_device[device]),
            }
            for device in sorted(by_device, key=str)
        ],
        "distinct_kernel_names": len(by_name),
        "top_kernels": [{"name": name, "count": count, "total_ns": -total} for total, name, count in kernels[:5]],
        **tables,
    }


FILES: tuple[tuple[str, str, Callable[[Event, Names], Work | None]], ...] = (
    ("aiter-rocprof2/profiling_output.json", "rocprof v1", rocprof),
    ("rocprof-hip/results.json", "rocprof v1", rocprof),
    ("msprof-view/trace_view.json", "msprof (Ascend)", ascend),
    ("ncompass-nsys/gold_nsys_example.json.gz", "nsys export", nsys),
    ("cupti-ebpf/trace.json", "CUPTI dump", cupti),
    ("grof/ffd58d6e9e__gpu_trace.json", "CUPTI dump", grof),
    ("grof/gpu_trace.json", "CUPTI dump", grof),
    ("pippy/local_test_forward_hf_bert.json", "PyTorch autograd profiler", nothing),
    ("hta-mtia-inf/mtia_inference_rank_0.json.gz", "PyTorch Kineto", nothing),
    ("ikp-gemm/gemm_trace.json.gz", "intra-kernel profiler", nothing),
)


if __name__ == "__main__":
    for file, producer, device_work in FILES:
        trace = load(Path(sys.argv[1]) / file)
        print(json.dumps({"file": file, "producer": producer, **figures(trace, device_work)}))
