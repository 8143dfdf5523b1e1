"""What other accelerators leave behind in a Kineto file: MTIA, and the forks of Cambricon (MLU) and Enflame (GCU).

Learned from the corpus (`hta-mtia-inf`) and Kineto's list of activity types (`ActivityType.h`, `ActivityType.cpp`, and
those of the two forks). Everything that mainline Kineto writes for Intel XPU, MTIA and PrivateUse1 is placed by
category and never comes here, except:

- `mtia_ccp_events`: what MTIA's command processor executed. Device activity by content: jobs that run one at a time on
  the processing elements (pe_exe, or named after the executable), DMA requests with direction and size, correlated to
  the host calls; beside waits and records of events, which are none. It stays in slices all the same, since in Kineto
  files kernel, gpu_memcpy and gpu_memset alone are counted; a note says how much there is.
- `xpu_sync`, like `cuda_sync`, is waiting; `hpu_op` is the host side of Habana. Both stay slices.
- Forks: `mlu_memcpy`, `mlu_memset`, `gcu_memcpy`, `gcu_memset` are copies and sets (kernels have the category
  `kernel`), `mlu_runtime`, `gcu_runtime` and `gcu_driver` the calls, `*_user_annotation` ranges on the device. Enflame
  writes some of them in capitals. The args are Kineto's.
"""

from __future__ import annotations

import polars as pl

from traceanalyzer.ingest.producers.base import FileFacts, Reclassified, reclassified
from traceanalyzer.ingest.producers.columns import Args, as_text, either, left_over, rows
from traceanalyzer.notes import Note

NAME = "PyTorch Kineto"

_CALLS = {"mlu_runtime": "runtime", "gcu_runtime": "runtime", "gcu_driver": "driver"}
_DEVICE = {"mlu_memcpy": "memcpy", "mlu_memset": "memset", "gcu_memcpy": "memcpy", "gcu_memset": "memset"}
_RANGES = ("mlu_user_annotation", "gcu_user_annotation")
_MTIA = "mtia_ccp_events"
_MINE = frozenset((*_CALLS, *_DEVICE, *_RANGES, _MTIA))


def matches(facts: FileFacts, slices: pl.DataFrame) -> bool:  # noqa: ARG001
    """By category, in any case."""
    return not _MINE.isdisjoint({category.lower() for category in facts.span_categories if category})


def convert(facts: FileFacts, slices: pl.DataFrame) -> Reclassified:  # noqa: ARG001
    """Calls, copies and ranges of the forks, as if they were CUDA's; MTIA's rows stay."""
    work = as_text(slices).with_columns(pl.col("category").str.to_lowercase())
    calls, device, ranges = (work.filter(pl.col("category").is_in(list(part))) for part in (_CALLS, _DEVICE, _RANGES))
    return reclassified(
        left_over(slices, calls, device, ranges),
        kernels=_kernels(device),
        launches=_launches(calls),
        annotations=rows(ranges, on_device=True, external_id=_external_id(Args(ranges["args"]))),
        notes=_notes(work),
    )


def _kernels(picked: pl.DataFrame) -> pl.DataFrame:
    args = Args(picked["args"])
    return rows(
        picked,
        kind=_mapped(picked["category"], _DEVICE),
        device=either(args.labels("device"), picked["pid"]),
        stream=either(args.labels("stream"), picked["tid"]),
        correlation=args.integers("correlation", positive=True),
        external_id=_external_id(args),
        bytes=args.integers("bytes"),
    )


def _launches(picked: pl.DataFrame) -> pl.DataFrame:
    args = Args(picked["args"])
    return rows(
        picked,
        kind=_mapped(picked["category"], _CALLS),
        correlation=args.integers("correlation", positive=True),
        external_id=_external_id(args),
    )


def _external_id(args: Args) -> pl.Series:
    return args.integers("External id", "external id", positive=True)


def _mapped(values: pl.Series, mapping: dict[str, str]) -> pl.Series:
    return values.replace_strict(list(mapping), list(mapping.values()), return_dtype=pl.String)


def _notes(work: pl.DataFrame) -> tuple[Note, ...]:
    events = work.filter(pl.col("category") == _MTIA).height
    if not events:
        return ()
    message = "mtia_ccp_events (jobs and copies of MTIA devices) are left in slices and count as no device time"
    return (Note("info", "mtia-not-counted", message, count=events),)
