"""Which launch call, host operator, module, annotation and python line a piece of device activity comes from.

Ids tie the device to the host: a launch call and what it started share a correlation id (see `launched`). The host side
is nested by time on the thread of the call (see `nesting`). An External id names an operator as well, but only in files
where it is the operator's own: some profilers wrote another number there, so it counts where it agrees with what the
times say, and is the only evidence where no launch call was recorded.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from traceanalyzer.analyses.arguments import need_trace
from traceanalyzer.analyses.capture import captured, nodes
from traceanalyzer.analyses.launched import as_rows, by_number, gathered, launched, may_repeat
from traceanalyzer.analyses.nesting import NONE, TOLERANCE_NS, Ints, at, nearest, nest, outermost
from traceanalyzer.schema import Column, Table
from traceanalyzer.trace import Trace

#: Columns that a capture knows better.
_CAPTURED = (
    "op", "root_op", "forward_op", "module", "python_call", "evidence", "reason", "op_name", "root_op_name",
    "module_name", "python_line",
)  # fmt: skip
#: Why no operator is known.
REASONS = ("no-correlation", "no-launch", "graph-replay", "no-operators", "outside")
#: How the operator was found.
EVIDENCE = ("time", "external_id", "arrow", "capture")
#: The share of operators named by External id that must agree with the times for the ids to be believed.
_AGREEMENT = 0.9
#: Calls of python code; others are modules and functions of C.
_LINE = r"\(\d+\): "
_MODULE = "nn.Module: "

_ROW = pl.UInt32()
_EVIDENCE = pl.Enum(EVIDENCE)
LINKS = Table(
    "links",
    "One row per piece of device activity, in the order of `kernels`: where it comes from on the host.",
    (
        Column("kernel", _ROW, "row of `kernels`"),
        Column("source", pl.UInt16(), "row of `ranks` that the event came from"),
        Column("launch", _ROW, "row of `launches`: the call that started it; null: not recorded"),
        Column("in_graph", pl.Boolean(), "true where a replayed graph started it"),
        Column("launch_delay_ns", pl.Int64(), "start on the device minus start of the call; negative: clocks", "ns"),
        Column("op", _ROW, "row of `ops`: the innermost operator around the call"),
        Column("root_op", _ROW, "row of `ops`: the outermost one"),
        Column("forward_op", _ROW, "row of `ops`: the forward operator that the innermost backward one belongs to"),
        Column("annotation", _ROW, "row of `annotations`: the innermost range around the call, on its thread"),
        Column("module", _ROW, "row of `python_calls`: the innermost nn.Module; of the forward operator if need be"),
        Column("python_call", _ROW, "row of `python_calls`: the innermost line of python code; likewise"),
        Column(
            "evidence",
            _EVIDENCE,
            "what the operator is known by: time (the call lies in it), "
            "external_id, arrow (one starts in it) or capture",
        ),
        Column(
            "reason",
            pl.Enum(REASONS),
            "why the operator is unknown: no-correlation (the record has no id), no-launch (no call of that id was "
            "recorded), graph-replay (a graph started it: its operators ran when it was captured), no-operators (the "
            "file holds none) or outside (launched outside of every operator); null where it is known",
        ),
        Column("launch_name", pl.Categorical(), "name of the launch call"),
        Column("op_name", pl.Categorical(), "name of the innermost operator"),
        Column("root_op_name", pl.Categorical(), "name of the outermost operator"),
        Column("annotation_name", pl.Categorical(), "text of the range"),
        Column("module_name", pl.Categorical(), "name of the module as recorded"),
        Column("python_line", pl.Categorical(), "file(line): function"),
    ),
)


@dataclass(frozen=True)
class Tree:
    """Spans of one kind that nest: rows of a table, and for each the place in the tree of what holds it."""

    rows: Ints
    """Row of the table, per place."""
    holders: Ints
    """Place of the span around each; `NONE` at the top."""


@dataclass(frozen=True)
class Linked:
    """What `link` finds, with the trees to climb: from what is innermost to what is around it."""

    frame: pl.DataFrame
    """As `LINKS` says."""
    ops: Tree
    annotations: Tree
    modules: Tree
    lines: Tree


def link(trace: Trace, *, capture: Trace | None = None) -> pl.DataFrame:
    """One row per row of `trace.kernels`, in order, as `LINKS` says: where each piece of device activity comes from.

    Rows of other tables are counted from 0, so `trace.ops[links["op"]]` are the operators. What is unknown is null, and
    `reason` says why there is no operator. The cost grows with the number of events, and with sorting them.

    `capture` is a trace of the capture of the graphs that the trace replays. Kernels that are found in it have the
    evidence `capture`; their `op`, `root_op`, `forward_op`, `module` and `python_call` are rows of its tables.
    """
    need_trace(trace, "link")
    frame = linked(trace).frame
    if capture is None:
        return frame
    need_trace(capture, "link")
    inside = captured_links(trace, capture).frame.filter(pl.col("op").is_not_null())
    inside = inside.with_columns(evidence=pl.lit("capture").cast(_EVIDENCE)).select("kernel", *_CAPTURED)
    return frame.join(inside, on="kernel", how="left", maintain_order="left", suffix="_captured").select(
        pl.when(pl.col("evidence_captured").is_not_null()).then(f"{name}_captured").otherwise(name).alias(name)
        if name in _CAPTURED else name for name in LINKS.schema.names()
    )  # fmt: skip


def linked(trace: Trace) -> Linked:
    """`link`, with the trees of operators, ranges, modules and python lines."""
    return _link(trace, launched(trace), _op_by_external_id(trace))


def captured_links(trace: Trace, capture: Trace) -> Linked:
    """What a capture says of the kernels of replayed graphs: rows of the frame are of those that are found in it."""
    calls = launched(trace)
    found = captured(trace, calls, capture)
    sources = capture.scan("launches").select(call_source="source").with_row_index("call").collect()
    there = calls.join(found, on="kernel").join(sources, on="call", how="left", maintain_order="left")
    unknown = pl.lit(None, pl.Int64)
    there = there.with_columns(source="call_source", launch="call", launch_delay_ns=unknown, site_ns=unknown)
    return _link(capture, there, np.full(there.height, NONE, np.int64))


def kernels_put(capture: Trace) -> pl.DataFrame:
    """How many kernels each operator put into a graph that was captured: `op` (row of `ops`, the innermost), `put`."""
    threads = _threads(capture)
    host = _host_spans(capture, threads)
    calls = nodes(capture).filter(pl.col("kind") == "kernel")["call"]
    _, op = _around(host["ops"], host["launches"].take(_rows(calls)))
    return pl.DataFrame({"op": _column("op", op)}).drop_nulls().group_by("op").agg(put=pl.len())


def _link(trace: Trace, calls: pl.DataFrame, by_id: Ints) -> Linked:
    """Link what `calls` says was launched where; `by_id` are the operators that the External ids name."""
    threads = _threads(trace)
    host = _host_spans(trace, threads)
    launch = _rows(calls["launch"])
    sites = host["launches"].take(launch).or_else(_arrow_sites(calls, threads))
    ops, by_time = _around(host["ops"], sites)
    op = _operators(calls, by_id, by_time, ops)
    forward = _forward(trace, ops, op)
    sites = sites.or_else(host["ops"].take(op).starts())
    forward_sites = host["ops"].take(forward).starts()
    rows: dict[str, Ints] = {"op": op, "root_op": at(outermost(ops.holders), op), "forward_op": forward}
    trees = {}
    for name, column in (("annotations", "annotation"), ("modules", "module"), ("lines", "python_call")):
        trees[name], around = _around(host[name], sites.plus(forward_sites))
        own, of_forward = np.split(around, 2)
        found = own if name == "annotations" else np.where(own == NONE, of_forward, own)
        rows[column] = at(trees[name].rows, found)
    frame = calls.with_columns(
        *(_column(name, values) for name, values in rows.items()),
        evidence=pl.when(pl.Series(op == NONE))
        .then(None)
        .when(pl.Series(op != by_time))
        .then(pl.lit("external_id"))
        .when(pl.col("launch").is_null())
        .then(pl.lit("arrow"))
        .otherwise(pl.lit("time"))
        .cast(_EVIDENCE),
    )
    frame = _with_reasons(frame, trace)
    return Linked(_with_names(frame, trace).select(LINKS.schema.names()), ops, **trees)


# ------------------------------------------------------------------------------------------ the host side


@dataclass(frozen=True)
class _Spans:
    """Host events: row of their table, thread (numbered over all tables of the trace; `NONE`: not there), times."""

    rows: Ints
    thread: Ints
    start: Ints
    end: Ints

    def take(self, rows: Ints) -> _Spans:
        """Those of these rows, for spans that are a whole table; of `NONE` one that is not there."""
        if not len(self.rows):
            return _Spans(rows, *(np.full(len(rows), NONE, np.int64) for _ in range(3)))
        thread = np.where(rows == NONE, NONE, self.thread[rows])
        return _Spans(rows, thread, self.start[rows], self.end[rows])

    def only(self, chosen: npt.NDArray[np.bool_]) -> _Spans:
        return _Spans(self.rows[chosen], self.thread[chosen], self.start[chosen], self.end[chosen])

    def starts(self) -> _Spans:
        """Their starts, as spans of no length."""
        return _Spans(self.rows, self.thread, self.start, self.start)

    def plus(self, more: _Spans) -> _Spans:
        return _Spans(*(np.concatenate([getattr(self, name), getattr(more, name)]) for name in _FIELDS))

    def or_else(self, other: _Spans) -> _Spans:
        """These, and those of `other` in the place of what is not there."""
        absent = self.thread == NONE
        return _Spans(*(np.where(absent, getattr(other, name), getattr(self, name)) for name in _FIELDS))


_FIELDS = ("rows", "thread", "start", "end")


_HOST_TABLES = ("launches", "ops", "annotations", "python_calls")
_THREAD_KEY = ["source", "pid", "tid"]


def _threads(trace: Trace) -> pl.DataFrame:
    """The threads of the host, numbered over all files: `thread` and what names it."""
    places = [trace.scan(name).select("source", pl.col("pid", "tid").to_physical()) for name in _HOST_TABLES]
    distinct = pl.concat([place.unique().collect() for place in places]).unique()
    return distinct.sort(_THREAD_KEY).with_row_index("thread")


def _numbered(frame: pl.DataFrame, threads: pl.DataFrame) -> pl.DataFrame:
    """The rows with the number of their `thread`; null where it is none."""
    physical = frame.with_columns(pl.col("pid", "tid").to_physical())
    return physical.join(threads, on=_THREAD_KEY, how="left", nulls_equal=True, maintain_order="left")


def _host_spans(trace: Trace, threads: pl.DataFrame) -> dict[str, _Spans]:
    """The spans of the host: launches and ops (whole tables), annotations, modules and lines (parts of tables)."""
    columns = ("source", "pid", "tid", "start_ns", "duration_ns")
    spans = {name: _spans(_numbered(trace.scan(name).select(columns).collect(), threads)) for name in _HOST_TABLES}
    on_host = ~trace.scan("annotations").select("on_device").collect()["on_device"].fill_null(value=False)
    names = trace.scan("python_calls").select("name").collect()["name"]
    return {
        "launches": spans["launches"],
        "ops": spans["ops"],
        "annotations": spans["annotations"].only(on_host.to_numpy()),
        "modules": spans["python_calls"].only(_named(names, pl.col("text").str.starts_with(_MODULE))),
        "lines": spans["python_calls"].only(_named(names, pl.col("text").str.contains(_LINE))),
    }


def _arrow_sites(calls: pl.DataFrame, threads: pl.DataFrame) -> _Spans:
    """Where arrows start that lead to kernels, as spans of no length."""
    placed = _numbered(calls.select("source", "pid", "tid", start_ns="site_ns"), threads)
    known = placed["start_ns"].is_not_null().to_numpy()
    thread, start = np.where(known, _rows(placed["thread"]), NONE), _rows(placed["start_ns"])
    return _Spans(np.arange(calls.height), thread, start, start)


def _spans(frame: pl.DataFrame) -> _Spans:
    thread, start, duration = (
        frame[name].cast(pl.Int64).to_numpy() for name in ("thread", "start_ns", "duration_ns")
    )  # fmt: skip
    return _Spans(np.arange(frame.height), thread, start, start + duration)


def _named(names: pl.Series, wanted: pl.Expr) -> npt.NDArray[np.bool_]:
    """Where the name is as wanted; looked at once per distinct name."""
    distinct = names.unique().to_frame("name").with_columns(text=pl.col("name").cast(pl.String))
    hits = distinct.filter(wanted)["name"]
    return names.is_in(hits.implode()).fill_null(value=False).to_numpy() if len(hits) else np.zeros(len(names), bool)


def _around(family: _Spans, sites: _Spans) -> tuple[Tree, Ints]:
    """The tree of a family, and the place of what is innermost around the start of each site.

    A call that starts a moment before a span, and still runs when that starts, is in it: clocks differ.
    """
    here = np.flatnonzero(sites.thread != NONE)
    points = sites.only(sites.thread != NONE)
    holders, found = _nest_with(family, points, points.start)
    early = np.flatnonzero(found == NONE)
    start, end = points.start[early], points.end[early]
    soon = np.maximum(np.minimum(start + TOLERANCE_NS, end - 1), start)
    if len(early) and len(family.rows) and _any_starts(family, points.thread[early], start, soon):
        late = points.only(found == NONE)
        found[early] = _nest_with(family, late, soon)[1]
    around = np.full(len(sites.rows), NONE, np.int64)
    around[here] = found
    return Tree(family.rows, holders), around


def _nest_with(family: _Spans, points: _Spans, time: Ints) -> tuple[Ints, Ints]:
    size = len(family.rows)
    holders = nest(
        np.concatenate([family.thread, points.thread]),
        np.concatenate([family.start, time]),
        np.concatenate([family.end, time]),
    )
    return holders[:size], holders[size:]


def _any_starts(family: _Spans, thread: Ints, after: Ints, until: Ints) -> bool:
    """Whether a span of the family starts in (after, until] of one of the threads; may say yes where none does."""
    starts = np.sort(family.start[np.isin(family.thread, thread)])
    return bool((np.searchsorted(starts, until, "right") > np.searchsorted(starts, after, "right")).any())


# ------------------------------------------------------------------------------------------ operators


def _operators(calls: pl.DataFrame, by_id: Ints, by_time: Ints, ops: Tree) -> Ints:
    """The innermost operator of each kernel: the one that is named, where names are believed, else that of the time."""
    both = (by_time != NONE) & (by_id != NONE)
    if by_id.max(initial=NONE) == NONE:
        return by_time
    believed = _believed(calls, both, _encloses(ops.holders, by_id, by_time))
    use_id = believed & (by_id != NONE)
    return np.where(use_id, by_id, by_time)


def _op_by_external_id(trace: Trace) -> Ints:
    """The operator that each kernel's External id names, if it does not start after the kernel."""
    ops = trace.scan("ops").select("source", "external_id", op_start="start_ns").with_row_index("op")
    named = ops.drop_nulls("external_id").collect()
    if may_repeat(named, "external_id"):
        named = named.unique(["source", "external_id"], keep="first", maintain_order=True)
    kernels = trace.kernels.select("source", "external_id", "start_ns").with_row_index("kernel")
    found = by_number(kernels.drop_nulls("external_id"), named, "external_id")
    found = found.filter(pl.col("op_start") <= pl.col("start_ns"))
    rows = np.full(kernels.height, NONE, np.int64)
    rows[found["kernel"].to_numpy()] = found["op"].to_numpy()
    return rows


