"""Who waits for whom: cases and real runs with known answers, and small ones that can be checked by eye."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from builders import Event, annotation, kernel, launch, op, trace, traces, write_trace
from oracles import naive_waits
from shared import CASES, CORPUS, needs_cases, needs_corpus

import traceanalyzer as ta
from traceanalyzer import cli
from traceanalyzer.analyses.ranks.bandwidth import bus_factor, message_bytes
from traceanalyzer.errors import UsageError

SAMPLES = Path(__file__).parent.parent / "sample_traces"
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
TABLES = ("rows", "ranks", "steps", "collectives", "clocks", "groups", "rates", "culprits", "reasons")


def collective(at: float, dur: float, *, ranks: str = "[0, 1]", group: str = "0", seq: int | None = None) -> Event:
    args: dict[str, Any] = {
        "Collective name": "allreduce", "Process Group Name": group, "Process Group Ranks": ranks,
        "In msg nelems": 1024, "Out msg nelems": 1024, "dtype": "BFloat16", "Seq": seq,
    }  # fmt: skip
    return kernel(ALL_REDUCE, at=at, dur=dur, stream=20, **args)


def ns(microseconds: Any) -> int:
    return int(Decimal(str(microseconds)) * 1000)


def run_files(folder: Path, work: list[list[float]], *, offsets: list[float] | None = None) -> Path:
    """A file for each rank: in each step one kernel of so many us, then a collective of 10 us that all end together."""
    ranks = len(work)
    ready = [0.0] * ranks
    events: list[list[Event]] = [[] for _ in range(ranks)]
    clock = offsets or [0.0] * ranks
    for step in range(len(work[0])):
        starts = [ready[rank] + work[rank][step] for rank in range(ranks)]
        end = max(starts) + 10
        for rank in range(ranks):
            shift, since = clock[rank], ready[rank]
            number = 2 * step + 1
            events[rank] += [
                annotation(f"ProfilerStep#{step}", at=since + shift, dur=end - since),
                launch(at=since + shift, dur=0.5, correlation=number),
                kernel("gemm", at=since + shift + 1, dur=work[rank][step] - 1, correlation=number),
                launch(at=since + shift + 0.6, dur=0.3, correlation=number + 1),
                kernel(ALL_REDUCE, at=starts[rank] + shift, dur=end - starts[rank], stream=20, correlation=number + 1),
            ]
        ready = [end] * ranks
    for rank in range(ranks):
        write_trace(folder / f"rank{rank}.json.gz", events[rank], rank=rank, world_size=ranks, base_ns=10**18)
    return folder


@needs_cases
def test_s14_waits_transfers_and_the_straggler() -> None:
    (folder,) = CASES.glob("s14-*")
    expected = json.loads((folder / "expect.json").read_text())
    found = ta.imbalance(ta.read(folder / "in"))
    for wanted in expected["collectives"]:
        rows = found.collectives.filter(pl.col("sequence") == wanted["seq"])
        assert set(rows["last_rank"]) == {wanted["last_rank"]}
        assert set(rows["transfer_ns"]) == {ns(wanted["transfer_us"])}
        waits = dict(rows.select("rank", "wait_ns").iter_rows())
        assert waits == {int(rank): ns(wait) for rank, wait in wanted["wait_us"].items()}
    for wanted in expected["ranks"]:
        (row,) = found.ranks.filter(pl.col("rank") == wanted["rank"]).to_dicts()
        assert row["communication_ns"] == ns(wanted["comm_kernel_total_us"])
        assert row["compute_ns"] == ns(wanted["compute_kernel_total_us"])
        assert row["wait_ns"] == ns(wanted["wait_total_us"])
        assert row["transfer_ns"] == ns(wanted["transfer_total_us"])
    most = found.ranks.sort("waited_for_ns", descending=True)
    assert (most["rank"][0], most["last"][0]) == (expected["straggler_rank"], 2)
    assert found.groups.select("pairing", "negative", "unpaired").rows() == [("sequence", 0, 0)]


@needs_cases
def test_s13_every_run_has_its_ranks() -> None:
    (folder,) = CASES.glob("s13-*")
    whole = ta.read(folder / "in")
    found = ta.imbalance(whole)
    busy = whole.used.drop_nulls("first_ns").select("run", "rank")
    assert set(found.ranks.select("run", "rank").iter_rows()) == set(busy.iter_rows())
    assert {"in/sglang", "sglang"} & set(found.ranks["run"])


@pytest.mark.parametrize("mode", ["eager", "gpu-only", "graph"])
def test_the_slow_rank_of_the_straggler_run_is_named_with_its_kernel(mode: str) -> None:
    found = ta.imbalance(ta.read(SAMPLES / f"straggler-{mode}", cache=False))
    (slow,) = found.culprits.to_dicts()
    steps = found.steps["step"].drop_nulls().n_unique()
    assert (slow["rank"], slow["peer_rank"], slow["because"], slow["steps"]) == (1, 0, "kernel", [])
    # one more GEMM in each of three layers of every step
    assert slow["name"].startswith("nvjet_sm90_tst_256x128_64x4")
    assert (slow["extra_count"], slow["because_share"] > 0.9) == (3 * steps, True)
    assert slow["last"] > 0.95 * slow["collectives"]
    assert found.ranks.filter(pl.col("rank") == 1)["wait_ns"].item() < 100_000


def test_healthy_runs_name_nobody() -> None:
    for folder in sorted(SAMPLES.glob("healthy-*")):
        assert ta.imbalance(ta.read(folder, cache=False)).culprits.is_empty()


@needs_corpus
@pytest.mark.parametrize("name", ["mng-8rank", "param-dlrm8"])
def test_real_runs_of_eight_ranks_agree_with_a_second_opinion(name: str) -> None:
    """The oracle takes the clocks of one host for one. So do we, but for 4 us of one rank of param-dlrm8."""
    paths = sorted(path for path in (CORPUS / name).iterdir() if path.is_file())
    found = ta.imbalance(ta.read(CORPUS / name, cache=False))
    wanted = naive_waits.waits(paths)
    assert found.ranks["rank"].to_list() == list(range(8))
    near = 40_000 if found.clocks["applied"].any() else 0
    for row in found.ranks.iter_rows(named=True):
        for key, value in wanted[row["rank"]].items():
            assert abs(row[key] - value) <= (near if key.endswith("_ns") else 0), (row["rank"], key)


@needs_corpus
def test_mng_8rank() -> None:
    """Checked by hand. Recordings begin at different moments: 76 to 84 collectives a rank, no Seq, and the first 20 to
    28 of each without metadata. Rank 1 comes last to the one collective after each compute phase; its host is slow."""
    found = ta.imbalance(ta.read(CORPUS / "mng-8rank", cache=False))
    facts = ("group", "axis", "pairing", "collectives", "unpaired", "mismatched", "negative")
    assert found.groups.select(facts).rows() == [("0 (default_pg)", "world", "shifted", 84, 0, 0, 0)]
    assert found.ranks["collectives"].to_list() == [76, 76, 76, 76, 81, 84, 84, 84]
    assert not found.clocks["applied"].any()
    # the 37th, reduce-scatter after the second backward: rank 1 starts at 108,475.645 us, rank 3 at 102,455.407
    rows = found.collectives.filter(pl.col("index") == 36)
    assert set(rows["last_rank"]) == {1}
    assert dict(rows.select("rank", "wait_ns").iter_rows())[3] == 108_475_645 - 102_455_407
    assert dict(rows.select("rank", "transfer_ns").iter_rows())[1] == 419_867
    slow = found.culprits.row(0, named=True)
    assert (slow["rank"], slow["steps"], slow["because"], slow["name"]) == (1, [1, 2, 3], "idle", "host_busy")
    rate = found.rates.filter(pl.col("bytes") == 150_994_944)
    assert set(rate["name"]) == {"_reduce_scatter_base", "_allgather_base"}
    assert rate["gb_per_s"].is_between(300, 350).all()


@needs_corpus
def test_param_dlrm8() -> None:
    """Checked by hand. No metadata at all, times in whole us: eight calls a rank. Rank 7 comes last to five of them."""
    found = ta.imbalance(ta.read(CORPUS / "param-dlrm8", cache=False))
    assert found.groups.select("pairing", "collectives", "unpaired", "negative").rows() == [("order", 8, 0, 0)]
    first = dict(found.collectives.filter(pl.col("index") == 0).select("rank", "wait_ns").iter_rows())
    assert first == {
        0: 2_135_000, 1: 7_624_000, 2: 508_000, 3: 6_118_000, 4: 4_872_000, 5: 4_669_000, 6: 505_000, 7: 0,
    }  # fmt: skip
    assert found.ranks["last"].to_list() == [0, 0, 0, 0, 1, 2, 0, 5]
    assert {note.code for note in found.notes} == {"group-unknown", "clocks-aligned", "recordings-differ"}


def test_waits_and_who_is_behind_by_hand() -> None:
    """Rank 1 is 30 us late to the first collective and rank 0 is 5 us late to the second."""
    first = trace([kernel("gemm", at=0, dur=100), collective(100, 50), collective(205, 20)], rank=0, world_size=2)
    second = trace([kernel("gemm", at=0, dur=130), collective(130, 20), collective(200, 25)], rank=1, world_size=2)
    found = ta.imbalance(traces(first, second))
    assert found.collectives.select("index", "rank", "wait_ns", "transfer_ns", "last_rank").rows() == [
        (0, 0, 30_000, 20_000, 1), (0, 1, 0, 20_000, 1), (1, 0, 0, 20_000, 0), (1, 1, 5_000, 20_000, 0),
    ]  # fmt: skip
    assert found.ranks.select("wait_ns", "transfer_ns", "last", "behind_ns", "waited_for_ns").rows() == [
        (30_000, 40_000, 1, 5_000, 5_000), (5_000, 40_000, 1, 30_000, 30_000),
    ]  # fmt: skip
    gemm = found.rows.filter(pl.col("class") == "gemm")
    assert gemm.select("total_ns", "median_ns", "ratio_to_median").rows() == [
        (100_000, 115_000, 100 / 115), (130_000, 115_000, 130 / 115),
    ]  # fmt: skip


def test_wait_and_transfer_of_a_rank_add_up_to_its_communication(tmp_path: Path) -> None:
    folder = run_files(tmp_path, [[50, 60, 70, 55], [52, 58, 90, 51], [49, 61, 71, 57]], offsets=[0, 900, -4_000])
    found = ta.imbalance(ta.read(folder, cache=False))
    assert (found.ranks["wait_ns"] + found.ranks["transfer_ns"] == found.ranks["communication_ns"]).all()
    assert found.clocks["offset_ns"].to_list() == [0, 900_000, -4_000_000]
    assert found.clocks["applied"].to_list() == [False, True, True]
    assert set(found.collectives["transfer_ns"]) == {10_000}
    assert "clocks-aligned" in {note.code for note in found.notes}


def test_a_negative_transfer_is_counted_and_kept() -> None:
    parts = [
        trace([collective(100 + 100 * n, 50) for n in range(9)] + [collective(2000, 10)], rank=0),
        trace([collective(100 + 100 * n, 50) for n in range(9)] + [collective(2020, 10)], rank=1),
    ]
    found = ta.imbalance(traces(*parts))
    assert found.groups["negative"].item() == 1
    assert found.collectives.filter(pl.col("index") == 9)["transfer_ns"].to_list() == [-10_000, 10_000]
    assert ("negative-transfer", 1) in {(note.code, note.count) for note in found.notes}
    assert found.ranks["waited_for_ns"].sum() == 0  # nobody is blamed


def test_pairing_that_does_not_hold_gives_no_figures() -> None:
    """The same kernels in order, but one rank is through before the other begins: these are not one group."""
    parts = [
        trace([collective(100 + 100 * n, 50) for n in range(9)], rank=0),
        trace([collective(9_000 + 130 * n, 50, ranks="[0, 1]") for n in range(9)], rank=1),
    ]
    for part in parts:
        assert part.kernels.height == 9
    shifted = traces(*parts)
    unaligned = ta.imbalance(shifted.replace(kernels=shifted.kernels.filter(pl.col("start_ns") % 1 == 0)))
    assert unaligned.clocks["applied"].to_list() == [False, True]  # 130 us apart is a drift of 30 %: no clock
    assert unaligned.groups["pairing"].item() == "none"
    assert unaligned.ranks["wait_ns"].null_count() == 2
    assert [note.code for note in unaligned.notes if note.level == "warning"] == ["pairing-failed"]


def test_groups_are_kept_apart_and_missing_ranks_said(tmp_path: Path) -> None:
    for rank in range(3):
        pair_of, own = str([rank // 2 * 2, rank // 2 * 2 + 1]), str(1 + rank // 2)
        events = [
            collective(100, 10 + 5 * rank, ranks=pair_of, group=own),
            collective(200 + rank, 20 - rank, ranks="[0, 1, 2, 3]"),
        ]
        write_trace(tmp_path / f"rank{rank}.json", events, rank=rank, world_size=4)
    found = ta.imbalance(ta.read(tmp_path))
    rows = {row["group"]: row for row in found.groups.to_dicts()}
    assert set(rows) == {"1", "0"}  # of group 2 rank 2 is alone here
    assert (rows["1"]["ranks"], rows["1"]["ranks_missing"]) == ([0, 1], [])
    assert (rows["0"]["ranks"], rows["0"]["ranks_missing"], rows["0"]["size"]) == ([0, 1, 2], [3], 4)
    assert "group-incomplete" in {note.code for note in found.notes}


def test_several_devices_of_one_file_are_compared() -> None:
    events = [
        event
        for device, late in enumerate((0, 30))
        for event in (
            kernel("gemm", at=0, dur=100 + late, device=device),
            kernel(ALL_REDUCE, at=100 + late, dur=60 - late, device=device, stream=20),
        )
    ]
    found = ta.imbalance(trace(events))
    assert found.collectives.select("device", "wait_ns", "transfer_ns", "last_device").rows() == [
        ("0", 30_000, 30_000, "1"), ("1", 0, 30_000, "1"),
    ]  # fmt: skip


def test_a_rank_whose_host_is_slow_is_late_for_idle() -> None:
    """Rank 1's host builds something for 200 us before it launches: its GPU has nothing to do."""
    parts = []
    for rank in (0, 1):
        events: list[Event] = []
        for step in range(16):
            at, late = 400 * step, 200 * rank
            events += [
                launch(at=at + late, dur=2, correlation=10 * step + 1),
                op("build_table", at=at - 5, dur=late + 4) if rank else op("aten::mm", at=at, dur=1),
                kernel("gemm", at=at + late + 5, dur=100, correlation=10 * step + 1),
                launch(at=at + late + 3, dur=2, correlation=10 * step + 2),
                kernel(ALL_REDUCE, at=at + late + 105, dur=220 - late, stream=20, correlation=10 * step + 2),
            ]
        parts.append(trace(events, rank=rank, world_size=2))
    (slow,) = ta.imbalance(traces(*parts)).culprits.to_dicts()
    assert (slow["rank"], slow["because"], slow["name"]) == (1, "idle", "host_busy: build_table")
    assert slow["extra_ns"] == 15 * 200_000


