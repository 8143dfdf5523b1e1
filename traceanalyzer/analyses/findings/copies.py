"""Rules about copies and casts: what is moved although it is not read, and copying as such."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import polars as pl

from traceanalyzer.analyses.costs import Call, Tensor, parse_call
from traceanalyzer.analyses.findings.context import RunContext
from traceanalyzer.analyses.findings.finding import Finding
from traceanalyzer.analyses.findings.words import each_step, megabytes, milliseconds, percent

#: Copies are looked at from this part of the kernel time and these bytes a call on.
LARGE_SHARE, LARGE_CALL = 0.1, 16_000_000
#: Of what was copied less than this part is read.
LITTLE = 0.25
#: Kernels of class copy_cast together are worth a word from this part of the kernel time on.
COPY_SHARE = 0.2
_COPIES = ("shapes: cast", "shapes: copy")
#: Operators that read rows of their first input by an index, and where the index stands.
_GATHERS = {"aten::index_select": 2, "aten::gather": 2, "aten::embedding": 1, "aten::index": 1}
_SHAPES = ("input_dims", "input_types", "input_strides", "concrete_inputs")


def copies_more_than_is_read(run: RunContext) -> Iterator[Finding]:
    """A copy or cast of a whole tensor of which the operators after it read a few rows."""
    each = pl.col("bytes") / pl.col("count").clip(1)
    large = (pl.col("total_ns") >= LARGE_SHARE * run.kernel_ns) & (each >= LARGE_CALL)
    for row in run.bandwidth.filter(pl.col("source").is_in(_COPIES) & large).iter_rows(named=True):
        read = _reads_after(run, row["shapes"])
        if read is not None:
            yield _copied_for_little(run, row, *read)


def _copied_for_little(run: RunContext, row: dict[str, Any], target: Tensor, rows: int, reader: str) -> Finding:
    share, per_call = row["total_ns"] / run.kernel_ns, row["bytes"] / row["count"]
    calls = run.a_step(row["count"])
    what = "casts" if row["source"] == "shapes: cast" else "copies"
    shape = " x ".join(f"{size:,}" for size in target.shape)
    a_step = "" if calls is None else f" and {megabytes(per_call * calls)} a step ({calls:,.3g} calls)"
    roof = "" if row["share_of_roof"] is None else f", {percent(row['share_of_roof'])} of what the memory can do"
    text = (
        f"{row['op']} {what} a whole tensor of {shape} elements: {megabytes(per_call)} a call{a_step}, at "
        f"{row['gb_per_s']:,.0f} GB/s{roof}. That takes {percent(share)} of the kernel time "
        f"({milliseconds(row['total_ns'])}{each_step(run, row['total_ns'])}), yet {reader} after it reads {rows:,} of "
        f"the {target.shape[0]:,} rows ({percent(rows / target.shape[0])}). Gather first, and {what[:-1]} what was "
        f"gathered."
    )
    return Finding(
        run.run, "copies-more-than-is-read",
        f"{row['op']} {what} {megabytes(per_call)} a call, of which {percent(rows / target.shape[0])} is read", text,
        at_stake_ns=row["total_ns"], share=share,
        evidence={
            "kernel": row["kernel"], "op": row["op"], "shapes": row["shapes"], "count": row["count"],
            "total_ns": row["total_ns"], "bytes": row["bytes"], "bytes_per_call": per_call,
            "bytes_per_step": None if calls is None else per_call * calls, "gb_per_s": row["gb_per_s"],
            "share_of_roof": row["share_of_roof"], "rows": target.shape[0], "rows_read": rows, "reader": reader,
            "share_of_kernel_time": share,
            "thresholds": {"share_of_kernel_time": LARGE_SHARE, "bytes_per_call": LARGE_CALL, "share_read": LITTLE},
            "events": run.examples(row["kernel"]),
        },
    )  # fmt: skip


def _reads_after(run: RunContext, shapes: str) -> tuple[Tensor, int, str] | None:
    """The tensor that copies of these shapes make, how many of its rows are read next, and by what; None where no
    operator that reads by an index follows most of the copies, or it reads much."""
    ops = run.trace.scan("ops").filter(pl.col("name").cast(pl.String).is_in(["aten::copy_", *_GATHERS])).select(
        "source", pl.col("name", *_SHAPES).cast(pl.String), "start_ns"
    ).collect().drop_nulls("input_dims")  # fmt: skip
    copies = ops.filter((pl.col("name") == "aten::copy_") & (pl.col("input_dims") == shapes))
    targets = {_target(row) for row in copies.select("name", *_SHAPES).unique().iter_rows()}
    target = targets.pop() if len(targets) == 1 else None
    if target is None or len(target.shape) < 2:
        return None
    distinct = ops.filter(pl.col("name") != "aten::copy_").select("name", *_SHAPES).unique()
    picked = [_picked(row, target) for row in distinct.iter_rows()]
    readers = distinct.with_columns(rows=pl.Series(picked, dtype=pl.Int64)).drop_nulls("rows")
    reads = ops.join(readers, on=["name", *_SHAPES], nulls_equal=True)
    after = copies.select("source", "start_ns", copied="start_ns").sort("start_ns")
    following = reads.sort("start_ns").join_asof(after, on="start_ns", by="source", check_sortedness=False)
    followed = following.drop_nulls("copied").select("source", "copied").n_unique()
    if not copies.height or followed * 2 < copies.height:
        return None
    most = following.drop_nulls("copied").sort("rows", "name", descending=[True, False]).row(0, named=True)
    rows = int(most["rows"])
    return (target, rows, str(most["name"])) if rows < LITTLE * target.shape[0] else None


def _call(row: tuple[str, ...]) -> Call | None:
    return parse_call(*row)


def _target(row: tuple[str, ...]) -> Tensor | None:
    call = _call(row)
    tensor = None if call is None else call.tensor(0)
    return None if tensor is None else Tensor(tensor.shape, tensor.element)


def _picked(row: tuple[str, ...], target: Tensor) -> int | None:
    """How many rows a call reads of a tensor like the target; None where it reads another one."""
    call = _call(row)
    table, index = (None, None) if call is None else (call.tensor(0), call.tensor(_GATHERS[call.name]))
    if table is None or index is None or (table.shape, table.element) != (target.shape, target.element):
        return None
    return index.shape[0] if index.shape else 1


def copies_take_the_time(run: RunContext) -> Iterator[Finding]:
    """Copies and casts with a large part of the kernel time, where shapes do not tell more."""
    rows = run.kernels.filter(pl.col("class") == "copy_cast")
    total = int(rows["total_ns"].sum())
    if not rows.height or total < COPY_SHARE * run.kernel_ns:
        return
    first = rows.row(0, named=True)
    share = total / run.kernel_ns
    text = (
        f"Copies and casts take {percent(share)} of the kernel time ({milliseconds(total)}{each_step(run, total)}); "
        f"the largest is {first['short_name']} with {percent(first['share_of_kernel_time'])} in {first['count']:,} "
        f"launches. They compute nothing: what they move could be read in place, or not at all."
    )
    if not _shapes_known(run, first["kernel"]):
        text += " How much they move is not recorded (record_shapes=True, without graphs, would tell)."
    yield Finding(
        run.run, "copies-take-the-time", f"copies and casts take {percent(share)} of the kernel time", text,
        at_stake_ns=total, share=share,
        evidence={
            "kernel": first["kernel"], "total_ns": total, "share_of_kernel_time": share, "count": first["count"],
            "ns_per_step": run.a_step(total), "thresholds": {"share_of_kernel_time": COPY_SHARE},
            "events": run.examples(first["kernel"]),
        },
    )  # fmt: skip


def _shapes_known(run: RunContext, kernel: str) -> bool:
    own = run.bandwidth.filter(pl.col("kernel") == kernel)
    return bool(own["bytes"].is_not_null().any())
