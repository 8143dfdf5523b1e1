"""The store: the same answers as from the file, whatever happens to it, and never a stale or half-written copy."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from unittest import mock

import polars as pl
import pytest
from builders import Event, annotation, kernel, launch, op, write_trace
from test_reader import assert_same_tables

import traceanalyzer as ta
from traceanalyzer import store as store_module
from traceanalyzer.store import Store, default_store, key_of, wait_for_background


@pytest.fixture(autouse=True)
def _own_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A store of the test's own that takes files of any size."""
    monkeypatch.setenv("TRACEANALYZE_CACHE_DIR", str(tmp_path / "store"))
    monkeypatch.setattr("traceanalyzer.ingest.load.SMALLEST_FILE", 0)
    monkeypatch.setattr("traceanalyzer.ingest.load.SMALLEST_JSON", 0)
    yield
    wait_for_background()


def events(count: int = 300) -> list[Event]:
    return [
        event
        for i in range(count)
        for event in (
            op("aten::mm", at=10 * i, dur=9, external_id=i + 1),
            launch(at=10 * i + 1, correlation=i + 1, external_id=i + 1),
            kernel(f"gemm{i % 3}", at=10 * i + 3.001, dur=2.5, correlation=i + 1),
        )
    ] + [annotation("step", at=0, dur=5)]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write_trace(tmp_path / "run" / "17.5-TP-0.trace.json.gz", events(), rank=0, world_size=2, base_ns=10**18)


@contextmanager
def small_batches() -> Iterator[None]:
    """Rows are handed over in small batches, and go to the store from the first hundred on."""
    with (
        mock.patch("traceanalyzer.ingest.normalize.SPILL_ROWS", 100),
        mock.patch("traceanalyzer.ingest.source.COMPRESSED_BLOCK", 200),
        mock.patch("traceanalyzer.ingest.document.PIECE_BYTES", 5000),
        mock.patch("traceanalyzer.ingest.python_engine.BATCH_ROWS", 37),
        mock.patch("traceanalyzer.ingest.native_engine.BATCH_ROWS", 37),
    ):
        yield


def entries() -> list[store_module.Entry]:
    wait_for_background()
    return default_store().entries()


def read_twice(file: Path) -> tuple[ta.Trace, ta.Trace]:
    first = ta.read(file)
    wait_for_background()
    with mock.patch("traceanalyzer.ingest.load.choose", side_effect=AssertionError("the file was parsed again")):
        return first, ta.read(file)