def test_files_one_by_one_give_the_same_as_all_at_once(tmp_path: Path) -> None:
    folder = run_files(tmp_path, [[50, 60, 70, 55], [52, 58, 190, 51], [49, 61, 71, 57]])
    for path in (folder, SAMPLES / "straggler-eager"):
        whole = ta.imbalance(ta.read(path, cache=False))
        parts = ta.imbalance_of(path, cache=False)
        for name in TABLES:
            assert getattr(parts.imbalance, name).equals(getattr(whole, name)), name
        assert parts.imbalance.notes == whole.notes


def test_a_marker_that_no_rank_has_is_a_wrong_question(tmp_path: Path) -> None:
    folder = run_files(tmp_path, [[50, 60], [52, 58]])
    with pytest.raises(UsageError, match="no host range matches 'no such'"):
        ta.imbalance_of(folder, marker="no such", cache=False)
    assert ta.imbalance_of(folder, marker="ProfilerStep", cache=False).imbalance.steps["step"].max() == 1


def test_json_holds_the_contract(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["imbalance", str(SAMPLES / "straggler-eager"), "--format", "json", "--explain", "-q"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert set(said["collectives"][0]) >= {
        "group", "index", "name", "rank", "wait_ns", "transfer_ns", "last_rank",
    }  # fmt: skip
    assert [set(clock) >= {"rank", "offset_ns", "residual_ns"} for clock in said["clocks"]] == [True, True]
    assert len(said["collectives"]) == 2 * 132
    assert said["culprits"][0]["rank"] == 1
    assert {"wait_ns", "offset_ns", "ratio_to_median"} <= set(said["definitions"])


def test_one_rank_alone_has_nothing_to_compare(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_trace(tmp_path / "rank0.json", [kernel("gemm", at=0, dur=5)])
    assert cli.main(["imbalance", str(tmp_path)]) == 0
    assert "there is nothing to compare" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("what", "size", "factor"),
    [
        (("allreduce", "BFloat16", 1000, 1000), 2000, 2 * 7 / 8),
        (("_allgather_base", "Float", 1000, 8000), 32_000, 7 / 8),
        (("_reduce_scatter_base", "Half", 8000, 1000), 16_000, 7 / 8),
        (("all_to_all", "Float", 800, 800), 3_200, 7 / 8),
        (("broadcast", "Byte", 10, 10), 10, 1.0),
        (("barrier", "Byte", 0, 0), None, None),
        ((None, None, None, None), None, None),
        (("allreduce", "of the future", 10, 10), None, 2 * 7 / 8),
    ],
)
def test_bytes_and_bus_factors_are_those_of_nccl_tests(what: tuple[Any, ...], size: int | None, factor: Any) -> None:
    assert (message_bytes(*what), bus_factor(what[0], 8)) == (size, factor)


def test_pipeline_bubbles_are_what_no_compute_fills(tmp_path: Path) -> None:
    """Two stages by their names: in each step of 200 us the first works for 100 us and the second for 60 us."""
    for stage, busy in enumerate((100, 60)):
        events: list[Event] = []
        for step in range(6):
            at, number = 200 * step + 60 * stage, 10 * step + 1
            events += [
                annotation(f"ProfilerStep#{step}", at=200 * step, dur=199),
                launch(at=at + 1, dur=1, correlation=number),
                kernel("gemm", at=at + 5, dur=busy, correlation=number),
                launch(at=at + 3, dur=1, correlation=number + 1),
                kernel("ncclDevKernel_SendRecv(...)", at=at + 5 + busy, dur=10, stream=20, correlation=number + 1),
            ]
        write_trace(tmp_path / f"run-1796010586.5-TP-0-PP-{stage}.trace.json.gz", events, rank=stage, world_size=2)
    found = ta.imbalance(ta.read(tmp_path))
    # windows tile: the first begins with its own kernel, which shortens the mean of six steps
    first, second = found.stages.to_dicts()
    assert (first["stage"], first["ranks"], first["steps"], first["work_ns"]) == (0, [0], 6, 100_000)
    assert (second["stage"], second["ranks"], second["work_ns"]) == (1, [1], 60_000)
    assert first["bubble_ns"] == round((5 * 100_000 + 10_000) / 6)
    assert second["bubble_ns"] == round((5 * 140_000 + 10_000) / 6)
    assert found.ranks["exposed_ns"].to_list() == [60_000, 60_000]


def test_the_only_group_of_pg_config_is_that_of_calls_without_metadata(tmp_path: Path) -> None:
    groups = [
        {"pg_name": "0", "pg_desc": "default_pg", "ranks": [0, 1]},
        {"pg_name": "1", "pg_desc": "undefined", "ranks": [0]},
    ]
    for rank in (0, 1):
        info = {"rank": rank, "world_size": 2, "pg_config": groups}
        events = [kernel(ALL_REDUCE, at=100 * n + 7 * rank, dur=20 - 7 * rank, stream=20) for n in range(4)]
        write_trace(tmp_path / f"r{rank}.json", events, rank=None, distributedInfo=info)
    found = ta.imbalance(ta.read(tmp_path))
    assert found.groups.select("group", "axis", "ranks_missing").rows() == [("0 (default_pg)", "world", [])]
    assert found.notes == ()
    assert found.ranks["wait_ns"].to_list() == [28_000, 0]
