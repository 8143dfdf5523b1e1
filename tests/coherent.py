"""One coherent run of many ranks, as files: what each rank does depends on all others, as in a real one.

TP x DP: ranks of a tensor-parallel group reduce twice a layer, all ranks of one tensor-parallel place once a step. A
collective ends on all its ranks when the last one has come and the data has moved. Planted are slow ranks (by a kernel
or by the host, always or in some steps), clocks of hosts that are off and drift, and recordings that begin late, end
early, are missing or damaged. The same plan and seed give the same files.

    truth = write_run(folder, Plan(ranks=64, slow=(Slow(37, factor=1.3),)))
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from traceanalyzer.analyses.ranks.groups import AXES, Member
from traceanalyzer.analyses.ranks.part import CallRows, Kind, ProcessGroup, RankPart
from traceanalyzer.classify.rules import CLASSES

Ints = npt.NDArray[np.int64]

BASE_NS = 1_796_010_000_000_000_000
ATTENTION, UP, DOWN = "flash_fwd_kernel<bf16, 128>", "nvjet_sm90_tst_up_proj", "nvjet_sm90_tst_down_proj"
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
#: ns that the kernels take, and the transfers.
WORK_NS = {ATTENTION: 120_000, UP: 90_000, DOWN: 80_000}
TRANSFER_NS = {"tp": 25_000, "dp": 60_000}
_GAP_NS = 1_500  # between kernels
_STREAMS = {"work": 7, "tp": 20, "dp": 24}
HOST = "prepare_batch"


@dataclass(frozen=True)
class Slow:
    """A rank that is slow: one of its kernels takes `factor` times as long, or its host so much longer a step."""

    rank: int
    factor: float = 1.0
    kernel: str = UP
    host_ns: int = 0
    steps: Sequence[int] | None = None
    """None: in all steps."""


@dataclass(frozen=True)
class Plan:
    """A run."""

    ranks: int = 8
    tp: int = 8
    steps: int = 20
    layers: int = 4
    slow: tuple[Slow, ...] = ()
    noise: float = 0.01
    """Relative scatter of every kernel."""
    host_noise_ns: int = 3_000
    """Scatter of the host's delay at the start of a step."""
    end_noise_ns: int = 400
    """Ranks leave a collective so far apart."""
    ranks_per_host: int = 8
    offset_ns: int = 0
    """Clocks of hosts are off by up to so much,"""
    drift_ppm: float = 0.0
    """and drift by up to so much."""
    metadata: bool = True
    """Whether kernels tell their process group."""
    sequence: bool = False
    """Whether they tell its counter."""
    ragged: int = 0
    """Recordings begin and end up to so many collectives late and early."""
    missing: tuple[int, ...] = ()
    truncated: tuple[int, ...] = ()
    empty: tuple[int, ...] = ()
    seed: int = 1


@dataclass
class Truth:
    """What is so in the files."""

    offset_ns: dict[int, float] = field(default_factory=dict)
    """By rank, at the time 0 of the run, against the true clock."""
    drift: dict[int, float] = field(default_factory=dict)
    wait_ns: dict[int, int] = field(default_factory=dict)
    """By rank, over all collectives that were recorded on every rank of their group."""

    def clock(self, rank: int, times: Ints) -> Ints:
        """The time that a rank's clock shows at true times."""
        moved = self.offset_ns[rank] + self.drift[rank] * (times - BASE_NS)
        return np.array(times + np.round(moved).astype(np.int64), np.int64)


@dataclass(frozen=True)
class _Done:
    """One kernel on all ranks."""

    name: str
    stream: str
    step: int
    start_ns: Ints
    end_ns: Ints


