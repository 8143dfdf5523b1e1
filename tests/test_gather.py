"""Many files, each read on its own, by any executor: the same answer, whatever dies on the way."""

from __future__ import annotations

import gzip
import importlib.util
import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from coherent import Plan, Slow, write_run
from dying import dies_once, divides, kills

import traceanalyzer as ta
from traceanalyzer import cli
from traceanalyzer.ingest import apart
from traceanalyzer.ingest import spread as spreading
from traceanalyzer.ingest.parallel import processes
from traceanalyzer.ingest.spread import ATTEMPTS, Lost, spread
from traceanalyzer.many import ManyRanks
from traceanalyzer.trace import Trace

TABLES = ("rows", "ranks", "steps", "stages", "collectives", "clocks", "groups", "rates", "culprits", "reasons")
PLAN = Plan(ranks=16, tp=4, steps=6, layers=2, slow=(Slow(6, factor=1.6),), offset_ns=900_000)


def needs(*modules: str) -> pytest.MarkDecorator:
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    return pytest.mark.skipif(bool(missing), reason=f"{', '.join(missing)} is not installed")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run") / "run"
    write_run(folder, PLAN)
    return folder


@pytest.fixture(scope="module")
def expected(run: Path) -> ManyRanks:
    return ta.imbalance_of(run, cache=False, jobs=1)


def assert_same(found: ManyRanks, wanted: ManyRanks) -> None:
    for name in TABLES:
        assert getattr(found.imbalance, name).equals(getattr(wanted.imbalance, name)), name
    assert found.imbalance.notes == wanted.imbalance.notes
    assert found.head.notes.equals(wanted.head.notes)
    assert found.devices.equals(wanted.devices)


def test_the_slow_rank_is_found_and_is_that_of_the_whole_trace(run: Path, expected: ManyRanks) -> None:
    assert expected.imbalance.culprits.select("rank", "because", "name").rows() == [
        (6, "kernel", "nvjet_sm90_tst_up_proj")
    ]
    whole = ta.imbalance(ta.read(run, cache=False))
    for name in TABLES:
        assert getattr(expected.imbalance, name).equals(getattr(whole, name)), name


@pytest.mark.parametrize("jobs", [1, 2, 5])
def test_threads_give_the_same(run: Path, expected: ManyRanks, jobs: int) -> None:
    assert_same(ta.imbalance_of(run, cache=False, jobs=jobs), expected)
    with ThreadPoolExecutor(jobs) as threads:
        assert_same(ta.imbalance_of(run, cache=False, executor=threads), expected)


def test_processes_give_the_same(run: Path, expected: ManyRanks) -> None:
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as processes:
        assert_same(ta.imbalance_of(run, cache=False, executor=processes), expected)


@pytest.mark.filterwarnings("ignore")
@needs("distributed")
def test_a_dask_cluster_gives_the_same_also_where_a_worker_is_killed(run: Path, expected: ManyRanks) -> None:
    """Worker processes of their own, reached over TCP; one is killed while it works."""
    from distributed import Client, LocalCluster

    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, protocol="tcp", dashboard_address=None,
            worker_dashboard_address=None, silence_logs=50,
        ) as cluster,
        Client(cluster) as client,
    ):  # fmt: skip
        killed: list[int] = []

        def kill_one(_: int) -> None:
            if not killed:
                killed.append(next(iter(cluster.workers.values())).process.pid)
                os.kill(killed[0], signal.SIGKILL)

        found = ta.imbalance_of(run, cache=False, executor=client.get_executor(pure=False), progress=kill_one)
        assert killed
        assert_same(found, expected)
        assert cli.main(["imbalance", str(run), "--scheduler", cluster.scheduler_address, "--no-cache", "-q"]) == 0


@pytest.mark.skipif(importlib.util.find_spec("distributed") is not None, reason="Dask is installed")
def test_without_dask_it_is_said_what_to_install(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["imbalance", str(run), "--scheduler", "tcp://127.0.0.1:1"]) == 2
    assert "pip install 'traceanalyzer[cluster]'" in capsys.readouterr().err


