"""The public tables: every column with its type, its unit and one sentence of meaning.

This module is the one place that knows what a table holds. The reader's engines take from it which event
fields and which ``args`` become columns, the normalizer takes the types, ``traceanalyze schema`` and the
documentation print it.

Conventions: a column that ends in ``_ns`` is whole nanoseconds, absolute (``baseTimeNanoseconds`` added) where
it is a point in time. Unknown is null, never 0. Repeated text is dictionary-coded (polars ``Categorical``).
``source`` is the row of ``ranks`` that an event came from: one row per file, or one per rank of a merged file.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import polars as pl

#: Bumped whenever a column is added, removed or changes its meaning (the store depends on it).
SCHEMA_VERSION = 3

DEVICE_KINDS = ("kernel", "memcpy", "memset")
LAUNCH_KINDS = ("runtime", "driver")
NOTE_LEVELS = ("info", "warning", "error")

#: How the text of an argument becomes a value. ``integer``/``number`` also accept numbers written as strings,
#: ``label`` accepts an integer or a string and keeps it as text, ``text`` is a string, ``json`` is any value kept
#: as canonical JSON text, ``dim3`` is a list of three integers spread over three columns.
ArgKind = Literal["integer", "number", "label", "text", "json", "dim3"]


@dataclass(frozen=True)
class Column:
    """One column of a public table."""

    name: str
    dtype: pl.DataType
    doc: str
    unit: str | None = None
    args: tuple[str, ...] = ()
    """Keys inside ``args`` that the value is read from; the first one present wins. Empty: not from ``args``."""
    kind: ArgKind | None = None
    part: int = 0
    """For ``dim3`` columns: which of the three numbers."""
    zero_is_unknown: bool = False
    """Ids for which producers write 0 or -1 to say "none"; those become null."""


@dataclass(frozen=True)
class Table:
    """A public table: what one row is, and its columns in order."""

    name: str
    doc: str
    columns: tuple[Column, ...]

    @property
    def schema(self) -> pl.Schema:
        """The polars schema of the table."""
        return pl.Schema({column.name: column.dtype for column in self.columns})

    @property
    def arg_columns(self) -> tuple[Column, ...]:
        """The columns that are read from an event's ``args``."""
        return tuple(column for column in self.columns if column.args)

    def empty(self) -> pl.DataFrame:
        """The table with no rows."""
        return pl.DataFrame(schema=self.schema)


_TEXT = pl.Categorical()
_I64 = pl.Int64()
_I32 = pl.Int32()
_F64 = pl.Float64()


def _source() -> tuple[Column, ...]:
    return (
        Column("source", pl.UInt16(), "row of `ranks` that the event came from"),
        Column("rank", _I32, "global rank of the source; null where it is unknown"),
    )


def _thread() -> tuple[Column, ...]:
    return (
        Column("pid", _TEXT, "process id as the file has it"),
        Column("tid", _TEXT, "thread id as the file has it"),
    )


def _span() -> tuple[Column, ...]:
    return (
        Column("start_ns", _I64, "start, absolute", "ns"),
        Column("duration_ns", _I64, "length as recorded, never clipped", "ns"),
    )


def _external_id() -> Column:
    return Column(
        "external_id",
        _I64,
        "id that ties device work and launch calls to the host operator that was running",
        args=("External id", "external id"),
        kind="integer",
        zero_is_unknown=True,
    )


def _correlation() -> Column:
    return Column(
        "correlation",
        _I64,
        "id shared by a launch call and the device work it started; null: no link (the file says 0, -1 or nothing)",
        args=("correlation", "correlationId"),
        kind="integer",
        zero_is_unknown=True,
    )


def _dim3(prefix: str, key: str, doc: str) -> tuple[Column, ...]:
    return tuple(
        Column(f"{prefix}_{axis}", _I32, f"{doc}, {axis}", args=(key,), kind="dim3", part=part)
        for part, axis in enumerate("xyz")
    )


