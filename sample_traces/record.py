"""Record the sample traces of this folder on a machine with two NVIDIA GPUs.

Usage::

    python3 sample_traces/record.py --out /tmp/samples --tar /tmp/samples.tar     # everything
    python3 sample_traces/record.py --out /tmp/quick --quick                      # few steps, to check sizes
    python3 sample_traces/record.py --out /tmp/x --scenarios sparse,healthy --modes graph

Needs torch and triton, nothing else. Every scenario (see `record_model.SCENARIOS`) runs in a fresh pair of
processes, one a GPU, joined by NCCL; a failed or hung scenario costs only itself. Each scenario is recorded
in three modes, each into a folder of its own, `<scenario>-<mode>`:

- ``eager``: CPU and CUDA activities, shapes recorded, no Python stacks;
- ``gpu-only``: the same eager run with CUDA activities alone;
- ``graph``: the forward pass (NCCL included) is one CUDA graph; CPU and CUDA activities.

A folder holds `<stamp>-TP-<rank>.trace.json.gz` for both ranks (one stamp a run, rank 0's clock) and
`truth.json`: the step times of the profiled run and of the same run without a profiler. `README.md` says what
each time means.

In every step the host writes a marker, `step[DECODE bs=8 toks=8]`. Decoding runs one step ahead of the GPU, as
an overlapping scheduler does: step i is launched, then the host waits for the tokens of step i - 1. The `mask`
runs need the tokens first, so there the host waits for its own step.
"""

from __future__ import annotations

import argparse
import gc
import gzip
import json
import os
import re
import socket
import subprocess
import sys
import tarfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import check

WORLD = 2
MODES = ("eager", "gpu-only", "graph")
SCENARIO_NAMES = ("sparse", "cast", "mask-4k", "mask-16k", "mask-64k", "straggler", "healthy")
SCENARIO_TIMEOUT_S = 180
# The scheduler and the caches settle within this many steps; the clocks of the GPU need the most of them.
WARM_STEPS = 30
# Steps between the profiler's preparation and its start: CUPTI allocates its buffers here, unseen.
PROFILER_WARM_STEPS = 10
QUICK_STEPS = 6
# An attempt is quiet if four of five of its steps are this close to the fastest step of all attempts, and at least
# this many attempts have been made: one alone would be compared with itself.
QUIET = 1.04
FEW_ATTEMPTS = 6

DEFINITIONS = {
    "cuda_event_step_ns": "GPU time from the end of step i - 1 to the end of step i, by CUDA events recorded on "
    "the compute stream behind the last work of each step; for step 0 from an event recorded just before it on "
    "an idle GPU, so that it holds the launch latency too",
    "host_step_ns": "host clock (perf_counter_ns) from just before the step's marker opens to just after it closes",
    "host_total_ns": "host clock from just before the first step to the end of the device synchronisation behind "
    "the last",
    "host_tree_ns": "mask runs: host clock of build_draft_tree in each step (does not depend on the context)",
    "host_mask_ns": "mask runs: host clock of build_tree_mask in each step (grows with the context)",
    "profiled": "the run whose trace lies beside this file",
    "unprofiled": "the same steps in the same processes just before, without a profiler",
    "attempts": "how often either was run, at most; kept is the quietest, by the higher rank's 80th percentile of "
    "cuda_event_step_ns",
}


# --- the parent: one pair of processes a scenario ---


def main() -> int:
    args = _parse_arguments()
    if args.worker is not None:
        import torch  # noqa: F401  (fails here, early and clearly, where it is absent)

        _worker(args)
    out = Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    wanted = args.scenarios.split(",") if args.scenarios else SCENARIO_NAMES
    failed = sum(_start_workers(name, args, out) for name in wanted)
    check.print_report(out, kernels=args.kernels)
    if args.tar:
        with tarfile.open(args.tar, "w") as tar:
            tar.add(out, arcname="sample_traces")
    return 1 if failed else 0


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Record the sample traces.")
    parser.add_argument("--out", required=True, help="folder to write the runs into")
    parser.add_argument("--tar", help="also pack the folder into this tar file")
    parser.add_argument("--scenarios", help="comma-separated subset of the scenarios")
    parser.add_argument("--modes", default=",".join(MODES), help="comma-separated subset of the modes")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_STEPS} steps a run")
    parser.add_argument("--kernels", type=int, default=3, help="kernels to list for each run in the report")
    parser.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    return parser.parse_args()


