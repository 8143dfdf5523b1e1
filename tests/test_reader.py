"""The reader gives the same tables as the naive one, whatever the layout, the chunks, the container and the order."""

from __future__ import annotations

import gc
import gzip
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest import mock

import polars as pl
import pytest
from builders import kernel, op, trace_json, write_trace
from dying import dies_reading_rank_1
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from layouts import LAYOUTS, bare_array, compact
from oracles import naive_reader
from polars.testing import assert_frame_equal
from strategies_events import events

import traceanalyzer as ta
from traceanalyzer import schema
from traceanalyzer.ingest import python_engine
from traceanalyzer.ingest.engines import ENGINE_VARIABLE
from traceanalyzer.ingest.load import load
from traceanalyzer.ingest.losses import Losses
from traceanalyzer.ingest.normalize import FileTables
from traceanalyzer.ingest.producers.base import Reclassified
from traceanalyzer.ingest.raw import Scan

pytestmark = pytest.mark.usefixtures("engine")
METADATA = {
    "schemaVersion": 1,
    "distributedInfo": {"backend": "nccl", "rank": 3, "world_size": 4},
    "baseTimeNanoseconds": 1790857026000000000,
    "deviceProperties": [{"id": 0, "name": "GPU", "numSms": 132}],
}
LENIENT = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@contextmanager
def chunks(size: int, piece: int) -> Iterator[None]:
    """Read in blocks of `size` bytes and pieces of `piece`."""
    with (
        mock.patch("traceanalyzer.ingest.source.COMPRESSED_BLOCK", size),
        mock.patch("traceanalyzer.ingest.source.PLAIN_BLOCK", size),
        mock.patch("traceanalyzer.ingest.source.INFLATED_BLOCK", 2 * size),
        mock.patch("traceanalyzer.ingest.document.PIECE_BYTES", piece),
    ):
        yield


def assert_same_as_naive(trace: ta.Trace, path: Path) -> None:
    expected = naive_reader.read(path)
    for table in schema.EVENT_TABLES:
        columns = [column.name for column in table.columns if column.name not in ("source", "rank")]
        rows = trace.tables[table.name].select(columns).with_columns(pl.col(pl.Categorical, pl.Enum).cast(pl.String))
        wanted = [{name: row.get(name) for name in columns} for row in expected[table.name]]
        assert rows.to_dicts() == wanted, table.name


def assert_same_tables(one: ta.Trace, other: ta.Trace) -> None:
    for name, frame in one.tables.items():
        if name not in ("ranks", "notes"):
            assert_frame_equal(frame, other.tables[name], categorical_as_str=True)


@LENIENT
@given(events(), st.sampled_from(sorted(LAYOUTS)), st.integers(1, 400), st.sampled_from([64, 300, 4000]))
def test_every_layout_and_chunk_size_gives_the_naive_readers_tables(
    tmp_path: Path, entries: list[Any], layout: str, size: int, piece: int
) -> None:
    path = tmp_path / "trace.json"
    path.write_text(LAYOUTS[layout](entries, METADATA), encoding="utf-8")
    with chunks(size, piece):
        trace = ta.read(path, cache=False)
    assert_same_as_naive(trace, path)
    assert trace.ranks["rank"].to_list() == [3]
    assert trace.event_counts["count"].sum() == sum(isinstance(entry, dict) for entry in entries)


@LENIENT
@given(events(), st.lists(st.integers(0, 5000), max_size=4), st.integers(1, 400))
def test_gzip_members_and_chunks_change_nothing(
    tmp_path: Path, entries: list[Any], cuts: Sequence[int], size: int
) -> None:
    text = compact(entries, METADATA).encode()
    plain, packed = tmp_path / "plain.json.gz", tmp_path / "packed.json"
    plain.write_bytes(text)
    borders = sorted({0, *(cut for cut in cuts if cut < len(text)), len(text)})
    packed.write_bytes(b"".join(gzip.compress(text[a:b]) for a, b in pairwise(borders)))
    with chunks(size, 1000):
        assert_same_tables(ta.read(plain, cache=False), ta.read(packed, cache=False))


@LENIENT
@given(events())
def test_a_bare_array_is_a_trace(tmp_path: Path, entries: list[Any]) -> None:
    entries = [entry for entry in entries if isinstance(entry, dict) and isinstance(entry.get("ph"), str)] or [
        kernel("k", at=1, dur=2)
    ]
    path = tmp_path / "array.json"
    path.write_text(bare_array(entries), encoding="utf-8")
    assert_same_as_naive(ta.read(path, cache=False), path)


def dims(rows: int) -> dict[str, Any]:
    return {"Input Dims": [[rows, 4], []]}


