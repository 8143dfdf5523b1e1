"""A reader as simple as can be: the whole file at once, one dict an event, exact decimal arithmetic.

The reference for the engines. It shares no code with them but the list of columns in `traceanalyzer.schema`
(which says where a column comes from), and is meant to be read in one sitting.
"""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from decimal import ROUND_HALF_EVEN, Decimal, InvalidOperation
from pathlib import Path
from typing import Any

from traceanalyzer import schema

DEVICE = {"kernel": "kernel", "gpu_memcpy": "memcpy", "memcpy": "memcpy", "gpu_memset": "memset", "memset": "memset"}
RUNTIME = {
    "cuda_runtime",
    "Runtime",
    "hip_runtime",
    "xpu_runtime",
    "mtia_runtime",
    "glow_runtime",
    "privateuse1_runtime",
}
DRIVER = {"cuda_driver", "Driver", "xpu_driver", "privateuse1_driver"}
Row = dict[str, Any]


def read(path: Path) -> dict[str, list[Row]]:
    """Rows of every event table, in file order, without source and rank. Kineto rules only."""
    data = path.read_bytes()
    if data[:2] == b"\x1f\x8b":
        data = gzip.decompress(data)
    text = data.decode("utf-8-sig")
    top = json.loads(text, parse_float=Decimal, parse_constant=lambda _: None, strict=False)
    events = top if isinstance(top, list) else top["traceEvents"]
    base = 0 if isinstance(top, list) else int(top.get("baseTimeNanoseconds", 0))
    tables: dict[str, list[Row]] = defaultdict(list)
    marks: list[tuple[int, int, Row]] = []
    for index, event in enumerate(events):
        if isinstance(event, dict) and isinstance(event.get("ph"), str):
            _take(event, index, base, tables, marks)
    tables["slices"] += _pairs(marks, base)
    return tables


def _take(event: Row, index: int, base: int, tables: dict[str, list[Row]], marks: list[Any]) -> None:
    phase = event["ph"]
    category = event.get("cat") if isinstance(event.get("cat"), str) else None
    args = event.get("args") if isinstance(event.get("args"), dict) else {}
    assert isinstance(args, dict)
    start = ns(event.get("ts"))
    if start is None:
        return
    place: Row = {"name": label(event.get("name")), "pid": label(event.get("pid")), "tid": label(event.get("tid"))}
    if phase in ("s", "t", "f"):
        flow = {"phase": phase, "category": category, "id": integer(event.get("id")), "time_ns": start + base}
        tables["flows"].append({**place, **flow})
    elif phase == "C" or (phase in "iI" and event.get("name") == "[memory]"):
        for name, series, value in _counter_values(event, args):
            point = {"name": name, "series": series, "time_ns": start + base, "value": value}
            tables["counters"].append({**place, **point})
    elif phase in ("B", "E", "b", "e", "S", "F"):
        row = {**place, "category": category, "args": args, "ph": phase, "id": event.get("id")}
        marks.append((start, index, row))
    elif phase == "X":
        duration = ns(event.get("dur"), 10**18)
        if duration is not None and duration >= 0:
            _take_span({**place, "start_ns": start, "duration_ns": duration}, category, args, base, tables)


def _take_span(row: Row, category: str | None, args: Row, base: int, tables: dict[str, list[Row]]) -> None:
    lower = (category or "").lower()
    lost = row["start_ns"] == 0 and row["duration_ns"] == 0
    row["start_ns"] += base
    collective = isinstance(args.get("Collective name"), str)
    if lower in DEVICE:
        if lost:
            return
        device = _args(schema.KERNELS, args)
        device["device"] = row["pid"] if device["device"] is None else device["device"]
        device["stream"] = row["tid"] if device["stream"] is None else device["stream"]
        if device["stream"] is not None:
            device["stream"] = device["stream"].removeprefix("stream ")
        tables["kernels"].append({**row, **device, "kind": DEVICE[lower]})
        if collective:
            tables["collectives"].append({**row, **_args(schema.COLLECTIVES, args), "on_device": True})
    elif category in RUNTIME | DRIVER:
        kind = "runtime" if category in RUNTIME else "driver"
        tables["launches"].append({**row, **_args(schema.LAUNCHES, args), "kind": kind})
    elif category in ("cpu_op", "Operator"):
        tables["ops"].append({**row, **_args(schema.OPS, args)})
        if collective:
            tables["collectives"].append({**row, **_args(schema.COLLECTIVES, args), "on_device": False})
    elif category in ("user_annotation", "gpu_user_annotation"):
        on_device = category == "gpu_user_annotation"
        tables["annotations"].append({**row, **_args(schema.ANNOTATIONS, args), "on_device": on_device})
    elif category == "python_function":
        tables["python_calls"].append({**row, **_args(schema.PYTHON_CALLS, args)})
    else:
        tables["slices"].append({**row, "category": category, "args": json_text(args) if args else None})