def _encloses(holders: Ints, outer: Ints, inner: Ints) -> npt.NDArray[np.bool_]:
    """Whether `outer` is `inner` or around it, row by row; false where one is not there."""
    here, found = inner.copy(), np.zeros(len(inner), bool)
    open_ = (inner != NONE) & (outer != NONE)
    while open_.any():
        found |= open_ & (here == outer)
        open_ &= ~found
        here = np.where(open_, at(holders, here), NONE)
        open_ &= here != NONE
    return found


def _believed(calls: pl.DataFrame, both: npt.NDArray[np.bool_], agree: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Whether the External ids of a kernel's source are operators' own.

    They are where they agree with the times. Where nothing can be compared they are, unless they repeat correlations.
    """
    verdict = (
        calls.select("source", "external_id", "correlation", both=pl.Series(both), agree=pl.Series(agree))
        .group_by("source")
        .agg(
            compared=pl.col("both").sum(),
            agreed=(pl.col("both") & pl.col("agree")).sum(),
            own=(pl.col("external_id") != pl.col("correlation")).fill_null(pl.col("external_id").is_not_null()).any(),
        )
        .select(
            "source",
            believed=pl.when(pl.col("compared") > 0)
            .then(pl.col("agreed") >= _AGREEMENT * pl.col("compared"))
            .otherwise("own"),
        )
    )
    per_kernel = calls.select("source").join(verdict, on="source", how="left", maintain_order="left")
    return per_kernel["believed"].to_numpy()


def _forward(trace: Trace, ops: Tree, op: Ints) -> Ints:
    """The forward operator of each kernel's innermost backward operator: that of its autograd sequence number.

    Operators without a gradient repeat the number of the one before, so the latest that starts with it is meant.
    """
    table = trace.scan("ops").select("source", "sequence_number", "forward_thread", "start_ns").with_row_index("op")
    numbered = table.drop_nulls("sequence_number").collect()
    backward = numbered.filter(pl.col("forward_thread") > 0)
    if backward.is_empty() or not (op != NONE).any():
        return np.full(len(op), NONE, np.int64)
    is_backward = np.zeros(len(ops.rows), bool)
    is_backward[backward["op"].to_numpy()] = True
    mine = at(nearest(ops.holders, is_backward), op)
    key = ["source", "sequence_number"]
    forward = numbered.filter(pl.col("forward_thread").fill_null(0) == 0).sort("start_ns")
    pairs = backward.sort("start_ns").join_asof(
        forward.select(*key, "start_ns", forward="op"), on="start_ns", by=key, check_sortedness=False
    )
    forward_of = np.full(len(ops.rows), NONE, np.int64)
    forward_of[pairs["op"].to_numpy()] = _rows(pairs["forward"])
    return at(forward_of, mine)


# ------------------------------------------------------------------------------------------ columns


def _with_reasons(frame: pl.DataFrame, trace: Trace) -> pl.DataFrame:
    holding = trace.scan("ops").select("source").unique().collect()["source"]
    reason = (
        pl.when(pl.col("op").is_not_null()).then(None)
        .when(pl.col("launch").is_null() & pl.col("correlation").is_null()).then(pl.lit("no-correlation"))
        .when(pl.col("launch").is_null()).then(pl.lit("no-launch"))
        .when("in_graph").then(pl.lit("graph-replay"))
        .when(~pl.col("source").is_in(holding.implode())).then(pl.lit("no-operators"))
        .otherwise(pl.lit("outside"))
    )  # fmt: skip
    return frame.with_columns(reason=reason.cast(LINKS.schema["reason"]))


#: Column with a name -> the table it is from and the column with its row.
_NAMES = {
    "launch_name": ("launches", "launch"),
    "op_name": ("ops", "op"),
    "root_op_name": ("ops", "root_op"),
    "annotation_name": ("annotations", "annotation"),
    "module_name": ("python_calls", "module"),
    "python_line": ("python_calls", "python_call"),
}


def _with_names(frame: pl.DataFrame, trace: Trace) -> pl.DataFrame:
    names = {table: trace.scan(table).select("name").collect()["name"] for table, _ in _NAMES.values()}
    return frame.with_columns(
        gathered(names[table], frame[row]).alias(name) for name, (table, row) in _NAMES.items()
    )  # fmt: skip


def _rows(numbers: pl.Series) -> Ints:
    """Rows as numbers, `NONE` where there is none."""
    return numbers.cast(pl.Int64).fill_null(NONE).to_numpy()


def _column(name: str, rows: Ints) -> pl.Series:
    """Numbers as rows, null where there is none."""
    return as_rows(pl.Series(name, rows))
