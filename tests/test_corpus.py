"""Every real trace of the shared corpus, end to end, against figures that were computed independently.

`facts.jsonl` holds the figures of Kineto's categories, `golden/producers.jsonl` those of the other producers. Times
are compared as exact nanoseconds.
"""

from __future__ import annotations

import json
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from shared import CORPUS, needs_corpus

import traceanalyzer as ta
from traceanalyzer.analyses.device_time import device_time
from traceanalyzer.analyses.top_kernels import top_kernels

Facts = dict[str, Any]
GOLDEN = Path(__file__).parent / "golden" / "producers.jsonl"
#: What the reader must say of the files that are damaged or no trace.
NOTED = {
    "derived-a/nccl_data.cut60.json.gz": {"gzip-cut", "json-cut"},
    "derived-a/sidnb.cut.pt.trace.json": {"json-cut"},
}
REFUSED = {"neg-rocprofv3/908_results.json.gz": "holds no traceEvents"}


def _records(path: Path, key: str) -> dict[str, Facts]:
    if not path.is_file():
        return {}
    records = map(json.loads, path.read_text().splitlines())
    return {record[key]: record for record in records if key in record}


FACTS = _records(CORPUS / "facts.jsonl", "path")
OTHERS = _records(GOLDEN, "file")
pytestmark = needs_corpus
#: Figures are checked with the engine that a user has; that the other gives the same tables, test_native_engine checks.
both_engines = pytest.mark.usefixtures("engine")


def ns(microseconds: Any) -> int:
    return int(Decimal(str(microseconds)) * 1000)


@pytest.mark.parametrize("path", sorted(FACTS.keys() - REFUSED.keys()))
def test_figures_agree_with_the_independent_ones(path: str) -> None:
    facts = FACTS[path]
    trace = ta.read(CORPUS / path, cache=False)
    assert trace.event_counts["count"].sum() == facts["entries"]
    phases = Counter[str]()
    for phase, count in trace.event_counts.select("phase", "count").iter_rows():
        if phase is not None:
            phases[phase] += count
    assert phases == facts["by_ph"]
    _check_device_activity(trace, OTHERS.get(path) or _as_golden(facts))
    assert NOTED.get(path, set()) <= set(trace.notes["code"])
    assert trace.ranks["whole"].to_list() == [path not in NOTED]


def _as_golden(facts: Facts) -> Facts:
    """A record of facts.jsonl in the form of the producers' golden file."""
    return {
        **{f"{kind}_count": facts[f"{kind}_count"] for kind in ("kernel", "memcpy", "memset")},
        **{f"{kind}_ns": ns(facts[f"{kind}_dur_sum_us"]) for kind in ("kernel", "memcpy", "memset")},
        "distinct_kernel_names": facts["distinct_kernel_names"],
        "devices": [
            {
                "device": None if device == "None" else device,
                "busy_ns": ns(each["gpu_busy_us"]),
                "span_ns": ns(each["gpu_span_us"]),
            }
            for device, each in facts["devices"].items()
        ],
        "streams": {None if device == "None" else device: each["streams"] for device, each in facts["devices"].items()},
        "top_kernels": [
            {"name": each["name"], "count": each["count"], "total_ns": ns(each["total_us"])}
            for each in facts["top_kernels"]
        ],
    }


def _check_device_activity(trace: ta.Trace, golden: Facts) -> None:
    kernels = trace.kernels
    for kind in ("kernel", "memcpy", "memset"):
        rows = kernels.filter(pl.col("kind") == kind)
        assert (rows.height, rows["duration_ns"].sum()) == (golden[f"{kind}_count"], golden[f"{kind}_ns"]), kind
    assert kernels.filter(pl.col("kind") == "kernel")["name"].n_unique() == golden["distinct_kernel_names"]
    table = device_time(trace.kernels).with_columns(pl.col("device").cast(pl.String))
    times = {device: (busy, span) for device, busy, span in table.select("device", "busy_ns", "span_ns").iter_rows()}
    assert times == {each["device"]: (each["busy_ns"], each["span_ns"]) for each in golden["devices"]}
    if "streams" in golden:
        streams = kernels.group_by(pl.col("device").cast(pl.String)).agg(pl.col("stream").n_unique())
        assert dict(streams.iter_rows()) == golden["streams"]
    wanted = golden["top_kernels"]
    top = top_kernels(trace).sort("total_ns", "kernel", descending=[True, False]).head(len(wanted))
    found = top.select(pl.col("kernel").cast(pl.String).alias("name"), "count", "total_ns").to_dicts()
    assert found == wanted


@both_engines
@pytest.mark.parametrize("path", sorted(REFUSED))
def test_what_is_no_trace_is_refused_in_one_line(path: str) -> None:
    with pytest.raises(ta.UnreadableError, match=REFUSED[path]) as caught:
        ta.read(CORPUS / path, cache=False)
    assert "\n" not in str(caught.value)
    assert path in str(caught.value)


@both_engines
@pytest.mark.parametrize("folder", ["mng-8rank", "param-dlrm8", "torchrec-qcomm4", "torchrec-resnet2", "titan-tl4"])
def test_one_rank_at_a_time_is_all_ranks_at_once(folder: str) -> None:
    together = ta.read(CORPUS / folder, cache=False)
    alone = [ta.read(path, cache=False) for path in sorted((CORPUS / folder).iterdir())]
    for name in ("kernels", "launches", "ops", "flows", "slices"):
        ours = together.tables[name].drop("source").with_columns(pl.col(pl.Categorical).cast(pl.String))
        theirs = pl.concat([one.tables[name] for one in alone]).drop("source")
        theirs = theirs.with_columns(pl.col(pl.Categorical).cast(pl.String))
        assert ours.sort(pl.all()).equals(theirs.sort(pl.all()))
    assert together.ranks["used"].all()


@pytest.mark.parametrize(
    ("folder", "ranks"),
    [
        ("mng-8rank", list(range(8))),
        ("param-dlrm8", list(range(8))),
        ("torchrec-qcomm4", list(range(4))),
        ("torchrec-resnet2", list(range(2))),
    ],
)
def test_the_ranks_of_a_run_are_found_without_a_flag(folder: str, ranks: list[int]) -> None:
    trace = ta.read(CORPUS / folder, cache=False)
    assert trace.ranks["rank"].to_list() == ranks
    assert trace.ranks["run"].n_unique() == 1
    assert "missing-ranks" not in trace.notes["code"].to_list()
