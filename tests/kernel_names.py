"""Kernel names for tests: the golden list, and the names in the shared corpus where that is present."""

from __future__ import annotations

import csv
import json
import os
import re
import zlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

FOLDER = Path(__file__).parent / "golden"
GOLDEN = FOLDER / "kernel_names.tsv"
#: 200 names drawn at random (seed 20261130) from the distinct names of the corpus that neither the golden list nor the
#: examples of the rules hold, and judged by hand by what the kernel does before the rules were asked.
JUDGED = FOLDER / "judged_names.tsv"
#: Names of families that traces of the corpus lack, or that another tool files wrongly, as the sources of the
#: libraries have them; (...) and <...> stand for what is cut off.
FAMILIES = FOLDER / "kernel_families.tsv"

# In every producer's layout that matters here the category stands before the name, both before any object.
_KERNEL_NAME = re.compile(rb'"cat":\s*"[kK]ernel"[^{}]*?"name":\s*("(?:[^"\\]|\\.)*")')


class Judged(NamedTuple):
    """A real kernel name with the short name and the class that a person gave it.

    Most were drawn at random (fixed seed) from all distinct names of the corpus and of the sample traces, so that
    the list holds what traces hold; the rest are names that misled this or another tool. Where the table of rules
    disagrees with a row, the table is wrong.
    """

    short: str
    kernel_class: str
    name: str


def golden() -> list[Judged]:
    """The rows of the golden list."""
    with GOLDEN.open(encoding="utf-8", newline="") as file:
        rows = csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        next(rows)
        return [Judged(*row) for row in rows]


def classed(path: Path) -> list[tuple[str, str]]:
    """The rows of a list of (class, name)."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        next(rows)
        return [(kernel_class, name) for kernel_class, name in rows]


def shared_corpus() -> Path:
    """The folder of real traces; skips the test where it is absent."""
    shared = os.environ.get("TRACEANALYZER_SHARED")
    root = Path(shared) if shared else Path(__file__).resolve().parents[2] / "shared"
    if not (root / "corpus").is_dir():
        pytest.skip(f"no corpus: {root / 'corpus'} is absent (set TRACEANALYZER_SHARED)")
    return root / "corpus"


@cache
def corpus_names(corpus: Path) -> frozenset[str]:
    """The distinct kernel names of all traces."""
    found: set[bytes] = set()
    for path in sorted(corpus.glob("*/*")):
        found.update(_KERNEL_NAME.findall(_inflated(path.read_bytes())))
    return frozenset(json.loads(name.decode("utf-8", "replace"), strict=False) for name in found)


def corpus_totals(corpus: Path) -> Iterator[tuple[str, float]]:
    """The longest-running kernels of every trace with their time, as computed independently."""
    for line in (corpus / "facts.jsonl").read_text(encoding="utf-8").splitlines():
        for row in json.loads(line).get("top_kernels") or []:
            yield row["name"], float(row["total_us"])


def _inflated(content: bytes) -> bytes:
    if not content.startswith(b"\x1f\x8b"):
        return content
    try:
        return zlib.decompressobj(31).decompress(content)
    except zlib.error:
        return b""
