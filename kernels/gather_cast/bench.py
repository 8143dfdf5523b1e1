"""The benchmark: a pool of 495,000 entries of 576 codes, of which some are read."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from traceanalyzer.kernels.common.bench import Bench, Row
from traceanalyzer.kernels.gather_cast.baseline import cast_then_gather, gather_then_cast
from traceanalyzer.kernels.gather_cast.op import gather_cast

_SLOTS, _COLUMNS = 495_000, 576
_COUNTS = (1_024, 8_192, 16_384, 131_072)


def rows(bench: Bench) -> Iterator[Row]:
    """One row for each number of entries that are read."""
    pool = torch.randint(0, 256, (_SLOTS, _COLUMNS), dtype=torch.uint8, device=bench.device).view(torch.float8_e4m3fn)
    for count in _COUNTS:
        indices = torch.randperm(_SLOTS, device=bench.device)[:count].to(torch.int32)
        out = torch.empty((count, _COLUMNS), dtype=torch.bfloat16, device=bench.device)

        def replacement(indices: torch.Tensor = indices, out: torch.Tensor = out) -> torch.Tensor:
            return gather_cast(pool, indices, out=out)

        time = bench.on_gpu(replacement)
        yield Row(
            kernel="gather_cast",
            case=f"{count:,} of {_SLOTS:,}",
            baseline="whole pool cast, then gathered",
            baseline_ns=bench.on_gpu(lambda indices=indices: cast_then_gather(pool, indices)).median_ns,
            replacement_ns=time.median_ns,
            replacement_p10_ns=time.p10_ns,
            replacement_p90_ns=time.p90_ns,
            floor_ns=bench.floor_ns(count * (_COLUMNS + 2 * _COLUMNS + 4)),
            equal=_same(replacement(), cast_then_gather(pool, indices)),
            peer="torch: codes gathered, then cast",
            peer_ns=bench.on_gpu(lambda indices=indices: gather_then_cast(pool, indices)).median_ns,
        )


def _same(result: torch.Tensor, expected: torch.Tensor) -> bool:
    """Bit for bit; any NaN is as good as another."""
    nan = expected.isnan()
    bits, wanted = result.view(torch.int16), expected.view(torch.int16)
    return bool((result.isnan() == nan).all() and ((bits == wanted) | nan).all())
