"""Do the attention kernels choose well how to divide work? Times the plan that is chosen and others, on the GPU of this machine.

    python benchmarks/kernels_plans.py [-o FILE]

Plans are chosen by a model (`kernels/common/mla_plan.py`) that was fitted to an H200. The others differ in the rows of a
block, its kind and the number of splits (twice as many and half of them). Times are medians of CUDA events with a cold L2,
everything included that a call launches. The exit code is 1 where the plan that is chosen takes 10 % longer than the best.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any
from unittest import mock

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402

from traceanalyzer.kernels.common import torch_launch  # noqa: E402
from traceanalyzer.kernels.common.build import compile_program  # noqa: E402
from traceanalyzer.kernels.common.mla_launch import combine_launch  # noqa: E402
from traceanalyzer.kernels.common.mla_plan import Forced, Plan  # noqa: E402
from traceanalyzer.kernels.common.program import Program  # noqa: E402
from traceanalyzer.kernels.common.timing import Timer  # noqa: E402
from traceanalyzer.kernels.sparse_decode import launch as decode_launch  # noqa: E402
from traceanalyzer.kernels.sparse_decode import op as decode_op  # noqa: E402
from traceanalyzer.kernels.sparse_decode import shapes as decode_shapes  # noqa: E402
from traceanalyzer.kernels.tree_verify import bench as verify_bench  # noqa: E402
from traceanalyzer.kernels.tree_verify import launch as verify_launch  # noqa: E402
from traceanalyzer.kernels.tree_verify import op as verify_op  # noqa: E402

#: As a share of the best.
_TOLERANCE = 0.1
_ROUNDS = 20

_DECODE = tuple(
    decode_shapes.Shape(requests, heads, k)
    for requests, heads, k in (
        (1, 64, 512), (1, 8, 2048), (1, 16, 2048), (1, 128, 2048), (4, 8, 2048), (4, 16, 2048), (8, 16, 2048),
        (16, 8, 2048), (16, 32, 2048), (16, 128, 2048), (32, 8, 2048), (32, 16, 2048), (64, 16, 2048), (64, 128, 2048),
        (128, 8, 2048), (128, 16, 2048), (2, 16, 32_768),
    )
)  # fmt: skip
_VERIFY = tuple(
    verify_bench.Shape(requests, nodes, heads, prefix)
    for requests, nodes, heads, prefix in (
        (1, 9, 8, 65_536), (4, 9, 8, 65_536), (1, 33, 8, 65_536), (8, 9, 2, 8_192), (8, 4, 8, 8_192), (1, 2, 8, 65_536),
        (8, 2, 8, 16_384), (1, 1, 16, 65_536), (4, 1, 16, 8_192), (16, 1, 16, 8_192), (16, 1, 8, 8_192), (64, 1, 16, 4_096),
    )
)  # fmt: skip


class Case:
    """A shape of a kernel: the plans it can have, their programs, and a call with one of them."""

    def __init__(self, kernel: str, shape: Any) -> None:
        self.kernel, self.shape = kernel, shape

    def plan(self, forced: Forced) -> Plan:
        gpu, shape = torch_launch.gpu_of(torch.device("cuda")), self.shape
        if self.kernel == "sparse_decode":
            return decode_launch.plan(decode_launch.V32, shape.heads, shape.requests, shape.k, gpu, forced)
        return verify_launch.plan(shape.nodes * shape.heads, shape.requests, shape.keys, gpu, forced)

    def plans(self) -> list[Plan]:
        """The one that is chosen, then others. Those that pad many rows are left out."""
        chosen = self.plan(Forced())
        found = [chosen]
        for tiles in (1, 2, 3, 4, 5, 8):
            for paired in (True, False):
                try:
                    best = self.plan(Forced(tiles, paired=paired))
                except ValueError:  # there is no such block
                    continue
                if best.row_blocks * tiles > 2 * chosen.row_blocks * chosen.block.tiles:
                    continue
                splits = [each for each in (best.splits, best.splits * 2, best.splits // 2) if each]
                found += [self.plan(Forced(tiles, each, paired)) for each in splits]
        return list(dict.fromkeys(found))

    def programs(self, chosen: Plan) -> Iterator[Program]:
        requests = self.shape.requests
        if self.kernel == "sparse_decode":
            yield decode_launch.configure(chosen, requests, 1).program
        else:
            yield verify_launch.configure(chosen, requests, verify_launch.BITS, wide_indices=False).program
        yield combine_launch(chosen, requests).program

    def call(self) -> Callable[[], object]:
        device = torch.device("cuda", torch.cuda.current_device())
        if self.kernel == "sparse_decode":
            few = decode_shapes.make(self.shape, device)
            return lambda: decode_op.sparse_decode(few.q, few.cache, few.indices, **few.options())
        those = verify_bench.make(self.shape, device)
        return lambda: verify_op.tree_verify(
            those.q, those.pool, those.indptr, those.indices, scale=0.05, mask=those.mask
        )

    def with_plan(self, chosen: Plan) -> Any:
        """While this lasts, calls have that plan."""
        return mock.patch.object(
            decode_op if self.kernel == "sparse_decode" else verify_op, "plan", return_value=chosen
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, help="write what was found as JSON")
    parser.add_argument("--commit", default="", help="what is measured, for the file")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print("torch sees no GPU here", file=sys.stderr)
        return 4
    cases = [Case("sparse_decode", each) for each in _DECODE] + [Case("tree_verify", each) for each in _VERIFY]
    compile_all(cases)
    timer = Timer(torch.device("cuda", torch.cuda.current_device()))
    name = f"{torch.cuda.get_device_name()}, torch {torch.__version__}"
    print(f"{name}; medians, us, cold L2")
    print(f"{'case':62} {'chosen':>20} {'us':>8}  best others")
    rows = [measure(timer, case) for case in cases]
    if options.output:
        found = {"device": name, "commit": options.commit, "rows": rows}
        options.output.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return int(any(row["over_best"] > 1 + _TOLERANCE for row in rows))


def compile_all(cases: list[Case]) -> None:
    """Programs of all plans, by several processes; launches find them in the cache."""
    programs = list(dict.fromkeys(each for case in cases for plan in case.plans() for each in case.programs(plan)))
    architecture = torch_launch.gpu_of(torch.device("cuda")).architecture
    with ProcessPoolExecutor() as pool:
        list(pool.map(compile_program, programs, [architecture] * len(programs)))


def measure(timer: Timer, case: Case) -> dict[str, Any]:
    """Times of all plans of a case; prints a line."""
    call = case.call()
    times: dict[str, int] = {}
    plans = case.plans()
    for each in plans:
        with case.with_plan(each):
            times[label(each)] = timer.on_gpu(call, rounds=_ROUNDS).median_ns
    chosen = label(plans[0])
    ordered = sorted(times, key=lambda each: times[each])
    others = ", ".join(f"{each} {times[each] / 1e3:.1f}" for each in ordered if each != chosen)
    title = f"{case.kernel}, {case.shape}"
    print(f"{title:62} {chosen:>20} {times[chosen] / 1e3:8.1f}  {others[:70]}", flush=True)
    return {"case": title, "chosen": chosen, "over_best": times[chosen] / times[ordered[0]], "times_ns": times}


def label(plan: Plan) -> str:
    """Rows of a block, blocks on a multiprocessor, splits."""
    block = plan.block
    kind = " in pairs" if block.paired else f" x {block.resident}" if block.resident > 1 else ""
    return f"{block.tiles * 8} rows{kind}, {plan.splits}"


if __name__ == "__main__":
    sys.exit(main())
