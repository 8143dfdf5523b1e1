"""Rules about single kernels: launches that cannot fill the device, work that is far from what the device can do."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from traceanalyzer.analyses.findings.context import RunContext
from traceanalyzer.analyses.findings.finding import Finding
from traceanalyzer.analyses.words import each_step, milliseconds, percent
from traceanalyzer.text import counted

#: A kernel is under-filling if it fills less than this of the SMs (weighted by time) and takes that part of the time.
LOW_FILL, LARGE_SHARE = 0.6, 0.1
#: Kernels are looked at from this mean duration on, in all from this time and this part of the span.
SHORT_NS, LITTLE_NS, SMALL_PART = 5_000, 100_000, 0.01
#: What reaches this part of what the device can do has no fault, however few blocks it launches.
NEAR_THE_ROOF = 0.6
#: Work is far from the roof below this part of it; what moves less a call lives in caches and latency.
FAR_FROM_ROOF, LARGE_CALL = 0.4, 16_000_000


def underfilled_kernel(run: RunContext) -> Iterator[Finding]:
    """Kernels with much of the time and fewer blocks than the device has SMs."""
    large = (pl.col("share_of_kernel_time") >= LARGE_SHARE) & (pl.col("sm_fill") < LOW_FILL)
    least = max(LITTLE_NS, SMALL_PART * run.span_ns)
    large &= (pl.col("mean_ns") >= SHORT_NS) & (pl.col("total_ns") >= least)
    for row in run.kernels.filter(large & (pl.col("class") != "communication")).iter_rows(named=True):
        if _is_near_the_roof(run, row["kernel"]):
            continue
        launches = run.launches.filter(pl.col("name").cast(pl.String) == row["kernel"]).drop_nulls(["blocks", "sms"])
        blocks, sms = int(launches["blocks"].mode().sort()[0]), int(launches["sms"].mode().sort()[0])
        idle = int(
            launches.select(
                (pl.col("duration_ns") * (pl.col("sms") - pl.min_horizontal("blocks", "sms")) / pl.col("sms")).sum()
            ).item()
        )
        share = row["share_of_kernel_time"]
        per_step = run.kernels_a_step([row["kernel"]])
        text = (
            f"{row['short_name']} takes {percent(share)} of the kernel time ({milliseconds(row['total_ns'])}"
            f"{each_step(per_step and per_step[0])}) and launches {_blocks(row, blocks)} on {sms} SMs, so that "
            f"{percent(1 - row['sm_fill'])} of the device stands idle while it runs: as much as {milliseconds(idle)} "
            f"of the whole device. More blocks, each with less to do (split the keys, or the sum), would use it."
        )
        yield Finding(
            run.run, "underfilled-kernel", f"{row['short_name']} fills {percent(row['sm_fill'])} of the SMs", text,
            at_stake_ns=row["total_ns"], share=row["total_ns"] / run.span_ns,
            evidence={
                "kernel": row["kernel"], "count": row["count"], "total_ns": row["total_ns"],
                "share_of_kernel_time": share, "blocks": blocks, "sms": sms, "sm_fill": row["sm_fill"],
                "idle_sm_ns": idle, "ns_per_step": per_step and per_step[0],
                "thresholds": {"sm_fill": LOW_FILL, "share_of_kernel_time": LARGE_SHARE,
                               "share_of_roof": NEAR_THE_ROOF},
                "events": run.examples(row["kernel"]),
            },
        )  # fmt: skip


def _is_near_the_roof(run: RunContext, kernel: str) -> bool:
    own = run.bandwidth.filter((pl.col("kernel") == kernel) & pl.col("share_of_roof").is_not_null())
    total = int(own["total_ns"].sum())
    return bool(total) and float((own["share_of_roof"] * own["total_ns"]).sum()) >= NEAR_THE_ROOF * total


def _blocks(row: dict[str, object], usual: int) -> str:
    words = counted(usual, "block")
    return words if row["grids"] == 1 else f"mostly {words}"


def far_from_the_roof(run: RunContext) -> Iterator[Finding]:
    """Operators with large tensors that move or compute far less than the device can."""
    each = pl.col("bytes") / pl.col("count")
    far = (pl.col("share_of_roof") < FAR_FROM_ROOF) & (each >= LARGE_CALL)
    large = pl.col("total_ns") >= max(LITTLE_NS, LARGE_SHARE * run.kernel_ns, SMALL_PART * run.span_ns)
    for row in run.bandwidth.filter(far & large & pl.col("op").is_not_null()).iter_rows(named=True):
        share = row["total_ns"] / run.kernel_ns
        per_call = row["bytes"] / row["count"]
        rate = f"{row['gb_per_s']:,.0f} GB/s" if row["bound"] == "memory" else f"{row['tflop_per_s']:,.0f} TFLOP/s"
        text = (
            f"{row['short_name']} under {row['op']} takes {percent(share)} of the kernel time. A call has to move "
            f"{per_call / 1e6:,.0f} MB and reaches {rate}, {percent(row['share_of_roof'])} of what the device can do: "
            f"it could take {milliseconds(int(row['total_ns'] * (1 - row['share_of_roof'])))} less."
        )
        yield Finding(
            run.run, "far-from-roof", f"{row['short_name']} reaches {percent(row['share_of_roof'])} of the roof", text,
            at_stake_ns=int(row["total_ns"] * (1 - row["share_of_roof"])),
            share=row["total_ns"] * (1 - row["share_of_roof"]) / run.span_ns,
            evidence={
                "kernel": row["kernel"], "op": row["op"], "shapes": row["shapes"], "count": row["count"],
                "total_ns": row["total_ns"], "bytes": row["bytes"], "flops": row["flops"],
                "gb_per_s": row["gb_per_s"], "tflop_per_s": row["tflop_per_s"], "share_of_roof": row["share_of_roof"],
                "thresholds": {"share_of_roof": FAR_FROM_ROOF, "bytes_per_call": LARGE_CALL,
                               "share_of_kernel_time": LARGE_SHARE},
                "events": run.examples(row["kernel"]),
            },
        )  # fmt: skip
