"""Steps of a trace that marks none: the sequence of kernel names repeats, and one name begins every repetition.

A name that runs once a step cuts the sequence into pieces that are alike. So does one that runs once a layer, but those
pieces leave out what runs once a step (sampling, the embedding), which comes back as regularly: such names say that the
true period is longer. Of the names that pass, those that cut most often give the steps, and of these the one behind the
longest gap begins them, unless another one cuts the whole sequence from its first kernel to its last.

The replay of a graph is one place of the sequence, named by what it runs: what repeats inside of it are layers.
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


@dataclass(frozen=True)
class _Sequence:
    """What is looked at for a period."""

    names: Ints
    gaps: Ints
    """Idle time before each place."""
    counts: Ints
    """How often each name is there."""
    sizes: Ints
    """Kernels that each name stands for: one, or those of the replay of a graph."""
    regular: frozenset[int]
    """Names that come back at like distances."""


def find_period(names: Ints, gaps: Ints, sizes: Ints | None = None) -> Period | None:
    """The period of a sequence of names (small whole numbers); `gaps` are the idle times before each of its places.

    `sizes` says how many kernels each name stands for (default: one). None where nothing repeats at least
    `FEWEST_STEPS` times.
    """
    if len(names) < FEWEST_STEPS:
        return None
    counts = np.bincount(names)
    order = np.argsort(names, kind="stable")
    ends = np.cumsum(counts)
    places = {
        name: order[end - count : end] for name, (end, count) in enumerate(zip(ends, counts, strict=True)) if count
    }
    regular = frozenset(name for name, at in places.items() if _is_regular(at, len(names)))
    sequence = _Sequence(names, gaps, counts, np.ones_like(counts) if sizes is None else sizes, regular)
    for count in sorted(set(counts[counts >= FEWEST_STEPS].tolist()), reverse=True)[-_MOST_COUNTS:]:
        candidates = sorted(
            (int(name) for name in np.flatnonzero(counts == count)),
            key=lambda name: (name not in regular, int(places[name][0])),
        )
        if any(_cut(sequence, places[name]) for name in candidates[:_MOST_NAMES]):
            return _best(sequence, [places[name] for name in candidates])
    return None


def _is_regular(at: Ints, length: int) -> bool:
    """Whether a name comes back at like distances, over most of the sequence."""
    if len(at) < FEWEST_STEPS or at[-1] - at[0] < _MOST * length:
        return False
    distances = np.diff(at)
    return bool(distances.std() < _VARIATION * distances.mean())


def _cut(sequence: _Sequence, starts: Ints) -> Period | None:
    """The period that begins at these places, if the pieces between them are alike and leave nothing regular out."""
    names, counts = sequence.names, sequence.counts
    whole = starts[-1] - starts[0]
    if whole + whole / (len(starts) - 1) < _COVERED * len(names):
        return None
    chosen = starts if len(starts) <= _MOST_PIECES + 1 else starts[: _MOST_PIECES + 1]
    bags = _bags(names, chosen, len(counts)) * sequence.sizes
    usual = np.median(bags, axis=0)
    size = usual.sum()
    if size < _FEWEST_KERNELS:
        return None
    alike = np.abs(bags - usual).sum(axis=1) <= _DEVIATION * size
    absent = np.flatnonzero((usual == 0) & (counts >= FEWEST_STEPS)).tolist()
    left_out = sum(name in sequence.regular for name in absent)
    if alike.mean() < _ALIKE or alike.sum() < FEWEST_STEPS - 1 or left_out >= _LEFT_OUT:
        return None
    rest = np.bincount(names[starts[-1] :], minlength=len(counts)) * sequence.sizes
    return Period(starts, float(alike.mean()), bool(np.abs(rest - usual).sum() <= _DEVIATION * size))


def _bags(names: Ints, starts: Ints, kinds: int) -> Ints:
    """How often each name is in each piece between the starts: pieces x names."""
    pieces = len(starts) - 1
    inside = names[starts[0] : starts[-1]]
    piece = np.repeat(np.arange(pieces), np.diff(starts))
    return np.bincount(piece * kinds + inside, minlength=pieces * kinds).reshape(pieces, kinds)


def _best(sequence: _Sequence, candidates: list[Ints]) -> Period:
    """Of the names that cut as often: one whose pieces leave nothing over, else the one behind the longest gap.

    A recording of whole steps begins and ends with one, which hardly happens to any other by chance. What begins the
    first need not run once a step, so cuts are also tried that far ahead of the names.
    """
    found = [period for at in candidates if (period := _cut(sequence, at)) is not None]
    ahead = [_cut(sequence, at - at[0]) for at in candidates if _same_ahead(sequence.names, at)]
    tiling = [each for each in (*found, *ahead) if each and each.starts[0] == 0 and each.last_is_whole]
    return min(tiling or found, key=lambda each: (-float(np.median(sequence.gaps[each.starts])), int(each.starts[0])))


def _same_ahead(names: Ints, starts: Ints) -> bool:
    """Whether ahead of each of these places stands what stands ahead of the first."""
    head = starts[0]
    return head > 0 and all(np.array_equal(names[at - head : at], names[:head]) for at in starts)


# ------------------------------------------------------------------------------------------ of a trace


_STEPS = {
    "source": pl.UInt16, "step": pl.UInt32, "start_ns": pl.Int64, "end_ns": pl.Int64, "found_by": pl.String,
    "confidence": pl.Float64,
}  # fmt: skip


def repeated_steps(kernels: pl.DataFrame) -> pl.DataFrame:
    """The steps of each source by what its busiest stream repeats. None of a source in which nothing repeats.

    Has `source`, `step`, `start_ns`, `end_ns` (on the device), `found_by` (graph where most of the kernels are of
    replays, else sequence), `confidence`.

    `kernels` has `source`, `kind`, `name`, `device`, `stream`, `start_ns`, `duration_ns`, and `replay`: a number of the
    call that replayed the graph which the kernel is of, null where there is none.
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


