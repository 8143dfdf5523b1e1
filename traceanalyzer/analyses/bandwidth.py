"""How fast bytes move and operations are done: what the shapes say a kernel had to do, over the time that it took.

The work of a kernel is that of the operator that launched it (see `costs`), the recorded size of a copy or set, or the
message of a collective. Kernels of a replayed graph have the operator that the trace of its capture knows, called once
a replay. An operator that launched several kernels did its work in all of them together: they are one row, under the
name of the one that took longest. What is not known has no figure, and `source` says why.
"""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from traceanalyzer.analyses.arguments import need_trace
from traceanalyzer.analyses.costs import cost_of, parse_call
from traceanalyzer.analyses.described import with_description
from traceanalyzer.analyses.labels import label
from traceanalyzer.analyses.links import kernels_put, link
from traceanalyzer.analyses.ratio import ratio
from traceanalyzer.analyses.stretch import need_whole
from traceanalyzer.classify.rules import RuleTable
from traceanalyzer.hardware.rates import Rates, RateTable, rates_of
from traceanalyzer.text import natural_key
from traceanalyzer.trace import Trace

#: What each figure is, word for word as it is shown with `--explain`.
DEFINITIONS = {
    "count": "calls of the operator, where its work is known, else pieces of device activity",
    "total_ns": "sum of the durations of the device activity; the rows of a run add up to all of it",
    "bytes": "the least that has to move: every element read once, every element of the result once; "
    "of a copy on one device its size twice; of a collective what a rank sends over its links",
    "flops": "floating-point operations, a multiply and an add counted as two; null where they do not take the time",
    "gb_per_s": "bytes / total, in 10^9 bytes a second",
    "tflop_per_s": "flops / total, in 10^12 a second",
    "precision": "what the operations are done in; null where calls differ",
    "share_of_roof": "least time / total, where the least time is the longer of bytes / memory bandwidth and flops / "
    "dense rate of the device as published; above 1 where a cache served the bytes; null where a rate is unknown",
    "bound": "memory or compute: which of the two least times is longer",
    "source": "what bytes and flops rest on, or why they are unknown",
}
#: Why bytes are unknown, by the reason why `link` knows no operator.
_UNLINKED = {
    "no-correlation": "unknown: the record has no id of a launch call",
    "no-launch": "unknown: no launch call recorded (ProfilerActivity.CPU)",
    "graph-replay": "unknown: replayed by a graph (--capture FILE)",
    "no-operators": "unknown: no operators recorded (ProfilerActivity.CPU)",
    "outside": "unknown: launched outside of every operator",
}
_NO_SHAPES = "unknown: no shapes recorded (record_shapes=True)"
_IN_PART = "unknown: replayed by a graph, and the capture does not know all kernels of the operator"
_NO_RULE = "unknown: bytes of this operator are not known from its shapes"
#: Bytes that a rank sends for each byte of the larger of its buffers, times n / (n - 1): what the links have to carry
#: at least, whatever the algorithm (as nccl-tests counts its bus bandwidth).
_BUS_FACTORS = {
    "allreduce": 2.0, "all_reduce": 2.0, "allreduce_coalesced": 2.0,
    "_allgather_base": 1.0, "allgather": 1.0, "allgather_into_tensor_coalesced": 1.0, "all_gather": 1.0,
    "_reduce_scatter_base": 1.0, "reduce_scatter": 1.0, "reduce_scatter_tensor_coalesced": 1.0,
    "all_to_all": 1.0, "alltoall": 1.0, "alltoall_base": 1.0, "all_to_allv": 1.0,
}  # fmt: skip
_ELEMENT_BYTES = {
    "Float": 4, "Double": 8, "Half": 2, "BFloat16": 2, "Long": 8, "Int": 4, "Short": 2, "Byte": 1, "Char": 1, "Bool": 1,
    "Float8_e4m3fn": 1, "Float8_e5m2": 1, "Float8_e4m3fnuz": 1, "Float8_e5m2fnuz": 1,
}  # fmt: skip
_SHAPES = ("input_dims", "input_types", "input_strides", "concrete_inputs")
_WORK = ("bytes", "flops", "precision", "on_device", "source_of")
_ORDER = (
    "run", "kernel", "short_name", "class", "op", "shapes", "count", "total_ns", "bytes", "flops", "gb_per_s",
    "tflop_per_s", "precision", "share_of_roof", "bound", "source",
)  # fmt: skip