def simulate(plan: Plan) -> list[_Done]:
    """All kernels of all ranks on the true clock, in the order in which each rank runs them."""
    random = np.random.default_rng(plan.seed)
    ready = np.full(plan.ranks, BASE_NS, np.int64)
    done: list[_Done] = []

    def work(name: str, step: int) -> None:
        nonlocal ready
        took = WORK_NS[name] * (1 + plan.noise * random.standard_normal(plan.ranks))
        for slow in plan.slow:
            if slow.kernel == name and (slow.steps is None or step in slow.steps):
                took[slow.rank] *= slow.factor
        start = ready + _GAP_NS
        end = start + np.maximum(np.round(took).astype(np.int64), 1_000)
        done.append(_Done(name, "work", step, start, end))
        ready = end

    def reduce(axis: str, step: int) -> None:
        nonlocal ready
        start = ready + _GAP_NS
        grid = start.reshape(-1, plan.tp)  # a row for each tensor-parallel group
        latest = np.repeat(grid.max(axis=1), plan.tp) if axis == "tp" else np.tile(grid.max(axis=0), len(grid))
        left = np.abs(random.normal(0, plan.end_noise_ns, plan.ranks)).round().astype(np.int64)
        end = latest + TRANSFER_NS[axis] + left
        done.append(_Done(ALL_REDUCE, axis, step, start, end))
        ready = end

    for step in range(plan.steps):
        late = np.abs(random.normal(0, plan.host_noise_ns, plan.ranks)).round().astype(np.int64) + 20_000
        for slow in plan.slow:
            if slow.steps is None or step in slow.steps:
                late[slow.rank] += slow.host_ns
        ready = ready + late
        for _ in range(plan.layers):
            work(ATTENTION, step)
            reduce("tp", step)
            work(UP, step)
            work(DOWN, step)
            reduce("tp", step)
        if plan.ranks > plan.tp:
            reduce("dp", step)
    return done


