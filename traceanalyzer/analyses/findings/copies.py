"""Rules about copies and casts: what is moved although it is not read, and copying as such."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import polars as pl

from traceanalyzer.analyses.costs import Tensor, parse_call
from traceanalyzer.analyses.findings.context import RunContext
from traceanalyzer.analyses.findings.finding import Finding
from traceanalyzer.analyses.words import each_step, megabytes, milliseconds, percent
from traceanalyzer.text import counted

#: Copies are looked at from this part of the kernel time and these bytes a call on.
LARGE_SHARE, LARGE_CALL = 0.1, 16_000_000
#: Of what was copied less than this part is read.
LITTLE = 0.25
#: Kernels of class copy_cast together are worth a word from this part of the kernel time on.
COPY_SHARE = 0.2
_COPIES = ("shapes: cast", "shapes: copy")
#: Operators that read rows of their first input by an index, and where the index stands.
_GATHERS = {"aten::index_select": 2, "aten::gather": 2, "aten::embedding": 1}
#: Operators that make a view and read nothing.
_VIEWS = {
    "aten::view", "aten::reshape", "aten::as_strided", "aten::expand", "aten::slice", "aten::select", "aten::transpose",
    "aten::permute", "aten::unsqueeze", "aten::squeeze", "aten::detach", "aten::alias", "aten::t", "aten::narrow",
    "aten::empty_like", "aten::to", "aten::_to_copy", "aten::contiguous", "aten::clone", "aten::flatten",
    "aten::unbind",
    "aten::resolve_conj", "aten::resolve_neg", "aten::_reshape_alias", "aten::_unsafe_view", "aten::split",
    "aten::unfold", "aten::copy_", "detach", "aten::is_nonzero", "aten::result_type",
}  # fmt: skip
_SHAPES = ("input_dims", "input_types", "input_strides", "concrete_inputs")


def copies_more_than_is_read(run: RunContext) -> Iterator[Finding]:
    """A copy or cast of a whole tensor of which the operators after it read a few rows."""
    each = pl.col("bytes") / pl.col("count").clip(1)
    large = (pl.col("total_ns") >= LARGE_SHARE * run.kernel_ns) & (each >= LARGE_CALL) & (pl.col("total_ns") > 0)
    for row in run.bandwidth.filter(pl.col("source").is_in(_COPIES) & large).iter_rows(named=True):
        read = _reads_after(run, row["shapes"])
        if read is not None:
            yield _copied_for_little(run, row, *read)


def _copied_for_little(run: RunContext, row: dict[str, Any], target: Tensor, rows: int, reader: str) -> Finding:
    share, per_call = row["total_ns"] / run.kernel_ns, row["bytes"] / row["count"]
    per_step = run.kernels_a_step([row["kernel"]])
    calls = None if per_step is None else per_step[1]
    verb, what = ("cast", "casts") if row["source"] == "shapes: cast" else ("copy", "copies")
    shape = " x ".join(f"{size:,}" for size in target.shape)
    a_step = "" if calls is None else f" and {megabytes(per_call * calls)} a step ({calls:,.3g} calls)"
    roof = "" if row["share_of_roof"] is None else f", {percent(row['share_of_roof'])} of what the memory can do"
    text = (
        f"{row['op']} {what} a whole tensor of {shape} elements: {megabytes(per_call)} a call{a_step}, at "
        f"{row['gb_per_s']:,.0f} GB/s{roof}. That takes {percent(share)} of the kernel time "
        f"({milliseconds(row['total_ns'])}{each_step(per_step and per_step[0])}), yet {reader} after it reads {rows:,} "
        f"of the {target.shape[0]:,} rows ({percent(rows / target.shape[0])}). Gather first, and {verb} what was "
        f"gathered."
    )
    return Finding(
        run.run, "copies-more-than-is-read",
        f"{row['op']} {what} {megabytes(per_call)} a call, of which {percent(rows / target.shape[0])} is read", text,
        at_stake_ns=row["total_ns"], share=row["total_ns"] / run.span_ns, confidence="medium",
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
    """The tensor that copies of these shapes make, how many of its rows are read until the next copy, and by what.

    None where most copies are followed by no operator that reads rows by an index, where what is read is much, or where
    an operator takes a whole tensor of that shape and type. Tensors are told by these alone: an operator may read
    another one of the same.
    """
    ops = run.trace.scan("ops").select(
        "source", "pid", "tid", pl.col("name", *_SHAPES).cast(pl.String), "start_ns"
    ).collect().drop_nulls("input_dims")  # fmt: skip
    copies = ops.filter((pl.col("name") == "aten::copy_") & (pl.col("input_dims") == shapes))
    targets = {_target(row) for row in copies.select("name", *_SHAPES).unique().iter_rows()}
    target = targets.pop() if len(targets) == 1 else None
    if target is None or len(target.shape) < 2:
        return None
    distinct = ops.filter(~pl.col("name").is_in(list(_VIEWS))).select("name", *_SHAPES).unique()
    picked = [_picked(row, target) for row in distinct.iter_rows()]
    readers = distinct.with_columns(rows=pl.Series(picked, dtype=pl.Int64)).drop_nulls("rows")
    reads = ops.join(readers, on=["name", *_SHAPES], nulls_equal=True)
    if (reads["rows"] >= target.shape[0]).any():
        return None
    thread = ["source", "pid", "tid"]
    after = copies.select(*thread, "start_ns", copied="start_ns").sort("start_ns")
    following = reads.sort("start_ns").join_asof(after, on="start_ns", by=thread, check_sortedness=False)
    following = _outermost_reads(following.drop_nulls("copied"))
    sums = following.group_by(*thread, "copied").agg(pl.col("rows").sum(), pl.col("name").sort_by("rows").last())
    if not copies.height or sums.height * 2 < copies.height:
        return None
    most = sums.sort("rows", "name", descending=[True, False]).row(0, named=True)
    rows = int(most["rows"])
    return (target, rows, str(most["name"])) if rows < LITTLE * target.shape[0] else None


def _outermost_reads(reads: pl.DataFrame) -> pl.DataFrame:
    """`index_select` is done by `gather` inside of it: of reads of as many rows, one after another, the last counts."""
    ordered = reads.sort("source", "pid", "tid", "start_ns")
    same = pl.all_horizontal(
        pl.col(name).eq_missing(pl.col(name).shift(-1)) for name in ("source", "pid", "tid", "copied", "rows")
    )
    wrapper = (pl.col("name") == "aten::index_select") & (pl.col("name").shift(-1) == "aten::gather")
    return ordered.filter(~(same & wrapper).fill_null(value=False))


def _target(row: tuple[str, ...]) -> Tensor | None:
    call = parse_call(*row)
    tensor = None if call is None else call.tensor(0)
    return None if tensor is None else Tensor(tensor.shape, tensor.element)


def _picked(row: tuple[str, ...], target: Tensor) -> int | None:
    """How many rows a call reads of a tensor like the target; None where it takes none such.

    Rows are of the first dimension: who picks along another one, or takes the tensor whole, reads all of them.
    """
    call = parse_call(*row)
    if call is None:
        return None
    places = [place for place, each in enumerate(call.inputs) if isinstance(each, Tensor)
              and (each.shape, each.element) == (target.shape, target.element)]  # fmt: skip
    if not places:
        return None
    index = call.tensor(_GATHERS[call.name]) if call.name in _GATHERS and places == [0] else None
    if index is None:
        return target.shape[0]
    if call.name == "aten::embedding":
        return index.elements
    if call.value(1) not in (0, None):
        return target.shape[0]
    return index.shape[0] if index.shape else 1


def copies_take_the_time(run: RunContext) -> Iterator[Finding]:
    """Copies and casts with a large part of the kernel time, where shapes do not tell more."""
    rows = run.kernels.filter(pl.col("class") == "copy_cast")
    total = int(rows["total_ns"].sum())
    if not total or total < COPY_SHARE * run.kernel_ns:
        return
    first = rows.row(0, named=True)
    per_step = run.kernels_a_step(rows["kernel"].to_list())
    share = total / run.kernel_ns
    text = (
        f"Copies and casts take {percent(share)} of the kernel time "
        f"({milliseconds(total)}{each_step(per_step and per_step[0])}); "
        f"the largest is {first['short_name']} with {percent(first['share_of_kernel_time'])} in "
        f"{counted(first['count'], 'call')}. They compute nothing: what they move could be read in place, or not at "
        f"all."
    )
    if not _shapes_known(run, first["kernel"]):
        text += " How much they move is not recorded (record_shapes=True, without graphs, would tell)."
    yield Finding(
        run.run, "copies-take-the-time", f"copies and casts take {percent(share)} of the kernel time", text,
        at_stake_ns=total, share=total / run.span_ns,
        evidence={
            "kernel": first["kernel"], "total_ns": total, "share_of_kernel_time": share, "count": first["count"],
            "ns_per_step": per_step and per_step[0], "thresholds": {"share_of_kernel_time": COPY_SHARE},
            "events": run.examples(first["kernel"]),
        },
    )  # fmt: skip


def _shapes_known(run: RunContext, kernel: str) -> bool:
    own = run.bandwidth.filter(pl.col("kernel") == kernel)
    return bool(own["bytes"].is_not_null().any())