def _numbered(names: pl.Series) -> pl.Series:
    """Names as numbers, in the order of first appearance: what else was read before must not show."""
    first = names.unique(maintain_order=True).to_frame("name").with_row_index("number")
    numbered = names.to_frame("name").join(first, on="name", how="left", maintain_order="left")
    return numbered["number"].cast(pl.Int64)


def _places(stream: pl.DataFrame) -> pl.DataFrame:
    """One row per place of the sequence of a stream, in order of time: `number` of its name, `start_ns`, `end_ns`, and
    the `size` in kernels. Where most kernels are of replays of graphs, each replay is one place, at its first kernel;
    its name is the bag of its kernels.
    """
    numbered = stream.with_columns(number=_numbered(stream["name"])).with_row_index("row")
    alone = pl.lit(-1, pl.Int64) - pl.col("row")
    place = pl.coalesce("replay", alone) if _is_replayed(stream) else alone
    places = numbered.group_by(place.alias("place"), maintain_order=True).agg(
        pl.col("number").sort(), start_ns=pl.col("start_ns").min(), end_ns=pl.col("end_ns").max(), size=pl.len()
    )
    contents = places["number"].list.eval(pl.element().cast(pl.String)).list.join(",")
    return places.with_columns(number=_numbered(contents)).sort("start_ns")


def _is_replayed(stream: pl.DataFrame) -> bool:
    """Whether most kernels are of replays of graphs."""
    return int(stream["replay"].count()) > stream.height / 2


def _of_source(source: object, kernels: pl.DataFrame) -> list[tuple[object, int, int, int, str, float]]:
    run = kernels.filter((pl.col("kind") == "kernel") & (pl.col("duration_ns") >= 0) & pl.col("name").is_not_null())
    if run.is_empty():
        return []
    busiest = run.group_by("device", "stream").agg(pl.col("duration_ns").sum()).sort("duration_ns", "device", "stream")
    stream = run.join(busiest.tail(1), on=["device", "stream"], how="semi", nulls_equal=True).sort("start_ns")
    places = _places(stream.with_columns(end_ns=pl.col("start_ns") + pl.col("duration_ns")))
    start = places["start_ns"].to_numpy()
    end = np.maximum.accumulate(places["end_ns"].to_numpy())
    gaps = np.concatenate([[0], np.maximum(start[1:] - end[:-1], 0)])
    sizes = places.group_by("number").agg(pl.col("size").first()).sort("number")["size"].cast(pl.Int64).to_numpy()
    period = find_period(places["number"].to_numpy(), gaps, sizes)
    if period is None:
        return []
    sure = period.confidence * _evenness(start[period.starts])
    if sure < _SURE:
        return []
    found_by = "graph" if _is_replayed(stream) else "sequence"
    last = int((kernels["start_ns"] + kernels["duration_ns"]).to_numpy().max())
    edges = [*start[period.starts].tolist(), *([last + 1] if period.last_is_whole else [])]
    return [(source, step, *edges[step : step + 2], found_by, sure) for step in range(len(edges) - 1)]
