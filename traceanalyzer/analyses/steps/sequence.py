"""Steps of a trace that marks none: the sequence of kernel names repeats, and one name begins every repetition.

A name that runs once a step cuts the sequence into pieces that are alike. So does one that runs once a layer, but those
pieces leave out what runs once a step (sampling, the embedding), which comes back as regularly: such names say that the
true period is longer. Of the names that pass, those that cut most often give the steps, and of these the one behind the
longest gap begins them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

Ints = npt.NDArray[np.int64]

#: A period that was seen less often is no period.
FEWEST_STEPS = 3
#: A piece is like the others if so much of its kernels at most is missing or too many.
_DEVIATION = 0.1
#: So many of the pieces have to be alike: prefill and warm-up stand between decode steps.
_ALIKE = 0.7
#: From so many names on that come back regularly and are in no piece, the period is longer.
_LEFT_OUT = 2
#: A name comes back regularly if its distances vary by less than this part of their mean, over most of the trace.
_VARIATION, _MOST = 0.3, 0.6
#: One kernel over and over is no step.
_FEWEST_KERNELS = 2
#: Less confidence than this is none: what repeats is something else than the steps.
_SURE = 0.5
#: Steps have to hold this part of the sequence.
_COVERED = 0.5
#: Distinct numbers of occurrences that are tried, the most frequent first, and names of each.
_MOST_COUNTS, _MOST_NAMES = 60, 4
#: Pieces that are looked at: many more say nothing new.
_MOST_PIECES = 400


@dataclass(frozen=True)
class Period:
    """Where the steps of a sequence begin."""

    starts: Ints
    """Places in the sequence."""
    confidence: float
    """Share of the pieces between them that are alike."""
    last_is_whole: bool
    """Whether what follows the last start is like the others."""


def find_period(names: Ints, gaps: Ints) -> Period | None:
    """The period of a sequence of names (small whole numbers); `gaps` are the idle times before each of its places.

    None where nothing repeats at least `FEWEST_STEPS` times.
    """
    if len(names) < 2 * FEWEST_STEPS:
        return None
    counts = np.bincount(names)
    order = np.argsort(names, kind="stable")
    ends = np.cumsum(counts)
    places = {
        name: order[end - count : end] for name, (end, count) in enumerate(zip(ends, counts, strict=True)) if count
    }
    regular = {name for name, at in places.items() if _is_regular(at, len(names))}
    for count in sorted(set(counts[counts >= FEWEST_STEPS].tolist()), reverse=True)[-_MOST_COUNTS:]:
        candidates = sorted(
            (int(name) for name in np.flatnonzero(counts == count)),
            key=lambda name: (name not in regular, int(places[name][0])),
        )
        passing = [found for name in candidates[:_MOST_NAMES] if (found := _cut(names, places[name], regular, counts))]
        if passing:
            return _best(names, gaps, [places[name] for name in candidates], regular, counts)
    return None


def _is_regular(at: Ints, length: int) -> bool:
    """Whether a name comes back at like distances, over most of the sequence."""
    if len(at) < FEWEST_STEPS or at[-1] - at[0] < _MOST * length:
        return False
    distances = np.diff(at)
    return bool(distances.std() < _VARIATION * distances.mean())


def _cut(names: Ints, starts: Ints, regular: set[int], counts: Ints) -> Period | None:
    """The period that begins at these places, if the pieces between them are alike and leave nothing regular out."""
    whole = starts[-1] - starts[0]
    if whole + whole / (len(starts) - 1) < _COVERED * len(names):
        return None
    chosen = starts if len(starts) <= _MOST_PIECES + 1 else starts[: _MOST_PIECES + 1]
    bags = _bags(names, chosen, len(counts))
    usual = np.median(bags, axis=0)
    size = usual.sum()
    if size < _FEWEST_KERNELS:
        return None
    alike = np.abs(bags - usual).sum(axis=1) <= _DEVIATION * size
    left_out = sum(name in regular for name in np.flatnonzero((usual == 0) & (counts >= FEWEST_STEPS)).tolist())
    if alike.mean() < _ALIKE or alike.sum() < FEWEST_STEPS - 1 or left_out >= _LEFT_OUT:
        return None
    rest = np.bincount(names[starts[-1] :], minlength=len(counts))
    return Period(starts, float(alike.mean()), bool(np.abs(rest - usual).sum() <= _DEVIATION * size))


def _bags(names: Ints, starts: Ints, kinds: int) -> Ints:
    """How often each name is in each piece between the starts: pieces x names."""
    pieces = len(starts) - 1
    inside = names[starts[0] : starts[-1]]
    piece = np.repeat(np.arange(pieces), np.diff(starts))
    return np.bincount(piece * kinds + inside, minlength=pieces * kinds).reshape(pieces, kinds)


def _best(names: Ints, gaps: Ints, candidates: list[Ints], regular: set[int], counts: Ints) -> Period:
    """Of the names that cut as often, the one that stands behind the longest gap; of equals the first."""
    longest = sorted(candidates, key=lambda at: (-float(np.median(gaps[at])), int(at[0])))
    return next(found for at in longest if (found := _cut(names, at, regular, counts)) is not None)


# ------------------------------------------------------------------------------------------ of a trace


_STEPS = {"source": pl.UInt16, "step": pl.UInt32, "start_ns": pl.Int64, "end_ns": pl.Int64, "confidence": pl.Float64}


def repeated_steps(kernels: pl.DataFrame) -> pl.DataFrame:
    """The steps of each source by what its busiest stream repeats. None of a source in which nothing repeats.

    Has `source`, `step`, `start_ns`, `end_ns` (on the device), `confidence`.

    `kernels` has `source`, `kind`, `name`, `device`, `stream`, `start_ns`, `duration_ns`.
    """
    rows = [
        row for (source,), own in kernels.group_by("source", maintain_order=True) for row in _of_source(source, own)
    ]
    return pl.DataFrame(rows, schema=_STEPS, orient="row").sort("source", "step")


def _evenness(starts: Ints) -> float:
    """1 where steps take the same time, less where their lengths vary (by the mean deviation from the middle one)."""
    lengths = np.diff(starts)
    middle = float(np.median(lengths))
    return max(0.0, 1 - float(np.abs(lengths - middle).mean()) / middle) if middle else 0.0


def _numbered(names: pl.Series) -> Ints:
    """Names as numbers, in the order of first appearance: what else was read before must not show."""
    first = names.unique(maintain_order=True).to_frame("name").with_row_index("number")
    numbered = names.to_frame("name").join(first, on="name", how="left", maintain_order="left")
    return numbered["number"].cast(pl.Int64).to_numpy()


def _of_source(source: object, kernels: pl.DataFrame) -> list[tuple[object, int, int, int, float]]:
    run = kernels.filter((pl.col("kind") == "kernel") & (pl.col("duration_ns") >= 0) & pl.col("name").is_not_null())
    if run.is_empty():
        return []
    stream = run.group_by("device", "stream").agg(pl.col("duration_ns").sum()).sort("duration_ns", "device", "stream")
    main = run.join(stream.tail(1), on=["device", "stream"], how="semi", nulls_equal=True).sort("start_ns")
    start = main["start_ns"].to_numpy()
    end = np.maximum.accumulate(start + main["duration_ns"].to_numpy())
    gaps = np.concatenate([[0], np.maximum(start[1:] - end[:-1], 0)])
    names = _numbered(main["name"])
    period = find_period(names, gaps)
    if period is None:
        return []
    sure = period.confidence * _evenness(start[period.starts])
    if sure < _SURE:
        return []
    last = int((kernels["start_ns"] + kernels["duration_ns"]).to_numpy().max())
    edges = [*start[period.starts].tolist(), *([last + 1] if period.last_is_whole else [])]
    return [(source, step, *edges[step : step + 2], sure) for step in range(len(edges) - 1)]