@pytest.mark.parametrize("layout", sorted(LAYOUTS))
def test_pieces_and_single_entries_agree_on_a_long_trace(tmp_path: Path, layout: str) -> None:
    """Long enough that most of it is taken in pieces by typed structs, and compared with the naive reader."""
    entries = [
        event
        for i in range(3000)
        for event in (
            op("aten::mm", at=10 * i, dur=9.125, external_id=i, **dims(i % 7)),
            kernel(f"gemm<{i % 5}>", at=10 * i + 3.001, dur=2.5, correlation=i, external_id=i),
            {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "pid": 1, "tid": 2, "ts": 10 * i,
             "args": {"Bytes": -512, "Total Allocated": i, "Device Type": 1, "Device Id": 0}},
        )
    ]  # fmt: skip
    path = tmp_path / "long.json"
    path.write_text(LAYOUTS[layout](entries, METADATA))
    assert_same_as_naive(ta.read(path, cache=False), path)


@LENIENT
@given(st.permutations(range(4)))
def test_the_order_of_files_does_not_matter(tmp_path: Path, order: list[int]) -> None:
    paths = [
        write_trace(
            tmp_path / f"17.5-TP-{rank}.trace.json.gz", [kernel(f"k{rank}", at=1, dur=2)], rank=rank, world_size=4
        )
        for rank in range(4)
    ]
    together = ta.read(tmp_path, cache=False)
    shuffled = ta.read([paths[i] for i in order], cache=False)
    assert_same_tables(together, shuffled)
    assert together.ranks["rank"].to_list() == [0, 1, 2, 3]
    one_by_one = pl.concat([ta.read(path, cache=False).kernels for path in paths])
    assert_frame_equal(together.kernels.drop("source"), one_by_one.drop("source"), categorical_as_str=True)


def test_only_the_wanted_tables_are_filled(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "t.json", [kernel("k", at=1, dur=2), op("aten::mm", at=0, dur=5)])
    trace = ta.read(path, tables=["kernels"], cache=False)
    assert trace.kernels.height == 1
    assert trace.ops.height == 0
    assert trace.event_counts["count"].sum() == 2
    with pytest.raises(ta.UsageError, match="no such table: kernel "):
        ta.read(path, tables=["kernel"], cache=False)


