"""The benchmark: a pool of 495,000 entries of 576 codes, of which some are read."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from traceanalyzer.kernels.common.bench import Bench
from traceanalyzer.kernels.common.bench_result import Row
from traceanalyzer.kernels.gather_cast.baseline import cast_then_gather, gather_then_cast
from traceanalyzer.kernels.gather_cast.op import gather_cast

_SLOTS, _COLUMNS, _PAGE = 495_000, 576, 64
_COUNTS = (1_024, 8_192, 16_384, 131_072)


def rows(bench: Bench) -> Iterator[Row]:
    """One row for each number of entries that are read, and one for whole pages of entries."""
    pool = torch.randn(_SLOTS, _COLUMNS, device=bench.device).to(torch.float8_e4m3fn)
    slots = torch.randperm(_SLOTS, device=bench.device)
    for count in _COUNTS:
        yield _row(bench, pool, slots[:count].to(torch.int32), f"{count:,} of {_SLOTS:,}")
    count = _COUNTS[-1]
    pages = torch.randperm(_SLOTS // _PAGE, device=bench.device)[: count // _PAGE]
    paged = (pages[:, None] * _PAGE + torch.arange(_PAGE, device=bench.device)).flatten().to(torch.int32)
    yield _row(bench, pool, paged, f"{count:,} of {_SLOTS:,}, pages of {_PAGE}")


def _row(bench: Bench, pool: torch.Tensor, indices: torch.Tensor, case: str) -> Row:
    out = torch.empty((len(indices), _COLUMNS), dtype=torch.bfloat16, device=bench.device)

    def replacement() -> torch.Tensor:
        return gather_cast(pool, indices, out=out)

    time = bench.on_gpu(replacement)
    return Row(
        kernel="gather_cast",
        case=case,
        baseline="whole pool cast, then gathered",
        baseline_ns=bench.on_gpu(lambda: cast_then_gather(pool, indices)).median_ns,
        replacement_ns=time.median_ns,
        replacement_p10_ns=time.p10_ns,
        replacement_p90_ns=time.p90_ns,
        replacement_clean_ns=bench.clean_ns(replacement),
        floor_ns=bench.floor_ns(len(indices) * (_COLUMNS + 2 * _COLUMNS + 4)),
        agree=_same(replacement(), cast_then_gather(pool, indices)),
        peer="torch: codes gathered, then cast",
        peer_ns=bench.on_gpu(lambda: gather_then_cast(pool, indices)).median_ns,
    )


def _same(result: torch.Tensor, expected: torch.Tensor) -> bool:
    """Bit for bit; any NaN is as good as another."""
    nan = expected.isnan()
    bits, wanted = result.view(torch.int16), expected.view(torch.int16)
    return bool((result.isnan() == nan).all() and ((bits == wanted) | nan).all())
