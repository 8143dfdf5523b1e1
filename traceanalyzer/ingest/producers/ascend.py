"""msprof and torch_npu (Huawei Ascend): `trace_view.json` and `msprof_*.json`.

Learned from the corpus (`msprof-view`), the writer (Ascend/msprof `analysis/csrc/application/timeline`:
`ascend_hardware_assembler.cpp`, `hccl_assembler.cpp`) and the field tables of the CANN documentation (task_time,
communication_statistic). A bare array; `ts` is text with 3 decimals; only the rows of torch have a category.

- Mark: a process called "Ascend Hardware".
- Device work: the rows of that process, one per task on a stream. The scheduler's own tasks (EVENT_*, NOTIFY_*, value
  waits and writes, model and stream control) and msproftx markers do no work and stay slices.
- Kind: tasks that are named or typed MEMCPY_ASYNC, SDMA or PCIE_DMA are copies. Operators of type MemSet are kernels
  that set memory: they run on the cores like any other operator.
- Device: the process id; nothing in the file gives the number of the NPU. Stream: the row, which is the stream of the
  program (`Stream Id` inside the args is the one of the hardware, where the two differ).
- Correlation: `connection_id`; -1 and 0 are none. Rows of the process CANN are the API calls; with only the acl level
  recorded, as in the corpus, their ids are not those of the tasks, so that no call joins.
- Not counted, since it repeats the tasks above: "Overlap Analysis" (computing, communication, free) and the rows of
  HCCL or Communication (groups and planes: the same tasks by communication domain). They stay slices.
"""

from __future__ import annotations

import polars as pl

from traceanalyzer.ingest.producers.base import FileFacts, Reclassified, reclassified
from traceanalyzer.ingest.producers.columns import Args, as_text, left_over, named, rows
from traceanalyzer.notes import Note

NAME = "msprof (Ascend)"

_HARDWARE, _CALLS = "Ascend Hardware", "CANN"
_REPEATS = ("Overlap Analysis", "HCCL", "Communication")
_CONTROL = (
    r"^(EVENT|NOTIFY|Notify|CAPTURE)_?(WAIT|Wait|RECORD|Record|RESET)|^MEM_(WAIT|WRITE)_VALUE|^WRITE_VALUE|^PLACE_HOLDER"
    r"|^(MODEL|STREAM)_[A-Z_]+$|^PROFILER|^MsTx"
)
_COPY = r"^(MEMCPY|MemcpyAsync|Memcpy$|SDMA|PCIE_DMA)"
_SET = r"^MEMSET"


def matches(facts: FileFacts, slices: pl.DataFrame) -> bool:  # noqa: ARG001
    """The hardware process is named in every file."""
    return _HARDWARE in facts.process_names.values()


def convert(facts: FileFacts, slices: pl.DataFrame) -> Reclassified:
    """Tasks of the hardware process are device work, rows of CANN are calls."""
    work = as_text(slices).with_columns(process=named(slices["pid"], facts.process_names))
    tasks = work.filter(pl.col("process") == _HARDWARE)
    tasks = tasks.with_columns(type=Args(tasks["args"]).labels("Task Type").fill_null(""))
    tasks = tasks.filter(~pl.col("name").str.contains(_CONTROL) & ~pl.col("type").str.contains(_CONTROL))
    calls = work.filter(pl.col("process") == _CALLS)
    return reclassified(
        left_over(slices, tasks, calls),
        kernels=_kernels(tasks),
        launches=rows(
            calls,
            kind="runtime",
            correlation=Args(calls["args"]).integers("connection_id", positive=True),
        ),
        notes=_notes(work),
    )


def _kernels(tasks: pl.DataFrame) -> pl.DataFrame:
    args = Args(tasks["args"])
    return rows(
        tasks,
        kind=pl.when(_either_is(_COPY))
        .then(pl.lit("memcpy"))
        .when(_either_is(_SET))
        .then(pl.lit("memset"))
        .otherwise(pl.lit("kernel")),
        device=tasks["pid"],
        stream=tasks["tid"],
        correlation=args.integers("connection_id", positive=True),
        bytes=args.integers("size(B)"),
    )


def _either_is(pattern: str) -> pl.Expr:
    return pl.col("name").str.contains(pattern) | pl.col("type").str.contains(pattern)


def _notes(work: pl.DataFrame) -> tuple[Note, ...]:
    repeats = work.filter(pl.col("process").is_in(_REPEATS)).height
    if not repeats:
        return ()
    message = "rows of Overlap Analysis and HCCL repeat the tasks of the hardware: left in slices, counted once"
    return (Note("info", "ascend-repeated-rows", message, count=repeats),)