KERNELS = Table(
    "kernels",
    "One row per piece of device activity: kernels, copies and sets. Nothing else is GPU work.",
    (
        *_source(),
        Column("kind", pl.Enum(DEVICE_KINDS), "kernel, memcpy or memset"),
        Column("name", _TEXT, "full name as recorded"),
        Column("device", _TEXT, "device: args.device, else the process id", args=("device", "deviceId"), kind="label"),
        Column(
            "stream",
            _TEXT,
            "stream or queue: args.stream, else the thread id without a leading 'stream '",
            args=("stream", "streamId"),
            kind="label",
        ),
        *_span(),
        _correlation(),
        _external_id(),
        *_dim3("grid", "grid", "blocks of the launch"),
        *_dim3("block", "block", "threads of a block"),
        Column(
            "registers",
            _I32,
            "registers per thread",
            "registers",
            args=("registers per thread", "registersPerThread"),
            kind="integer",
        ),
        Column(
            "shared_memory",
            _I32,
            "shared memory per block, static and dynamic",
            "bytes",
            args=("shared memory",),
            kind="integer",
        ),
        Column(
            "trace_blocks_per_sm",
            _F64,
            "the trace's own blocks per SM (blocks over SM count, not residency)",
            "blocks",
            args=("blocks per SM",),
            kind="number",
        ),
        Column(
            "trace_occupancy_percent",
            _F64,
            "the trace's own 'est. achieved occupancy %'; 0 for any kernel above 48 KiB of shared memory, never used",
            "percent",
            args=("est. achieved occupancy %",),
            kind="number",
        ),
        Column(
            "graph_id",
            _I64,
            "CUDA graph that the node belongs to",
            args=("graph id",),
            kind="integer",
            zero_is_unknown=True,
        ),
        Column(
            "graph_node_id",
            _I64,
            "node of the CUDA graph",
            args=("graph node id",),
            kind="integer",
            zero_is_unknown=True,
        ),
        Column("bytes", _I64, "bytes copied or set", "bytes", args=("bytes",), kind="integer"),
    ),
)

LAUNCHES = Table(
    "launches",
    "One row per runtime or driver call on the host (cudaLaunchKernel, hipGraphLaunch, cudaMemcpyAsync, ...).",
    (
        *_source(),
        Column("kind", pl.Enum(LAUNCH_KINDS), "runtime or driver"),
        Column("name", _TEXT, "name of the call"),
        *_thread(),
        *_span(),
        _correlation(),
        _external_id(),
        Column("kernel", _TEXT, "kernel that the call launches, where it says", args=("kernel",), kind="text"),
    ),
)

OPS = Table(
    "ops",
    "One row per host operator (aten::mm, record_param_comms, ...), nested ones included.",
    (
        *_source(),
        Column("name", _TEXT, "operator"),
        *_thread(),
        *_span(),
        _external_id(),
        Column(
            "sequence_number",
            _I64,
            "autograd sequence number that ties a forward operator to its backward",
            args=("Sequence number",),
            kind="integer",
        ),
        Column(
            "forward_thread",
            _I64,
            "thread id (autograd's own counting) of the forward operator",
            args=("Fwd thread id",),
            kind="integer",
        ),
        Column(
            "input_dims",
            _TEXT,
            "shapes of the inputs as JSON, when recorded",
            args=("Input Dims", "Input dims"),
            kind="json",
        ),
        Column(
            "input_types",
            _TEXT,
            "types of the inputs as JSON, when recorded",
            args=("Input type",),
            kind="json",
        ),
        Column(
            "input_strides",
            _TEXT,
            "strides of the inputs as JSON, when recorded",
            args=("Input Strides",),
            kind="json",
        ),
        Column(
            "concrete_inputs",
            _TEXT,
            "scalar inputs as JSON, when recorded",
            args=("Concrete Inputs",),
            kind="json",
        ),
    ),
)

ANNOTATIONS = Table(
    "annotations",
    "One row per named range a program or framework set (record_function, NVTX, step markers), on host or device.",
    (
        *_source(),
        Column("on_device", pl.Boolean(), "true for the profiler's projection of a range onto a GPU stream"),
        Column("name", _TEXT, "text of the range"),
        *_thread(),
        *_span(),
        _external_id(),
    ),
)

