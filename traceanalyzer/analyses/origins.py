"""Groups of device activity by where it comes from: operator, module, annotation, python stack or input shapes.

A kernel has one group of its own, the innermost, and belongs to all groups around it as well. Where it has none there
is a reason, so that the groups and the reasons together hold every kernel once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from traceanalyzer.analyses.launched import as_rows, gathered
from traceanalyzer.analyses.links import Linked, Tree, captured_links, linked
from traceanalyzer.analyses.nesting import NONE, Ints, at, nearest
from traceanalyzer.choices import Origin
from traceanalyzer.trace import Trace

_MODULE, _NUMBER = "nn.Module: ", r"_\d+$"
#: Frames of torch and triton say where those are, not where the program is; so do frames that are no file.
_INTERNAL = r"(^|/)(torch|triton)/|^<|^threading\.py|^contextlib\.py|/contextlib\.py"
#: How many frames a stack shows.
_FRAMES = 3


@dataclass(frozen=True)
class Origins:
    """Which group each kernel is of."""

    own: pl.DataFrame
    """One row per row of `kernels`: `kernel`, `group` and, where that is null, the `reason`."""
    members: pl.DataFrame
    """`kernel`, `group`: each kernel in its own group and in those around it, in each of them once."""


def origins(trace: Trace, by: Origin, *, capture: Trace | None = None) -> Origins:
    """The groups of all device activity of a trace; see `unknown_origins.REASONS` for those that have none.

    With the trace of a `capture`, kernels of the graphs captured in it have the operators, modules, stacks and shapes
    that it knows. The ranges around them are those of the replay.
    """
    found = _groups(trace, linked(trace), by)
    if capture is None or by == "annotation":
        return found
    inside = _groups(capture, captured_links(trace, capture), by)
    other = [
        each.join(inside.own, on="kernel", how="anti", maintain_order="left") for each in (found.own, found.members)
    ]
    return Origins(
        pl.concat([other[0], inside.own]).sort("kernel"),
        pl.concat([other[1], inside.members]),
    )


def _groups(trace: Trace, links: Linked, by: Origin) -> Origins:
    frame = links.frame
    if by == "shape":
        return _alone(frame, _shapes(trace, frame), _reason(frame, "no-shapes"))
    if by == "stack":
        return _alone(frame, _stacks(trace, links), _reason(frame, "no-python", links.lines))
    column, tree = {"op": ("op", links.ops), "module": ("module", links.modules),
                    "annotation": ("annotation", links.annotations)}[by]  # fmt: skip
    names = _names(trace, by, tree)
    places = _places(tree, frame[column])
    groups = _texts(names, places)
    reason = frame["reason"].cast(pl.String)
    if by == "module":
        reason = _reason(frame, "no-modules", tree)
    elif by == "annotation":
        reason = _reason(frame, "no-annotations", tree)
    own = _own(frame, groups, reason)
    return Origins(own, _members(frame["kernel"], places, tree, names))


# ------------------------------------------------------------------------------------------ groups


@dataclass(frozen=True)
class _Names:
    """What the spans of a tree are called: a number for each place, and the text of each number."""

    codes: Ints
    texts: pl.Series


def _names(trace: Trace, by: Origin, tree: Tree) -> _Names:
    table = {"op": "ops", "annotation": "annotations"}.get(by, "python_calls")
    names = _gather(trace.scan(table).select("name").collect()["name"], tree.rows)
    distinct = names.unique().to_frame("name").with_row_index("code")
    coded = names.to_frame("name").join(distinct, on="name", how="left", nulls_equal=True, maintain_order="left")
    codes, texts = coded["code"].cast(pl.Int64).to_numpy(), distinct["name"].cast(pl.String)
    if by != "module":
        return _Names(codes, texts)
    classes = texts.str.strip_prefix(_MODULE).str.replace(_NUMBER, "")
    return _paths(tree.holders, codes, classes.to_list())


def _paths(holders: Ints, codes: Ints, words: list[str]) -> _Names:
    """Each place is called by its word behind that of what holds it: `Model > Block > Linear`."""
    classes = {word: number for number, word in enumerate(dict.fromkeys(words))}
    word_of = np.array([classes[word] for word in words], np.int64)[codes] if len(codes) else codes
    named, texts = np.full(len(holders), NONE, np.int64), list[str]()
    level, known = np.flatnonzero(holders == NONE), list(classes)
    by_holder = np.argsort(holders, kind="stable")
    while len(level):
        outer = at(named, holders[level])
        pairs, inverse = np.unique((outer - NONE) * len(known) + word_of[level], return_inverse=True)
        named[level] = len(texts) + inverse
        split = [divmod(pair, len(known)) for pair in pairs.tolist()]
        texts += [f"{texts[path - 1]} > {known[word]}" if path else known[word] for path, word in split]
        level = _held_by(level, holders, by_holder)
    return _Names(named, pl.Series(texts, dtype=pl.String))


def _held_by(level: Ints, holders: Ints, by_holder: Ints) -> Ints:
    """The places that these hold."""
    inside = np.zeros(len(holders) + 1, bool)
    inside[level] = True
    held: Ints = by_holder[inside[holders[by_holder]] & (holders[by_holder] != NONE)]
    return held


def _members(kernels: pl.Series, places: Ints, tree: Tree, names: _Names) -> pl.DataFrame:
    """`kernel`, `group` for every group around a kernel, climbed once per place rather than per kernel."""
    leaves = np.unique(places[places != NONE])
    found = []
    here = leaves
    while len(here):
        found.append(pl.DataFrame({"leaf": leaves, "code": names.codes[here]}))
        further = tree.holders[here]
        leaves, here = leaves[further != NONE], further[further != NONE]
    around = pl.concat([*found, pl.DataFrame(schema={"leaf": pl.Int64, "code": pl.Int64})]).unique()
    texts = names.texts.rename("group").to_frame().with_columns(code=pl.int_range(pl.len(), dtype=pl.Int64))
    own = pl.DataFrame({"kernel": kernels, "leaf": places}).filter(pl.col("leaf") != NONE)
    return own.join(around, on="leaf").join(texts, on="code").select("kernel", pl.col("group").cast(pl.Categorical))


def _shapes(trace: Trace, frame: pl.DataFrame) -> pl.Series:
    """Operator with the shapes and types of its inputs, where they were recorded."""
    ops = trace.scan("ops").select("name", "input_dims", "input_types").collect()
    texts = (
        ops.unique()
        .drop_nulls("input_dims")
        .with_columns(
            group=pl.format(
                "{} {}{}",
                pl.col("name").cast(pl.String).fill_null("?"),
                pl.col("input_dims").cast(pl.String),
                (" " + pl.col("input_types").cast(pl.String)).fill_null(""),
            )
        )
    )
    key = ["name", "input_dims", "input_types"]
    rows = frame.select("kernel", op=pl.col("op"))
    numbered = ops.with_row_index("op").join(texts, on=key, how="left", nulls_equal=True, maintain_order="left")
    return rows.join(numbered.select("op", "group"), on="op", how="left", maintain_order="left")["group"]


def _stacks(trace: Trace, links: Linked) -> pl.Series:
    """The innermost lines of the program around the call, each with the one that called it behind it."""
    names = _gather(trace.scan("python_calls").select("name").collect()["name"], links.lines.rows)
    outside = _outside_torch(names)
    holders, places = links.lines.holders, _places(links.lines, links.frame["python_call"])
    program = nearest(holders, outside)
    here = np.where(at(program, places) == NONE, places, at(program, places))
    frames = []
    for _ in range(_FRAMES):
        frames.append(_texts_of(names, here))
        here = at(program, at(holders, here))
    joined = pl.DataFrame({f"frame_{number}": frame for number, frame in enumerate(frames)})
    return joined.select(group=pl.concat_str(pl.all(), separator=" < ", ignore_nulls=True))["group"].replace("", None)


def _outside_torch(names: pl.Series) -> npt.NDArray[np.bool_]:
    """Where a line is of the program, not of torch: looked at once per distinct name."""
    distinct = names.unique().to_frame("name").with_columns(text=pl.col("name").cast(pl.String))
    inner = distinct.filter(pl.col("text").str.contains(_INTERNAL))["name"]
    outside: npt.NDArray[np.bool_] = (~names.is_in(inner.implode()).fill_null(value=True)).to_numpy()
    return outside


# ------------------------------------------------------------------------------------------ reasons


def _reason(frame: pl.DataFrame, none_recorded: str, tree: Tree | None = None) -> pl.Series:
    """Why a kernel has no group of a kind of which a tree is known, or none is needed."""
    launch = pl.col("launch").is_null() & pl.col("op").is_null()
    without = tree is None or not len(tree.rows)
    return frame.select(
        reason=pl.when(launch | ((tree is None) & pl.col("op").is_null())).then(pl.col("reason").cast(pl.String))
        .when(pl.lit(without)).then(pl.lit(none_recorded))
        .when("in_graph").then(pl.lit("graph-replay"))
        .otherwise(pl.lit("outside"))
    )["reason"]  # fmt: skip


# ------------------------------------------------------------------------------------------ small parts


def _alone(frame: pl.DataFrame, groups: pl.Series, reason: pl.Series) -> Origins:
    """Groups that do not lie in each other."""
    own = _own(frame, groups, reason)
    return Origins(own, own.filter(pl.col("group").is_not_null()).select("kernel", "group"))


def _own(frame: pl.DataFrame, groups: pl.Series, reason: pl.Series) -> pl.DataFrame:
    rows = pl.DataFrame({"kernel": frame["kernel"], "group": groups.cast(pl.Categorical), "reason": reason})
    unknown = pl.when(pl.col("group").is_null()).then("reason")
    return rows.with_columns(reason=unknown)


def _places(tree: Tree, rows: pl.Series) -> Ints:
    """The place in the tree of each row of its table; `NONE` for null."""
    numbers = rows.cast(pl.Int64).fill_null(NONE).to_numpy()
    if not len(tree.rows):
        return np.full(len(numbers), NONE, np.int64)
    return np.where(numbers == NONE, NONE, np.searchsorted(tree.rows, numbers))


def _texts(names: _Names, places: Ints) -> pl.Series:
    return _texts_of(names.texts, at(names.codes, places))


def _texts_of(texts: pl.Series, places: Ints) -> pl.Series:
    return gathered(texts, as_rows(pl.Series(places))).cast(pl.String)


def _gather(values: pl.Series, rows: Ints) -> pl.Series:
    return values.gather(pl.Series(rows, dtype=pl.UInt32))
