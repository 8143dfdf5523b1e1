"""The report of `info`."""

from __future__ import annotations

import dataclasses
import os
from typing import Any

import polars as pl

from traceanalyzer.analyses import overview
from traceanalyzer.analyses.ratio import ratio
from traceanalyzer.notes import Note
from traceanalyzer.report import Column, Fact, Remainder, Report, Section
from traceanalyzer.reports import shared
from traceanalyzer.schema import NOTES
from traceanalyzer.text import counted, listed
from traceanalyzer.trace import Trace

_DEVICE_COLUMNS = [
    Column("rank", "rank", "count"),
    Column("device", "device", "text"),
    Column("name", "GPU", "text", optional=5),
    Column("sms", "SMs", "count", optional=6),
    Column("span_ns", "span", "time", unit_of="one"),
    Column("busy_ns", "busy", "time", unit_of="one"),
    Column("busy_share", "of span", "share"),
    Column("idle_ns", "idle", "time", optional=2, unit_of="one"),
    Column("streams", "streams", "count", optional=3),
    Column("kernels", "kernels", "count"),
    Column("copies", "copies", "count", optional=4),
    Column("sets", "sets", "count", optional=7),
    Column("path", "file", "path", optional=1),
]
_LEFT_OUT_COLUMNS = [
    Column("path", "file", "path"),
    Column("run", "run", "text", optional=1),
    Column("reason", "reason", "text"),
    Column("file_bytes", "size", "bytes"),
]
_EVENT_COLUMNS = [
    Column("category", "category", "text"),
    Column("phase", "phase", "text"),
    Column("table", "table", "text"),
    Column("count", "events", "count"),
]
_NOTE_COLUMNS = [
    Column("level", "level", "level"),
    Column("count", "count", "count"),
    Column("message", "note", "prose"),
    Column("path", "file", "path", optional=1),
]


def build(trace: Trace, *, limit: int = 0, explain: bool = False, engine: str = "") -> Report:
    """What is in the files: a section per run, files that were left out, events by kind, notes; and by which engine
    they are read."""
    devices = overview.devices(trace)
    files, runs = (analysis(trace, per_device=devices) for analysis in (overview.files, overview.runs))
    events = overview.events(trace)
    notes = shared.notes(trace, records=True)
    left_out = files.filter(~pl.col("used"))
    folder = _common_folder(files["path"])
    sections = [_files(files, folder, engine)]
    sections += [_run(run, devices.filter(pl.col("run") == run["run"]), limit) for run in runs.to_dicts()]
    if left_out.height:
        sections.append(_cut(Section(left_out, _LEFT_OUT_COLUMNS, title="Left out of every figure"), "file", limit))
    sections.append(Section(events, _EVENT_COLUMNS, title="Events", empty="no events"))
    sections.append(_notes(notes))
    sections = [_below(folder, section) for section in sections]
    return Report(
        command="info",
        title="What is in these files",
        sections=sections,
        data={"rows": files, "runs": runs, "devices": devices.drop("source"), "events": events},
        traces=shared.traces(devices),
        notes=notes,
        definitions=_definitions([*files.columns, *runs.columns]) if explain else {},
    )


def _definitions(figures: list[str]) -> dict[str, str]:
    """What each of the figures that are shown is."""
    return {name: meaning for name, meaning in overview.DEFINITIONS.items() if name in figures}


def _files(files: pl.DataFrame, folder: str, engine: str) -> Section:
    """The head of the report: which files these are, and how large."""
    left_out, damaged = files.height - int(files["used"].sum()), int((~files["whole"]).sum())
    sizes = files.unique("path")  # a merged file has a row for each of its ranks
    facts = [
        Fact("", folder) if folder else None,
        Fact("", counted(sizes.height, "file")),
        Fact("left out", left_out, "count") if left_out else None,
        Fact("cut or damaged", damaged, "count") if damaged else None,
        Fact("", int(sizes["file_bytes"].sum()), "bytes"),
        Fact("JSON", int(sizes["json_bytes"].sum()), "bytes"),
        Fact("events", int(sizes["events"].sum()), "count"),
        Fact("", f"{engine} engine") if engine else None,
    ]
    return Section(pl.DataFrame(), (), facts=[fact for fact in facts if fact])


def _common_folder(paths: pl.Series) -> str:
    """The folder that holds all files, or nothing where there is none."""
    try:
        return str(os.path.commonpath([os.path.dirname(path) for path in paths]))
    except ValueError:  # no files, or some paths absolute and some not
        return ""


def _below(folder: str, section: Section) -> Section:
    """The section with paths as seen from the common folder, which is named once at the top."""
    if "path" not in section.frame.columns or not folder:
        return section
    shorter = pl.col("path").str.strip_prefix(folder).str.strip_prefix(os.sep)
    return dataclasses.replace(section, frame=section.frame.with_columns(shorter))


def _run(run: dict[str, Any], devices: pl.DataFrame, limit: int) -> Section:
    frame = devices.with_columns(busy_share=ratio(devices["busy_ns"], devices["span_ns"]))
    section = Section(
        frame,
        _DEVICE_COLUMNS,
        title=run["run"],
        facts=[*shared.run_facts(run), *_origin(run)],
    )
    return _cut(section, "row", limit)


def _origin(run: dict[str, Any]) -> list[Fact]:
    producers = [Fact("by", listed(run["producers"]))] if run["producers"] else []
    return producers + ([Fact("stage", run["stage"])] if run["stage"] else [])


def _notes(notes: list[Note]) -> Section:
    rows = [dataclasses.asdict(note) for note in notes]
    return Section(pl.DataFrame(rows, schema=NOTES.schema), _NOTE_COLUMNS, title="Notes", empty="nothing to note")


def _cut(section: Section, noun: str, limit: int) -> Section:
    """The first rows of a section, and how many more there are."""
    more = section.frame.height - limit
    if not limit or more <= 0:
        return section
    rest = Remainder(more, noun if more == 1 else f"{noun}s")
    return dataclasses.replace(section, frame=section.frame.head(limit), remainder=rest)
