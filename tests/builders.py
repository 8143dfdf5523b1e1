"""Write a trace in one line: as events, as a file, or as a `Trace` in memory for tests without the reader.

    trace([kernel("gemm", at=0, dur=20), kernel("norm", at=25, dur=5, stream=8)])
    write_trace(tmp_path / "rank0.json.gz", [kernel("gemm", at=0, dur=20)], rank=0)

Times are µs, as in the file; tables hold ns. Device 0 is a "Test GPU" of 100 SMs unless `device_properties`
says otherwise, so that fills are easy to check by eye.
"""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl

from traceanalyzer import schema
from traceanalyzer.trace import Trace

Event = dict[str, Any]
Grid = tuple[int, int, int]

TEST_GPU: Mapping[str, Any] = {
    "id": 0, "name": "Test GPU", "totalGlobalMem": 85899345920, "computeMajor": 9, "computeMinor": 0,
    "maxThreadsPerBlock": 1024, "maxThreadsPerMultiprocessor": 2048, "regsPerBlock": 65536, "warpSize": 32,
    "sharedMemPerBlock": 49152, "numSms": 100, "regsPerMultiprocessor": 65536,
    "sharedMemPerBlockOptin": 232448, "sharedMemPerMultiprocessor": 233472,
}  # fmt: skip

#: Category -> table and value of its `kind` column. Everything else with a duration is a slice.
TABLE_OF = {
    "kernel": ("kernels", "kernel"),
    "gpu_memcpy": ("kernels", "memcpy"),
    "gpu_memset": ("kernels", "memset"),
    "cuda_runtime": ("launches", "runtime"),
    "cuda_driver": ("launches", "driver"),
    "cpu_op": ("ops", None),
    "user_annotation": ("annotations", None),
    "gpu_user_annotation": ("annotations", None),
    "python_function": ("python_calls", None),
}
#: Key of deviceProperties -> column of `devices`.
DEVICE_COLUMN = {
    "name": "name", "computeMajor": "compute_major", "computeMinor": "compute_minor", "numSms": "sms",
    "warpSize": "warp_size", "maxThreadsPerBlock": "max_threads_per_block",
    "maxThreadsPerMultiprocessor": "max_threads_per_sm", "regsPerMultiprocessor": "registers_per_sm",
    "regsPerBlock": "registers_per_block", "sharedMemPerMultiprocessor": "shared_memory_per_sm",
    "sharedMemPerBlock": "shared_memory_per_block", "sharedMemPerBlockOptin": "shared_memory_per_block_optin",
    "totalGlobalMem": "total_memory",
}  # fmt: skip