@pytest.mark.filterwarnings("ignore")
@needs("distributed")
def test_a_scheduler_that_does_not_answer_is_a_wrong_question(
    run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from traceanalyzer.cli import cluster

    monkeypatch.setattr(cluster, "_PATIENCE", 1)
    assert cli.main(["imbalance", str(run), "--scheduler", "tcp://127.0.0.1:1"]) == 2
    assert "--scheduler tcp://127.0.0.1:1: no scheduler answers" in capsys.readouterr().err


# ------------------------------------------------------------------------------------------- files that are no use


def test_bad_files_among_64_cost_only_themselves(tmp_path: Path) -> None:
    plan = Plan(ranks=64, tp=8, steps=2, layers=1, truncated=(11,), empty=(40,))
    write_run(tmp_path, plan)
    (tmp_path / "rank00063.json.gz").write_bytes(gzip.compress(b"PNG, or what else there is"))
    found = ta.imbalance_of(tmp_path, cache=False)
    notes = {(note["code"], Path(note["path"]).name) for note in found.head.notes.to_dicts() if note["path"]}
    assert ("unreadable", "rank00040.json.gz") in notes
    assert ("unreadable", "rank00063.json.gz") in notes
    assert any(name == "rank00011.json.gz" and code != "unreadable" for code, name in notes)
    assert found.imbalance.ranks["rank"].to_list() == [rank for rank in range(64) if rank not in (40, 63)]
    whole = ta.imbalance(ta.read(tmp_path, cache=False))
    assert found.imbalance.ranks.equals(whole.ranks)


def test_no_file_that_can_be_read_is_an_error(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"rank{number}.json").write_bytes(b"")
    with pytest.raises(ta.UnreadableError, match="and none of 2 more files could be read"):
        ta.imbalance_of(tmp_path, cache=False)
    write_run(tmp_path, Plan(ranks=2, tp=2, steps=1, layers=1))
    with pytest.raises(ta.UnreadableError, match=r"rank0\.json"):
        ta.imbalance_of(tmp_path, cache=False, strict=True)


def test_what_work_returns_comes_back_by_source(run: Path) -> None:
    gathered = ta.gather(run, _kernels, tables=("kernels",), cache=False)
    whole = ta.read(run, cache=False)
    counts = dict(whole.kernels.group_by("source").agg(pl.len()).iter_rows())
    assert dict(gathered.results) == counts
    assert gathered.head.ranks.equals(whole.ranks)
    assert {home.number for home in gathered.homes.values()} == {0}


def test_a_pattern_that_no_name_matches_is_said(run: Path) -> None:
    for pattern in ("nothing(\\d+)", "rank(\\d+)"):
        gathered = ta.gather(run, _kernels, tables=("kernels",), cache=False, rank_regex=pattern)
        whole = ta.read(run, tables=("kernels",), cache=False, rank_regex=pattern)
        assert gathered.head.notes.equals(whole.notes)
        assert gathered.head.ranks.equals(whole.ranks)


def _kernels(trace: Trace) -> int:
    return trace.kernels.height


def test_work_that_fails_on_a_file_is_a_note_on_that_file(run: Path) -> None:
    gathered = ta.gather(run, _fails_on_three, tables=("kernels",), cache=False)
    note, missing = gathered.head.notes.sort("code", descending=True).to_dicts()
    assert missing["code"] == "missing-ranks"
    assert (note["code"], Path(note["path"]).name) == ("unreadable", "rank00003.json.gz")
    assert "could not be analysed (ZeroDivisionError" in note["message"]
    assert len(gathered.results) == 15


def _fails_on_three(trace: Trace) -> int:
    return 1 // int(trace.ranks["rank"].item() - 3)


def test_ranks_of_a_merged_file_are_told_apart(tmp_path: Path) -> None:
    from builders import kernel, write_trace

    events = []
    for rank in range(2):
        for each in (kernel("gemm", at=5 * rank, dur=10 + rank), kernel("norm", at=30 + 7 * rank, dur=1)):
            each["pid"] = f"[TP0{rank}] 0"
            events.append(each)
    write_trace(tmp_path / "merged-1796010586.5.trace.json.gz", events, rank=None)
    gathered = ta.gather(tmp_path, _kernels, tables=("kernels",), cache=False)
    whole = ta.read(tmp_path, cache=False)
    assert gathered.head.ranks.equals(whole.ranks)
    assert dict(gathered.results) == dict.fromkeys(whole.ranks["source"], 2)
    assert [home.number for home in gathered.homes.values()] == [0, 1]


# ------------------------------------------------------------------------------------------- workers that die


@pytest.fixture
def in_processes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """`spread` takes processes, as with an engine that keeps the interpreter; the sizes of the pools that it makes."""
    made: list[int] = []

    def counted(jobs: int) -> Executor:
        made.append(jobs)
        return processes(jobs)

    monkeypatch.setattr(spreading, "choose", lambda: type("Engine", (), {"releases_interpreter": False})())
    monkeypatch.setattr(apart, "processes", counted)
    return made


def test_a_process_that_dies_once_costs_nothing(tmp_path: Path, in_processes: list[int]) -> None:
    """Of twelve files the fourth kills its worker the first time, and no other one notices."""
    paths = [str(tmp_path / f"{number}") for number in range(12)]
    found = list(spread(dies_once, paths, None, 2, None))
    assert found == [f"{path} read" for path in paths]
    assert sum(in_processes) <= 2 + 1 + 1  # one in the place of the dead one, and one to see whether any begins


@pytest.mark.parametrize("jobs", [2, 4])
@pytest.mark.parametrize(
    "killers", [(0,), (3,), (6,), (2, 4), (0, 1)], ids=["first", "middle", "last", "two", "side by side"]
)
def test_a_file_that_kills_every_worker_is_lost_alone(
    tmp_path: Path, in_processes: list[int], killers: tuple[int, ...], jobs: int
) -> None:
    """Its neighbours are slow: some are at work whenever it kills."""
    names = [f"killer{number}" if number in killers else f"slow{number}" for number in range(7)]
    paths = [str(tmp_path / name) for name in names]
    seen: list[int] = []
    for path in paths:
        Path(path).touch()
    found = list(spread(kills, paths, None, jobs, seen.append))
    lost = [each for each in found if isinstance(each, Lost)]
    assert [each.path for each in lost] == [paths[number] for number in killers]
    assert all("given up after 3 attempts; the worker died (BrokenProcessPool" in each.reason for each in lost)
    wanted = [path if number in killers else f"{path} read" for number, path in enumerate(paths)]
    assert [each.path if isinstance(each, Lost) else each for each in found] == wanted
    begun = {path: Path(path).stat().st_size for path in paths}
    assert begun == {path: ATTEMPTS if number in killers else 1 for number, path in enumerate(paths)}
    assert len(seen) == len(paths)
    assert sum(in_processes) <= jobs + ATTEMPTS * len(killers) + 1


def test_nothing_but_a_note_is_left_of_a_file_that_kills(run: Path, tmp_path: Path, in_processes: list[int]) -> None:
    without = tmp_path / "run"
    shutil.copytree(run, without)
    (without / "rank00003.json.gz").unlink()
    found = ta.gather(run, _kills_at_three, tables=("kernels",), cache=False, jobs=2)
    wanted = ta.gather(without, _kills_at_three, tables=("kernels",), cache=False, jobs=2)
    unreadable = pl.col("code") == "unreadable"
    (note,) = found.head.notes.filter(unreadable).to_dicts()
    assert (Path(note["path"]).name, note["count"]) == ("rank00003.json.gz", 1)
    assert dict(found.results) == dict(wanted.results)
    assert found.head.notes.filter(~unreadable).drop("path").equals(wanted.head.notes.drop("path"))
    assert found.head.ranks.drop("path").equals(wanted.head.ranks.drop("path"))
    assert in_processes


def _kills_at_three(trace: Trace) -> int:
    if trace.ranks["rank"].item() == 3:
        os._exit(1)
    return trace.kernels.height


def test_what_work_raises_in_a_process_is_no_dead_worker(tmp_path: Path, in_processes: list[int]) -> None:
    with pytest.raises(ZeroDivisionError):
        list(spread(divides, [str(tmp_path / f"{number}") for number in range(4)], None, 2, None))
    assert in_processes


def test_a_script_without_a_main_guard_works_in_its_own_process(run: Path, tmp_path: Path) -> None:
    """No process can begin there; of many files that is found out once."""
    script = tmp_path / "script.py"
    script.write_text(
        "import sys\n"
        "from operator import attrgetter\n"
        "import traceanalyzer as ta\n"
        "found = ta.gather(sys.argv[1], attrgetter('kernels.height'), tables=('kernels',), jobs=2, cache=False)\n"
        "print(len(found.results))\n"
    )
    done = subprocess.run(
        [sys.executable, str(script), str(run)], env={**os.environ, "TRACEANALYZE_ENGINE": "python"},
        capture_output=True, text=True, timeout=200,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "16\n")
    assert 2 <= done.stderr.count("finished its bootstrapping phase") <= 3


def test_processes_leave_descriptors_for_files(monkeypatch: pytest.MonkeyPatch) -> None:
    resource = pytest.importorskip("resource")
    for limit, most in ((1024, 96), (256, 24), (4, 1), (resource.RLIM_INFINITY, 1 << 16)):
        monkeypatch.setattr(resource, "getrlimit", lambda _, limit=limit: (limit, limit))
        assert apart.most_apart() == most


class OneWorker(Executor):
    """A worker that has all tasks at once, as one of a cluster with many threads: a killer fails them all."""

    def __init__(self) -> None:
        self._tasks: list[tuple[Future[Any], Callable[[], Any]]] = []
        self._lock = threading.Lock()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        with self._lock:
            self._tasks.append((future, partial(fn, *args, **kwargs)))
            if len(self._tasks) == 1:
                threading.Timer(0.1, self._settle).start()
        return future

    def _settle(self) -> None:
        with self._lock:
            tasks, self._tasks = self._tasks, []
        dead = any("killer" in task.args[0] for _, task in tasks if isinstance(task, partial))
        for future, task in tasks:
            if dead:
                future.set_exception(RuntimeError("the worker is gone"))
            else:
                future.set_result(task())


def test_neighbours_of_a_killer_on_a_shared_worker_are_not_lost() -> None:
    paths = ["a", "killer1", "b", "c", "killer2", "d"]
    found = list(spread(_says_read, paths, OneWorker(), None, None))
    assert [each.path if isinstance(each, Lost) else each for each in found] == [
        path if "killer" in path else f"{path} read" for path in paths
    ]


def _says_read(path: str, _: object) -> str:
    return f"{path} read"


class Flaky(Executor):
    """An executor whose workers are lost now and then, as those of a cluster are."""

    def __init__(self, lost: Callable[[int], bool]) -> None:
        self.submitted = 0
        self._lost = lost

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.submitted += 1
        future: Future[Any] = Future()
        if self._lost(self.submitted):
            future.set_exception(BrokenProcessPool("a worker is gone"))
        else:
            future.set_result(fn(*args, **kwargs))
        return future


def test_lost_tasks_of_any_executor_are_begun_again(run: Path, expected: ManyRanks) -> None:
    executor = Flaky(lambda number: number % 3 == 0)
    assert_same(ta.imbalance_of(run, cache=False, executor=executor), expected)
    assert executor.submitted > 16


def test_an_executor_that_is_gone_for_good_loses_all_and_says_so(run: Path) -> None:
    with pytest.raises(ta.UnreadableError, match="given up after 3 attempts"):
        ta.imbalance_of(run, cache=False, executor=Flaky(lambda _: True))


def test_progress_tells_the_bytes_of_each_file(run: Path) -> None:
    seen: list[int] = []
    with ThreadPoolExecutor(2) as threads:
        ta.imbalance_of(run, cache=False, executor=threads, progress=seen.append)
    assert sum(seen) == sum(path.stat().st_size for path in run.iterdir())


# ------------------------------------------------------------------------------------------- MPI


def _mpiexec() -> str | None:
    """The starter of MPI processes, on the path or beside this Python."""
    return shutil.which("mpiexec", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]))


