"""Every renderer with every kind of report, and the look of tables at pinned widths."""

from __future__ import annotations

import csv
import functools
import io
import json
from collections.abc import Callable

import orjson
import polars as pl
import pytest
from builders import Event, kernel, memcpy, op, trace, traces
from goldens import check_golden
from rich.cells import cell_len

from traceanalyzer.analyses.top_kernels import SORTED_BY, top_kernels
from traceanalyzer.choices import By
from traceanalyzer.render import data, markdown, terminal
from traceanalyzer.report import Column, Report, Section
from traceanalyzer.reports import info, schema
from traceanalyzer.reports import top_kernels as top_kernels_report
from traceanalyzer.trace import Trace

LONG = [
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<c10::BFloat16>, "
    "std::array<char*, 3ul> >(int, at::native::CUDAFunctor_add<c10::BFloat16>, std::array<char*, 3ul>)",
    "void flash::flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<128, 64, 128, 4, false, false, cutlass::bfloat16_t, "
    "Flash_kernel_traits<128, 64, 128, 4, cutlass::bfloat16_t> >, false, true>(flash::Flash_fwd_params)",
    "_tiled_sparse_decode_kernel",
    "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "ampere_bf16_s1688gemm_bf16_128x128_ldg8_f2f_stages_32x1_nn",
]
WEIRD = [
    "[bold]not markup[/bold]",
    "a|b`c``d",
    "line\nbreak\ttab",
    "\x1b[31mred",
    "漢字" * 40,
    "=1+1",
    "",
    "<script>",
    "x" * 4000,
]


def decode_step() -> list[Event]:
    """A few kernels as a real decode step has them: long names, under-filled, replayed without a grid."""
    durations, grids = (1.3, 9.8, 155.3, 30.2, 12.5), ((4000, 1, 1), (8, 4, 1), (16, 1, 1), (24, 1, 1), None)
    events, at = [memcpy(at=0, dur=2.5)], 10.0
    for number in range(30):
        which = number % 5
        events.append(kernel(LONG[which], at=round(at, 3), dur=durations[which], grid=grids[which]))
        at += durations[which] + 3
    return events


def many() -> Trace:
    return trace([kernel(f"kernel_{number:02}", at=number * 10, dur=1 + number % 7) for number in range(40)])


TRACES: dict[str, Callable[[], Trace]] = {
    "empty": Trace.empty,
    "no-activity": lambda: trace([op("aten::mm", at=0, dur=5)]),
    "one-kernel": lambda: trace([kernel("gemm", at=0, dur=20)]),
    "many-kernels": many,
    "weird-names": lambda: trace(
        [kernel(name, at=at * 10, dur=5) for at, name in enumerate(WEIRD)], run="weird\n[run]"
    ),
    "decode": lambda: trace(decode_step(), world_size=2, run="1767225605.25-DECODE"),
    "runs": lambda: traces(
        trace(decode_step(), rank=0, world_size=2, run="before", path="before/r0.json"),
        trace(decode_step(), rank=1, world_size=2, run="before", path="before/r1.json"),
        trace(decode_step()[:9], rank=0, world_size=2, run="after", path="after/r0.json"),
    ),
    "impossible": lambda: trace([kernel("k", at=0, dur=9000), *(kernel("k", at=at, dur=5) for at in (20, 40))]),
}
REPORTS: dict[str, Callable[[Trace], Report]] = {
    "top-kernels": lambda trace: top_kernels_report.build(trace, top_kernels(trace), limit=5),
    "by-class": lambda trace: top_kernels_report.build(trace, top_kernels(trace, by="class"), by="class"),
    "explained": lambda trace: top_kernels_report.build(trace, top_kernels(trace, explain=True), explain=True),
    "info": lambda trace: info.build(trace, limit=3),
}
EVERY = [(command, name) for command in REPORTS for name in TRACES]


@functools.cache
def built(command: str, name: str) -> Report:
    """A report of the table above, made once."""
    return REPORTS[command](TRACES[name]())


@pytest.fixture(params=EVERY, ids="-".join)
def report(request: pytest.FixtureRequest) -> Report:
    """Every report of the table above."""
    command, name = request.param
    return built(command, name)


def drawn(report: Report) -> str:
    """What the terminal renderer writes to something that is no terminal."""
    text = io.StringIO()
    terminal.write(report, text)
    return text.getvalue()


# --------------------------------------------------------------------------------- all reports, all renderers