def _event(cat: str, name: str, at: float, dur: float, pid: Any, tid: Any, args: Mapping[str, Any]) -> Event:
    known = {key: value for key, value in args.items() if value is not None}
    return {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": at, "dur": dur, "args": known}


def kernel(
    name: str,
    *,
    at: float,
    dur: float,
    stream: int = 7,
    device: int = 0,
    grid: Grid | None = (100, 1, 1),
    block: Grid | None = (128, 1, 1),
    correlation: int | None = None,
    external_id: int | None = None,
    registers: int | None = None,
    shared_memory: int | None = None,
    cat: str = "kernel",
    **args: Any,
) -> Event:
    """A kernel; `grid=None` as in a replayed graph."""
    return _event(cat, name, at, dur, device, stream, {
        "External id": external_id, "device": device, "stream": stream, "correlation": correlation,
        "grid": grid and list(grid), "block": block and list(block),
        "registers per thread": registers, "shared memory": shared_memory, **args,
    })  # fmt: skip


def memcpy(
    name: str = "Memcpy HtoD (Pageable -> Device)",
    *,
    at: float,
    dur: float,
    stream: int = 7,
    device: int = 0,
    bytes: int | None = None,
    correlation: int | None = None,
) -> Event:
    """A copy on the device."""
    args = {"device": device, "stream": stream, "bytes": bytes, "correlation": correlation}
    return _event("gpu_memcpy", name, at, dur, device, stream, args)


def memset(name: str = "Memset (Device)", *, at: float, dur: float, stream: int = 7, device: int = 0) -> Event:
    """A set on the device."""
    return _event("gpu_memset", name, at, dur, device, stream, {"device": device, "stream": stream})


def launch(
    name: str = "cudaLaunchKernel",
    *,
    at: float,
    dur: float = 2,
    correlation: int | None = None,
    external_id: int | None = None,
    pid: int = 4000,
    tid: int = 4001,
    cat: str = "cuda_runtime",
) -> Event:
    """A runtime or driver call on the host."""
    args = {"correlation": correlation, "External id": external_id}
    return _event(cat, name, at, dur, pid, tid, args)


def op(
    name: str,
    *,
    at: float,
    dur: float,
    external_id: int | None = None,
    pid: int = 4000,
    tid: int = 4001,
    **args: Any,
) -> Event:
    """A host operator."""
    return _event("cpu_op", name, at, dur, pid, tid, {"External id": external_id, **args})


def annotation(name: str, *, at: float, dur: float, pid: int = 4000, tid: int = 4001, on_device: bool = False) -> Event:
    """A named range (a step marker, say)."""
    return _event("gpu_user_annotation" if on_device else "user_annotation", name, at, dur, pid, tid, {})


def python_call(name: str, *, at: float, dur: float, pid: int = 4000, tid: int = 4001, **args: Any) -> Event:
    """A python frame or the call of an nn.Module."""
    return _event("python_function", name, at, dur, pid, tid, args)


def trace_json(
    events: Iterable[Event],
    *,
    rank: int | None = 0,
    world_size: int | None = None,
    device_properties: Sequence[Mapping[str, Any]] = (TEST_GPU,),
    base_ns: int | None = None,
    **top: Any,
) -> dict[str, Any]:
    """The content of a trace file. `rank=None`: a file that does not know its rank."""
    head: dict[str, Any] = {
        "schemaVersion": 1,
        "deviceProperties": [dict(each) for each in device_properties],
    }
    if rank is not None:
        size = world_size if world_size is not None else rank + 1
        head["distributedInfo"] = {"backend": "nccl", "rank": rank, "world_size": size}
    if base_ns is not None:
        head["baseTimeNanoseconds"] = base_ns
    return {**head, **top, "traceEvents": list(events)}


def write_trace(path: Path, events: Iterable[Event], **top: Any) -> Path:
    """Write `trace_json` to a file, compressed if the name ends in .gz; `top` as for `trace_json`."""
    text = json.dumps(trace_json(events, **top)).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return path


def trace(
    events: Iterable[Event] = (),
    *,
    rank: int | None = 0,
    run: str = "run",
    stage: str | None = None,
    path: str | None = None,
    world_size: int | None = None,
    device_properties: Sequence[Mapping[str, Any]] = (TEST_GPU,),
    base_ns: int = 0,
    used: bool = True,
    reason: str | None = None,
    notes: Sequence[Mapping[str, Any]] = (),
) -> Trace:
    """One source as a `Trace`, built directly: no file, no reader."""
    events = list(events)
    rows: dict[str, list[dict[str, Any]]] = {table.name: [] for table in schema.TABLES}
    for event in events if used else ():
        table, row = _row(event, rank, base_ns)
        rows[table].append(row)
    rows["devices"] = [_device(each) for each in device_properties]
    rows["event_counts"] = [
        {
            "source": 0,
            "phase": "X",
            "category": cat,
            "table": TABLE_OF.get(cat, ("slices", None))[0],
            "count": n,
        }
        for cat, n in Counter(event["cat"] for event in events).items()
    ]
    rows["notes"] = [dict(note) for note in notes]
    activity = [(row["start_ns"], row["start_ns"] + row["duration_ns"]) for row in rows["kernels"]]
    rows["ranks"] = [{
        "source": 0, "rank": rank, "run": run, "stage": stage, "path": path or f"{run}/rank{rank}.json",
        "rank_from": None if rank is None else "content", "world_size": world_size, "used": used,
        "reason": reason, "producer": "kineto", "base_ns": base_ns, "events": len(events), "whole": True,
        "gzipped": False, "file_bytes": 1000, "json_bytes": 1000,
        "first_ns": min((start for start, _ in activity), default=None),
        "last_ns": max((end for _, end in activity), default=None),
    }]  # fmt: skip
    return Trace(**{name: _frame(name, found) for name, found in rows.items()})


def traces(*parts: Trace) -> Trace:
    """Several sources as one `Trace`, numbered in the order given."""
    numbered = [
        {name: _with_source(frame, number) for name, frame in part.tables.items()} for number, part in enumerate(parts)
    ]
    return Trace(**{name: pl.concat([tables[name] for tables in numbered]) for name in numbered[0]})


def _with_source(frame: pl.DataFrame, number: int) -> pl.DataFrame:
    if "source" not in frame.columns:
        return frame
    return frame.with_columns(pl.lit(number, frame.schema["source"]).alias("source"))


def _frame(name: str, rows: list[dict[str, Any]]) -> pl.DataFrame:
    table = schema.table(name)
    columns = {column.name: [row.get(column.name) for row in rows] for column in table.columns}
    return pl.DataFrame(columns, schema=table.schema)


def _table_of(category: str) -> tuple[str, str | None]:
    return TABLE_OF.get(category, ("slices", None))


def _ns(us: float) -> int:
    return int((Decimal(str(us)) * 1000).to_integral_value())


def _row(event: Event, rank: int | None, base_ns: int) -> tuple[str, dict[str, Any]]:
    name, kind = _table_of(event["cat"])
    args = event["args"]
    row = {
        "source": 0, "rank": rank, "kind": kind, "name": event["name"], "category": event["cat"],
        "start_ns": base_ns + _ns(event["ts"]), "duration_ns": _ns(event["dur"]),
        "pid": str(event["pid"]), "tid": str(event["tid"]), "on_device": event["cat"].startswith("gpu_"),
        "device": str(args.get("device", event["pid"])), "stream": str(args.get("stream", event["tid"])),
        "args": json.dumps(args),
    }  # fmt: skip
    found = {column.name: _argument(column, args) for column in schema.table(name).arg_columns}
    return name, row | {column: value for column, value in found.items() if value is not None}


def _argument(column: schema.Column, args: Mapping[str, Any]) -> Any:
    value = next((args[key] for key in column.args if key in args), None)
    if value is None or (column.zero_is_unknown and value in (0, -1)):
        return None
    if column.kind == "dim3":
        return value[column.part]
    if column.kind == "json":
        return json.dumps(value)
    return str(value) if column.kind == "label" else value


def _device(properties: Mapping[str, Any]) -> dict[str, Any]:
    known = {column: properties[key] for key, column in DEVICE_COLUMN.items() if key in properties}
    return {"source": 0, "device": str(properties["id"]), **known}
