"""A trace file as the producers' rules see it, read in the plainest way: the whole file, exact decimals."""

from __future__ import annotations

import gc
import json
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from decimal import ROUND_HALF_EVEN, Decimal, InvalidOperation
from pathlib import Path
from typing import Any

import orjson
import polars as pl

from traceanalyzer.ingest.producers import FileFacts

#: What the normalizer takes by category: these events never reach the rules.
KINETO_DEVICE = frozenset(("kernel", "gpu_memcpy", "memcpy", "gpu_memset", "memset"))  # in any case
KINETO_OTHER = frozenset(
    (
        *("cuda_runtime", "cuda_driver", "hip_runtime", "mtia_runtime", "xpu_runtime", "Runtime", "cpu_op", "Operator"),
        *("user_annotation", "gpu_user_annotation", "python_function"),
    )
)
SCHEMA = {
    "category": pl.String,
    "name": pl.String,
    "pid": pl.String,
    "tid": pl.String,
    "start_ns": pl.Int64,
    "duration_ns": pl.Int64,
    "args": pl.String,
}


def read(path: Path, *, exact: bool = True) -> tuple[FileFacts, pl.DataFrame]:
    """Facts and slices of a file, salvaging the whole events of a cut one; `exact=False`: times through doubles."""
    data = path.read_bytes()
    if data[:2] == b"\x1f\x8b":
        data = _inflate(data)
    if not exact:
        with suppress(orjson.JSONDecodeError), _no_collection():
            return split(orjson.loads(data))
    return split(_load(data.decode("utf-8-sig", "replace")))


def split(trace: Any) -> tuple[FileFacts, pl.DataFrame]:
    """Facts and slices of a decoded trace: an object with `traceEvents`, or a bare array."""
    metadata = {key: value for key, value in trace.items() if key != "traceEvents"} if isinstance(trace, dict) else {}
    listed = trace["traceEvents"] if isinstance(trace, dict) else trace
    events = [event for event in listed if isinstance(event, dict) and isinstance(event.get("ph"), str)]
    base = int(metadata.get("baseTimeNanoseconds", 0))
    return _facts(events, metadata), slices(_spans(events), base)


def slices(events: Iterable[Mapping[str, Any]], base_ns: int = 0) -> pl.DataFrame:
    """The slices frame of complete events."""
    rows = [_slice(event, base_ns) for event in events]
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


@contextmanager
def _no_collection() -> Iterator[None]:
    """Without the garbage collector: it takes more than half of the time when millions of objects are made."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _inflate(data: bytes) -> bytes:
    """All members of a gzip file, up to where it is cut."""
    text = b""
    while data:
        member = zlib.decompressobj(31)
        text += member.decompress(data)
        data = member.unused_data
    return text


def _load(text: str) -> Any:
    decoder = json.JSONDecoder(parse_float=Decimal, strict=False)
    try:
        return decoder.decode(text)
    except ValueError:
        return _salvage(text, decoder)


def _salvage(text: str, decoder: json.JSONDecoder) -> list[Any]:
    events: list[Any] = []
    place = text.index("[", text.find('"traceEvents"') + 1) + 1
    while True:
        while place < len(text) and text[place] in " \t\r\n,":
            place += 1
        try:
            event, place = decoder.raw_decode(text, place)
        except ValueError:
            return events
        events.append(event)


def _facts(events: list[dict[str, Any]], metadata: dict[str, Any]) -> FileFacts:
    processes: dict[str, dict[str, str]] = {"process_name": {}, "process_labels": {}}
    threads: dict[tuple[str, str], str] = {}
    for event in events:
        if event["ph"] != "M" or not isinstance(event.get("args"), dict):
            continue
        pid, kind = str(event.get("pid")), event.get("name")
        if kind == "thread_name":
            threads[pid, str(event.get("tid"))] = str(event["args"].get("name"))
        elif kind in processes:
            processes[kind][pid] = str(event["args"].get("name", event["args"].get("labels")))
    counts = Counter((event["ph"], event.get("cat")) for event in events)
    return FileFacts(metadata, processes["process_name"], processes["process_labels"], threads, counts)


def _spans(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Complete events and matched begin/end pairs that the normalizer leaves to `slices`, in file order."""
    spans: list[dict[str, Any]] = []
    open_pairs: dict[tuple[Any, Any], list[dict[str, Any]]] = {}
    for event in events:
        if str(event.get("cat")).lower() in KINETO_DEVICE or event.get("cat") in KINETO_OTHER:
            continue
        thread = (event.get("pid"), event.get("tid"))
        if event["ph"] == "X" and _number(event.get("ts")) is not None and _number(event.get("dur")) is not None:
            spans.append(event)
        elif event["ph"] == "B":
            open_pairs.setdefault(thread, []).append(event)
        elif event["ph"] == "E" and open_pairs.get(thread):
            begin = open_pairs[thread].pop()
            spans.append({**begin, "dur": Decimal(str(event["ts"])) - Decimal(str(begin["ts"]))})
    return spans


def _slice(event: Mapping[str, Any], base_ns: int) -> tuple[Any, ...]:
    args = event.get("args")
    return (
        event.get("cat"),
        str(event.get("name")),
        _id(event, "pid"),
        _id(event, "tid"),
        base_ns + nanoseconds(event["ts"]),
        nanoseconds(event["dur"]),
        None if args is None else json.dumps(args, default=float),
    )


def _id(event: Mapping[str, Any], key: str) -> str | None:
    return None if event.get(key) is None else str(event[key])


def _number(value: Any) -> Decimal | None:
    try:
        number = Decimal(str(value))
    except InvalidOperation:
        return None
    return number if number.is_finite() else None


def nanoseconds(microseconds: Any) -> int:
    """Whole nanoseconds of a time in microseconds, half to even."""
    if isinstance(microseconds, int):
        return microseconds * 1000
    return int((Decimal(str(microseconds)) * 1000).to_integral_value(ROUND_HALF_EVEN))
