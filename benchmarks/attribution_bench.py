"""What linking costs beside reading: `python benchmarks/attribution_bench.py --kernels 250000 500000 1000000`.

One generated file per size, nested as real traces are: python calls around modules, modules around operators, operators
around launch calls, one kernel each, and arrows. Each file is read with both engines and then linked, in one process, and
CPU time is compared, since wall time on a shared machine says little. Linking is to cost no more than reading, and twice
the trace no more than twice the time.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

PID = 4000
LAYERS = 40
NS_PER_LAUNCH = 20_000


def write(path: Path, kernels: int) -> None:
    """A trace of so many kernels."""
    with path.open("w", encoding="utf-8") as file:
        file.write(
            '{"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "GPU", "numSms": 132}],\n"traceEvents": [\n'
        )
        for number in range(0, kernels, LAYERS):
            file.writelines(_step(number, min(LAYERS, kernels - number)))
        file.write('{"ph": "M", "name": "process_name", "pid": 4000, "tid": 0, "args": {"name": "python"}}\n]}\n')


def _step(first: int, kernels: int) -> Iterator[str]:
    """One step: a marker, the frame of the model, and for each layer what launches its kernel."""
    at = 1_000_000_000 + first * NS_PER_LAUNCH
    length = kernels * NS_PER_LAUNCH
    yield _span("user_annotation", f"step[DECODE bs={first}]", PID, at, length, '"Ev Idx": 1')
    yield _span("python_function", "model.py(10): forward", PID, at + 10, length - 20, '"Python id": 1')
    for layer in range(kernels):
        yield from _launch(first + layer, layer, at + 100 + layer * NS_PER_LAUNCH)


def _launch(number: int, layer: int, at: int) -> Iterator[str]:
    outer, inner = f'"External id": {2 * number + 1}', f'"External id": {2 * number + 2}'
    shapes = '"Input Dims": [[8, 4096], [4096, 4096], []], "Input type": ["c10::BFloat16", "c10::BFloat16", ""]'
    yield _span("python_function", f"nn.Module: Linear_{layer}", PID, at, 15_000, f'"Python module id": {layer}')
    yield _span("python_function", "torch/nn/linear.py(7): forward", PID, at + 500, 14_000, '"Python id": 3')
    yield _span("cpu_op", "aten::linear", PID, at + 1_000, 12_000, f"{outer}, {shapes}")
    yield _span("cpu_op", "aten::addmm", PID, at + 2_000, 10_000, f"{inner}, {shapes}")
    ids = f'{inner}, "correlation": {number + 1}'
    yield _span("cuda_runtime", "cudaLaunchKernel", PID, at + 4_000, 5_000, ids)
    start = at + 30_000
    yield _span("kernel", f"gemm_{layer % 7}", 7, start, 15_000,
                f'{ids}, "device": 0, "stream": 7, "grid": [132, 1, 1], "block": [256, 1, 1]', pid=0)  # fmt: skip
    yield _arrow("s", number, PID, PID, at + 4_000)
    yield _arrow("f", number, 0, 7, start)


def _span(category: str, name: str, tid: int, at: int, length: int, args: str, *, pid: int = PID) -> str:
    where = f'"pid": {pid}, "tid": {tid}, "ts": {_us(at)}, "dur": {_us(length)}'
    return f'{{"ph": "X", "cat": "{category}", "name": "{name}", {where}, "args": {{{args}}}}},\n'


def _arrow(phase: str, number: int, pid: int, tid: int, at: int) -> str:
    end = ', "bp": "e"' if phase == "f" else ""
    return (f'{{"ph": "{phase}", "id": {number + 1}, "pid": {pid}, "tid": {tid}, "ts": {_us(at)}, "cat": "ac2g", '
            f'"name": "ac2g"{end}}},\n')  # fmt: skip


def _us(ns: int) -> str:
    return f"{ns // 1000}.{ns % 1000:03}"


def measure(path: Path, rounds: int) -> dict[str, float]:
    """The least CPU seconds of reading and of linking over some rounds in this process, and what was linked."""
    import traceanalyzer as ta

    read, link = [], []
    for _ in range(rounds):
        begun = time.process_time()
        trace = ta.read(path, cache=False)
        read.append(time.process_time() - begun)
        begun = time.process_time()
        links = ta.link(trace)
        link.append(time.process_time() - begun)
    events = sum(trace.table(name).height for name in ("kernels", "launches", "ops", "python_calls", "flows"))
    return {"read": min(read), "link": min(link), "events": float(events), "with_operator": float(links["op"].count())}


def run(path: Path, engine: str, rounds: int) -> dict[str, float]:
    """`measure` in a process of its own."""
    env = {**os.environ, "TRACEANALYZE_ENGINE": engine}
    done = subprocess.run(
        [sys.executable, __file__, "--measure", str(path), "--rounds", str(rounds)],
        env=env,
        check=True,
        stdout=subprocess.PIPE,
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found


def main() -> None:
    """Measure all sizes and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kernels", type=int, nargs="+", default=[125_000, 250_000])
    parser.add_argument("--engines", nargs="+", default=["native", "python"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        print(json.dumps(measure(args.measure, args.rounds)))
        return
    print("| kernels | events | MB | engine | read, CPU s | link, CPU s | link / read | link, µs a kernel |")
    print("| ---: | ---: | ---: | --- | ---: | ---: | ---: | ---: |")
    with tempfile.TemporaryDirectory() as folder:
        for kernels in args.kernels:
            path = Path(folder) / "trace.json"
            write(path, kernels)
            size = path.stat().st_size / 1e6
            for engine in args.engines:
                found = run(path, engine, args.rounds)
                assert found["with_operator"] == kernels, found
                print(f"| {kernels:,} | {found['events']:,.0f} | {size:,.0f} | {engine} | {found['read']:.2f} | "
                      f"{found['link']:.2f} | {found['link'] / found['read']:.2f} | "
                      f"{found['link'] / kernels * 1e6:.2f} |", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