def bandwidth(
    trace: Trace,
    *,
    by_shape: bool = False,
    rates: RateTable = (),
    rules: RuleTable | None = None,
    capture: Trace | None = None,
) -> pl.DataFrame:
    """One row per kernel name, operator and source of the figures of a run, the largest first; see `DEFINITIONS`.

    `by_shape` splits rows by the shapes of the inputs (`shapes`). Copies and sets are rows like kernels. `rates` are
    devices of the user's that count before the table of this package, `rules` class rules likewise. `capture` is
    the trace of the capture of the graphs that the trace replays: it tells the shapes of their operators.
    """
    need_trace(trace, "bandwidth")
    need_whole(trace, "bandwidth")
    activity = _activity(trace, capture)
    pieces = pl.concat([_own_work(activity), _operator_work(activity, trace, capture)], how="diagonal")
    pieces = _with_least_time(pieces, trace, rates)
    labels = label(trace.kernels.select("kind", "name"), rules).select("kind", "name", "short_name", "class")
    key = ["run", "kind", "name", "op", *(["shapes"] if by_shape else []), "source_of"]
    runs = trace.ranks.select("source", "run")
    rows = pieces.join(runs, on="source", how="left").group_by(key).agg(*_figures())
    rows = rows.join(labels, on=["kind", "name"], how="left", nulls_equal=True)
    rows = rows.with_columns(
        kernel=pl.col("name").cast(pl.String),
        source=pl.col("source_of"),
        gb_per_s=ratio(rows["bytes"], rows["total_ns"]),
        tflop_per_s=ratio(rows["flops"], rows["total_ns"]) / 1e3,
        share_of_roof=ratio(rows["least_ns"], rows["total_ns"]),
    )
    return _in_order(rows.select(name for name in _ORDER if by_shape or name != "shapes"))


def roofs(trace: Trace, rates: RateTable = ()) -> dict[str, Rates | None]:
    """The rates of each device that ran something, by the name that the trace gives it; None: nobody published them.

    Devices with fewer SMs than the product has (MIG) have their part of the rates.
    """
    devices = with_description(trace.kernels.select("source", "device").unique(), trace.devices, "name", "sms")
    named = devices.select(pl.col("name").cast(pl.String), "sms").unique().drop_nulls("name").sort("name", "sms")
    return {name: _part(name, sms, rates) for name, sms in named.iter_rows()}


def _part(name: str | None, sms: int | None, rates: RateTable) -> Rates | None:
    found = rates_of(name, rates)
    return None if found is None else found.of_part(sms)


# ------------------------------------------------------------------------------------------ the pieces of work


def _activity(trace: Trace, capture: Trace | None) -> pl.DataFrame:
    """All device activity with its operator and, for collectives, what a rank sends.

    `replay` is the launch call of a kernel whose operator (`op`) is a row of the capture's table; null for others.
    """
    kernels = trace.kernels.select("source", "kind", "name", "device", "start_ns", "duration_ns", size="bytes")
    links = link(trace, capture=capture).select(
        "op",
        replay=pl.when(pl.col("evidence") == "capture").then("launch"),
        op_name=pl.col("op_name").cast(pl.String),
        reason=pl.col("reason").cast(pl.String),
    )
    activity = pl.concat([kernels, links], how="horizontal").filter(pl.col("duration_ns") >= 0)
    key = ["source", "name", "start_ns", "duration_ns"]
    return activity.join(_messages(trace), on=key, how="left", nulls_equal=True, maintain_order="left")


def _messages(trace: Trace) -> pl.DataFrame:
    """`bus_bytes` of the collective kernels that say what they send."""
    known = trace.collectives.filter(pl.col("on_device")).with_columns(
        pl.col("collective", "element_type").cast(pl.String)
    )
    elements = pl.max_horizontal("in_elements", "out_elements")
    item = pl.col("element_type").replace_strict(_ELEMENT_BYTES, default=None, return_dtype=pl.Int64)
    factor = pl.col("collective").replace_strict(_BUS_FACTORS, default=None, return_dtype=pl.Float64)
    size = pl.col("group_size")
    sent = elements * item * factor * (size - 1) / size
    messages = known.select("source", "name", "start_ns", "duration_ns", bus_bytes=sent.round().cast(pl.Int64))
    return messages.unique(["source", "name", "start_ns", "duration_ns"], keep="first", maintain_order=True)


