"""What a device can move and compute a second, by the name that a trace gives it."""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from traceanalyzer.errors import UsageError
from traceanalyzer.hardware import tables

#: Precision -> column of the table. Dense rates, multiply and add counted as two.
_COLUMNS = {
    "fp32": "fp32_tflops",
    "tf32": "tf32_tflops",
    "fp16": "fp16_tflops",
    "bf16": "bf16_tflops",
    "fp8": "fp8_tflops",
    "int8": "int8_tops",
}
#: What a row of a user's table must have; other columns are as in the table of this folder.
_NEEDED = ("gpu", "trace_name_contains")


@dataclass(frozen=True)
class Rates:
    """Published rates of a product; what nobody published is None, or missing in `tflop_per_s`."""

    gpu: str
    sms: int | None
    gb_per_s: float | None
    """Of device memory, 10^9 bytes a second."""
    tflop_per_s: Mapping[str, float]
    """By precision, dense, 10^12 a second."""

    def of_part(self, sms: int | None) -> Rates:
        """The rates of a part of the device that has so many SMs (MIG, a cut-down product)."""
        if not sms or not self.sms or sms >= self.sms:
            return self
        part = sms / self.sms
        memory = None if self.gb_per_s is None else self.gb_per_s * part
        return Rates(self.gpu, sms, memory, {name: rate * part for name, rate in self.tflop_per_s.items()})


#: What a trace's name for a device has to contain -> its rates.
RateTable = tuple[tuple[str, Rates], ...]


def rates_of(device: str | None, own: RateTable = ()) -> Rates | None:
    """The rates of a device by its name in a trace: the row whose name is the longest part of it, `own` rows first.

    None where no row knows the device.
    """
    folded = (device or "").casefold()
    for rows in (own, _built_in()):
        found = [(len(_telling(part)), rates) for part, rates in rows if _names(part.casefold(), folded)]
        if found and folded:
            return max(found, key=lambda each: each[0])[1]
    return None


def _names(part: str, device: str) -> bool:
    """Whether a device's name holds the part as whole words: an `A100X` is no `A10`, a laptop's GPU no desktop's."""
    found = re.search(rf"(?<![a-z0-9]){re.escape(part)}(?![a-z0-9])", device)
    return found is not None and ("laptop" in part) == ("laptop" in device)


def _telling(name: str) -> str:
    """What tells a product from others: not its vendor."""
    return name.casefold().replace("nvidia", "").strip()


def load_rates(path: Path) -> RateTable:
    """A user's own devices: a table (TSV) with the columns of `gpu_specs.tsv`; empty cells are unknown.

    The columns `gpu` and `trace_name_contains` are needed. Raises `UsageError`.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: {getattr(error, 'strerror', None) or 'is not UTF-8 text'}") from error
    reader = csv.DictReader(text.splitlines(), delimiter="\t", quoting=csv.QUOTE_NONE)
    missing = [name for name in _NEEDED if name not in (reader.fieldnames or ())]
    if missing:
        raise UsageError(f"{path}: no column {', '.join(missing)} (tab-separated, as in gpu_specs.tsv)")
    rows = [row for row in reader if row["trace_name_contains"]]
    known = {*_COLUMNS.values(), "dram_gbps", "sm_or_cu"}
    for row in rows:
        for column in known & row.keys():
            _check_number(path, row, column)
    return tuple((row["trace_name_contains"], _rates(row)) for row in rows)


def _check_number(path: Path, row: Mapping[str, str | None], column: str) -> None:
    cell = (row[column] or "").strip()
    if cell not in ("", "unknown", "n/a") and tables.number(cell) is None:
        raise UsageError(f"{path}: {row['gpu']}: {column} is {cell!r}, which is no number")


@cache
def _built_in() -> RateTable:
    return tuple((row["trace_name_contains"], _rates(row)) for row in tables.rows("gpu_specs.tsv"))


def _rates(row: Mapping[str, str | None]) -> Rates:
    def number(column: str) -> float | None:
        return tables.number(row.get(column) or "")

    rates = {name: rate for name, column in _COLUMNS.items() if (rate := number(column)) is not None}
    sms = number("sm_or_cu")
    return Rates(row["gpu"] or "", None if sms is None else int(sms), number("dram_gbps"), rates)
