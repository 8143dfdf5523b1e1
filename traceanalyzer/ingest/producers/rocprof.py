"""rocprof (ROCm/rocprofiler, the first generation): `results.json`, written from its SQLite tables.

Learned from the corpus (`rocprof-hip`, `aiter-rocprof2`) and the writer, ROCm/rocprofiler `bin/tblextr.py` and
`bin/sqlitedb.py`: each section of the trace is a made-up process with a name, everything is a complete event without
a category, all values are strings, and the first entry is an empty object.

- Mark: processes called COPY, GPU<n>, CPU HIP API or CPU HSA API, and `BeginNs` in the args.
- Device work: the rows of the GPU<n> processes are kernels. Barrier packets (processes "GPU Barriers<n>", older
  versions `<barrier packet>` among the kernels) only wait and stay slices. The rows of COPY are copies; the writer
  puts what it calls Fill there as well: those are sets.
- Times: `ts` and `dur` are cut to whole microseconds, and a `dur` of 0 is written as 1. `BeginNs` and `EndNs` are the
  measured nanoseconds and replace both, for host rows too. With ROCP_JSON_REBASE the event times start at the
  beginning of the run while BeginNs does not: then the event times give the origin (to less than a microsecond).
- Device: `dev-id` or `gpu-id`, else the number in the process name. An HSA copy has none: null.
- Stream: `stream-id`, else `queue-id`, else the row. There is no correlation id; only arrows (DataFlow) link calls.
- `grd` and `wgr` are all work items of a dispatch and of a work group: blocks are their quotient, as a flat grid.
"""

from __future__ import annotations

import re

import polars as pl

from traceanalyzer.ingest.producers.base import FileFacts, Reclassified, reclassified
from traceanalyzer.ingest.producers.columns import Args, as_text, either, left_over, named, rows
from traceanalyzer.notes import Note

NAME = "rocprof v1"

_HIP, _HSA, _COPY, _MARKERS = "CPU HIP API", "CPU HSA API", "COPY", "Markers and Ranges"
_GPU = re.compile(r"GPU\d+")
_BARRIER = "<barrier packet>"
_MICROSECOND_NS = 1000


def matches(facts: FileFacts, slices: pl.DataFrame) -> bool:
    """Sections by name, confirmed by the nanoseconds in the args."""
    names = facts.process_names.values()
    if not facts.uncategorised or not any(name in (_HIP, _HSA, _COPY) or _GPU.fullmatch(name) for name in names):
        return False
    return bool(slices["args"].str.contains('"BeginNs"', literal=True).any())


def convert(facts: FileFacts, slices: pl.DataFrame) -> Reclassified:
    """Sections become tables."""
    timed, notes = _exact_times(slices)
    work = as_text(timed).with_columns(section=named(timed["pid"], facts.process_names))
    kernels = work.filter(pl.col("section").str.contains(r"^GPU\d+$") & (pl.col("name") != _BARRIER))
    copies = work.filter(pl.col("section") == _COPY)
    calls = work.filter(pl.col("section").is_in((_HIP, _HSA)))
    markers = work.filter(pl.col("section") == _MARKERS)
    return reclassified(
        left_over(timed, kernels, copies, calls, markers),
        kernels=pl.concat([_kernels(kernels), _copies(copies)], how="diagonal"),
        launches=rows(calls, kind=_call_kind(calls)),
        annotations=rows(markers, on_device=False),
        notes=notes,
    )


def _call_kind(calls: pl.DataFrame) -> pl.Series:
    """HIP is the runtime, HSA the layer below it."""
    return calls["section"].replace_strict([_HIP, _HSA], ["runtime", "driver"], return_dtype=pl.String)


def _kernels(picked: pl.DataFrame) -> pl.DataFrame:
    args = Args(picked["args"])
    items, group = args.integers("grd", positive=True), args.integers("wgr", positive=True)
    blocks = (items + group - 1) // group
    one = blocks * 0 + 1  # null where the blocks are
    vector_registers = args.integers("arch_vgpr") + args.integers("accum_vgpr").fill_null(0)
    return rows(
        picked,
        kind="kernel",
        device=either(args.labels("dev-id", "gpu-id"), picked["section"].str.strip_prefix("GPU")),
        stream=_streams(picked, args),
        grid_x=blocks,
        grid_y=one,
        grid_z=one,
        block_x=group,
        block_y=one,
        block_z=one,
        registers=either(vector_registers, args.integers("vgpr")),
        shared_memory=args.integers("lds"),
    )


def _copies(picked: pl.DataFrame) -> pl.DataFrame:
    args = Args(picked["args"])
    return rows(
        picked,
        kind=pl.when(pl.col("name").str.contains("(?i)fill|memset")).then(pl.lit("memset")).otherwise(pl.lit("memcpy")),
        device=args.labels("dev-id", "gpu-id"),
        stream=_streams(picked, args),
    )


def _streams(picked: pl.DataFrame, args: Args) -> pl.Series:
    """-1 is the lane of HSA copies whose call was not recorded."""
    return either(args.labels("stream-id", "queue-id"), picked["tid"].replace("-1", None))


def _exact_times(slices: pl.DataFrame) -> tuple[pl.DataFrame, tuple[Note, ...]]:
    """The slices on the clock of BeginNs and EndNs; rows without them keep what they have."""
    args = Args(slices["args"])
    times = pl.DataFrame({"begin": args.integers("BeginNs"), "end": args.integers("EndNs")})
    known = slices.hstack(times).filter(pl.col("end") >= pl.col("begin"))
    if known.is_empty():
        return slices, ()
    ahead = known["begin"] - known["start_ns"]
    low, high = int(ahead.min()), int(ahead.max())  # type: ignore[arg-type]
    measured = pl.col("end") >= pl.col("begin")  # null, thus no, where either is missing
    exact = slices.hstack(times).with_columns(
        duration_ns=pl.when(measured).then(pl.col("end") - pl.col("begin")).otherwise("duration_ns")
    )
    if high - low >= _MICROSECOND_NS:
        note = Note(
            "warning",
            "rocprof-clock",
            "BeginNs does not follow the event times: starts are exact to a microsecond only, durations are exact",
            count=known.height,
        )
        return exact.drop("begin", "end"), (note,)
    origin = 0 if low >= 0 and high < _MICROSECOND_NS else low
    exact = exact.with_columns(start_ns=pl.when(measured).then(pl.col("begin") - origin).otherwise("start_ns"))
    return exact.drop("begin", "end"), ()