def _own_work(activity: pl.DataFrame) -> pl.DataFrame:
    """Work that does not come from an operator's shapes: copies, sets, collectives, and what nobody knows."""
    name = pl.col("name").cast(pl.String)
    copied, is_set = pl.col("kind") == "memcpy", pl.col("kind") == "memset"
    within = copied & name.str.contains("(?i)DtoD")
    sized = (copied | is_set) & pl.col("size").is_not_null()
    sent = pl.col("bus_bytes").is_not_null()
    rest = activity.filter((pl.col("kind") != "kernel") | sent | pl.col("op").is_null())
    return rest.select(
        "source", "kind", "name", "device",
        op="op_name",
        shapes=pl.lit(None, pl.String),
        total_ns="duration_ns",
        count=pl.lit(1, pl.Int64),
        bytes=pl.when(sized).then(pl.col("size") * (1 + within.cast(pl.Int64))).otherwise("bus_bytes"),
        flops=pl.lit(None, pl.Int64),
        precision=pl.lit(None, pl.String),
        on_device=(within | is_set).fill_null(value=False),
        source_of=pl.when(sized).then(pl.lit("size of the copy or set"))
        .when(sent).then(pl.lit("message of the collective"))
        .when(pl.col("kind") != "kernel").then(pl.lit("unknown: no size recorded"))
        .otherwise(pl.col("reason").replace_strict(_UNLINKED, default=None, return_dtype=pl.String)),
    )  # fmt: skip


def _operator_work(activity: pl.DataFrame, trace: Trace, capture: Trace | None) -> pl.DataFrame:
    """Work of operators: one row per call (or replay of it) whose cost is known, one per kernel of the others."""
    of_ops = activity.filter((pl.col("kind") == "kernel") & pl.col("bus_bytes").is_null() & pl.col("op").is_not_null())
    replayed = pl.col("replay").is_not_null()
    work = _with_costs(of_ops.filter(~replayed), trace)
    if capture is not None:
        work = pl.concat([work, _only_whole(_with_costs(of_ops.filter(replayed), capture), capture)])
    alike = pl.col("bytes").is_not_null()
    together = (
        work.filter(alike)
        .sort("duration_ns", descending=True, maintain_order=True)
        .group_by("op", "replay", "device", maintain_order=True)
        .agg(
            pl.col("source", "kind", "name", "op_name", "input_dims", *_WORK).first(),
            total_ns=pl.col("duration_ns").sum(),
        )
    )
    apart = work.filter(~alike).with_columns(total_ns="duration_ns")
    columns = ("source", "kind", "name", "device", "op_name", "input_dims", *_WORK, "total_ns")
    rows = pl.concat([together.select(columns), apart.select(columns)])
    return rows.rename({"op_name": "op", "input_dims": "shapes"}).with_columns(
        pl.col("shapes").cast(pl.String), count=pl.lit(1, pl.Int64)
    )


def _with_costs(of_ops: pl.DataFrame, told: Trace) -> pl.DataFrame:
    """The kernels with the inputs and the cost of their operators, rows of the trace that tells them."""
    inputs = told.scan("ops").select("name", *_SHAPES).with_row_index("op").collect()
    calls = of_ops.select("op").unique().join(inputs, on="op", how="left")
    known = calls.join(_costs(calls), on=["name", *_SHAPES], how="left", nulls_equal=True).rename({"name": "op_of"})
    return of_ops.join(known, on="op", how="left", maintain_order="left")


def _only_whole(work: pl.DataFrame, capture: Trace) -> pl.DataFrame:
    """Without costs where fewer kernels of an operator were found in a replay than it put into the graph: the work of
    all would stand over the time of a part."""
    found = work.group_by("op", "replay").agg(found=pl.len())
    whole = found.join(kernels_put(capture), on="op", how="left").select(
        "op", "replay", whole=(pl.col("found") >= pl.col("put")).fill_null(value=False)
    )
    unknown = {"bytes": None, "flops": None, "precision": None, "on_device": False, "source_of": _IN_PART}
    claimed = pl.col("whole") | pl.col("bytes").is_null()
    return (
        work.join(whole, on=["op", "replay"], how="left", maintain_order="left")
        .with_columns(
            pl.when(claimed).then(name).otherwise(pl.lit(value)).alias(name) for name, value in unknown.items()
        )
        .drop("whole")
    )