def _counter_values(event: Row, args: Row) -> list[tuple[str | None, str, float]]:
    if event["ph"] == "C":
        name = label(event.get("name"))
        if event.get("id") is not None:
            name = f"{name} {label(event['id'])}"
        wanted = list(args)
    else:
        kind, number = args.get("Device Type"), args.get("Device Id")
        what = {0: "cpu", 1: "cuda"}.get(kind, f"device-type-{kind}") if isinstance(kind, int) else "unknown"
        name = f"[memory] {what if kind == 0 or number is None else f'{what}:{number}'}"
        wanted = ["Bytes", "Total Allocated", "Total Reserved"]
    values = [(name, series, number_of(args.get(series))) for series in wanted]
    return [(name, series, float(value)) for name, series, value in values if value is not None]


def _pairs(marks: list[tuple[int, int, Row]], base: int) -> list[Row]:
    stacks: dict[Any, list[tuple[int, int, Row]]] = defaultdict(list)
    done: list[tuple[int, Row]] = []
    for start, index, row in sorted(marks, key=lambda mark: mark[:2]):
        if row["ph"] in "BE":
            key: Any = (row["pid"], row["tid"])
        else:
            key = (row["ph"] in "be", row["pid"], row["category"], label(row["id"]), row["name"])
        if row["ph"] in "BbS":
            stacks[key].append((start, index, row))
        elif stacks[key]:
            begin, at, first = stacks[key].pop()
            args = first["args"] or row["args"]
            done.append((at, {
                **{name: first[name] for name in ("category", "name", "pid", "tid")},
                "start_ns": begin + base, "duration_ns": start - begin, "args": json_text(args) if args else None,
            }))  # fmt: skip
    return [row for _, row in sorted(done, key=lambda each: each[0])]


def _args(table: schema.Table, args: Row) -> Row:
    row: Row = {}
    for column in table.arg_columns:
        value = next((args[key] for key in column.args if args.get(key) is not None), None)
        row[column.name] = _typed(column, value)
    return row


def _typed(column: schema.Column, value: Any) -> Any:
    if value is None:
        return None
    if column.kind == "dim3":
        numbers = [integer(each) for each in value] if isinstance(value, list) and len(value) == 3 else [None]
        return None if None in numbers else numbers[column.part]
    if column.kind == "number":
        number = number_of(value)
        return None if number is None else float(number)
    if column.kind == "integer":
        whole = integer(value)
        return None if column.zero_is_unknown and whole in (0, -1) else whole
    if column.kind == "label":
        return label(value)
    if column.kind == "json":
        return value if isinstance(value, str) else json_text(value)
    return value if isinstance(value, str) else None


def number_of(value: Any) -> Decimal | None:
    """A finite number, or a string that spells one."""
    if isinstance(value, bool) or not isinstance(value, (int, Decimal, str)):
        return None
    try:
        number = Decimal(value.strip() if isinstance(value, str) else value)
    except InvalidOperation:
        return None
    return number if number.is_finite() else None


def ns(value: Any, most: int = 4 * 10**18) -> int | None:
    """Microseconds -> nanoseconds, half to even; None for times that cannot be."""
    number = number_of(value)
    if number is None or abs(number) > most:
        return None
    whole = int((number * 1000).quantize(Decimal(1), ROUND_HALF_EVEN))
    return whole if abs(whole) <= most else None


def integer(value: Any) -> int | None:
    """A whole number."""
    number = number_of(value)
    return int(number) if number is not None and number == int(number) else None


def label(value: Any) -> str | None:
    """7 and "7" are the same label."""
    return str(value) if isinstance(value, (str, int, Decimal)) and not isinstance(value, bool) else None


def json_text(value: Any) -> str:
    """One spelling for equal values."""
    return json.dumps(value, ensure_ascii=False, default=float)
