"""Numbers inside sentences."""

from __future__ import annotations


def percent(share: float) -> str:
    """`66.8 %`."""
    return f"{share:.1%}".replace("%", " %")


def milliseconds(time_ns: float) -> str:
    """`112 ms`, `3.75 ms`, with three digits or so."""
    value = time_ns / 1e6
    decimals = 0 if value >= 100 else 1 if value >= 10 else 2 if value >= 1 else 3
    return f"{value:,.{decimals}f} ms"


def megabytes(count: float) -> str:
    """`855 MB`, `2.57 GB`."""
    if count >= 1e9:
        return f"{count / 1e9:,.2f} GB"
    return f"{count / 1e6:,.0f} MB" if count >= 1e7 else f"{count / 1e6:,.2f} MB"


def each_step(amount_ns: float | None) -> str:
    """`, 1.86 ms a step`, where steps are known."""
    return "" if amount_ns is None else f", {milliseconds(amount_ns)} a step"