def write_run(folder: Path, plan: Plan) -> Truth:
    """Write the files of a run; gives what is true of them."""
    folder.mkdir(parents=True, exist_ok=True)
    done = simulate(plan)
    random = np.random.default_rng(plan.seed + 1)
    hosts = -(-plan.ranks // plan.ranks_per_host)
    offsets = random.uniform(-plan.offset_ns, plan.offset_ns, hosts) * (np.arange(hosts) > 0)
    drifts = random.uniform(-plan.drift_ppm, plan.drift_ppm, hosts) * 1e-6 * (np.arange(hosts) > 0)
    truth = Truth()
    for rank in range(plan.ranks):
        host = rank // plan.ranks_per_host
        truth.offset_ns[rank], truth.drift[rank] = float(offsets[host]), float(drifts[host])
        if rank in plan.missing:
            continue
        kept = range(len(done))
        if plan.ragged:
            first, last = random.integers(0, plan.ragged + 1, 2)
            kept = range(int(first), len(done) - int(last))
        _write(folder / f"rank{rank:05}.json.gz", rank, plan, done, kept, truth)
    truth.wait_ns = _waits(plan, done)
    return truth


def _waits(plan: Plan, done: Sequence[_Done]) -> dict[int, int]:
    total = np.zeros(plan.ranks, np.int64)
    for each in done:
        if each.name == ALL_REDUCE:
            grid = each.start_ns.reshape(-1, plan.tp)
            latest = grid.max(axis=1, keepdims=True) if each.stream == "tp" else grid.max(axis=0, keepdims=True)
            total += (latest - grid).ravel()
    return {rank: int(wait) for rank, wait in enumerate(total)}


def _write(path: Path, rank: int, plan: Plan, done: Sequence[_Done], kept: range, truth: Truth) -> None:
    if rank in plan.empty:
        path.write_bytes(b"")
        return
    head = json.dumps({
        "schemaVersion": 1,
        "deviceProperties": [{"id": 0, "name": "NVIDIA H200", "numSms": 132}],
        "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": plan.ranks},
        "baseTimeNanoseconds": BASE_NS - 10**9,
    })  # fmt: skip
    events = ",\n".join(json.dumps(event, separators=(",", ":")) for event in _events(rank, plan, done, kept, truth))
    text = f'{head[:-1]}, "traceEvents": [\n{events}\n]}}'.encode()
    if rank in plan.truncated:
        text = text[: len(text) * 6 // 10]
    path.write_bytes(gzip.compress(text, 1, mtime=0))


def _events(rank: int, plan: Plan, whole: Sequence[_Done], kept: range, truth: Truth) -> Iterator[dict[str, Any]]:
    done = [whole[at] for at in kept]
    start = truth.clock(rank, np.array([each.start_ns[rank] for each in done]))
    end = start + np.array([each.end_ns[rank] - each.start_ns[rank] for each in done])
    unseen = [each.stream for each in whole[: kept.start]]
    counters = {axis: unseen.count(axis) for axis in ("tp", "dp")}
    step_from: dict[int, int] = {}
    before = int(start[0]) - 40_000
    for number, (each, begun, ended) in enumerate(zip(done, start.tolist(), end.tolist(), strict=True), 1):
        first = each.step not in step_from
        launched = before + 1_000 if not first else begun - 6_000
        step_from.setdefault(each.step, before + 500)
        if first and begun - before > 30_000:
            yield _event("cpu_op", HOST, 4001, before + 700, launched - before - 1_000, {})
        yield _event("cuda_runtime", "cudaLaunchKernel", 4001, launched, 900, {"correlation": number})
        args: dict[str, Any] = {"device": 0, "stream": _STREAMS[each.stream], "correlation": number,
                                "grid": [132, 1, 1], "block": [256, 1, 1]}  # fmt: skip
        if each.name == ALL_REDUCE:
            args |= _metadata(rank, plan, each.stream, counters)
        yield _event("kernel", each.name, args["stream"], begun, ended - begun, args)
        before = launched if not first else begun - 5_000
        if number == len(done) or done[number].step != each.step:
            yield _event("user_annotation", f"ProfilerStep#{each.step}", 4001, step_from[each.step],
                         before + 1_500 - step_from[each.step], {})  # fmt: skip
            before = ended


def _metadata(rank: int, plan: Plan, axis: str, counters: dict[str, int]) -> dict[str, Any]:
    counters[axis] += 1
    if not plan.metadata:
        return {}
    if axis == "tp":
        number, ranks = 1 + rank // plan.tp, [rank // plan.tp * plan.tp + at for at in range(plan.tp)]
    else:
        number, ranks = 1_000_000 + rank % plan.tp, list(range(rank % plan.tp, plan.ranks, plan.tp))
    told: dict[str, Any] = {
        "Collective name": "allreduce", "In msg nelems": 1 << 20, "Out msg nelems": 1 << 20, "Group size": len(ranks),
        "dtype": "BFloat16", "Process Group Name": str(number), "Process Group Description": f"mesh_{axis}",
        "Process Group Ranks": str(ranks),
    }  # fmt: skip
    return told | ({"Seq": counters[axis]} if plan.sequence else {})


def _event(cat: str, name: str, tid: int, at_ns: int, dur_ns: int, args: dict[str, Any]) -> dict[str, Any]:
    on_device = cat == "kernel"
    at = at_ns - (BASE_NS - 10**9)
    return {"ph": "X", "cat": cat, "name": name, "pid": 0 if on_device else 4000, "tid": tid,
            "ts": at / 1e3, "dur": dur_ns / 1e3, "args": args}  # fmt: skip


def members(plan: Plan) -> list[Member]:
    """The ranks of a run as the reduction takes them, straight from the simulation: no file, no clock that is off."""
    done = simulate(plan)
    calls = [each for each in done if each.name == ALL_REDUCE]
    ends = np.array([np.max([each.end_ns for each in done if each.step == step], axis=0) for step in range(plan.steps)])
    walls = np.diff(np.vstack([done[0].start_ns, ends]), axis=0)
    begun, took = np.array([each.start_ns for each in calls]), np.array([each.end_ns - each.start_ns for each in calls])
    group = np.array([each.stream == "dp" for each in calls], np.uint32)
    step = np.array([each.step for each in calls], np.int32)
    return [
        _member(
            rank, plan, walls[:, rank],
            CallRows(group, np.zeros(len(calls), np.uint32), begun[:, rank], took[:, rank], step, None),
        )
        for rank in range(plan.ranks)
    ]  # fmt: skip


_KIND = Kind(ALL_REDUCE, "allreduce", "BFloat16", 1 << 20, 1 << 20)


def _member(rank: int, plan: Plan, walls: Ints, calls: CallRows) -> Member:
    none = np.zeros(plan.steps, np.int64)
    steps = pl.DataFrame({
        "step": np.arange(plan.steps, dtype=np.uint32), "start_ns": none, "wall_ns": walls, "busy_ns": walls,
        "work_ns": walls, "idle_ns": none, "kernels": none, **{f"{name}_ns": none for name in CLASSES},
    }).with_columns(
        name=pl.lit(None, pl.String), kind=pl.lit("step"), mark=pl.lit(None, pl.String)
    )  # fmt: skip
    same = list(range(rank // plan.tp * plan.tp, (rank // plan.tp + 1) * plan.tp))
    across = list(range(rank % plan.tp, plan.ranks, plan.tp))
    groups = tuple(
        ProcessGroup(f"{axis}{ranks[0]}", f"mesh_{axis}", str(ranks), len(ranks))
        for axis, ranks in (("tp", same), ("dp", across))
    )
    span = int(walls.sum())
    part = RankPart(rank, "0", {"span_ns": span, "busy_ns": span, "idle_ns": 0}, steps, calls, groups, (_KIND,))
    return Member("run", rank, f"rank{rank}", dict.fromkeys(AXES), plan.ranks, None, part)