PYTHON_CALLS = Table(
    "python_calls",
    "One row per python function call (recorded with with_stack).",
    (
        *_source(),
        Column("name", _TEXT, "file(line): function, or nn.Module: class"),
        *_thread(),
        *_span(),
        Column("python_id", _I32, "id of the call", args=("Python id",), kind="integer"),
        Column("parent_id", _I32, "id of the calling frame", args=("Python parent id",), kind="integer"),
        Column("module_id", _I32, "instance number of the nn.Module", args=("Python module id",), kind="integer"),
    ),
)

FLOWS = Table(
    "flows",
    "One row per end of an arrow between two events.",
    (
        *_source(),
        Column("phase", pl.Enum(("s", "t", "f")), "s: start, t: step, f: end"),
        Column("category", _TEXT, "ac2g, fwdbwd, ..."),
        Column("id", _I64, "id that joins the ends of an arrow, within a source and category"),
        *_thread(),
        Column("time_ns", _I64, "point in time, absolute", "ns"),
    ),
)

COUNTERS = Table(
    "counters",
    "One row per value of a counter sample (ph C) or of a torch [memory] event.",
    (
        *_source(),
        Column("name", _TEXT, "counter"),
        Column("series", _TEXT, "which value of the counter"),
        *_thread(),
        Column("time_ns", _I64, "point in time, absolute", "ns"),
        Column("value", _F64, "value as recorded"),
    ),
)

SLICES = Table(
    "slices",
    "Everything else that has a duration: complete events of other categories, and matched begin/end pairs.",
    (
        *_source(),
        Column("category", _TEXT, "category as recorded; null where there is none"),
        Column("name", _TEXT, "name"),
        *_thread(),
        *_span(),
        Column("args", pl.String(), "the event's args as JSON text"),
    ),
)

COLLECTIVES = Table(
    "collectives",
    "One row per event that carries collective metadata: device kernels and host record_param_comms operators.",
    (
        *_source(),
        Column("on_device", pl.Boolean(), "true for a device kernel, false for a host operator"),
        Column("name", _TEXT, "name of the event"),
        *_span(),
        _correlation(),
        _external_id(),
        Column("collective", _TEXT, "allreduce, _allgather_base, ...", args=("Collective name",), kind="text"),
        Column("process_group", _TEXT, "process group", args=("Process Group Name",), kind="label"),
        Column(
            "group_description",
            _TEXT,
            "what the group is for",
            args=("Process Group Description",),
            kind="label",
        ),
        Column("group_ranks", _TEXT, "ranks of the group as recorded", args=("Process Group Ranks",), kind="json"),
        Column("group_size", _I32, "ranks in the group", args=("Group size",), kind="integer"),
        Column("sequence", _I64, "sequence number in the group", args=("Seq",), kind="integer"),
        Column("element_type", _TEXT, "type of an element", args=("dtype",), kind="text"),
        Column("in_elements", _I64, "elements sent", args=("In msg nelems",), kind="integer"),
        Column("out_elements", _I64, "elements received", args=("Out msg nelems",), kind="integer"),
    ),
)

THREADS = Table(
    "threads",
    "One row per process or thread that the file names.",
    (
        Column("source", pl.UInt16(), "row of `ranks`"),
        *_thread(),
        Column("process_name", _TEXT, "name of the process, where given"),
        Column("process_labels", _TEXT, "labels of the process, where given ('GPU 0')"),
        Column("thread_name", _TEXT, "name of the thread, where given ('stream 7')"),
    ),
)

DEVICES = Table(
    "devices",
    "One row per device that a file describes (deviceProperties).",
    (
        Column("source", pl.UInt16(), "row of `ranks`"),
        Column("device", _TEXT, "device id, as in kernels.device"),
        Column("name", _TEXT, "product name; null where the file leaves it empty"),
        Column("compute_major", _I32, "compute capability, major"),
        Column("compute_minor", _I32, "compute capability, minor"),
        Column("sms", _I32, "streaming multiprocessors (compute units on AMD)"),
        Column("warp_size", _I32, "threads of a warp"),
        Column("max_threads_per_block", _I32, "threads a block may have"),
        Column("max_threads_per_sm", _I32, "threads an SM may hold"),
        Column("registers_per_sm", _I32, "registers of an SM"),
        Column("registers_per_block", _I32, "registers a block may use"),
        Column("shared_memory_per_sm", _I64, "shared memory of an SM", "bytes"),
        Column("shared_memory_per_block", _I64, "shared memory a block may use by default", "bytes"),
        Column("shared_memory_per_block_optin", _I64, "shared memory a block may opt in to", "bytes"),
        Column("total_memory", _I64, "device memory", "bytes"),
    ),
)

