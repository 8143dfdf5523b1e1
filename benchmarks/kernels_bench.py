"""Measures the bundled kernels on the GPU of this machine and writes what was found as JSON.

    python benchmarks/kernels_bench.py -o benchmarks/results/kernels-H200-2026-11-30.json [NAME...]

The ceilings come first (copy bandwidth, rate of mma.sync), then each kernel's baseline, replacement, floor and peer; all
with a cold L2, medians of CUDA events. Needs torch with CUDA, and nothing else of the toolkit.
"""

from __future__ import annotations

import argparse
import datetime
import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

#: The goals of the kernels' design, in ns, by kernel and case.
GOALS_NS = {
    ("gather_cast", "16,384 of 495,000"): 10_500,
    ("gather_cast", "131,072 of 495,000"): 62_000,
    ("tree_build", "1 request, budget 8"): 12_000,
    ("tree_build", "64 requests, budget 64"): 40_000,
    ("sparse_decode", "1 request, 64 heads, k 512"): 8_700,
    ("sparse_decode", "1 request, 128 heads, k 2,048"): 12_000,
    ("sparse_decode", "64 requests, 128 heads, k 2,048"): 116_000,
    ("sparse_decode", "16 requests, 8 heads, k 2,048"): 11_000,
    ("sparse_decode", "64 requests, 16 heads, k 2,048"): 33_000,
    ("tree_verify", "1 request, 9 nodes, 8 heads, 65,536 keys"): 32_000,
    ("tree_verify", "4 requests, 9 nodes, 8 heads, 65,536 keys"): 117_000,
    ("tree_verify", "1 request, 33 nodes, 8 heads, 65,536 keys"): 120_000,
}


def main() -> int:
    from traceanalyzer.errors import TraceAnalyzerError
    from traceanalyzer.kernels import KERNELS, find
    from traceanalyzer.kernels.common import bench

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("-o", "--output", required=True)
    parser.add_argument("--commit", help="where this is no checkout")
    options = parser.parse_args()
    try:
        result = bench.run([find(name) for name in options.names] or KERNELS)
    except TraceAnalyzerError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    rows = [{**asdict(row), "goal_ns": GOALS_NS.get((row.kernel, row.case))} for row in result.rows]
    document = {
        **asdict(result),
        "rows": rows,
        "date": datetime.date.today().isoformat(),
        "commit": options.commit or commit(),
        "command": "python benchmarks/kernels_bench.py " + " ".join(options.names),
    }
    Path(options.output).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    show(document)
    return 0


def commit() -> str:
    """Of this checkout, with a + where files differ from it."""
    said = subprocess.run(
        ["git", "describe", "--always", "--dirty=+"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return said.stdout.strip() or "unknown"


def show(document: dict) -> None:
    ceilings = document["ceilings"]
    print(
        f"{document['device']}, torch {document['torch']}, CUDA {document['cuda']}, driver {document['driver']}, {document['commit']}"
    )
    print(
        f"copy {ceilings['copy_bytes_per_s'] / 1e9:.0f} GB/s, mma.sync {ceilings['mma_flop_per_s'] / 1e12:.0f} TFLOP/s,"
        f" an empty launch {ceilings['launch_ns'] / 1e3:.1f} us"
    )
    print(
        f"{'kernel':13} {'case':44} {'baseline':>10} {'its host':>9} {'peer':>8} {'replaced':>9} {'p10':>7} {'p90':>7} {'clean L2':>9} {'floor':>7} {'goal':>6}  agree"
    )
    for row in document["rows"]:
        times = [
            row[f"{name}_ns"]
            for name in (
                "baseline",
                "baseline_host",
                "peer",
                "replacement",
                "replacement_p10",
                "replacement_p90",
                "replacement_clean",
                "floor",
                "goal",
            )
        ]
        cells = ["-" if time is None else f"{time / 1e3:.1f}" for time in times]
        widths = (10, 9, 8, 9, 7, 7, 9, 7, 6)
        text = " ".join(cell.rjust(width) for cell, width in zip(cells, widths, strict=True))
        error = row["largest_error"]
        agree = "NO" if not row["agree"] else "bits" if error is None else f"{error:.2f} of the bound"
        print(f"{row['kernel']:13} {row['case']:44} {text}  {agree}")
    for warning in document["warnings"]:
        print("warning:", warning)


if __name__ == "__main__":
    sys.exit(main())