@needs("mpi4py")
@pytest.mark.skipif(_mpiexec() is None, reason="no mpiexec")
def test_an_mpi_pool_gives_the_same(run: Path, expected: ManyRanks, tmp_path: Path) -> None:
    out = tmp_path / "tables.json"
    command = [str(_mpiexec()), "-n", "3", sys.executable, "-m", "mpi4py.futures",
               str(Path(__file__).parent / "mpi_run.py"), str(run), str(out)]  # fmt: skip
    path = os.pathsep.join([str(Path(ta.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    subprocess.run(command, check=True, timeout=240, env={**os.environ, "PYTHONPATH": path})
    found = json.loads(out.read_text())
    for name, rows in found.items():
        assert rows == json.loads(json.dumps(getattr(expected.imbalance, name).to_dicts())), name


# ------------------------------------------------------------------------------------------- object stores


@pytest.fixture(scope="module")
def bucket(run: Path) -> Iterator[str]:
    """The run in a bucket of an S3-compatible server of this machine."""
    server_module = pytest.importorskip("moto.server")
    boto3 = pytest.importorskip("boto3")
    pytest.importorskip("s3fs")
    server = server_module.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    settings = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": "us-east-1",
                "AWS_ENDPOINT_URL": f"http://{host}:{port}"}  # fmt: skip
    before = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)
    try:
        client = boto3.client("s3")
        client.create_bucket(Bucket="traces")
        for path in run.iterdir():
            client.put_object(Bucket="traces", Key=f"jobs/run/{path.name}", Body=path.read_bytes())
        client.put_object(Bucket="traces", Key="jobs/run/notes.txt", Body=b"no trace")
        yield "s3://traces/jobs/run"
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.__setitem__(name, value)
        server.stop()


@pytest.mark.filterwarnings("ignore")
def test_an_object_store_is_read_like_a_folder(bucket: str, expected: ManyRanks) -> None:
    found = ta.imbalance_of(bucket, cache=False)
    for name in set(TABLES) - {"ranks"}:
        assert getattr(found.imbalance, name).equals(getattr(expected.imbalance, name)), name
    assert found.imbalance.ranks.drop("path").equals(expected.imbalance.ranks.drop("path"))
    assert found.imbalance.ranks["path"][3] == "s3://traces/jobs/run/rank00003.json.gz"
    one = ta.read(f"{bucket}/rank00003.json.gz", tables=("kernels",))
    assert (one.ranks["rank"].item(), one.kernels.height) == (3, 6 * (2 * 5 + 1))
    assert ta.read(f"{bucket}/rank0000[0-3]*", tables=()).ranks.height == 4
    with pytest.raises(ta.UnreadableError, match="no such file"):
        ta.read(f"{bucket}/rank99999.json.gz")
    with pytest.raises(ta.UnreadableError, match="no file matches"):
        ta.read("s3://traces/jobs/none/*.json")


@needs("fsspec")
def test_any_scheme_of_fsspec_is_read(run: Path) -> None:
    import fsspec

    memory = fsspec.filesystem("memory")
    for path in sorted(run.iterdir())[:2]:
        memory.pipe(f"/run/{path.name}", path.read_bytes())
    trace = ta.read("memory://run", cache=False)
    assert trace.ranks["rank"].to_list() == [0, 1]
    assert trace.kernels.height == 2 * 66


def test_a_scheme_that_nobody_knows_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["imbalance", "nosuch://bucket/run"]) == 3
    said = capsys.readouterr().err
    assert said.startswith("traceanalyze: nosuch://bucket/run: ")
    assert said.count("\n") == 1
