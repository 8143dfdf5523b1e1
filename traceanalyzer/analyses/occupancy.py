"""How launches sit on a GPU: resident blocks, occupancy, SM fill and waves, recomputed from the launch shapes.

The trace's own occupancy is never used: it is 0 for every kernel above 48 KiB of shared memory. Limits come from what
the file says of its devices, and from the table of compute capabilities what it does not say.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import polars as pl

from traceanalyzer.analyses.arguments import Values, labels, need_choice, need_trace
from traceanalyzer.analyses.described import with_description
from traceanalyzer.analyses.labels import Paths, compiled, label, matching, rule_table
from traceanalyzer.analyses.ratio import ratio
from traceanalyzer.analyses.sm_fill import BLOCKS, sm_fill
from traceanalyzer.choices import LAUNCH_BYS, OCCUPANCY_SORTS, LaunchBy, OccupancySort
from traceanalyzer.classify.rules import CLASSES, RuleTable
from traceanalyzer.hardware import gpus
from traceanalyzer.hardware.limits import WARP, Limits, Residency, limits_of, residency
from traceanalyzer.notes import Note
from traceanalyzer.text import counted, natural_key
from traceanalyzer.trace import Trace

#: What each figure is, word for word as it is shown with `--explain`.
DEFINITIONS = {
    "configurations": "different launch shapes (grid, block, registers, shared memory) of the kernel",
    "count": "kernels launched so; with --between, those that start in the stretch",
    "total_ns": "plain sum of their durations as recorded",
    "share_of_kernel_time": "total / total of all kernels of the run, before filter and limit",
    "grid": "blocks of a launch, by axis",
    "block": "threads of a block, by axis",
    "registers": "registers of a thread",
    "shared_memory": "shared memory of a block, static and dynamic",
    "resident_blocks_per_sm": "blocks that an SM holds at once, by the limits of the compute capability",
    "theoretical_occupancy": "resident warps / warps that an SM can hold, where enough blocks are there",
    "launch_occupancy": "the same over all SMs with the blocks of the launch: min(blocks, SMs x resident blocks) x "
    "warps of a block / warps that all SMs can hold",
    "limited_by": "what allows no more resident blocks",
    "sm_fill": "min(1, blocks / SMs), weighted by duration",
    "waves": "how often the SMs are filled anew: blocks / (SMs x resident blocks), rounded up",
    "wave_fill": "blocks / (waves x SMs x resident blocks)",
    "tail_waste_ns": "total x (1 - wave fill) where there are several waves: what the last one leaves empty, if blocks "
    "take equally long",
    "idle_sm_ns": "total x (1 - SM fill): how long all SMs together could have worked on what was not launched",
    "trace_occupancy": "what the trace itself claims (est. achieved occupancy); 0 above 48 KiB of shared memory, not "
    "used here",
    "unknown": "why figures are unknown",
}

_ORDER = (
    "run", "kernel", "short_name", "class", "configurations", "count", "total_ns", "share_of_kernel_time", "grid",
    "block", "registers", "shared_memory", "resident_blocks_per_sm", "theoretical_occupancy", "launch_occupancy",
    "limited_by", "sm_fill", "waves", "wave_fill", "tail_waste_ns", "idle_sm_ns", "trace_occupancy", "unknown",
)  # fmt: skip
#: The column that each order looks at, and whether the largest comes first.
SORTED_BY: dict[OccupancySort, tuple[str, bool]] = {
    "idle": ("idle_sm_ns", True), "total": ("total_ns", True), "count": ("count", True),
    "occupancy": ("theoretical_occupancy", False), "sm_fill": ("sm_fill", False), "tail": ("tail_waste_ns", True),
    "name": ("kernel", False),
}  # fmt: skip

#: Why figures are unknown, in the order in which it is looked for; the words of the column, and what would help.
UNKNOWN = {
    "no launch shape": "the trace has no grid or block of them, as in replays of a graph on AMD; record without graphs",
    "no registers": "the trace has no registers or shared memory of them, which ROCm does not record",
    "no device": "the file does not describe the device they ran on; --gpu NAME says what it was",
    "no limits": "the table of compute capabilities does not have theirs, or they ran on no NVIDIA GPU",
    "does not fit": "their block needs more than an SM of that GPU has: as they are they cannot run there",
    "contradiction": "their block does not fit on an SM by what the trace says, and yet they ran",
}

_GRID, _BLOCK = ("grid_x", "grid_y", "grid_z"), ("block_x", "block_y", "block_z")
_SHAPE = (*_GRID, *_BLOCK, "registers", "shared_memory")
#: What of a device decides how launches sit on it.
_DEVICE = (
    "sms", "compute_major", "compute_minor", "warp_size", "max_threads_per_block", "max_threads_per_sm",
    "registers_per_sm", "registers_per_block", "shared_memory_per_sm", "shared_memory_per_block_optin",
)  # fmt: skip
_THREADS = pl.col("block_x").cast(pl.Int64) * pl.col("block_y") * pl.col("block_z")


@dataclasses.dataclass(frozen=True, slots=True)
class _Gpu:
    """What launches are laid on: SMs and limits, either None where it is not known."""

    sms: int | None
    limits: Limits | None


def occupancy(
    trace: Trace,
    *,
    by: LaunchBy = "launch",
    gpu: str | None = None,
    filter: str | None = None,
    classes: Values = (),
    sort: OccupancySort = "idle",
    rules: RuleTable | Paths | None = None,
) -> pl.DataFrame:
    """One row per run, kernel name and launch shape (`by` launch), or per run and kernel; see `DEFINITIONS`.

    Kernels only. What cannot be known is null, and `unknown` says why (a key of `UNKNOWN`). `by` kernel, occupancies
    and SM fill are weighted by duration over the launches where they are known, and what launches do not share is null.
    `gpu` lays the same launches on another GPU: times stay those of the trace, so `idle_sm_ns` and `tail_waste_ns` are
    left out, and `resident_blocks_per_sm` 0 means that the kernel cannot run there. `filter`, `classes` and `rules` are
    those of `top_kernels`. Raises `UsageError` for a GPU that is in no table.
    """
    need_trace(trace, "occupancy")
    need_choice("by", by, LAUNCH_BYS)
    need_choice("sort", sort, OCCUPANCY_SORTS)
    asked = None if gpu is None else _of_product(gpus.find(gpu))
    pattern = compiled(filter)
    wanted = labels("classes", classes)
    for each in wanted:
        need_choice("class", each, CLASSES)
    kernels = trace.kernels.filter(pl.col("kind") == "kernel")
    labelled = label(kernels.select("kind", "name"), rule_table(rules))
    launches, devices = _grouped(kernels, trace)
    totals = launches.group_by("run").agg(all_ns=pl.col("total_ns").sum())
    if pattern is not None or wanted:
        launches = launches.join(matching(labelled, pattern, wanted), on="name", how="semi", nulls_equal=True)
    laid = _laid(launches, [asked or each for each in devices], elsewhere=asked is not None)
    rows = laid if by == "launch" else _by_kernel(laid)
    rows = rows.join(labelled.select("name", "short_name", "class"), on="name", how="left", nulls_equal=True).join(
        totals, on="run", how="left"
    )
    rows = rows.with_columns(
        kernel=pl.col("name").cast(pl.String), share_of_kernel_time=ratio(rows["total_ns"], rows["all_ns"])
    )
    left_out = {"configurations"} if by == "launch" else set()
    left_out |= {"idle_sm_ns", "tail_waste_ns"} if asked else set()
    return _in_order(rows.select(column for column in _ORDER if column not in left_out), sort)


def notes(rows: pl.DataFrame) -> Iterator[Note]:
    """`occupancy-unknown`: one note for each reason, with how many launches it is about and how much time they took."""
    for why, what in UNKNOWN.items():
        found = rows.filter(pl.col("unknown") == why)
        count = int(found["count"].sum())
        if count:
            share = int(found["total_ns"].sum()) / (int(rows["total_ns"].sum()) or 1)
            text = f"occupancy unknown of {counted(count, 'kernel')}, {share:.1%} of the time: {what}"
            yield Note("info", "occupancy-unknown", text, None, count)


def _grouped(kernels: pl.DataFrame, trace: Trace) -> tuple[pl.DataFrame, list[_Gpu]]:
    """Launches that are alike, with how many there are and how long they took, and the devices they ran on.

    `gpu` is the place of their device among the devices; devices that are alike are one.
    """
    owners = kernels.select("source", "device").unique(maintain_order=True)
    described = with_description(owners, trace.devices, *_DEVICE)
    kinds = described.select(_DEVICE).unique(maintain_order=True).with_row_index("gpu")
    placed = described.join(kinds, on=list(_DEVICE), nulls_equal=True).select("source", "device", "gpu")
    runs = trace.ranks.select("source", pl.col("run").cast(pl.Categorical))
    claim = pl.col("trace_occupancy_percent")
    launches = (
        kernels.join(placed, on=["source", "device"], how="left", nulls_equal=True)
        .join(runs, on="source", how="left")
        .group_by("run", "name", "gpu", *_SHAPE)
        .agg(
            count=pl.len().cast(pl.Int64),
            total_ns=pl.col("duration_ns").sum(),
            trace_occupancy=pl.when(claim.min() == claim.max()).then(claim.first() / 100),
        )
    )
    return launches.with_columns(pl.col("run").cast(pl.String)), [_of_device(row) for row in kinds.to_dicts()]


def _of_device(row: dict[str, Any]) -> _Gpu:
    """What a file says of a device, completed from the table of compute capabilities."""
    sms = row["sms"] or None  # some producers write 0 for unknown
    if row["compute_major"] is None or row["compute_minor"] is None or row["warp_size"] not in (None, WARP):
        return _Gpu(sms, None)  # a wave of 64 lanes is not NVIDIA's, whatever its version is called
    limits = limits_of(row["compute_major"], row["compute_minor"])
    if limits is None:
        return _Gpu(sms, None)
    said = {
        "threads_per_block": row["max_threads_per_block"],
        "warps_per_sm": row["max_threads_per_sm"] and row["max_threads_per_sm"] // WARP,
        "registers_per_sm": row["registers_per_sm"],
        "registers_per_block": row["registers_per_block"],
        "shared_memory_per_sm": row["shared_memory_per_sm"],
        "shared_memory_per_block": row["shared_memory_per_block_optin"],
    }
    return _Gpu(sms, dataclasses.replace(limits, **{name: value for name, value in said.items() if value}))


def _of_product(product: gpus.Gpu) -> _Gpu:
    capability = product.compute_capability
    return _Gpu(product.sms, limits_of(*capability) if capability else None)


# ------------------------------------------------------------------------------------------ on a GPU


def _laid(launches: pl.DataFrame, devices: Sequence[_Gpu], *, elsewhere: bool) -> pl.DataFrame:
    """The launches with how they sit on their device; `elsewhere`, a block that does not fit is an answer."""
    shapes = launches.with_columns(blocks=pl.when(BLOCKS > 0).then(BLOCKS), threads=_THREADS)
    kinds = shapes.select("gpu", "threads", "registers", "shared_memory").unique(maintain_order=True)
    fitting = [_fit(devices[row["gpu"]], row, elsewhere=elsewhere) for row in kinds.to_dicts()]
    held = pl.DataFrame(fitting, schema=_HELD, orient="row")
    known = shapes.join(pl.concat([kinds, held], how="horizontal"), on=kinds.columns, nulls_equal=True)
    return _with_waves(known.with_columns(_why_unknown(), grid=_axes(_GRID), block=_axes(_BLOCK)))


_HELD = {
    "sms": pl.Int64,
    "resident_blocks_per_sm": pl.Int64,
    "resident_warps": pl.Int64,
    "block_warps": pl.Int64,
    "most_warps": pl.Int64,
    "limited_by": pl.String,
    "_limits": pl.Boolean,
    "_fits": pl.Boolean,
}


def _fit(gpu: _Gpu, shape: dict[str, Any], *, elsewhere: bool) -> tuple[Any, ...]:
    """One row of `_HELD`: how blocks of this kind fit on an SM of the GPU."""
    threads, registers, shared_memory = shape["threads"], shape["registers"], shape["shared_memory"]
    limits = gpu.limits
    if limits is None or not threads or not registers or shared_memory is None or shared_memory < 0:
        return gpu.sms, None, None, None, None, None, limits is not None, None
    found: Residency = residency(limits, threads=threads, registers=registers, shared_memory=shared_memory)
    resident = found.resident_blocks
    if not resident and not elsewhere:
        return gpu.sms, None, None, None, None, None, True, False
    warps = -(-threads // WARP)
    by = ", ".join(found.limited_by)
    return gpu.sms, resident, resident * warps, warps, limits.warps_per_sm, by, True, bool(resident)


def _why_unknown() -> pl.Expr:
    shaped = (pl.col("blocks") > 0) & (pl.col("threads") > 0)
    held = (pl.col("registers") > 0) & pl.col("shared_memory").is_not_null()
    reasons = (
        ("no launch shape", ~shaped.fill_null(value=False)),
        ("no device", pl.col("sms").is_null()),
        ("no registers", ~held.fill_null(value=False)),
        ("no limits", ~pl.col("_limits")),
        ("does not fit", pl.col("resident_blocks_per_sm") == 0),
        ("contradiction", pl.col("resident_blocks_per_sm").is_null()),
    )
    why = pl.lit(None, pl.String)
    for reason, true in reversed(reasons):
        why = pl.when(true).then(pl.lit(reason)).otherwise(why)
    return why.alias("unknown")


def _axes(columns: Sequence[str]) -> pl.Expr:
    return pl.concat_str([pl.col(column).cast(pl.String) for column in columns], separator="x")


def _with_waves(laid: pl.DataFrame) -> pl.DataFrame:
    """Waves and what follows from blocks, SMs and resident blocks."""
    blocks, sms, resident = pl.col("blocks"), pl.col("sms"), pl.col("resident_blocks_per_sm")
    slots = pl.when(resident > 0).then(sms * resident)
    at_once = pl.min_horizontal("blocks", slots)  # of nulls it takes the other one
    warps = pl.when(slots.is_not_null() & blocks.is_not_null()).then(at_once * pl.col("block_warps"))
    counted = laid.with_columns(
        waves=(blocks + slots - 1) // slots, _slots=slots, _warps=warps, _all_warps=sms * pl.col("most_warps")
    ).with_columns(
        _all_slots=pl.col("waves") * pl.col("_slots"),
        _filled=pl.when(blocks.is_not_null() & sms.is_not_null() & (resident > 0).fill_null(value=True)).then(
            pl.min_horizontal("blocks", "sms")
        ),
    )
    total, tail = pl.col("total_ns"), pl.col("_all_slots") - blocks
    return counted.with_columns(
        theoretical_occupancy=ratio(_positive(counted["resident_warps"]), counted["most_warps"]),
        launch_occupancy=ratio(counted["_warps"], counted["_all_warps"]),
        sm_fill=ratio(counted["_filled"], counted["sms"]),
        wave_fill=ratio(counted["blocks"], counted["_all_slots"]),
        tail_waste_ns=pl.when(pl.col("waves") > 1)
        .then(_part(total, tail, pl.col("_all_slots")))
        .otherwise(pl.when(pl.col("waves").is_not_null()).then(0)),
        idle_sm_ns=_part(total, sms - pl.col("_filled"), sms),
    )


def _positive(values: pl.Series) -> pl.Series:
    """Null for 0: a block that does not fit has no occupancy."""
    return values.set(values == 0, None)


def _part(total: pl.Expr, part: pl.Expr, whole: pl.Expr) -> pl.Expr:
    """total x part / whole to the nearest whole number, in integers wide enough for any trace."""
    product = total.cast(pl.Int128) * part
    return ((2 * product + whole) // (2 * whole)).cast(pl.Int64)


# ------------------------------------------------------------------------------------------ by kernel


def _by_kernel(laid: pl.DataFrame) -> pl.DataFrame:
    key = ["run", "name"]
    same = ("grid", "block", "registers", "shared_memory", "resident_blocks_per_sm", "limited_by", "waves", "unknown")
    rows = laid.group_by(key).agg(
        pl.struct(_SHAPE).n_unique().cast(pl.Int64).alias("configurations"),
        pl.col("count", "total_ns").sum(),
        *(_sum_of_known(column) for column in ("tail_waste_ns", "idle_sm_ns")),
        *(_shared(column) for column in (*same, "trace_occupancy")),
    )
    fitting = laid.drop_nulls("sm_fill")  # without what does not fit on the GPU that was asked about
    fills = sm_fill(fitting.with_columns(duration_ns=pl.col("total_ns")), key)
    for more in (
        fills,
        *(_weighted(laid, key, each) for each in ("theoretical_occupancy", "launch_occupancy", "wave_fill")),
    ):
        rows = rows.join(more, on=key, how="left", nulls_equal=True)
    return rows


def _sum_of_known(column: str) -> pl.Expr:
    known = pl.col(column)
    return pl.when(known.is_not_null().any()).then(known.sum()).alias(column)


def _shared(column: str) -> pl.Expr:
    value = pl.col(column)
    return pl.when((value.min() == value.max()) & (value.null_count() == 0)).then(value.first()).alias(column)


def _weighted(laid: pl.DataFrame, key: list[str], column: str) -> pl.DataFrame:
    """The mean of a figure by duration, over the launches where it is known."""
    weighted = pl.col(column) * pl.col("total_ns")
    known = laid.drop_nulls(column).sort(column, "total_ns")  # so that the order of rows cannot show
    sums = known.group_by(key, maintain_order=True).agg(weighted.sum(), weight=pl.col("total_ns").sum())
    return sums.select(*key, ratio(sums[column], sums["weight"]))


def _in_order(rows: pl.DataFrame, sort: OccupancySort) -> pl.DataFrame:
    column, largest = SORTED_BY[sort]
    if column not in rows.columns:  # times that another GPU would not have
        column, largest = SORTED_BY["total"]
    runs = sorted(rows["run"].unique().drop_nulls(), key=natural_key)
    place = pl.col("run").replace_strict({run: at for at, run in enumerate(runs)}, return_dtype=pl.UInt32)
    more = ("kernel", "grid", "block", "registers", "shared_memory")
    by = [column, "total_ns", *(each for each in more if each != column)]
    falling = [largest, True, *(False for _ in by[2:])]
    if column == "total_ns":
        by, falling = by[1:], falling[1:]
    return rows.sort(place, *by, descending=[False, *falling], nulls_last=True)