@pytest.mark.parametrize("home", [None, "", "/elsewhere/cache"])
def test_the_cache_folder_is_that_of_the_platform(monkeypatch: pytest.MonkeyPatch, home: str | None) -> None:
    """It is worked out where that is simple, since what knows it for every platform takes a while to import."""
    from platformdirs import user_cache_dir

    monkeypatch.delenv("TRACEANALYZE_CACHE_DIR", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    if home is not None:
        monkeypatch.setenv("XDG_CACHE_HOME", home)
    assert default_store().root.parent == Path(user_cache_dir("traceanalyzer"))


def test_the_second_read_parses_nothing_and_gives_the_same(file: Path) -> None:
    plain = ta.read(file, cache=False)
    assert entries() == []
    first, second = read_twice(file)
    for trace in (first, second):
        assert_same_tables(plain, trace)
        assert trace.ranks.equals(plain.ranks)
        assert trace.notes.equals(plain.notes)


def test_rows_that_went_to_the_store_while_the_file_was_read(file: Path) -> None:
    plain = ta.read(file, cache=False)
    with small_batches():
        first, second = read_twice(file)
    assert_same_tables(plain, first)
    assert_same_tables(plain, second)
    assert len([part for part in entries()[0].manifest["parts"] if part["table"] == "kernels"]) > 1


@pytest.mark.parametrize("name", ["run [1]", "run*", "run?", "{a,b}", "a=b", "100%", "~"])
def test_the_folder_may_have_any_name(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("TRACEANALYZE_CACHE_DIR", str(tmp_path / name))
    plain = ta.read(file, cache=False)
    with small_batches():
        first, second = read_twice(file)
    assert_same_tables(plain, first)
    assert_same_tables(plain, second)


@pytest.mark.parametrize("folder", ["here", "~/here"])
def test_the_folder_is_the_same_from_everywhere(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    """Tables are read when they are asked for, perhaps after the process went elsewhere."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("TRACEANALYZE_CACHE_DIR", folder)
    monkeypatch.chdir(tmp_path)
    plain = ta.read(file, cache=False)
    with small_batches():
        trace = ta.read(file)
    monkeypatch.chdir("/")
    assert_same_tables(plain, trace)
    assert default_store().root.is_absolute()
    assert (tmp_path / "here" / "traceanalyzer-store").is_dir()


def test_rows_are_spilled_each_time_that_there_are_many(file: Path) -> None:
    with small_batches(), mock.patch("traceanalyzer.ingest.normalize.SPILL_ROWS", 300):
        ta.read(file)
    kernels = [part for part in entries()[0].manifest["parts"] if part["table"] == "kernels"]
    assert 1 < len(kernels) <= 4, "rows that are gone are not counted again"


def test_a_first_question_keeps_its_tables_and_a_second_kind_all(file: Path) -> None:
    ta.read(file, tables=["kernels"])
    assert [entry.manifest["tables"] for entry in entries()] == [["kernels"]]
    assert ta.read(file, tables=["kernels", "ops"]).ops.height == 300
    assert sorted(len(entry.manifest["tables"]) for entry in entries()) == [1, 9]
    with mock.patch("traceanalyzer.ingest.load.choose", side_effect=AssertionError("parsed again")):
        assert ta.read(file, tables=["launches"]).launches.height == 300


def test_a_changed_file_is_read_again(file: Path) -> None:
    ta.read(file)
    wait_for_background()
    write_trace(file, [kernel("other", at=1, dur=2)], rank=0, world_size=2)
    assert ta.read(file).kernels["name"].to_list() == ["other"]


def test_only_the_date_is_enough_to_read_again(file: Path) -> None:
    ta.read(file)
    wait_for_background()
    before = key_of(str(file))
    os.utime(file, ns=(1, 1))
    assert key_of(str(file)) != before
    assert default_store().find(str(file)) is None


def test_another_version_of_the_schema_has_entries_of_its_own(file: Path) -> None:
    ta.read(file)
    wait_for_background()
    old = entries()[0]
    with mock.patch("traceanalyzer.store.SCHEMA_VERSION", 999):
        assert default_store().find(str(file)) is None
        assert default_store().evict() == []
        assert old.folder.exists(), "another version may be reading it"
        os.utime(old.folder / "manifest.json", (time.time() - 9000,) * 2)
        default_store().evict()
        assert not old.folder.parent.exists()
        assert ta.read(file).kernels.height == 300
        wait_for_background()
    assert entries() == []


def test_what_the_store_holds_makes_no_difference_to_what_is_read(file: Path) -> None:
    alone = ta.read(file, tables=["kernels"], cache=False)
    ta.read(file)
    wait_for_background()
    assert_same_tables(alone, ta.read(file, tables=["kernels"]))
    assert alone.ops.height == 0


def test_a_trace_in_use_outlives_the_entry_with_more_tables(file: Path) -> None:
    ta.read(file, tables=["kernels"])
    wait_for_background()
    held = ta.read(file, tables=["kernels"])
    ta.read(file)
    wait_for_background()
    assert held.kernels.height == 300


def test_tables_that_are_gone_are_a_clear_error(file: Path) -> None:
    _, held = read_twice(file)
    default_store().clear()
    with pytest.raises(ta.UnreadableError, match="stored tables"):
        _ = held.kernels


def test_a_stored_table_that_changed_in_use_is_a_clear_error(file: Path) -> None:
    _, held = read_twice(file)
    part = next(entries()[0].folder.glob("kernels.*"))
    part.write_bytes(bytes(part.stat().st_size))
    with pytest.raises(ta.UnreadableError, match="stored tables"):
        _ = held.kernels


@pytest.mark.parametrize(
    "change",
    [{"parts": 5}, {"tables": 5}, {"parts": [{}]}, {"parts": [5]}, {"about": None}, {"about": {}}, {"path": 5},
     {"about": {"scan": 5}}, {"content_hash": None}],
    ids=str,
)  # fmt: skip
def test_a_strange_manifest_is_no_entry(file: Path, change: dict[str, object]) -> None:
    ta.read(file)
    entry = entries()[0]
    manifest = entry.folder / "manifest.json"
    manifest.write_text(json.dumps({**entry.manifest, **change}))
    if not isinstance(change.get("about"), dict):
        assert default_store().find(str(file)) is None
        assert default_store().entries() == []
    assert list(default_store().verify()) is not None
    assert ta.read(file).kernels.height == 300
    assert len(entries()) == 1
    _, again = read_twice(file)
    assert again.kernels.height == 300


def test_a_part_changed_on_disk_is_noticed_by_those_who_want_it(file: Path) -> None:
    ta.read(file)
    part = next(entries()[0].folder.glob("ops.*"))
    data = bytearray(part.read_bytes())
    data[len(data) // 2] ^= 1
    part.write_bytes(data)
    assert default_store().find(str(file), ["kernels"]) is not None
    assert default_store().find(str(file), ["kernels", "ops"]) is None
    assert ta.read(file).ops.height == 300


def test_an_entry_that_is_gone_was_used_long_ago(file: Path) -> None:
    ta.read(file)
    entry = entries()[0]
    shutil.rmtree(entry.folder)
    assert entry.used == 0


@pytest.mark.parametrize("spilled", [False, True])
def test_rows_of_another_file_are_not_kept(tmp_path: Path, file: Path, *, spilled: bool) -> None:
    """The path is pointed elsewhere between the moment when its key is taken and the moment when it is opened."""
    other = write_trace(tmp_path / "other.json", [kernel("other", at=i, dur=1) for i in range(400)])
    link = tmp_path / "link.json"
    link.symlink_to(file)
    plain = Store.writer

    def writer(store: Store, path: str) -> store_module.EntryWriter | None:
        begun = plain(store, path)
        link.unlink()
        link.symlink_to(other)
        return begun

    with mock.patch.object(Store, "writer", writer), small_batches() if spilled else nullcontext():
        assert ta.read(link).kernels.height == 400
    assert entries() == []
    assert not list(default_store().root.glob("tmp-*"))
    assert ta.read(file).kernels.height == 300


def test_what_goes_wrong_in_the_background_leaves_nothing(file: Path) -> None:
    with mock.patch("traceanalyzer.ingest.load.About.to_json", side_effect=ZeroDivisionError("surprise")):
        assert ta.read(file).kernels.height == 300
        wait_for_background()
    assert entries() == []
    assert not list(default_store().root.glob("tmp-*"))


def test_entries_are_evicted_after_one_was_written_only(file: Path) -> None:
    with mock.patch.object(Store, "evict", autospec=True) as evict:
        read_twice(file)
        wait_for_background()
    assert evict.call_count == 1
    assert not store_module._PENDING


@pytest.mark.parametrize("harm", ["part gone", "part cut", "manifest cut", "manifest gone", "manifest foreign"])
def test_a_harmed_entry_is_not_used_and_mended(file: Path, harm: str) -> None:
    ta.read(file)
    entry = entries()[0]
    part = next(entry.folder.glob("kernels.*"))
    manifest = entry.folder / "manifest.json"
    if harm == "part gone":
        part.unlink()
    elif harm == "part cut":
        part.write_bytes(part.read_bytes()[:-7])
    elif harm == "manifest cut":
        manifest.write_text(manifest.read_text()[:-30])
    elif harm == "manifest gone":
        manifest.unlink()
    else:
        manifest.write_text("[1]")
    assert default_store().find(str(file)) is None
    assert ta.read(file).kernels.height == 300
    wait_for_background()
    assert default_store().find(str(file)) is not None


def test_verify_finds_a_changed_part_and_a_changed_file(file: Path) -> None:
    ta.read(file)
    wait_for_background()
    assert [fault for _, fault in default_store().verify()] == [None]
    part = next(entries()[0].folder.glob("kernels.*"))
    data = bytearray(part.read_bytes())
    data[len(data) // 2] ^= 1
    part.write_bytes(data)
    faults = [fault for _, fault in default_store().verify()]
    assert faults == [f"{part.name} is not what was written"]
    assert entries() == []


def test_verify_finds_a_file_that_changed_without_a_trace_in_its_date(tmp_path: Path) -> None:
    path = tmp_path / "big.json"
    write_trace(path, events(3000))
    ta.read(path)
    wait_for_background()
    status = path.stat()
    data = bytearray(path.read_bytes())
    middle = data.index(b"gemm1", len(data) // 2)
    data[middle : middle + 5] = b"gemm9"
    path.write_bytes(data)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert default_store().find(str(path)) is not None, "only a full hash can tell"
    assert [fault for _, fault in default_store().verify()] == ["the file changed without a trace in its date"]


def test_the_limit_evicts_what_was_not_used_for_longest(tmp_path: Path) -> None:
    paths = [write_trace(tmp_path / f"t{i}" / "t.json", events(50 + i)) for i in range(3)]
    for path in paths:
        ta.read(path)
        wait_for_background()
    old = default_store()
    for age, path in zip((9000, 8000, 100), paths, strict=True):
        entry = old.find(str(path))
        assert entry is not None
        os.utime(entry.folder / "manifest.json", (time.time() - age,) * 2)
    sizes = [entry.size for entry in old.entries()]
    small = Store(old.root, limit=sum(sizes) - 1)
    assert [entry.source for entry in small.evict()] == [str(paths[0])]
    assert {entry.source for entry in Store(old.root, limit=0).evict()} == {str(paths[1])}, "in use: kept"


def test_a_store_that_cannot_be_written_costs_nothing(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocked = tmp_path / "a-file"
    blocked.write_text("")
    monkeypatch.setenv("TRACEANALYZE_CACHE_DIR", str(blocked / "store"))
    assert ta.read(file).kernels.height == 300


def test_a_full_disk_while_rows_are_spilled_is_noted_and_costs_nothing(file: Path) -> None:
    plain = ta.read(file, cache=False)
    with (
        small_batches(),
        mock.patch.object(pl.DataFrame, "write_parquet", side_effect=OSError("No space left on device")),
    ):
        trace = ta.read(file)
    assert_same_tables(plain, trace)
    assert "store-unavailable" in trace.notes["code"].to_list()
    assert entries() == []
    assert not list(default_store().root.glob("tmp-*"))


def test_refused_files_leave_nothing_behind(tmp_path: Path) -> None:
    path = tmp_path / "bad.json"
    path.write_text("[1, 2]")
    with pytest.raises(ta.UnreadableError):
        ta.read(path)
    assert entries() == []
    assert not list(default_store().root.glob("tmp-*"))


def test_nothing_is_removed_but_what_the_store_made(file: Path) -> None:
    """The folder that the user names may hold anything, and so may the store's own."""
    shared = default_store().root.parent
    places = [shared / name for name in ("venv", "v1-old", "v1-0", "videos", "tmp-work")]
    places += [default_store().root / name for name in ("venv", "v1-old", "v12", "tmp-work", "tmp-host-12-abc")]
    for place in places:
        place.mkdir(parents=True)
        (place / "mine.txt").write_text("mine")
        os.utime(place / "mine.txt", (1, 1))
        os.utime(place, (1, 1))
    ta.read(file)
    wait_for_background()
    held = entries()[0]
    dead = default_store().root / "tmp-another-host-77-0123456789ab"
    dead.mkdir()
    os.utime(dead, (1, 1))
    default_store().evict()
    assert not dead.exists()
    size = sum(path.stat().st_size for path in held.folder.iterdir())
    assert default_store().clear() == size
    assert entries() == []
    assert all((place / "mine.txt").exists() for place in places)


#: A dozen tell in CI; HYPOTHESIS_PROFILE=thorough takes fifty.
MOMENTS = 50 if os.environ.get("HYPOTHESIS_PROFILE") == "thorough" else 12
SCRIPT = """
import sys
from unittest import mock
import traceanalyzer as ta
module = "traceanalyzer.ingest"
with mock.patch(f"{module}.load.SMALLEST_FILE", 0), mock.patch(f"{module}.load.SMALLEST_JSON", 0), \\
        mock.patch(f"{module}.normalize.SPILL_ROWS", 500):
    ta.read(sys.argv[1])
"""


def _start(path: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", SCRIPT, str(path)], stderr=subprocess.DEVNULL)


def test_processes_that_write_the_same_entry_at_once_do_no_harm(file: Path) -> None:
    plain = ta.read(file, cache=False)
    processes = [_start(file) for _ in range(3)]
    assert [process.wait(60) for process in processes] == [0, 0, 0]
    assert len(entries()) == 1
    assert_same_tables(plain, ta.read(file))


@pytest.mark.slow
def test_a_process_killed_at_any_moment_leaves_no_wrong_answer(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "t.json.gz", events(4000))
    plain = ta.read(path, cache=False)
    began = time.perf_counter()
    assert _start(path).wait(60) == 0
    whole = time.perf_counter() - began
    for moment in range(MOMENTS):
        shutil.rmtree(default_store().root, ignore_errors=True)
        process = _start(path)
        time.sleep(whole * (0.3 + 0.8 * moment / MOMENTS))
        process.kill()
        process.wait()
        assert_same_tables(plain, ta.read(path))
        wait_for_background()
        assert len(entries()) == 1
    default_store().evict()
    assert not list(default_store().root.glob("tmp-*")), "what the killed processes left is removed"


def test_the_manifest_is_readable(file: Path) -> None:
    ta.read(file)
    manifest = json.loads((entries()[0].folder / "manifest.json").read_text())
    assert manifest["path"] == str(file)
    assert {part["table"] for part in manifest["parts"]} == {"kernels", "launches", "ops", "annotations"}