def _costs(calls: pl.DataFrame) -> pl.DataFrame:
    """The cost of each distinct call, by name and inputs."""
    key = ["name", *_SHAPES]
    distinct = calls.select(key).unique()
    found = [_cost_row(row) for row in distinct.with_columns(pl.all().cast(pl.String)).iter_rows()]
    schema = {"bytes": pl.Int64, "flops": pl.Int64, "precision": pl.String, "on_device": pl.Boolean,
              "source_of": pl.String}  # fmt: skip
    return pl.concat([distinct, pl.DataFrame(found, schema=schema, orient="row")], how="horizontal")


def _cost_row(
    row: tuple[str | None, ...],
) -> tuple[int | None, int | None, str | None, bool, str]:
    name, dims, types, strides, values = row
    call = parse_call(name or "", dims, types, strides, values)
    if call is None or not any(call.inputs):
        return None, None, None, False, _NO_SHAPES
    cost = cost_of(call)
    if cost is None:
        return None, None, None, False, _NO_RULE
    return cost.bytes, cost.flops, cost.precision, True, f"shapes: {cost.family}"


# ------------------------------------------------------------------------------------------ rates and rows


def _with_least_time(pieces: pl.DataFrame, trace: Trace, own: RateTable) -> pl.DataFrame:
    """`memory_ns` and `compute_ns`: how long the device needs at least by its published rates; null where unknown."""
    placed = with_description(pieces, trace.devices, "sms").join(
        with_description(pieces.select("source", "device").unique(), trace.devices.rename({"name": "gpu"}), "gpu"),
        on=["source", "device"], how="left", nulls_equal=True,
    )  # fmt: skip
    precision = pl.when(pl.col("name").cast(pl.String).str.contains("(?i)tf32") & (pl.col("precision") == "fp32"))
    placed = placed.with_columns(
        pl.col("gpu").cast(pl.String), precision=precision.then(pl.lit("tf32")).otherwise("precision")
    )
    distinct = placed.select("gpu", "sms", "precision").unique()
    table = pl.DataFrame(
        [_rates_row(gpu, sms, name, own) for gpu, sms, name in distinct.iter_rows()],
        schema={"_memory": pl.Float64, "_compute": pl.Float64},
        orient="row",
    )
    placed = placed.join(
        pl.concat([distinct, table], how="horizontal"), on=["gpu", "sms", "precision"], how="left", nulls_equal=True
    )
    memory = pl.when(pl.col("on_device")).then(pl.col("bytes") / pl.col("_memory"))
    compute = pl.when(pl.col("flops").is_null()).then(0.0).otherwise(pl.col("flops") / pl.col("_compute") / 1e3)
    return placed.with_columns(memory_ns=memory, compute_ns=compute)


def _rates_row(
    gpu: str | None, sms: int | None, precision: str | None, own: RateTable
) -> tuple[float | None, float | None]:
    rates = _part(gpu, sms, own)
    if rates is None:
        return None, None
    return rates.gb_per_s, rates.tflop_per_s.get(precision or "")


def _figures() -> Iterator[pl.Expr]:
    """Sums of a group. All its pieces have a figure or none has, but for flops and rates: there one gap is unknown."""
    yield pl.col("count", "total_ns").sum()
    for name in ("bytes", "flops"):
        yield pl.when(pl.col(name).null_count() == 0).then(pl.col(name).sum()).alias(name)
    yield pl.when(pl.col("precision").n_unique() == 1).then(pl.col("precision").first()).alias("precision")
    known = (pl.col("memory_ns").null_count() == 0) & (pl.col("compute_ns").null_count() == 0)
    least = pl.max_horizontal("memory_ns", "compute_ns").sum()
    yield pl.when(known).then(least).alias("least_ns")
    bound = pl.when(pl.col("memory_ns").sum() >= pl.col("compute_ns").sum()).then(pl.lit("memory"))
    yield pl.when(known).then(bound.otherwise(pl.lit("compute"))).alias("bound")


def _in_order(rows: pl.DataFrame) -> pl.DataFrame:
    runs = sorted(rows["run"].unique().drop_nulls(), key=natural_key)
    place = pl.col("run").replace_strict({run: at for at, run in enumerate(runs)}, return_dtype=pl.UInt32)
    names = [name for name in ("kernel", "op", "shapes", "source") if name in rows.columns]
    return rows.sort(place, "total_ns", *names, descending=[False, True, *[False] * len(names)], nulls_last=True)
