"""Columns for the public tables, from the slices of a file that a rule claims.

A rule first takes a working copy with `as_text`, picks rows with filters, decodes their args with `Args`, and builds
rows of `kernels`, `launches` or `annotations` with `rows`.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import msgspec
import polars as pl

TEXT = ("category", "name", "pid", "tid")
_INT64 = 1 << 63
_decode = msgspec.json.Decoder().decode


def as_text(slices: pl.DataFrame) -> pl.DataFrame:
    """The slices with plain text columns and a row number `_row`, by which a rule tells what it took."""
    return slices.with_columns(pl.col(TEXT).cast(pl.String)).with_row_index("_row")


def left_over(slices: pl.DataFrame, *taken: pl.DataFrame) -> pl.DataFrame:
    """The rows of `slices`, as they were given, that are in none of the `taken` parts of their working copy."""
    gone = pl.concat([part.select("_row") for part in taken])
    return slices.with_row_index("_row").join(gone, on="_row", how="anti", maintain_order="left").drop("_row")


def rows(picked: pl.DataFrame, **columns: pl.Series | pl.Expr | str | bool | None) -> pl.DataFrame:
    """Rows of a public table: name, ids and times of the picked slices, and the given columns.

    A column that is None is left out, so that it becomes null.
    """
    given = {
        name: value if isinstance(value, (pl.Series, pl.Expr)) else pl.lit(value)
        for name, value in columns.items()
        if value is not None
    }
    return picked.with_columns(**given)


def either(first: pl.Series, second: pl.Series) -> pl.Series:
    """`first`, and `second` where it is null."""
    return first.zip_with(first.is_not_null(), second)


def named(ids: pl.Series, names: Mapping[str, str]) -> pl.Series:
    """The name of each id, null where it has none."""
    return ids.cast(pl.String).replace_strict(list(names), list(names.values()), default=None, return_dtype=pl.String)


class Args:
    """The args of some slices, decoded once and read one column at a time.

    Writers put numbers in quotes, leave keys out or write something else altogether: a value that does not fit
    becomes null, and so does one of a text that is no JSON.
    """

    def __init__(self, texts: pl.Series) -> None:
        self._args = [_object(text) for text in texts]

    def integers(self, *keys: str, positive: bool = False) -> pl.Series:
        """The first key that is present as an integer; `positive` makes 0 and below null (ids that mean "none")."""
        values = _integers(self._values(keys))
        return values.set(values <= 0, None) if positive else values

    def labels(self, *keys: str) -> pl.Series:
        """The first key that is present as text; integers are written out."""
        return pl.Series([_label(value) for value in self._values(keys)], dtype=pl.String)

    def dim3(self, prefix: str, key: str) -> dict[str, pl.Series]:
        """A list of three integers as columns `<prefix>_x`, `_y`, `_z`."""
        triples = [value if _is_triple(value) else (None, None, None) for value in self._values((key,))]
        return {f"{prefix}_{axis}": _integers([triple[part] for triple in triples]) for part, axis in enumerate("xyz")}

    def has(self, *keys: str) -> pl.Series:
        """Whether any of the keys is present."""
        return pl.Series([any(key in args for key in keys) for args in self._args], dtype=pl.Boolean)

    def _values(self, keys: tuple[str, ...]) -> list[Any]:
        first, *others = keys
        if not others:
            return [args.get(first) for args in self._args]
        return [next((args[key] for key in keys if key in args), None) for args in self._args]


def to_integer(value: Any) -> int | None:
    """An integer of 64 bits from a JSON value: 7, 7.0 and "7" are 7; anything else is null."""
    if isinstance(value, bool):
        return None
    if isinstance(value, float):
        value = int(value) if value.is_integer() else None
    elif isinstance(value, str):
        try:
            value = int(value)
        except ValueError:
            return None
    return value if isinstance(value, int) and -_INT64 <= value < _INT64 else None


def _integers(values: list[Any]) -> pl.Series:
    if set(map(type, values)) <= {int, type(None)}:  # nearly always, and ten times as fast; ids beyond 63 bits raise
        with suppress(OverflowError, TypeError):
            return pl.Series(values, dtype=pl.Int64)
    return pl.Series([to_integer(value) for value in values], dtype=pl.Int64)


def _object(text: str | None) -> dict[str, Any]:
    if text is None:
        return {}
    try:
        args = _decode(text)
    except (msgspec.DecodeError, UnicodeError):  # NaN and the like: the row keeps its name and its times
        return {}
    return args if isinstance(args, dict) else {}


def _label(value: Any) -> str | None:
    if isinstance(value, str):
        return value
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else None


def _is_triple(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 3


def cuda_calls(calls: pl.DataFrame) -> pl.DataFrame:
    """Rows of `launches` from CUDA API calls: cuda* is the runtime, cu* the driver.

    CUPTI adds the version that introduced a signature (cudaLaunchKernel_v7000); a name is known without it. The _v2 of
    the driver is part of the symbol and stays.
    """
    return rows(
        calls.with_columns(pl.col("name").str.replace(r"_v\d{4,}$", "")),
        kind=pl.when(pl.col("name").str.starts_with("cuda")).then(pl.lit("runtime")).otherwise(pl.lit("driver")),
        correlation=Args(calls["args"]).integers("correlationId", positive=True),
    )
