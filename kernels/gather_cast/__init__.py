"""Gather rows of an FP8 pool, then cast them to BF16. `gather_cast` needs torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from traceanalyzer.kernels.gather_cast.op import gather_cast

__all__ = ["gather_cast"]


def __getattr__(name: str) -> Any:
    if name == "gather_cast":
        from traceanalyzer.kernels.gather_cast.op import gather_cast

        return gather_cast
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
