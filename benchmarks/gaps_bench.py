"""What idle gaps cost beside reading: `python benchmarks/gaps_bench.py --kernels 100000 1000000`.

One generated file per size. A kernel has ten host events around its launch: python calls, modules, operators, a range in
every tenth. Every kernel has a gap before it, and before every tenth the host is busy for long enough to be named. Each file is
read with the native engine and then asked for its gaps (steps, causes, names of what the host did), in one process; CPU
time and the peak of memory after both are compared. Gaps are to cost no more than reading.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

PID = 4000
STEP = 50
SLOT_NS, BUSY_NS = 20_000, 80_000
#: Python calls and operators around a launch, from the outside: category and name.
AROUND = (
    ("python_function", "model.py(10): forward"), ("python_function", "nn.Module: Block_0"),
    ("python_function", "nn.Module: Linear_0"), ("python_function", "torch/nn/linear.py(7): forward"),
    ("cpu_op", "aten::linear"), ("cpu_op", "aten::matmul"), ("cpu_op", "aten::mm"),
    ("python_function", "<built-in function linear>"), ("cpu_op", "aten::empty"),
)  # fmt: skip


def write(path: Path, kernels: int) -> None:
    """A trace of so many kernels, ten host events each."""
    at = 1_000_000_000
    with path.open("w", encoding="utf-8") as file:
        file.write(
            '{"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "GPU", "numSms": 132}],\n"traceEvents": [\n'
        )
        for first in range(0, kernels, STEP):
            begun = at
            for number in range(first, min(first + STEP, kernels)):
                busy = BUSY_NS if number % 10 == 0 else 0
                file.writelines(_launch(number, at, busy))
                at += SLOT_NS + busy
            file.write(_span("user_annotation", "step[DECODE bs=1]", PID, begun, at - begun, ""))
        file.write('{"ph": "M", "name": "process_name", "pid": 4000, "tid": 0, "args": {"name": "python"}}\n]}\n')


def _launch(number: int, at: int, busy: int) -> Iterator[str]:
    if busy:
        yield _span("user_annotation", f"prepare_{number % 7}", PID, at, busy, "")
    at += busy
    for depth, (category, name) in enumerate(AROUND):
        ids = f'"External id": {number + 1}' if category == "cpu_op" else f'"Python id": {depth}'
        yield _span(category, name, PID, at + 100 * depth, 12_000 - 200 * depth, ids)
    yield _span("cuda_runtime", "cudaLaunchKernel", PID, at + 2_000, 3_000, f'"correlation": {number + 1}')
    yield _span("kernel", f"gemm_{number % STEP}", 7, at + 5_000, 15_000,
                f'"correlation": {number + 1}, "device": 0, "stream": 7, "grid": [132, 1, 1], "block": [256, 1, 1]',
                pid=0)  # fmt: skip


def _span(category: str, name: str, tid: int, at: int, length: int, args: str, *, pid: int = PID) -> str:
    where = f'"pid": {pid}, "tid": {tid}, "ts": {_us(at)}, "dur": {_us(length)}'
    return f'{{"ph": "X", "cat": "{category}", "name": "{name}", {where}, "args": {{{args}}}}},\n'


def _us(ns: int) -> str:
    return f"{ns // 1000}.{ns % 1000:03}"


def measure(path: Path) -> dict[str, float]:
    """CPU seconds of reading and of finding gaps, and the peak of memory after each in MB."""
    import traceanalyzer as ta

    begun = time.process_time()
    trace = ta.read(path, cache=False)
    read = time.process_time() - begun
    read_peak = _peak()
    begun = time.process_time()
    gaps = ta.idle_gaps(trace)
    found = {
        "read": read, "gaps": time.process_time() - begun, "read_mb": read_peak, "gaps_mb": _peak(),
        "count": float(gaps.height), "named": float(gaps.filter(gaps["host_busy_ns"] > 0)["host_op"].count()),
        "host": float(sum(trace.table(name).height for name in ("launches", "ops", "python_calls", "annotations"))),
    }  # fmt: skip
    assert gaps["duration_ns"].sum() == ta.device_time(trace)["idle_ns"].sum()
    return found


def _peak() -> float:
    """Of this process, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000


def main() -> None:
    """Measure all sizes and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kernels", type=int, nargs="+", default=[100_000])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        print(json.dumps(measure(args.measure)))
        return
    print(
        "| kernels | host events | MB | gaps | named | read, CPU s | gaps, CPU s | gaps / read | peak read, gaps, MB |"
    )
    print("| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    with tempfile.TemporaryDirectory() as folder:
        for kernels in args.kernels:
            path = Path(folder) / "trace.json"
            write(path, kernels)
            rounds = [_in_a_process(path) for _ in range(args.rounds)]
            least = {name: min(each[name] for each in rounds) for name in rounds[0]}
            print(f"| {kernels:,} | {least['host']:,.0f} | {path.stat().st_size / 1e6:,.0f} | {least['count']:,.0f} | "
                  f"{least['named']:,.0f} | {least['read']:.2f} | {least['gaps']:.2f} | "
                  f"{least['gaps'] / least['read']:.2f} | {least['read_mb']:,.0f}, {least['gaps_mb']:,.0f} |",
                  flush=True)  # fmt: skip


def _in_a_process(path: Path) -> dict[str, float]:
    """`measure` in a process of its own, with the native engine."""
    env = {**os.environ, "TRACEANALYZE_ENGINE": "native"}
    command = [sys.executable, __file__, "--measure", str(path)]
    done = subprocess.run(command, env=env, check=True, stdout=subprocess.PIPE)
    found: dict[str, float] = json.loads(done.stdout)
    return found


if __name__ == "__main__":
    main()
