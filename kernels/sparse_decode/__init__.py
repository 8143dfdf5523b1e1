"""Sparse MLA decode over FP8 records. `sparse_decode` needs torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from traceanalyzer.kernels.sparse_decode.op import sparse_decode

__all__ = ["sparse_decode"]


def __getattr__(name: str) -> Any:
    if name == "sparse_decode":
        from traceanalyzer.kernels.sparse_decode.op import sparse_decode

        return sparse_decode
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
