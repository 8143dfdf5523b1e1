"""The reports of `kernels`: what is bundled, whether it is right, what it buys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

import polars as pl

from traceanalyzer.kernels.common.checks import Outcome
from traceanalyzer.kernels.common.kernel import Kernel
from traceanalyzer.notes import Note
from traceanalyzer.report import Column, Fact, Report, Section
from traceanalyzer.text import counted

if TYPE_CHECKING:
    from traceanalyzer.kernels.common.bench_result import Result, Row

_LISTED = [
    Column("kernel", "kernel", "text"),
    Column("title", "what it does", "prose"),
    Column("replaces", "instead of", "prose"),
    Column("architectures", "compiled for", "prose", optional=1),
    Column("operator", "torch operator", "text", optional=2),
]
_CHECKED = [
    Column("kernel", "kernel", "text"),
    Column("case", "case", "text"),
    Column("fault", "fault", "prose"),
    Column("duration_ns", "took", "time", optional=1),
]
_MEASURED = [
    Column("kernel", "kernel", "text"),
    Column("case", "case", "prose"),
    Column("baseline_ns", "baseline", "time", unit_of="run"),
    Column("baseline_host_ns", "its host part", "time", optional=4, unit_of="run"),
    Column("peer_ns", "peer", "time", optional=1, unit_of="run"),
    Column("replacement_ns", "replacement", "time", unit_of="run"),
    Column("replacement_clean_ns", "clean L2", "time", optional=2, unit_of="run"),
    Column("floor_ns", "floor", "time", optional=3, unit_of="run"),
    Column("speedup", "times", "rate"),
    Column("agreement", "agree", "text"),
]


def listed(kernels: Sequence[Kernel]) -> Report:
    """One row per kernel."""
    rows = pl.DataFrame(
        [
            {
                "kernel": kernel.name,
                "title": kernel.title,
                "replaces": kernel.replaces,
                "architectures": ", ".join(kernel.architectures),
                "operator": f"traceanalyzer::{kernel.name}",
            }
            for kernel in kernels
        ]
    )
    return Report("kernels list", "The bundled kernels", [Section(rows, _LISTED)], {"rows": rows})


def checked(outcomes: Sequence[Outcome]) -> Report:
    """One row per case; the table shows those that are wrong, the data all."""
    texts = dict.fromkeys(("kernel", "case", "on", "fault"), pl.String)
    rows = pl.DataFrame([asdict(each) for each in outcomes], schema={**texts, "duration_ns": pl.Int64})
    sections = []
    for (name,), found in rows.group_by("kernel", maintain_order=True):
        wrong = found.filter(pl.col("fault").is_not_null())
        facts = [
            Fact("on", found["on"][0]),
            Fact("cases", found.height, "count"),
            Fact("wrong", wrong.height, "count"),
        ]
        sections.append(
            Section(
                wrong, _CHECKED, title=str(name), facts=facts, empty=f"all {counted(found.height, 'case')} are right"
            )
        )
    return Report("kernels check", "Checks of the bundled kernels", sections, {"rows": rows})


def measured(result: Result) -> Report:
    """One row per case, the GPU and its ceilings above."""
    rows = pl.DataFrame([asdict(row) for row in result.rows], infer_schema_length=None).with_columns(
        speedup=pl.col("baseline_ns") / pl.col("replacement_ns")
    )
    shown = rows.with_columns(agreement=pl.Series([_agreement(row) for row in result.rows], dtype=pl.String))
    columns = [each for each in _MEASURED if each.name != "baseline_host_ns" or shown[each.name].count()]
    ceilings = result.ceilings
    facts = [
        Fact("", f"{result.device} ({result.architecture})"),
        Fact("copy", f"{ceilings.copy_bytes_per_s / 1e9:,.0f} GB/s"),
        Fact("mma.sync", f"{ceilings.mma_flop_per_s / 1e12:,.0f} TFLOP/s"),
        Fact("an empty launch", ceilings.launch_ns, "time"),
        *_state_facts(result),
    ]
    footnotes = sorted({f"{row.kernel}: the baseline is: {row.baseline}" for row in result.rows})
    footnotes += sorted({f"{row.kernel}: the peer is: {row.peer}" for row in result.rows if row.peer})
    if any(row.largest_error is not None for row in result.rows):
        footnotes.append("agree: bit for bit, or the largest error as a share of what is allowed")
    device = {name: getattr(result, name) for name in ("device", "architecture", "torch", "cuda", "driver")}
    return Report(
        "kernels bench",
        "The bundled kernels, measured",
        [Section(shown, columns, facts=facts, footnotes=footnotes)],
        {
            "rows": rows,
            "gpu": pl.DataFrame([device | asdict(ceilings)]),
            "states": pl.DataFrame([asdict(state) for state in result.states]),
        },
        notes=[Note("warning", "gpu-state", warning) for warning in result.warnings],
    )


def _agreement(row: Row) -> str:
    if not row.agree:
        return "NO"
    return "bits" if row.largest_error is None else f"{row.largest_error:.2f}"


def _state_facts(result: Result) -> list[Fact]:
    """Clocks and power at the end of the run."""
    if not result.states:
        return []
    last = result.states[-1]
    clocks = [("SM clock", last.sm_mhz), ("memory clock", last.memory_mhz)]
    facts = [Fact(label, f"{value:,} MHz") for label, value in clocks if value is not None]
    if last.power_watts is not None:
        facts.append(Fact("power", f"{last.power_watts:,.0f} W"))
    return facts