def test_absolute_times_keep_every_nanosecond(tmp_path: Path) -> None:
    """Sixteen digits and three decimals do not fit a double: read as one, 99.6 % of such times are wrong."""
    text = compact([{"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 0, "dur": 1}] * 50, {})
    stamps = [1_623_143_566_756_123_001 + 37 * i for i in range(50)]
    for stamp in stamps:
        text = text.replace('"ts": 0', f'"ts": {stamp // 1000}.{stamp % 1000:03d}', 1)
    path = tmp_path / "t.json"
    path.write_text(text)
    assert ta.read(path, cache=False).kernels["start_ns"].to_list() == stamps


def test_progress_reports_all_bytes_of_the_file(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "t.json.gz", [kernel("k", at=i, dur=1) for i in range(100)])
    seen: list[int] = []
    ta.read(path, progress=seen.append, cache=False)
    assert sum(seen) == path.stat().st_size


def test_a_merged_file_alone_is_split_into_its_ranks(tmp_path: Path) -> None:
    parts = [{**kernel(f"k{rank}", at=1, dur=2), "pid": f"[TP0{rank}] 0"} for rank in range(3)]
    trace = ta.read(write_trace(tmp_path / "merged-170.trace.json.gz", parts, rank=None), cache=False)
    assert trace.ranks.select("tp", "used").rows() == [(0, True), (1, True), (2, True)]
    assert trace.kernels.select("source", pl.col("name").cast(pl.String)).rows() == [(0, "k0"), (1, "k1"), (2, "k2")]


def test_trace_json_of_the_builders_is_what_a_file_holds(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "t.json", [kernel("k", at=1, dur=2)], rank=1)
    assert trace_json([kernel("k", at=1, dur=2)], rank=1)["distributedInfo"]["rank"] == 1
    assert ta.read(path, cache=False).ranks["rank"].to_list() == [1]


def test_the_repr_says_what_is_inside(tmp_path: Path) -> None:
    text = repr(ta.read(write_trace(tmp_path / "run" / "t.json", [kernel("k", at=1, dur=2)])))
    assert "1 source of 1 run" in text
    assert "kernels" in text


CPU_ONLY = [op("aten::mm", at=10 * i, dur=9) for i in range(40)]


@pytest.mark.parametrize("tables", [None, ["kernels"], ["ops"]])
def test_a_pipe_is_read_once(tmp_path: Path, tables: list[str] | None) -> None:
    path, pipe = write_trace(tmp_path / "t.json", CPU_ONLY), tmp_path / "pipe.json"
    os.mkfifo(pipe)
    writing = threading.Thread(target=lambda: pipe.write_bytes(path.read_bytes()), daemon=True)
    writing.start()
    assert_same_tables(ta.read(path, tables=tables), ta.read(pipe, tables=tables))
    writing.join(10)


def test_standard_input_is_read_once(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "t.json", CPU_ONLY)
    script = "import traceanalyzer as ta; print(ta.read('-', tables=['kernels']).event_counts['count'].sum())"
    with open(path, "rb") as file:
        done = subprocess.run([sys.executable, "-c", script], stdin=file, capture_output=True, text=True, check=True)
    assert done.stdout == "40\n"


def test_a_surprise_in_one_file_costs_that_file_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a.json", "b.json"):
        write_trace(tmp_path / name, [kernel(name, at=1, dur=2)])

    def surprising(path: str, *args: Any, **options: Any) -> Any:
        if path.endswith("a.json"):
            raise ZeroDivisionError("one\ntwo")
        return load(path, *args, **options)

    monkeypatch.setattr("traceanalyzer.ingest.reader.load", surprising)
    trace = ta.read(tmp_path, cache=False)
    assert trace.kernels["name"].to_list() == ["b.json"]
    note = trace.notes.row(0, named=True)
    assert (note["code"], note["message"]) == ("unreadable", "could not be read (ZeroDivisionError: one two)")
    monkeypatch.setenv("TRACEANALYZE_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        ta.read(tmp_path, cache=False)


@pytest.mark.parametrize(("sms", "known"), [("2147483647", 2147483647), ("2147483648", None), ("1E400", None)])
def test_device_properties_that_do_not_fit_are_not_known(tmp_path: Path, sms: str, known: int | None) -> None:
    path = tmp_path / "t.json"
    memory = 10**400
    text = compact([kernel("k", at=1, dur=2)], {"deviceProperties": [{"id": 0, "numSms": 7, "totalGlobalMem": memory}]})
    path.write_text(text.replace('"numSms": 7', f'"numSms": {sms}'))
    assert ta.read(path, cache=False).devices.select("sms", "total_memory").rows() == [(known, None)]


@pytest.mark.parametrize("name", [["a"], {"a": 1}, 5, None])
def test_metadata_events_with_odd_names_are_passed_over(tmp_path: Path, name: Any) -> None:
    odd = {"ph": "M", "name": name, "pid": 1, "args": {"name": "x"}}
    path = write_trace(tmp_path / "t.json", [kernel("k", at=1, dur=2), odd])
    assert ta.read(path, cache=False).threads.height == 0


@pytest.mark.parametrize(
    ("written", "known"),
    [("1E400", None), ("-1E-400", None), ("1E3", 1000), ('"0x10"', 16), ("99999999999999999999", None), ("[1]", None)],
)
def test_odd_flow_ids(tmp_path: Path, written: str, known: int | None) -> None:
    flow = {"ph": "s", "cat": "ac2g", "name": "ac2g", "id": 777, "pid": 1, "tid": 1, "ts": 5}
    path = tmp_path / "t.json"
    path.write_text(compact([kernel("k", at=1, dur=2), flow], {}).replace("777", written))
    trace = ta.read(path, cache=False)
    assert trace.flows["id"].to_list() == [known]
    assert ("flow-without-number" in trace.notes["code"].to_list()) is (known is None)


@pytest.mark.skipif(sys.platform != "linux", reason="names of files are text there")
def test_a_file_name_that_is_not_utf8(tmp_path: Path) -> None:
    folder = os.path.join(os.fsencode(tmp_path), b"caf\xe9")
    os.mkdir(folder)
    for name in (b"caf\xe9-TP-0.json", b"caf\xe9-TP-1.json"):
        write_trace(tmp_path / "t.json", [kernel("k", at=1, dur=2)], rank=None).rename(
            os.fsdecode(os.path.join(folder, name))
        )
    bad = os.fsdecode(os.path.join(folder, b"\xe9.json"))
    Path(bad).write_text("{")
    trace = ta.read([os.fsdecode(folder), bad])
    assert [Path(path).name for path in trace.ranks["path"]][:2] == ["caf\ufffd-TP-0.json", "caf\ufffd-TP-1.json"]
    assert "caf\ufffd" in trace.ranks["run"][0]
    assert any(path and path.endswith("\ufffd.json") for path in trace.notes["path"])


def test_rows_of_a_merged_file_that_belong_to_no_rank_are_counted(tmp_path: Path) -> None:
    parts = [{**kernel(f"k{rank}", at=1, dur=2), "pid": f"[TP0{rank}] 0"} for rank in range(2)]
    stray = [op("aten::mm", at=0, dur=5), {**op("aten::mm", at=0, dur=5), "pid": "[TP07] 1"}]
    path = write_trace(tmp_path / "merged-170.trace.json.gz", [*parts, *stray], rank=None)
    trace = ta.read(path, cache=False)
    assert trace.ops.height == 0
    notes = trace.notes.filter(pl.col("code") == "rows-without-rank")
    assert notes.select("level", "count").rows() == [("warning", 2)]


def test_lost_records_are_no_collectives_either(tmp_path: Path) -> None:
    metadata: dict[str, Any] = {"Collective name": "allreduce", "Group size": 2}
    events = [kernel("nccl", at=0, dur=0, **metadata), kernel("nccl", at=3, dur=2, **metadata)]
    trace = ta.read(write_trace(tmp_path / "t.json", events), cache=False)
    assert trace.kernels.height == trace.collectives.height == 1
    assert dict(trace.notes.select("code", "count").iter_rows())["lost-record"] == 1


def test_lost_records_are_dropped_from_what_a_producers_rule_moved() -> None:
    tables = FileTables(Losses())
    kernels = pl.DataFrame({"name": ["a", "b"], "start_ns": [0, 5], "duration_ns": [0, 0]})
    nothing = pl.DataFrame()
    moved = Reclassified(kernels, nothing, nothing, nothing, nothing)
    with mock.patch("traceanalyzer.ingest.normalize.reclassify", return_value=moved):
        content = tables.finish(Scan())
    assert content.tables["kernels"]["name"].to_list() == ["b"]


def test_a_script_without_a_main_guard_reads_in_its_own_process(tmp_path: Path) -> None:
    for rank in range(2):
        write_trace(tmp_path / f"17.5-TP-{rank}.trace.json", [kernel("k", at=1, dur=2)], rank=rank, world_size=2)
    script = tmp_path / "script.py"
    script.write_text(
        "import sys\n"
        "import traceanalyzer as ta\n"
        "from traceanalyzer.ingest import parallel\n"
        "parallel.WORTH_PROCESSES = 0\n"
        "print(ta.read(sys.argv[1], jobs=2, cache=False).kernels.height)\n"
    )
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path)],
        env={**os.environ, "TRACEANALYZE_ENGINE": "python"},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert (done.returncode, done.stdout) == (0, "2\n")


def test_a_file_that_kills_its_process_is_left_out_alone(tmp_path: Path) -> None:
    """It is never read in this process, which it would kill as well."""
    for rank in range(4):
        write_trace(tmp_path / f"17.5-TP-{rank}.trace.json", [kernel("k", at=1, dur=2)], rank=rank, world_size=4)
    with (
        mock.patch("traceanalyzer.ingest.reader.load_or_refuse", dies_reading_rank_1),
        mock.patch("traceanalyzer.ingest.spread.choose", return_value=mock.Mock(releases_interpreter=False)),
        mock.patch("traceanalyzer.ingest.parallel.choose", return_value=mock.Mock(releases_interpreter=False)),
        mock.patch("traceanalyzer.ingest.parallel.WORTH_PROCESSES", 0),
    ):
        trace = ta.read(tmp_path, cache=False, jobs=2)
        with pytest.raises(ta.UnreadableError, match="the worker died"):
            ta.read(tmp_path, cache=False, jobs=2, strict=True)
    assert trace.ranks["rank"].to_list() == [0, 2, 3]
    (note,) = trace.notes.filter(pl.col("code") == "unreadable").to_dicts()
    assert note["path"].endswith("17.5-TP-1.trace.json")
    assert "given up after 3 attempts; the worker died" in note["message"]


def test_no_more_workers_than_cores_that_may_be_used(tmp_path: Path) -> None:
    for rank in range(2):
        write_trace(tmp_path / f"17.5-TP-{rank}.trace.json", [kernel("k", at=1, dur=2)], rank=rank, world_size=2)
    with (
        mock.patch("os.sched_getaffinity", return_value={3}, create=True),
        mock.patch("traceanalyzer.ingest.spread.ThreadPoolExecutor", side_effect=AssertionError),
        mock.patch("concurrent.futures.ProcessPoolExecutor", side_effect=AssertionError),
        mock.patch("traceanalyzer.ingest.parallel.WORTH_PROCESSES", 0),
    ):
        assert ta.read(tmp_path, cache=False).kernels.height == 2


def test_types_of_a_file_go_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The Python engine makes types for every file; msgspec keeps those of the last 64, and we keep none."""
    monkeypatch.setenv(ENGINE_VARIABLE, "python")
    path = write_trace(tmp_path / "t.json", [kernel("k", at=i, dur=0.5) for i in range(50)])
    for _ in range(100):
        ta.read(path, cache=False)
    gc.collect()
    before = len(python_engine._GETTERS)
    for _ in range(50):
        ta.read(path, cache=False)
    gc.collect()
    assert before > 0
    assert len(python_engine._GETTERS) <= before
