"""MLA attention of draft trees over a paged KV cache. `tree_verify` needs torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from traceanalyzer.kernels.tree_verify.op import tree_verify

__all__ = ["tree_verify"]


def __getattr__(name: str) -> Any:
    if name == "tree_verify":
        from traceanalyzer.kernels.tree_verify.op import tree_verify

        return tree_verify
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
