"""Steps from the ranges that frameworks and users set around each repetition of their main loop."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import polars as pl

from traceanalyzer.errors import UsageError
from traceanalyzer.trace import Trace

#: One row per step of a source, in order: its range on the host.
SCHEMA = pl.Schema({
    "source": pl.UInt16(), "step": pl.UInt32(), "name": pl.String(), "kind": pl.String(), "batch": pl.Int64(),
    "tokens": pl.Int64(), "start_ns": pl.Int64(), "end_ns": pl.Int64(),
})  # fmt: skip


@dataclass(frozen=True)
class Marked:
    """What the name of a marker says."""

    kind: str
    """decode, prefill, mixed, idle, or step where the name does not tell."""
    batch: int | None = None
    """Sequences in the batch."""
    tokens: int | None = None
    """Tokens that the step works on: of a decode step those that it may give."""


#: Markers by who sets them, the finest first: of several in one file, the first that is there counts.
_SGLANG = re.compile(r"step\[(?P<stage>[A-Za-z_]+)(?:\s+bs=(?P<batch>\d+))?(?:\s+toks=(?P<tokens>\d+))?[^\]]*\]")
_VLLM = re.compile(
    r"execute_(?:\d+_)?context_(?P<prefills>\d+)\((?P<prefill>[^)]*)\)_generation_(?P<decodes>\d+)\((?P<decode>[^)]*)\)"
)
_OTHERS = re.compile(
    r"execute_(?:model|diffusion)\w*|ProfilerStep#\d+|(?:train_|training_)?(?:step|iteration|iter)[ _#:=]*\d+(?:/\d+)?"
)
_KNOWN = (_SGLANG, _VLLM, _OTHERS)
_STAGES = {"DECODE": "decode", "EXTEND": "prefill", "PREFILL": "prefill", "MIXED": "mixed", "IDLE": "idle",
           "TARGET_VERIFY": "decode", "DRAFT_EXTEND": "decode"}  # fmt: skip


def compiled(pattern: str) -> re.Pattern[str]:
    """A user's pattern for markers. Raises `UsageError` where it is no regular expression."""
    try:
        return re.compile(pattern)
    except re.error as error:
        raise UsageError(f"{pattern!r} is no regular expression: {error}") from error


def marked_steps(trace: Trace, pattern: re.Pattern[str] | None = None) -> pl.DataFrame:
    """The steps that markers tell, as `SCHEMA` says, and their `pid` and `tid`; none of a source without markers.

    Markers are host ranges of the names that SGLang, vLLM, torch's profiler and training loops give them; with a
    `pattern`, those that it is found in. A marker inside another one is a part of that step.
    """
    ranges = trace.annotations.filter(~pl.col("on_device")).select(
        "source", "pid", "tid", "name", "start_ns", end_ns=pl.col("start_ns") + pl.col("duration_ns")
    )
    names = ranges["name"].unique().drop_nulls().cast(pl.String).to_list()
    told = pl.DataFrame(
        list(_tell(names, pattern)),
        schema={"name": pl.String, "rank_of": pl.UInt8, "kind": pl.String, "batch": pl.Int64, "tokens": pl.Int64},
        orient="row",
    )
    found = ranges.with_columns(pl.col("name").cast(pl.String)).join(told, on="name", how="inner")
    outer = _outermost(found.filter(pl.col("rank_of") == pl.col("rank_of").min().over("source")))
    step = pl.int_range(pl.len(), dtype=pl.UInt32).over("source")
    columns = [pl.col(name).cast(dtype) for name, dtype in SCHEMA.items()]
    return outer.with_columns(step=step).select(*columns, "pid", "tid")


def _outermost(found: pl.DataFrame) -> pl.DataFrame:
    """Markers that lie in no other of their thread. One that overlaps the next is cut where that starts."""
    key = ["source", "pid", "tid"]
    ordered = found.sort(*key, "start_ns", "end_ns", descending=[False, False, False, False, True])
    reached = pl.col("end_ns").cum_max().shift(1).over(key)  # what ends by the end of an earlier one lies in it
    outer = ordered.filter(reached.is_null() | (pl.col("end_ns") > reached))
    following = pl.col("start_ns").shift(-1).over(key)
    cut = outer.with_columns(end_ns=pl.min_horizontal("end_ns", following))
    return cut.sort("source", "start_ns", "end_ns", "name")


def _tell(names: list[str], pattern: re.Pattern[str] | None) -> Iterator[tuple[str, int, str, int | None, int | None]]:
    for name in names:
        wanted = pattern is None or pattern.search(name) is not None
        rank = next((place for place, known in enumerate(_KNOWN) if known.fullmatch(name)), None)
        if wanted and (pattern is not None or rank is not None):
            marked = read_marker(name)
            yield name, rank or 0 if pattern is None else 0, marked.kind, marked.batch, marked.tokens


def read_marker(name: str) -> Marked:
    """What a marker's name says of the step: `step[DECODE bs=8 toks=8]`, `execute_context_0(0)_generation_32(32)`."""
    if found := _SGLANG.match(name):
        return _of_sglang(found.groupdict())
    if found := _VLLM.match(name):
        return _of_vllm(found.groupdict())
    return Marked("step")


def is_marker(name: str) -> bool:
    """Whether a range of this name is a marker that frameworks set, of whatever kind."""
    return any(known.fullmatch(name) for known in _KNOWN)


def _of_sglang(words: Mapping[str, str | None]) -> Marked:
    kind = _STAGES.get((words["stage"] or "").upper(), "step")
    batch, tokens = (int(words[key] or 0) or None for key in ("batch", "tokens"))
    return Marked(kind, batch, tokens if tokens is not None or kind != "decode" else batch)


def _of_vllm(words: Mapping[str, str | None]) -> Marked:
    """Counts of sequences in each part; the first number in brackets is their tokens (`888_788544`, `sq32sk3`)."""
    prefills, decodes = int(words["prefills"] or 0), int(words["decodes"] or 0)
    kind = "mixed" if prefills and decodes else "prefill" if prefills else "decode" if decodes else "idle"
    parts = [re.match(r"(?:sq)?(\d+)", words[part] or "") for part in ("prefill", "decode")]
    tokens = sum(int(part[1]) for part in parts if part)
    return Marked(kind, prefills + decodes or None, tokens or None)