def _start_workers(name: str, args: argparse.Namespace, out: Path) -> int:
    """Record one scenario in a pair of processes; 1 if either failed or hung."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, str(Path(__file__).resolve()), "--out", str(out.resolve()), "--modes", args.modes]
    command += ["--scenarios", name, "--port", str(port)] + ["--quick"] * args.quick
    environment = {
        # NVLink multicast stays off: it needs a fabric manager that shared hosts do not always give.
        "NCCL_NVLS_ENABLE": "0",
        "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1",
        "NVSHMEM_DISABLE_NVLS": "1",
        # No flight recorder and no watchdog: the stack taken at each collective slows the host down, and polling
        # every collective fills the traces with calls of no step. (Waits of synchronous collectives do not block.)
        "TORCH_FR_BUFFER_SIZE": "0",
        "TORCH_NCCL_TRACE_BUFFER_SIZE": "0",
        "TORCH_NCCL_BLOCKING_WAIT": "1",
    }
    started = time.monotonic()
    workers = [
        subprocess.Popen([*command, "--worker", str(rank)], env={**os.environ, **environment}) for rank in range(WORLD)
    ]
    # Poll all: when one rank dies the other would wait for it until the limit.
    deadline = started + SCENARIO_TIMEOUT_S
    while any(worker.poll() is None for worker in workers) and time.monotonic() < deadline:
        if any(worker.poll() not in (None, 0) for worker in workers):
            deadline = min(deadline, time.monotonic() + 3)
        time.sleep(0.1)
    codes = [worker.poll() for worker in workers]
    for worker in workers:
        if worker.poll() is None:
            worker.kill()
            worker.wait()
    print(f"{name}: exit codes {codes}, {time.monotonic() - started:.1f} s", flush=True)
    return int(codes != [0] * WORLD)


# --- a worker: one rank ---


@dataclass
class StepTimes:
    """Times of one run of the loop on one rank; `DEFINITIONS` says what they mean."""

    cuda_event_step_ns: list[int]
    host_step_ns: list[int]
    host_total_ns: int
    host_tree_ns: list[int] | None = None
    host_mask_ns: list[int] | None = None


class Ranks:
    """The process group, and a barrier that leaves no trace: it uses the key-value store, not NCCL."""

    def __init__(self, rank: int, port: int) -> None:
        import torch
        import torch.distributed as dist

        self.rank = rank
        self.device = torch.device("cuda", rank)
        torch.cuda.set_device(self.device)
        self.store = dist.TCPStore("127.0.0.1", port, WORLD, is_master=rank == 0)
        dist.init_process_group("nccl", store=self.store, rank=rank, world_size=WORLD, device_id=self.device)
        self._barriers = self._gathers = 0

    def barrier(self) -> None:
        key = f"barrier/{self._barriers}"
        self._barriers += 1
        self.store.add(key, 1)
        while self.store.add(key, 0) < WORLD:
            pass

    def leave(self) -> None:
        """Rank 0 holds the store, so it goes last."""
        self.barrier()
        if self.rank:
            self.store.add("left", 1)
        while not self.rank and self.store.add("left", 0) < WORLD - 1:
            pass

    def from_rank_0(self, key: str, make: Callable[[], str]) -> str:
        if self.rank == 0:
            self.store.set(key, make())
        return str(self.store.get(key).decode())

    def gather(self, value: str) -> list[str]:
        self._gathers += 1
        self.store.set(f"gather/{self._gathers}/{self.rank}", value)
        return [self.store.get(f"gather/{self._gathers}/{rank}").decode() for rank in range(WORLD)]

    def highest(self, value: int) -> int:
        return max(map(int, self.gather(str(value))))


def _worker(args: argparse.Namespace) -> None:
    """Record the scenario as one rank, then leave without the tear-down: it can hang after a capture."""
    code = 0
    try:
        import torch

        torch.set_num_threads(1)  # host code of the mask runs on one core, so that its cost is linear
        ranks = Ranks(args.worker, args.port)
        with torch.inference_mode():
            _record_scenario(args.scenarios, args, ranks)
        ranks.leave()
    except BaseException:  # a rank that fails in any way has to say so and end, or the other waits for it for ever
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _record_scenario(name: str, args: argparse.Namespace, ranks: Ranks) -> None:
    import torch
    from record_model import SCENARIOS, Decoder

    decoder = Decoder(SCENARIOS[name], ranks.rank, ranks.device)
    loop = StepLoop(decoder, decoder.forward, ranks)
    loop.run(5)
    # A discarded profile before any capture: kernels of a graph are only told apart if CUPTI was there first.
    with torch.profiler.profile():
        loop.run(2)
    for mode in args.modes.split(","):
        steps = QUICK_STEPS if args.quick else decoder.scenario.steps[mode]
        try:
            with _forward_of(decoder, mode) as forward:
                _record_run(StepLoop(decoder, forward, ranks), f"{name}-{mode}", mode, steps, Path(args.out))
        except Exception:  # which run it was is said first; then it is raised
            print(f"{name}-{mode}, rank {ranks.rank}: failed", flush=True)
            raise


@contextmanager
def _forward_of(decoder: Any, mode: str) -> Iterator[Callable[[], None]]:
    """The forward pass itself, or a CUDA graph of it that is deleted before the process group goes."""
    import torch

    if mode != "graph":
        yield decoder.forward
        return
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            decoder.forward()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    # Thread-local: NCCL's own threads may call CUDA while this one captures.
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        decoder.forward()
    try:
        yield graph.replay
    finally:
        torch.cuda.synchronize()
        graph.reset()


@contextmanager
def _quiet_core(rank: int) -> Iterator[None]:
    """Keep this thread on the core of its share that is fastest now, and let it go afterwards.

    On a shared host others slow single cores down by half for a moment. A rank on such a core makes the other one
    wait, which would plant a straggler where none belongs.
    """
    everywhere = os.sched_getaffinity(0)
    speeds = {}
    for core in sorted(everywhere)[rank::WORLD]:
        os.sched_setaffinity(0, {core})
        speeds[core] = min(_spin(), _spin())
    os.sched_setaffinity(0, {min(speeds, key=speeds.__getitem__)})
    for _ in range(10):
        _spin()  # the core is cold: it has just been moved to
    try:
        yield
    finally:
        os.sched_setaffinity(0, everywhere)  # threads to come shall not inherit the one core


def _spin() -> int:
    started = time.perf_counter_ns()
    values = [True] * 20_000
    for _ in range(6):
        values.count(True)
        values = list(values)
    return time.perf_counter_ns() - started


class StepLoop:
    """The decode loop that every run of a scenario shares, profiled or not."""

    def __init__(self, decoder: Any, forward: Callable[[], None], ranks: Ranks) -> None:
        self.decoder = decoder
        self.ranks = ranks
        self._forward = forward
        self._events: list[Any] = []

    def run(self, steps: int) -> StepTimes:
        self.make_events(steps)
        return self.measure(steps)

    def make_events(self, steps: int) -> None:
        """Create the events now: torch makes them at their first record, which would fall into the steps."""
        import torch

        self._events = [torch.cuda.Event(enable_timing=True) for _ in range(steps + 1)]
        for event in self._events:
            event.record()
        torch.cuda.synchronize()

    def measure(self, steps: int) -> StepTimes:
        gc.collect()
        gc.disable()
        with _quiet_core(self.ranks.rank):
            self.ranks.barrier()
            times = self._measure(steps)
        gc.enable()
        return times

    def _measure(self, steps: int) -> StepTimes:
        import torch
        from torch.profiler import record_function

        scenario, drafter = self.decoder.scenario, self.decoder.drafter
        base, ends = self._events[0], self._events[1:]
        host_step = [0] * steps
        first_draft = len(drafter.tree_ns) if drafter else 0
        started = time.perf_counter_ns()
        base.record()
        for step in range(steps):
            opened = time.perf_counter_ns()
            with record_function(scenario.marker):
                self.decoder.prepare(step)
                self._forward()
                self.decoder.fetch_tokens(step)
                ends[step].record()
                if drafter:
                    ends[step].synchronize()
                elif step:
                    ends[step - 1].synchronize()
            host_step[step] = time.perf_counter_ns() - opened
        torch.cuda.synchronize()
        total = time.perf_counter_ns() - started
        event_step = [round(a.elapsed_time(b) * 1e6) for a, b in zip(self._events, ends, strict=False)]
        times = StepTimes(event_step, host_step, total)
        if drafter:
            times.host_tree_ns = drafter.tree_ns[first_draft:]
            times.host_mask_ns = drafter.mask_ns[first_draft:]
        return times


def _record_run(loop: StepLoop, run: str, mode: str, steps: int, out: Path) -> None:
    """Measure without a profiler, then with one; write this rank's trace and, on rank 0, both ranks' truth."""
    ranks = loop.ranks
    folder = out / run
    folder.mkdir(parents=True, exist_ok=True)
    stamp = ranks.from_rank_0(f"{run}/stamp", lambda: str(time.time()))
    name = f"{stamp}-TP-{ranks.rank}.trace.json"
    loop.run(WARM_STEPS)
    unprofiled = _quietest(loop, lambda: (loop.run(steps), lambda: None))
    profiled = _quietest(loop, lambda: _profile(loop, mode, steps, folder, name))
    mine = {
        "rank": ranks.rank,
        "file": f"{name}.gz",
        "device": ranks.device.index,
        "profiled": _without_none(profiled),
        "unprofiled": _without_none(unprofiled),
    }
    both = [json.loads(text) for text in ranks.gather(json.dumps(mine))]
    if ranks.rank == 0:
        truth = _describe(loop.decoder.scenario, run, mode, steps, stamp)
        (folder / "truth.json").write_text(_dump({**truth, "ranks": both}), encoding="utf-8")
    ranks.barrier()


def _quietest(loop: StepLoop, attempt: Callable[[], tuple[StepTimes, Callable[[], None]]]) -> StepTimes:
    """Repeat an attempt up to the scenario's limit; what is best so far is kept by its own call."""
    best: StepTimes | None = None
    lowest = fastest = sys.maxsize
    for made in range(1, loop.decoder.scenario.attempts + 1):
        times, keep = attempt()
        steps = sorted(times.cuda_event_step_ns[1:])
        fastest = min(fastest, loop.ranks.highest(steps[0]))
        disturbance = loop.ranks.highest(steps[len(steps) * 4 // 5])
        if disturbance < lowest:
            lowest, best = disturbance, times
            keep()
        if made >= FEW_ATTEMPTS and lowest <= QUIET * fastest:
            break
    assert best is not None
    return best


def _profile(loop: StepLoop, mode: str, steps: int, folder: Path, name: str) -> tuple[StepTimes, Callable[[], None]]:
    """One profiled run, and the call that writes its trace."""
    from torch.profiler import ProfilerActivity, profile

    cpu = [] if mode == "gpu-only" else [ProfilerActivity.CPU]
    profiler = profile(activities=[*cpu, ProfilerActivity.CUDA], record_shapes=mode != "gpu-only")
    loop.ranks.barrier()
    # The two halves of start(): what runs between them warms CUPTI up and is not recorded.
    profiler.prepare_trace()
    loop.run(PROFILER_WARM_STEPS)
    loop.make_events(steps)
    profiler.start_trace()
    times = loop.measure(steps)
    profiler.stop_trace()
    return times, lambda: _export(profiler, folder, name)


def _export(profiler: Any, folder: Path, name: str) -> None:
    """Write the trace gzipped, with no time and no name inside, so that equal traces are equal files."""
    here = Path.cwd()
    os.chdir(folder)  # the trace carries the path it was exported to: keep that a bare name
    try:
        profiler.export_chrome_trace(name)
    finally:
        os.chdir(here)
    plain = folder / name
    with (folder / f"{name}.gz").open("wb") as raw, gzip.GzipFile("", "wb", 9, raw, mtime=0) as packed:
        packed.write(plain.read_bytes())
    plain.unlink()


def _describe(scenario: Any, run: str, mode: str, steps: int, stamp: str) -> dict[str, Any]:
    import torch
    import triton

    properties = torch.cuda.get_device_properties(0)
    driver = subprocess.run(
        ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader", "--id=0"],
        capture_output=True,
        text=True,
        check=False,
    )
    shapes = {
        key: value for key, value in asdict(scenario).items() if key not in {"name", "purpose", "steps", "attempts"}
    }
    return {
        "schema_version": 1,
        "run": run,
        "scenario": scenario.name,
        "mode": mode,
        "purpose": scenario.purpose,
        "stamp": stamp,
        "steps": steps,
        "attempts": scenario.attempts,
        "marker": scenario.marker,
        "shapes": shapes,
        "environment": {
            "gpu": properties.name,
            "gpus": WORLD,
            "sm_count": properties.multi_processor_count,
            "driver": driver.stdout.strip() or None,
            "torch": torch.__version__,
            "triton": triton.__version__,
            "cuda": torch.version.cuda,
            "nccl": ".".join(map(str, torch.cuda.nccl.version())),
            "recorded": datetime.fromtimestamp(float(stamp), timezone.utc).isoformat(timespec="seconds"),
        },
        "definitions": DEFINITIONS,
    }


def _without_none(times: StepTimes) -> dict[str, Any]:
    return {key: value for key, value in asdict(times).items() if value is not None}


def _dump(value: dict[str, Any]) -> str:
    """Indented JSON with each list of numbers on one line."""
    text = json.dumps(value, indent=2)
    return re.sub(r"\[[\d,\s]+\]", lambda match: re.sub(r"\s+", " ", match[0]), text) + "\n"


if __name__ == "__main__":
    sys.exit(main())