RANKS = Table(
    "ranks",
    "One row per source: a file, or one rank of a merged file. Files that were left out are listed too.",
    (
        Column("source", pl.UInt16(), "number of the source; the key of every other table"),
        Column("path", pl.String(), "file as given"),
        Column("run", pl.String(), "run that the file belongs to; runs are never added up"),
        Column("stage", pl.String(), "EXTEND, DECODE, ... where the file says"),
        Column("rank", _I32, "global rank; null where neither content nor name tells"),
        Column("dp", _I32, "data-parallel rank"),
        Column("pp", _I32, "pipeline-parallel rank"),
        Column("tp", _I32, "tensor-parallel rank"),
        Column("ep", _I32, "expert-parallel rank"),
        Column("dcp", _I32, "decode-context-parallel rank"),
        Column("rank_from", pl.String(), "content, name or regex: where the rank was read"),
        Column("world_size", _I32, "ranks of the job, from distributedInfo"),
        Column("used", pl.Boolean(), "false: left out of every figure, for `reason`"),
        Column("reason", pl.String(), "duplicate, merged, front-end, not-selected: why a file was left out"),
        Column("producer", pl.String(), "what wrote the file, as far as its content tells"),
        Column("backend", pl.String(), "communication backend, from distributedInfo"),
        Column("process_groups", pl.String(), "process groups of the rank as JSON, from pg_config of distributedInfo"),
        Column("host", pl.String(), "host name, where given"),
        Column("trace_id", pl.String(), "the profiler's id of the recording"),
        Column("base_ns", _I64, "baseTimeNanoseconds, already added to every time", "ns"),
        Column("file_bytes", _I64, "size of the file", "bytes"),
        Column("json_bytes", _I64, "size of the JSON text inside", "bytes"),
        Column("gzipped", pl.Boolean(), "whether the content is gzip, whatever the name says"),
        Column("events", _I64, "entries of the event array"),
        Column("whole", pl.Boolean(), "false: the file was cut or damaged; what could be read was kept"),
        Column("first_ns", _I64, "start of the first device activity", "ns"),
        Column("last_ns", _I64, "end of the last device activity", "ns"),
    ),
)

EVENT_COUNTS = Table(
    "event_counts",
    "How many events of each phase and category a source holds, and which table they went to.",
    (
        Column("source", pl.UInt16(), "row of `ranks`"),
        Column("phase", pl.String(), "ph of the event; null for an entry without one"),
        Column("category", pl.String(), "category as recorded; null where there is none"),
        Column("table", pl.String(), "table that holds them; null: counted only, they have no duration"),
        Column("count", _I64, "events", "events"),
    ),
)

NOTES = Table(
    "notes",
    "What the reader noticed: damage, losses, oddities. Every note has a stable code.",
    (
        Column("level", pl.Enum(NOTE_LEVELS), "info, warning or error"),
        Column("code", pl.String(), "stable code"),
        Column("message", pl.String(), "one sentence"),
        Column("path", pl.String(), "file it is about; null: several"),
        Column("count", _I64, "how many events or files it is about"),
    ),
)

#: Tables of events, which the engines fill.
EVENT_TABLES = (
    KERNELS, LAUNCHES, OPS, ANNOTATIONS, PYTHON_CALLS, FLOWS, COUNTERS, SLICES, COLLECTIVES,
)  # fmt: skip
#: All public tables, in the order in which they are documented.
TABLES = (*EVENT_TABLES, THREADS, DEVICES, RANKS, EVENT_COUNTS, NOTES)
_BY_NAME = {table.name: table for table in TABLES}


def table(name: str) -> Table:
    """The public table of that name; raises ``KeyError`` for an unknown one."""
    return _BY_NAME[name]
