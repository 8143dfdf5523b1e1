"""What the reports of several commands have in common: the list of traces, the facts about a run, notes."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Any, get_args

import polars as pl

from traceanalyzer.analyses import overview, trust
from traceanalyzer.notes import Level, Note
from traceanalyzer.report import Fact
from traceanalyzer.text import counted, listed, ranges
from traceanalyzer.trace import Trace

#: What is said where no device did anything.
NO_ACTIVITY = "no device activity"

_LEVELS: tuple[Level, ...] = get_args(Level)


def traces(devices: pl.DataFrame) -> pl.DataFrame:
    """The `traces` of the JSON contract, one row per file and device, from `overview.devices`."""
    columns = ("path", "run", "rank", "device", "span_ns", "busy_ns", "idle_ns")
    return devices.select(*columns, *overview.clipped_columns(devices))


def notes(trace: Trace, *, records: bool = False) -> list[Note]:
    """What the reader and the analyses noticed, the gravest first, else in the order in which it was noticed.

    `records`: also what the records of launches and device activity say of each other, where both tables were read.
    """
    found = [*(_left_out(Note(**row)) for row in trace.notes.iter_rows(named=True)), *trust.notes(trace)]
    found += trust.record_notes(trace) if records else []
    return sorted(found, key=lambda note: _LEVELS.index(note.level), reverse=True)


def _left_out(note: Note) -> Note:
    """A file that cannot be read is no error where others could be: the report is there, and does without it."""
    if note.code != "unreadable":
        return note
    return dataclasses.replace(note, level="warning", message=f"{note.message}; left out")


def run_facts(run: Mapping[str, Any]) -> list[Fact]:
    """The line above the table of a run, from a row of `overview.runs`: ranks, devices, span, busy, idle."""
    facts = [Fact("", ranks_found(run))]
    if not run["devices"]:
        return [*facts, Fact("", NO_ACTIVITY)]
    facts.append(Fact("", devices_found(run)))
    summed = " (sum of devices)" if run["devices"] > 1 else ""
    facts.append(Fact(f"span{summed}", run["span_ns"], "time"))
    facts += [_time(run, "busy_ns"), _time(run, "idle_ns")]
    if "clipped_span_ns" in run and run["clipped_span_ns"] != run["span_ns"]:
        facts += [Fact("clipped: span", run["clipped_span_ns"], "time"), _time(run, "busy_ns", of="clipped_")]
    return facts


def no_kernels(trace: Trace, filter: str | None, classes: Sequence[str]) -> str:
    """Why there is no row of any kernel."""
    if not trace.used["first_ns"].is_not_null().any():
        return NO_ACTIVITY
    if trace.kernels.is_empty():
        return "no kernel starts in what was asked for"
    kinds = f" of class {' or '.join(classes)}" if classes else ""
    if filter is None:
        return f"no kernel{kinds} in what was asked for"
    return f"no kernel name{kinds} matches {filter!r} (regex, case-sensitive; (?i) makes it insensitive)"


def ranks_found(run: Mapping[str, Any]) -> str:
    """`ranks 0-3 of 8 (missing 4-7)`, with what is known: there may be no numbers, or no world size."""
    ranks, world, missing = run["ranks"], run["world_size"], run["ranks_missing"]
    if not ranks:
        return f"{counted(run['files'], 'file')}, rank unknown"
    text = f"rank{'' if len(ranks) == 1 else 's'} {ranges(ranks)}"
    if world is not None:
        text += f" of {world:,}"
    if missing:
        text += f" (missing {_brief_ranges(missing)})"
    return text


def _brief_ranges(numbers: list[int]) -> str:
    return listed(ranges(numbers).split(", "), at_most=6)


def devices_found(run: Mapping[str, Any]) -> str:
    """`2 × NVIDIA H200 (132 SMs)`."""
    name = listed(run["gpus"], at_most=2) or "device of unknown name"
    sms = f" ({', '.join(map(str, run['sms']))} {_units(run['gpus'])})" if run["sms"] else ""
    return (f"{run['devices']:,} × " if run["devices"] > 1 else "") + name + sms


def _units(gpus: Sequence[str]) -> str:
    """What the multiprocessors of these devices are called."""
    return "CUs" if gpus and all(re.search("AMD|Instinct|Radeon", gpu) for gpu in gpus) else "SMs"


def _time(run: Mapping[str, Any], name: str, *, of: str = "") -> Fact:
    value, span = run[of + name], run[f"{of}span_ns"]
    return Fact(name.removesuffix("_ns"), value, "time", value / span if span else None)
