"""Which part of a step is constant, and which grows with the context."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import polars as pl

from traceanalyzer.analyses.ratio import ratio
from traceanalyzer.analyses.step_parts import KINDS, step_parts
from traceanalyzer.classify.rules import RuleTable
from traceanalyzer.errors import UsageError
from traceanalyzer.text import listed
from traceanalyzer.trace import Trace

Model = Literal["constant", "linear", "quadratic"]
Floats = npt.NDArray[np.float64]

#: What each figure is, word for word as it is shown with `--explain`.
DEFINITIONS = {
    "component": "part of a step: wall, busy, idle, a cause of idle, what the host was busy with, a class, a kernel",
    "kind": "step (the whole), cause (of idle), host, class or kernel",
    "model": "constant, linear or quadratic: the simplest curve that fits the steps of all contexts",
    "intercept_ns": "time a step at context 0 by that curve (the mean, where it is constant)",
    "slope_ns_per_token": "growth of a step a token of context, between the smallest and the largest context",
    "r2": "part of the variance over all steps that the curve explains",
    "grows": "whether its growth matters: it is over 1 % of the mean step, and over 3 standard errors",
    "share_of_growth": "its growth as part of that of the whole step, where that grows",
    "projected_ns": "time a step at the context that was asked for, by the curve",
    "projected_low_ns": "lower end of the interval that holds the mean step at that context with 95 %, if the curve "
    "is right: two contexts cannot tell whether it bends; unknown where there is no step more than the curve needs",
    "projected_high_ns": "upper end of that interval",
}
#: Growth over the contexts that matters, as part of the mean step; that makes a component not constant, as part of its
#: own mean; and standard errors of the slope.
_MATTERS, _CHANGES, _SURE = 0.01, 0.05, 3.0
#: A quadratic term is believed if it takes away this part of what a line leaves.
_BETTER = 0.5


@dataclass(frozen=True)
class _Fit:
    model: Model
    intercept: float
    slope: float
    r2: float | None
    curve: tuple[float, ...]
    """Coefficients of the model, the highest power first."""

    def at(self, x: Floats, y: Floats, context: float) -> tuple[float, float | None, float | None]:
        """The mean at a context, and the ends of its interval, by the points that the curve was fitted to.

        A curve through as few points as it has powers fits them exactly, which tells nothing of how sure it is.
        """
        powers = len(self.curve)
        free = len(x) - powers
        middle = float(np.polyval(self.curve, context))
        if free <= 0:
            return middle, None, None
        design, at = np.vander(x / x.max(), powers), np.vander([context / x.max()], powers)
        spread = float((at @ np.linalg.pinv(design.T @ design) @ at.T).item())
        rest = y - np.polyval(self.curve, x)
        reach = _t_quantile(free) * math.sqrt(float((rest**2).sum()) / free * spread)
        return middle, middle - reach, middle + reach


def scaling(
    runs: Mapping[int, Trace], *, at: int | None = None, marker: str | None = None, rules: RuleTable | None = None
) -> pl.DataFrame:
    """One row per component of a step, by kind and then by growth: see `DEFINITIONS`.

    `runs` are traces by their context in tokens, two or more. `mean_<context>_ns` is the mean over the steps of each.
    Fits are over all steps of all ranks. With `at`, a context in tokens, each row is projected to it: `projected_ns`,
    `projected_low_ns`, `projected_high_ns`. Raises `UsageError` for fewer contexts, or a run without steps.
    """
    if len(runs) < 2:
        raise UsageError(f"scaling needs runs of two contexts or more, not {len(runs)}")
    parts = []
    for context, trace in sorted(runs.items()):
        names = trace.used["run"].unique().sort().to_list()
        if len(names) > 1:
            raise UsageError(f"context {context:,} has several runs ({listed(names)}); name one of them")
        own = step_parts(trace, marker=marker, rules=rules)
        if own.is_empty():
            raise UsageError(f"no steps in the run of context {context:,}: see traceanalyze steps")
        parts.append(own.with_columns(context=pl.lit(context, pl.Int64)))
    table = _complete(pl.concat(parts))
    contexts = sorted(runs)
    mean_step = float(
        table.filter((pl.col("kind") == "step") & (pl.col("component") == "wall"))["total_ns"].to_numpy().mean()
    )
    rows = [
        _row(str(kind), str(component), own, contexts, mean_step, at)
        for (kind, component), own in table.group_by("kind", "component", maintain_order=True)
    ]
    frame = pl.DataFrame(rows, infer_schema_length=None).with_columns(
        pl.col("r2").cast(pl.Float64),
        pl.selectors.ends_with("_ns").cast(pl.Float64).round().cast(pl.Int64, strict=False),  # centuries are unknown
    )
    whole = frame.filter((pl.col("kind") == "step") & (pl.col("component") == "wall")).row(0, named=True)
    growth = whole["slope_ns_per_token"] if whole["grows"] else None
    slopes = frame["slope_ns_per_token"]
    share = ratio(slopes, pl.Series([growth] * len(slopes), dtype=pl.Float64))
    order = pl.col("kind").replace_strict({kind: place for place, kind in enumerate(KINDS)}, return_dtype=pl.UInt8)
    return frame.with_columns(share_of_growth=share).sort(
        order, "slope_ns_per_token", "component", descending=[False, True, False]
    )


def _complete(parts: pl.DataFrame) -> pl.DataFrame:
    """Every component in every step of every context: 0 where a run does not have it."""
    steps = parts.select("context", "path", "device", "step").unique()
    every = steps.join(parts.select("kind", "component").unique(), how="cross")
    key = ["context", "path", "device", "step", "kind", "component"]
    full = every.join(parts, on=key, how="left", nulls_equal=True)
    return full.with_columns(pl.col("total_ns").fill_null(0)).sort(key)


def _row(
    kind: str, component: str, own: pl.DataFrame, contexts: list[int], mean_step: float, at: int | None
) -> dict[str, str | float | bool | None]:
    x, y = (own[name].to_numpy().astype(np.float64) for name in ("context", "total_ns"))
    fit, grows = _fit(x, y, mean_step)
    means = {f"mean_{context}_ns": float(y[x == context].mean()) for context in contexts}
    names = ("projected_ns", "projected_low_ns", "projected_high_ns")
    projected = dict(zip(names, fit.at(x, y, at), strict=True)) if at is not None else {}
    return {
        "component": component, "kind": kind, "model": fit.model, "intercept_ns": fit.intercept,
        "slope_ns_per_token": fit.slope, "r2": fit.r2, "grows": grows, **means, **projected,
    }  # fmt: skip


def _fit(x: Floats, y: Floats, mean_step: float) -> tuple[_Fit, bool]:
    """The simplest curve through the points, and whether it grows enough to matter."""
    line = _line(x, y)
    rest = y - np.polyval(line, x)
    spread = float(np.sqrt((rest**2).sum() / max(len(x) - 2, 1) / ((x - x.mean()) ** 2).sum()))
    reach = x.max() - x.min()
    change = float(line[0] * reach)
    sure = abs(line[0]) > _SURE * spread
    if not sure or abs(change) <= _CHANGES * y.mean():
        return _Fit("constant", float(y.mean()), float(line[0]), None, (float(y.mean()),)), False
    grows = change > _MATTERS * mean_step
    if len(np.unique(x)) >= 3:
        curve = np.polyfit(x, y, 2)
        bent = y - np.polyval(curve, x)
        if (bent**2).sum() < (1 - _BETTER) * (rest**2).sum() and abs(curve[0]) * reach**2 > 0.1 * abs(line[0]) * reach:
            ends = np.polyval(curve, [x.min(), x.max()])
            slope = float((ends[1] - ends[0]) / reach)
            return _Fit("quadratic", float(curve[2]), slope, _r2(y, bent), tuple(curve.tolist())), grows
    return _Fit("linear", float(line[1]), float(line[0]), _r2(y, rest), tuple(line.tolist())), grows


def _line(x: Floats, y: Floats) -> Floats:
    """Slope and intercept by least squares; of points that are all alike the slope is exactly 0."""
    aside = x - x.mean()
    slope = float((aside * (y - y.mean())).sum() / (aside**2).sum())
    return np.array([slope, y.mean() - slope * x.mean()])


def _t_quantile(free: int) -> float:
    """The two-sided 95 % quantile of Student's t, expanded around the normal one (Abramowitz and Stegun 26.7.5).

    Where that is too far off there are closed forms.
    """
    if free == 1:
        return math.tan(0.475 * math.pi)
    if free == 2:
        return 0.95 * math.sqrt(2 / (1 - 0.95**2))
    z = 1.959963984540054
    terms: tuple[float, ...] = (
        z,
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return math.fsum(term / free**power for power, term in enumerate(terms))


def _r2(y: Floats, rest: Floats) -> float | None:
    variance = float(((y - y.mean()) ** 2).sum())
    return None if variance == 0 else 1 - float((rest**2).sum()) / variance