@pytest.mark.parametrize("width", [40, 80, 120, 160])
def test_no_line_is_wider_than_the_terminal(report: Report, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    lines = drawn(report).splitlines()
    if width >= 80:  # less than that does not hold the columns that are always there
        assert max((cell_len(line) for line in lines), default=0) <= width
    assert not any(line != line.rstrip() for line in lines)


def test_text_holds_no_control_characters(report: Report) -> None:
    for text in (drawn(report), markdown.to_markdown(report)):
        assert all(char.isprintable() or char == "\n" for char in text)


def test_json_keeps_the_contract(report: Report) -> None:
    content = json.loads(data.to_json(report))
    assert list(content)[:4] == ["format_version", "command", "traces", "notes"]
    assert content["format_version"] == 1
    assert content["rows"] == orjson.loads(orjson.dumps(report.rows.to_dicts())) or "device" in report.rows.columns
    assert all({"level", "code", "message", "path", "count"} == set(note) for note in content["notes"])
    for each in content["traces"]:
        assert {"path", "run", "rank", "device", "span_ns", "busy_ns", "idle_ns"} <= set(each)
        assert each["device"] is None or isinstance(each["device"], int)


def test_csv_and_parquet_hold_the_rows(report: Report) -> None:
    table = list(csv.reader(io.StringIO(data.to_csv(report).decode())))
    assert table[0] == report.rows.columns
    assert len(table) == report.rows.height + 1
    assert pl.read_parquet(io.BytesIO(data.to_parquet(report))).equals(report.rows)


def test_every_markdown_row_has_as_many_cells_as_its_head(report: Report) -> None:
    heads = 0
    for line in markdown.to_markdown(report).splitlines():
        if line.startswith("|"):
            cells = line.replace("\\|", "").count("|")
            heads = heads or cells
            assert cells == heads
        else:
            heads = 0


# --------------------------------------------------------------------------------- the look


@pytest.mark.parametrize("width", [80, 120, 160])
def test_the_look_of_top_kernels(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    check_golden(f"top-kernels-{width}.txt", drawn(built("top-kernels", "decode")))


@pytest.mark.parametrize(("command", "name"), [("info", "runs"), ("by-class", "runs"), ("explained", "decode")])
def test_the_look_of_other_reports(command: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    check_golden(f"{command}-{name}.txt", drawn(built(command, name)))


def test_the_look_of_markdown() -> None:
    check_golden("top-kernels.md", markdown.to_markdown(built("top-kernels", "weird-names")))


def test_the_look_of_json() -> None:
    check_golden("top-kernels.json", data.to_json(built("explained", "one-kernel")).decode())


# --------------------------------------------------------------------------------- rules one by one


def test_without_a_width_every_column_is_there_and_names_are_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS")
    text = drawn(built("top-kernels", "decode"))
    assert all(heading in text for heading in ("of busy", "p50", "p99", "min", "max", "grids", "SM fill"))
    assert "ampere_bf16_s1688gemm_bf16_128x128_ldg8_f2f_stages_32x1_nn" in text
    assert "not shown" not in text


def test_what_the_width_and_the_limit_leave_out_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    text = drawn(built("top-kernels", "many-kernels"))
    assert "35 more kernels, " in text
    assert "not shown at this width: " in text
    assert "COLUMNS=200" in text


def test_what_is_sorted_by_is_always_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    trace = TRACES["decode"]()
    for sort, column in SORTED_BY.items():
        by: By = "op" if sort == "self" else "name"
        report = top_kernels_report.build(trace, top_kernels(trace, by=by, sort=sort), by=by, sort=sort)
        heading = next(each.heading for each in report.sections[0].columns if each.name == column)
        assert any(heading in line and line.startswith(("kernel ", "operator ")) for line in drawn(report).splitlines())


def test_rows_that_differ_look_different(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    names = [f"void at::native::a_long_name_of_a_kernel_{number}_with_a_tail_that_is_the_same" for number in range(5)]
    alike = trace([kernel(name, at=at * 10, dur=5) for at, name in enumerate(names)])
    shown = [line for line in drawn(REPORTS["top-kernels"](alike)).splitlines() if "at::native" in line or "…" in line]
    assert len({line[:30] for line in shown}) == 5


def test_a_full_bar_is_all_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    halves = trace([kernel("a", at=0, dur=5), kernel("b", at=5, dur=5)])
    assert drawn(REPORTS["top-kernels"](halves)).count("50.0%  █████  ") == 2


def test_under_filled_kernels_are_marked_and_collectives_are_not() -> None:
    lines = drawn(built("top-kernels", "decode")).splitlines()
    marked = [line.split()[0] for line in lines if line.endswith(" !")]
    assert marked == ["_tiled_sparse_decode_kernel"]
    assert any(line.startswith("! fills less than 50%") for line in lines)


def test_colours_are_used_only_where_they_are_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    report = built("top-kernels", "decode")
    assert "\x1b[" not in drawn(report)
    monkeypatch.delenv("NO_COLOR")
    assert "\x1b[" not in drawn(report)  # not a terminal
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b[" in drawn(report)


def test_prose_is_wrapped_in_its_column(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    frame = pl.DataFrame({"name": ["a", "b"], "meaning": ["a sentence that is too long for one line", "short"]})
    columns = [Column("name", "name", "text"), Column("meaning", "meaning", "prose")]
    lines = drawn(Report("x", "X", [Section(frame, columns)], {"rows": frame})).splitlines()
    assert lines[2:] == ["a     a sentence that is too long for", "      one line", "b     short"]


def test_devices_with_names_stay_names_in_json() -> None:
    report = REPORTS["info"](trace([kernel("k", at=0, dur=1, device="NPU 3", stream="0x1f")]))  # type: ignore[arg-type]
    assert json.loads(data.to_json(report))["traces"][0]["device"] == "NPU 3"


def test_schema_reports_every_column_of_every_table() -> None:
    rows = schema.build().rows
    assert rows.height > 100
    assert rows["meaning"].null_count() == 0
