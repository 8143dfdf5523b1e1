"""Build draft trees from top-k log-probabilities on the GPU. `tree_build` needs torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from traceanalyzer.kernels.tree_build.op import Trees, tree_build

__all__ = ["Trees", "tree_build"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from traceanalyzer.kernels.tree_build import op

        return getattr(op, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
