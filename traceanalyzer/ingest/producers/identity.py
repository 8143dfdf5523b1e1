"""The name of the program that wrote a file, for display, where no rule of a GPU producer knows it."""

from __future__ import annotations

from collections.abc import Callable

import polars as pl

from traceanalyzer.ingest.producers.base import FileFacts

UNKNOWN = "unknown"

_KINETO_KEYS = frozenset(("schemaVersion", "deviceProperties", "traceName", "computeProperties"))
_KINETO_CATEGORIES = frozenset(
    ("kernel", "gpu_memcpy", "gpu_memset", "cpu_op", "cuda_runtime", "python_function", "user_annotation")
)
_OLD_KINETO_CATEGORIES = frozenset(("Kernel", "Memcpy", "Memset", "Operator", "Runtime"))
_BAZEL_CATEGORIES = frozenset(("build phase marker", "action processing", "general information"))


def _has(*categories: str) -> Callable[[FileFacts], bool]:
    return lambda facts: not facts.span_categories.isdisjoint(categories)


def _kineto(facts: FileFacts) -> bool:
    return not (
        _KINETO_KEYS.isdisjoint(facts.metadata)
        and _KINETO_CATEGORIES.isdisjoint(facts.span_categories)
        and _OLD_KINETO_CATEGORIES.isdisjoint(facts.span_categories)
    )


def _viztracer(facts: FileFacts) -> bool:
    return "viztracer_metadata" in facts.metadata or facts.span_categories == {"FEE"}


def _clang(facts: FileFacts) -> bool:
    names = facts.process_names.values()
    return "beginningOfTime" in facts.metadata or any(name.startswith("clang") for name in names)


def _bazel(facts: FileFacts) -> bool:
    other = facts.metadata.get("otherData")
    return not _BAZEL_CATEGORIES.isdisjoint(facts.span_categories) and isinstance(other, dict) and "build_id" in other


def _devtools(facts: FileFacts) -> bool:
    return any("devtools.timeline" in (category or "") for _, category in facts.counts)


def _chromium(facts: FileFacts) -> bool:
    """Chromium's own tracing marks its metadata events with a category; so do some others that browsers read."""
    words = {word for _, category in facts.counts for word in (category or "").split(",")}
    return "__metadata" in words and not words.isdisjoint(("cc", "renderer", "toplevel", "renderer_host", "PERF"))


def _tpu(facts: FileFacts) -> bool:
    return any(name.startswith(("/device:TPU:", "/host:CPU")) for name in facts.process_names.values())


#: In order: the first that fits names the file.
_WRITERS: tuple[tuple[str, Callable[[FileFacts], bool]], ...] = (
    ("PyTorch Kineto", _kineto),
    ("VizTracer", _viztracer),
    ("Bazel", _bazel),
    ("clang -ftime-trace", _clang),
    ("Chrome DevTools", _devtools),
    ("Chromium tracing", _chromium),
    ("JAX/XLA", _tpu),
    ("torch.compile (tlparse)", _has("dynamo_timed")),
    ("Zephyr (Zephelin)", _has("zephyr")),
)


def writer(facts: FileFacts, slices: pl.DataFrame) -> str:
    """The first writer whose signs are in the file, else "unknown"."""
    known = next((name for name, fits in _WRITERS if fits(facts)), UNKNOWN)
    return "IBM AIU" if known == UNKNOWN and _aiu(facts, slices) else known


def _aiu(facts: FileFacts, slices: pl.DataFrame) -> bool:
    """IBM's accelerator: jobs that end in "Cmpt Exec", or its process names.

    Its rows stay slices: the begin and end times of a raw trace are the host's, the device's own are cycle counts
    (TS1 to TS5) outside the args, from which IBM's post-processing computes the real ones.
    """
    if any(name.startswith("AIU ") for name in facts.process_names.values()):
        return True
    if not facts.uncategorised or facts.process_names or facts.metadata:
        return False
    return bool(slices["name"].cast(pl.String).str.ends_with(" Cmpt Exec").any())
