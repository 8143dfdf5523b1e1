"""Is the baseline of `sparse_decode` as slow as what it stands for? Times both in one run, on the GPU of this machine.

    python benchmarks/sparse_baseline_fidelity.py flash_mla_sm120_triton.py [-o FILE]

The file is `sglang/kernels/ops/attention/flash_mla_sm120_triton.py` of the wheel sglang 0.5.23 (pip download --no-deps,
unzip); it takes nothing but torch and Triton, and is no part of this repository. It knows DSV4 records only. The shapes
differ in requests, heads, k and whether there is a second cache; both are tuned first. Times are medians of CUDA events
with a cold L2. The exit code is 1 where results differ or a time is off by more than a fifth.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402

from traceanalyzer.kernels.common.timing import Timer  # noqa: E402
from traceanalyzer.kernels.sparse_decode import baseline  # noqa: E402
from traceanalyzer.kernels.sparse_decode.shapes import SCALE, Inputs, Shape, make  # noqa: E402

#: The most that times may differ, as a share.
_TOLERANCE = 0.2
#: Of results, both bf16 with weights of float32.
_CLOSE = 2.0**-6

_SHAPES = (
    Shape(1, 64, 512, v32=False),
    Shape(16, 64, 512, v32=False),
    Shape(1, 64, 128, v32=False, extra=512),
    Shape(1, 128, 2048, v32=False),
    Shape(64, 16, 2048, v32=False),
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, help="flash_mla_sm120_triton.py of SGLang")
    parser.add_argument("-o", "--output", type=Path, help="write what was found as JSON")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print("torch sees no GPU here", file=sys.stderr)
        return 4
    theirs = load(options.file)
    timer = Timer(torch.device("cuda", torch.cuda.current_device()))
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}; medians, us, cold L2")
    print(f"{'case':70} {'SGLang':>9} {'ours':>9} {'ours/SGLang':>12} {'difference':>11}")
    rows = []
    for shape in _SHAPES:
        row = compare(timer, theirs, shape)
        rows.append(row)
        print(
            f"{row['case']:70} {row['theirs_ns'] / 1e3:9.1f} {row['ours_ns'] / 1e3:9.1f} {row['ratio']:12.3f} {row['difference']:11.2e}"
        )
    print("tuned:", "SGLang", theirs._tiled_sparse_decode_kernel.best_config, "; ours", baseline._walk.best_config)
    if options.output:
        document = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "rows": rows}
        options.output.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return int(any(abs(row["ratio"] - 1) > _TOLERANCE or not row["difference"] <= _CLOSE for row in rows))


def load(file: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("sglang_sparse_decode", file)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def compare(timer: Timer, theirs: ModuleType, shape: Shape) -> dict:
    inputs = make(shape, timer.device)
    page_size = inputs.page_size
    assert page_size

    def paged(cache: torch.Tensor) -> torch.Tensor:
        strides = (cache.shape[1], 584, 584, 1)
        return cache.view(torch.float8_e4m3fn).as_strided((len(cache), page_size, 1, 584), strides)

    extra = (None, None) if inputs.extra is None else (paged(inputs.extra[0]), inputs.extra[1].unsqueeze(1))

    def by_sglang() -> torch.Tensor:
        return theirs.flash_mla_sparse_decode_triton(
            inputs.q.unsqueeze(1),
            paged(inputs.cache),
            inputs.indices.unsqueeze(1),
            None,
            inputs.sink,
            512,
            SCALE,
            *extra,
        )[0]

    def by_us() -> torch.Tensor:
        return call(inputs)

    difference = (by_sglang().squeeze(1).float() - by_us().float()).abs().max() / by_us().float().abs().max()
    times = timer.on_gpu(by_sglang), timer.on_gpu(by_us)
    return {
        "case": str(shape),
        "theirs_ns": times[0].median_ns,
        "ours_ns": times[1].median_ns,
        "ratio": times[1].median_ns / times[0].median_ns,
        "difference": float(difference),
    }


def call(inputs: Inputs) -> torch.Tensor:
    return baseline.sparse_decode(inputs.q, inputs.cache, inputs.indices, **inputs.options())[0]


if __name__ == "__main__":
    sys.exit(main())
