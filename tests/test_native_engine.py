"""The native engine gives what the Python engine gives: on ordinary events, on odd ones, and on damaged text."""

from __future__ import annotations

import gzip
import json
import os
import threading
import time
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest import mock

import polars as pl
import pytest
from builders import kernel, launch, op, write_trace
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from layouts import LAYOUTS, compact
from polars.testing import assert_frame_equal
from shared import CORPUS, corpus_files, needs_corpus
from strategies_events import events
from test_reader import METADATA, chunks

import traceanalyzer as ta
from traceanalyzer.ingest import engines, native_engine
from traceanalyzer.ingest.engines import ENGINE_VARIABLE
from traceanalyzer.ingest.entries import Entries
from traceanalyzer.ingest.native_engine import NativeEngine, is_built
from traceanalyzer.ingest.python_engine import PythonEngine
from traceanalyzer.ingest.values import to_ns

needs_native = pytest.mark.skipif(not is_built(), reason="the native engine was not built")
LENIENT = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


def read_with(engine: str, path: Path) -> ta.Trace | str:
    """The trace, or why it was refused."""
    with mock.patch.dict(os.environ, {ENGINE_VARIABLE: engine}):
        try:
            return ta.read(path, cache=False)
        except ta.UnreadableError as error:
            return str(error)


def assert_engines_agree(path: Path) -> ta.Trace | str:
    ours, theirs = read_with("native", path), read_with("python", path)
    if isinstance(ours, str) or isinstance(theirs, str):
        assert ours == theirs
        return ours
    for name, frame in ours.tables.items():
        other = theirs.tables[name]
        if name == "notes":
            kept = ("level", "code", "count")  # the position of the first may be that of the text decoded with it
            frame, other = frame.select(kept).sort(kept), other.select(kept).sort(kept)
        assert_frame_equal(frame, other, categorical_as_str=True)
    return ours


def write_text(folder: Path, text: str | bytes) -> Path:
    path = folder / "t.json"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def expect_alike(folder: Path, *entries: str) -> ta.Trace:
    """Events as text, through both engines."""
    trace = assert_engines_agree(write_text(folder, '{"traceEvents": [' + ", ".join(entries) + "]}"))
    assert isinstance(trace, ta.Trace)
    return trace


def a_kernel(fields: str = "", *, args: str = "{}", times: str = '"ts": 1, "dur": 2') -> str:
    """The text of a kernel; fields and args as text, so that they keep every oddity."""
    return f'{{"ph": "X", "cat": "kernel", "pid": 0, "tid": 7, {times}, "args": {args}{fields}}}'


# -- the choice -----------------------------------------------------------------------------------------------------


def test_the_native_engine_is_taken_where_it_was_built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ENGINE_VARIABLE, raising=False)
    assert isinstance(engines.choose(), NativeEngine if is_built() else PythonEngine)
    with mock.patch("traceanalyzer.ingest.native_engine.is_built", return_value=False):
        assert isinstance(engines.choose(), PythonEngine)


def test_an_engine_can_be_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENGINE_VARIABLE, "python")
    assert isinstance(engines.choose(), PythonEngine)
    monkeypatch.setenv(ENGINE_VARIABLE, "rust")
    with pytest.raises(ta.UsageError, match="must be native or python, not 'rust'"):
        engines.choose()
    monkeypatch.setenv(ENGINE_VARIABLE, "native")
    with (
        mock.patch("traceanalyzer.ingest.native_engine.is_built", return_value=False),
        pytest.raises(ta.UsageError, match="was not built"),
    ):
        engines.choose()


# -- what is native, and what is not --------------------------------------------------------------------------------


def noted_entries(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """A list to which every entry is added that is taken one by one."""
    taken: list[Any] = []
    entry = Entries.entry

    def noting_entry(self: Entries, value: Any, **keys: Any) -> None:
        taken.append(value)
        entry(self, value, **keys)

    monkeypatch.setattr(Entries, "entry", noting_entry)
    return taken


def an_op(i: int) -> dict[str, Any]:
    args: dict[str, Any] = {"Input Dims": [[i % 7, 4], []]}
    return op("aten::mm", at=10 * i, dur=9.125, external_id=i, **args)


@needs_native
@pytest.mark.parametrize("layout", sorted(LAYOUTS))
def test_ordinary_events_never_leave_the_scanner(tmp_path: Path, layout: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reader is fast only while this holds: one entry a category is taken one by one, to learn the category."""
    entries = [
        event
        for i in range(200)
        for event in (
            an_op(i),
            launch(at=10 * i + 1.5, correlation=i),
            kernel(f"gemm<{i % 5}>", at=10 * i + 3.001, dur=2.5, correlation=i, external_id=i),
            {"ph": "s", "id": i, "pid": 1, "tid": 2, "ts": 10 * i + 1.5, "cat": "ac2g", "name": "ac2g"},
            {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "pid": 1, "tid": 2, "ts": 10 * i,
             "args": {"Bytes": -512, "Total Allocated": i, "Device Type": 1, "Device Id": 0}},
            {"ph": "X", "cat": "overhead", "name": "flush", "pid": -1, "tid": 0, "ts": 10 * i, "dur": 0.5},
        )
    ]  # fmt: skip
    path = write_text(tmp_path, LAYOUTS[layout](entries, METADATA))
    taken = noted_entries(monkeypatch)
    monkeypatch.setenv(ENGINE_VARIABLE, "native")
    ta.read(path, cache=False)
    assert len(taken) == 6
    assert_engines_agree(path)


@needs_native
def test_events_spelled_in_turns_with_and_without_spaces_stay_in_the_scanner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The scanner guesses the text up to the next value; a guess with less space before the value must not cost it.
    Found by fuzzing."""
    events = [kernel("k", at=i + 1, dur=0.5, correlation=i) for i in range(20)]
    texts = [
        json.dumps(event, separators=[(", ", ": "), (",", ":"), (" , ", " : ")][i % 3])
        for i, event in enumerate(events)
    ]
    path = write_text(tmp_path, "[" + ",".join(texts) + "]")
    taken = noted_entries(monkeypatch)
    read_with("native", path)
    assert len(taken) == 1
    assert_engines_agree(path)


@needs_native
@pytest.mark.parametrize(
    "text",
    [
        a_kernel(times='"ts": "1.5", "dur": "2"'),
        a_kernel(times='"ts": 1.0005, "dur": 2.0015'),
        a_kernel(times='"ts": 1e3, "dur": 2E-1'),
        a_kernel(times='"ts": -0.5, "dur": 2'),
        a_kernel(times='"ts": 1, "dur": -2'),
        a_kernel(times='"ts": 1'),
        a_kernel(times='"ts": 01, "dur": 2'),
        a_kernel(times='"ts": 9223372036854775, "dur": 9223372036854775807'),
        a_kernel(times='"ts": 1, "dur": 2, "dur": 3'),
        a_kernel(args='{"correlation": 5, "correlation": 6}'),
        a_kernel(args='{"correlation": null, "correlationId": 6}'),
        a_kernel(args='{"correlationId": 6, "correlation": 5}'),
        a_kernel(args='{"correlationId": "x", "correlation": 5}'),
        a_kernel(args='{"correlation": "0x10", "graph id": 18446744073709551615, "bytes": 9999999999999999999999}'),
        a_kernel(args='{"correlation": 5.0, "bytes": 1e3, "registers per thread": 2147483648}'),
        a_kernel(args='{"correlation": true, "stream": false, "device": 1.5}'),
        a_kernel(args='{"stream": -0, "device": "0", "blocks per SM": -0}'),
        a_kernel(args='{"stream": "stream 7", "device": ""}'),
        a_kernel(args='{"grid": [1, 2], "block": [1, 2, 3.0]}'),
        a_kernel(args='{"grid": [1, 2, 99999999999], "block": null}'),
        a_kernel(args='{"\\u0063orrelation": 5}'),
        a_kernel(args='{"Collective name": "allreduce", "Process Group Ranks": [0, 1], "dtype": "Float"}'),
        a_kernel(args='{"Collective name": 5, "Seq": 5}'),
        a_kernel(args='{"Process Group Ranks": "[0, 1]", "Collective name": "send", "Seq": "7"}'),
        a_kernel(args="[]"),
        a_kernel(args="null"),
        a_kernel(', "name": "a\\u0062\\n\\"\\ud83d\\ude00"'),
        a_kernel(', "name": "half \\ud83d"'),
        a_kernel(', "name": "tab\there"'),
        a_kernel(', "name": 5'),
        a_kernel(', "name": null'),
        a_kernel(', "name": ["x"]'),
        a_kernel(', "other": NaN'),
        a_kernel(', "other": [1, {"a": [[[[{"b": null}]]]]}, -0.5e+10, true]'),
        a_kernel(', "other": ' + 100 * "[" + 100 * "]"),
        a_kernel(', "\\u0070h": "i"'),
        a_kernel().replace('"kernel"', '"KERNEL"'),
        a_kernel().replace('"kernel"', '"\\u006bernel"'),
        a_kernel().replace('"kernel"', "7"),
        a_kernel().replace('"pid": 0', '"pid": null'),
        a_kernel().replace('"pid": 0', '"pid": 1.5'),
        a_kernel().replace('"X"', '"XX"'),
        '{"ph": "f", "id": "0x7", "ts": 1, "cat": "ac2g", "args": 5, "name": {}}',
        '{"ph": "f", "ts": 1, "cat": "ac2g"}',
        '{"ph": "i", "ts": 1, "name": "\\u005bmemory]", "args": {"Bytes": 5, "Device Type": 0}}',
        '{"ph": "I", "ts": 1, "name": "[memory]", "args": {"Bytes": null, "Total Reserved": "7", "Device Type": 9}}',
        '{"ph": "i", "ts": 1, "name": "[memory]", "args": {"Bytes": 5}}',
        '{"ph": "X", "ts": 1, "dur": 1, "args": {"a": 1.50, "a": {"c": 1e2}, "b": "\\u00e9"}}',
        '{"ph": "X", "ts": 1, "dur": 1, "args": { }}',
        '{"ph": "X", "ts": 1, "dur": 1, "args": 7}',
        "{}", "5", "[]", '"x"', "null",
    ],
)  # fmt: skip
def test_odd_events_are_read_alike_between_ordinary_ones(tmp_path: Path, text: str) -> None:
    ordinary = a_kernel(', "name": "k"', args='{"correlation": 1, "stream": 7, "device": 0}')
    expect_alike(tmp_path, ordinary, ordinary, text, ordinary, text, text, ordinary)


@needs_native
def test_rows_keep_the_order_of_the_file_whichever_way_they_are_taken(tmp_path: Path) -> None:
    odd = {5, 6, 7, 50, 99, *range(200, 300, 2)}
    texts = [a_kernel(f', "name": "{i}"', times=f'"ts": {json.dumps(str(i)) if i in odd else i}, "dur": 1')
             for i in range(300)]  # fmt: skip
    trace = expect_alike(tmp_path, *texts)
    assert trace.kernels["name"].cast(pl.String).to_list() == [str(i) for i in range(300)]
    with mock.patch("traceanalyzer.ingest.native_engine.BATCH_ROWS", 7), chunks(500, 2000):
        trace = expect_alike(tmp_path, *texts)
    assert trace.kernels["name"].cast(pl.String).to_list() == [str(i) for i in range(300)]


@needs_native
def test_lost_records_are_dropped_among_late_rows(tmp_path: Path) -> None:
    lost = a_kernel(times='"ts": 0, "dur": 0')
    late = a_kernel(times='"ts": "0", "dur": 0')
    kept = a_kernel(times='"ts": "3", "dur": 1')
    trace = expect_alike(tmp_path, lost, a_kernel(), late, lost, kept, a_kernel(), lost)
    assert trace.kernels["start_ns"].to_list() == [1000, 3000, 1000]
    assert dict(trace.notes.select("code", "count").iter_rows())["lost-record"] == 4


def _categories(trace: ta.Trace) -> list[str | None]:
    return trace.slices["category"].cast(pl.String).to_list()


@needs_native
@pytest.mark.parametrize(
    ("spelled", "category"),
    [("a\0", "a\0"), (r"a\u0000", "a\0"), ("", ""), (r"\"\\", '"\\'), ("é 日", "é 日"), (r"\ud83d\ude00", "😀"),
     ("a.b[0] or 1", "a.b[0] or 1"), ("class", "class"), ("\t", "\t")],
)  # fmt: skip
def test_a_category_may_be_any_text(tmp_path: Path, spelled: str, category: str) -> None:
    """Found in CI: a category with a zero character made the Python engine refuse the file."""
    event = f'{{"ph": "X", "cat": "{spelled}", "name": "n", "ts": 1, "dur": 1}}'
    trace = expect_alike(tmp_path, a_kernel(), *[event] * 3, a_kernel(), event)
    assert _categories(trace) == [category] * 4
    assert trace.kernels.height == 2
    assert trace.event_counts.filter(pl.col("category") == category)["count"].to_list() == [4]


@needs_native
@pytest.mark.parametrize(
    "place",
    [a_kernel(args='{"dev\udcffce": 1}'), a_kernel(args='{"x": "\udcff"}'), a_kernel(', "\udcff": 1'),
     a_kernel(', "other": [{"a": "\udcff"}]'), a_kernel(', "name": "\udcff"'), a_kernel().replace("X", "\udcff"),
     a_kernel().replace("kernel", "kern\udcffl"), a_kernel(args='{"stream": "\udcff"}')],
)  # fmt: skip
def test_bytes_that_are_no_utf8_are_counted_wherever_they_stand(tmp_path: Path, place: str) -> None:
    """Found in CI: msgspec does not look at the text of keys and values that nothing is read from."""
    text = "[" + ", ".join([a_kernel(), a_kernel(), place, a_kernel(), place, a_kernel()]) + "]"
    trace = assert_engines_agree(write_text(tmp_path, text.encode("utf-8", "surrogateescape")))
    assert isinstance(trace, ta.Trace)
    assert dict(trace.notes.select("code", "count").iter_rows())["invalid-utf8"] == 2
    assert trace.kernels.height == (6 if '"X"' in place and '"kernel"' in place else 4)


def _flow(phase: str, category: str, identifier: int) -> str:
    return f'{{"ph": "{phase}", "cat": "{category}", "name": "n", "id": {identifier}, "ts": 1, "pid": 0, "tid": 0}}'


@needs_native
def test_flows_of_all_categories_keep_the_order_of_the_file(tmp_path: Path) -> None:
    """Found in CI: a category beyond Kineto's own, once met, had its arrows put behind those of Kineto's."""
    mixed = [_flow("sft"[i % 3], ("x", "ac2g", "fwdbwd", "y")[i % 4], i) for i in range(40)]
    trace = expect_alike(tmp_path, *mixed)
    assert trace.flows["id"].to_list() == list(range(40))
    with chunks(200, 400):
        trace = expect_alike(tmp_path, *mixed)
    assert trace.flows["id"].to_list() == list(range(40))


@needs_native
def test_counters_of_all_kinds_keep_the_order_of_the_file(tmp_path: Path) -> None:
    memory = '{"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "ts": %d, "args": {"Bytes": 1, ' \
             '"Total Allocated": 1, "Total Reserved": 1, "Device Type": 0, "Device Id": -1}}'  # fmt: skip
    plain = '{"ph": "C", "cat": "x", "name": "n", "ts": %d, "args": {"a": 1}}'
    other = '{"ph": "i", "cat": "x", "name": "[memory]", "ts": %d, "args": {"Bytes": 7}}'
    trace = expect_alike(tmp_path, *((memory, plain, other)[i % 3] % i for i in range(30)))
    times = [1000 * i for i in range(30) for _ in range(3 if i % 3 == 0 else 1)]
    assert trace.counters["time_ns"].to_list() == times


@needs_native
def test_collectives_of_host_and_device_keep_the_order_of_the_file(tmp_path: Path) -> None:
    args = '{"Collective name": "allreduce", "Seq": %d, "Process Group Ranks": [0, 1]}'
    texts = [a_kernel(args=args % i).replace("kernel", ("kernel", "cpu_op")[i % 3 == 0]) for i in range(30)]
    trace = expect_alike(tmp_path, *texts, a_kernel(), a_kernel().replace("kernel", "cpu_op"))
    assert trace.collectives["sequence"].to_list() == list(range(30))
    assert trace.collectives["on_device"].to_list() == [i % 3 != 0 for i in range(30)]


@needs_native
@pytest.mark.parametrize("number", ["9" * 5000, "-" + "9" * 5000, "1e" + "9" * 30, "-1.5E-" + "9" * 30])
@pytest.mark.parametrize("where", ['"other": %s', '"name": %s', '"tid": [%s]', '"args": {"x": {"y": %s}}', '"id": %s'])
@pytest.mark.parametrize("category", ["kernel", "something new", "ac2g"])
def test_numbers_that_nothing_can_hold_are_missing(tmp_path: Path, number: str, where: str, category: str) -> None:
    event = f'{{"ph": "X", "cat": "{category}", "ts": 1, "dur": 2, {where % number}}}'
    trace = expect_alike(tmp_path, a_kernel(), *[event] * 3, a_kernel(), event)
    assert trace.kernels.height + trace.slices.height == 6
    assert "damaged-event" not in trace.notes["code"].to_list()


@needs_native
@pytest.mark.parametrize("number", ["1e-" + "9" * 20, "-2.5E-" + "9" * 20, "0e" + "9" * 11, "-0.00E+" + "9" * 20])
@pytest.mark.parametrize(("times", "expected"), [('"ts": %s, "dur": 2', (0, 2000)), ('"ts": 1, "dur": %s', (1000, 0))])
@pytest.mark.parametrize("category", ["kernel", "something new"])
def test_numbers_too_close_to_zero_are_zero(
    tmp_path: Path, number: str, times: str, expected: tuple[int, int], category: str
) -> None:
    args = f'{{"registers per thread": {number}}}'
    event = f'{{"ph": "X", "cat": "{category}", "name": "x", {times % number}, "args": {args}}}'
    trace = expect_alike(tmp_path, a_kernel(), event, a_kernel(), event)
    rows = trace.kernels.filter(name="x") if category == "kernel" else trace.slices
    assert rows.select("start_ns", "duration_ns").rows() == [expected] * 2
    assert category != "kernel" or rows["registers"].to_list() == [0, 0]


@needs_native
@pytest.mark.parametrize("category", ["kernel", "something new"])
@pytest.mark.parametrize("where", ['"other": %s', '"args": {"x": %s}'])
def test_nesting_without_end_costs_its_event(tmp_path: Path, category: str, where: str) -> None:
    event = f'{{"ph": "X", "cat": "{category}", "ts": 1, "dur": 2, {where % ("[" * 5000 + "]" * 5000)}}}'
    trace = expect_alike(tmp_path, a_kernel(), a_kernel(), event, a_kernel(), event, a_kernel())
    assert trace.kernels.height == 4
    assert dict(trace.notes.select("code", "count").iter_rows())["damaged-event"] == 2


# -- values ---------------------------------------------------------------------------------------------------------

_DIGITS = st.text("0123456789", min_size=1, max_size=20)
_NUMBERS = st.builds(
    lambda sign, whole, part, exponent: f"{sign}{int(whole)}{part}{exponent}",
    st.sampled_from(["", "-"]), _DIGITS, st.one_of(st.just(""), _DIGITS.map(".".__add__)),
    st.sampled_from(["", "", "", "e-5", "E-05", "e3", "e+2", "e-17"]),
)  # fmt: skip


@needs_native
@LENIENT
@given(st.lists(st.one_of(_NUMBERS, st.floats(0, 1e18).map(repr)), min_size=1, max_size=20))
@example(["0.1", "9007199254740993", "0.30000000000000004", "123456789012345.678", "179769313486231570e-17", "-0.0"])
def test_doubles_are_the_nearest_ones(tmp_path: Path, numbers: list[str]) -> None:
    trace = expect_alike(tmp_path, *(a_kernel(args=f'{{"blocks per SM": {number}}}') for number in numbers))
    wanted = [float(number) for number in numbers]
    assert trace.kernels["trace_blocks_per_sm"].to_list() == wanted


@needs_native
@LENIENT
@given(st.lists(_NUMBERS, min_size=1, max_size=20))
@example(["0.0005", "0.0015", "0.00050000000000000001", "9223372036854775.807", "1623143566756123.0005", "1.999999"])
def test_times_are_exact(tmp_path: Path, numbers: list[str]) -> None:
    trace = expect_alike(tmp_path, *(a_kernel(times=f'"ts": {number}, "dur": 1') for number in numbers))
    times = [to_ns(Decimal(number)) for number in numbers]
    assert trace.kernels["start_ns"].to_list() == [time for time in times if time is not None]


@needs_native
@LENIENT
@given(st.lists(st.text(max_size=40), min_size=1, max_size=20), st.booleans(), st.sampled_from(["name", "tid"]))
def test_texts_are_kept_as_they_are(tmp_path: Path, texts: list[str], ascii_only: bool, key: str) -> None:
    texts = [text.encode("utf-8", "replace").decode() for text in texts]
    events = [{"ph": "X", "cat": "cpu_op", "ts": 1, "dur": 1, key: text} for text in texts]
    trace = expect_alike(tmp_path, *(json.dumps(event, ensure_ascii=ascii_only) for event in events))
    assert trace.ops[key].cast(pl.String).to_list() == texts


_LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.integers(-3, 3), st.floats(allow_nan=False, allow_infinity=False),
    st.decimals(-10, 10**6, places=3).map(float), st.text(max_size=5), st.sampled_from(["a", 'q"', "b\\", "\n", "/"]),
)  # fmt: skip
_VALUES = st.recursive(
    _LEAVES,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=3), inner, max_size=4)),
    max_leaves=12,
)
_SPELLINGS = st.sampled_from([(", ", ": "), (",", ":"), (", ", ":"), (" ,  ", " : ")])


@needs_native
@LENIENT
@given(st.lists(st.tuples(_VALUES, _SPELLINGS, st.booleans()), min_size=1, max_size=8))
def test_json_values_have_one_spelling(tmp_path: Path, values: list[tuple[Any, tuple[str, str], bool]]) -> None:
    """The scanner passes on what is spelled as json.dumps would; everything else is decoded and spelled anew."""
    texts = []
    for value, separators, ascii_only in values:
        text = json.dumps(value, separators=separators, ensure_ascii=ascii_only)
        texts.append(f'{{"ph": "X", "cat": "cpu_op", "ts": 1, "dur": 1, "args": {{"Input Dims": {text}}}}}')
        texts.append(f'{{"ph": "X", "ts": 1, "dur": 1, "args": {{"x": {text}}}}}')
    trace = expect_alike(tmp_path, *texts)
    for (value, _, _), dims, args in zip(values, trace.ops["input_dims"], trace.slices["args"], strict=True):
        assert (json.loads(dims) if dims is not None and not isinstance(value, str) else dims) == value
        assert args == json.dumps({"x": value}, ensure_ascii=False)


@needs_native
@pytest.mark.parametrize(
    "number", ["1.50", "-0", "-0.0", "0.00001", "0.0001", "1e5", "1E-7", "123456789012345.5", "0.1234567890123456",
               "100000000000000000000", "5.0", "0.00", "12345678901234.5", "1.10", "00", "1."],
)  # fmt: skip
@pytest.mark.parametrize(
    "around", ["%s", "[%s, 1]", '{"a": %s, "b": {"a": %s}}', '{"a": %s, "a": %s}', "{ }", '{"a" : %s}']
)
def test_numbers_have_one_spelling(tmp_path: Path, number: str, around: str) -> None:
    value = around.replace("%s", number)
    expect_alike(tmp_path, a_kernel(), f'{{"ph": "X", "ts": 1, "dur": 1, "args": {{"x": {value}}}}}',
                f'{{"ph": "X", "cat": "cpu_op", "ts": 1, "dur": 1, "args": {{"Input type": {value}}}}}', a_kernel(),
                f'{{"ph": "X", "cat": "cpu_op", "ts": 2, "dur": 1, "args": {{"Input type": {value}}}}}')  # fmt: skip


# -- whole files ----------------------------------------------------------------------------------------------------


@needs_native
@LENIENT
@given(events(), st.sampled_from(sorted(LAYOUTS)), st.integers(20, 400), st.sampled_from([64, 300, 4000]),
       st.sampled_from([["kernels"], ["collectives"], ["ops", "flows"], ["counters"], None]))  # fmt: skip
def test_wanted_tables_and_chunks(
    tmp_path: Path, entries: list[Any], layout: str, size: int, piece: int, tables: list[str] | None
) -> None:
    path = write_text(tmp_path, LAYOUTS[layout](entries, METADATA))
    with chunks(size, piece):
        ours, theirs = (
            _with_engine(name, lambda: ta.read(path, tables=tables, cache=False)) for name in ("native", "python")
        )
    for name in ("event_counts", *(tables or ours.tables.keys() - {"notes"})):
        assert_frame_equal(ours.tables[name], theirs.tables[name], categorical_as_str=True)


def _with_engine(name: str, function: Callable[[], ta.Trace]) -> ta.Trace:
    with mock.patch.dict(os.environ, {ENGINE_VARIABLE: name}):
        return function()


@st.composite
def damaged(draw: st.DrawFn, data: bytes) -> bytes:
    """Bytes of a text with a few flipped, removed, added, or cut off."""
    changed = bytearray(data)
    for kind in draw(st.lists(st.sampled_from(["flip", "delete", "insert", "cut"]), min_size=1, max_size=4)):
        at = draw(st.integers(0, max(len(changed) - 1, 0)))
        if kind == "cut" and draw(st.booleans()):
            del changed[at:]
        elif kind == "flip" and changed:
            changed[at] = draw(st.one_of(st.integers(0, 255), st.sampled_from(b'"\\{}[],:0-e.')))
        elif kind == "delete":
            del changed[at : at + draw(st.integers(1, 30))]
        else:
            changed[at:at] = draw(
                st.one_of(st.binary(max_size=5), st.sampled_from([b'"', b"}", b"\\", b"nan", b"\x00"]))
            )
    return bytes(changed)


@needs_native
@LENIENT
@given(events(), st.sampled_from(sorted(LAYOUTS)), st.data())
def test_damaged_text_is_read_alike(tmp_path: Path, entries: list[Any], layout: str, data: st.DataObject) -> None:
    text = LAYOUTS[layout](entries, METADATA).encode()
    head = text.index(b"traceEvents") + 15
    path = write_text(tmp_path, text[:head] + data.draw(damaged(text[head:])))
    with chunks(data.draw(st.sampled_from([50, 10_000])), data.draw(st.sampled_from([100, 10_000]))):
        assert_engines_agree(path)


@needs_native
def test_asynchronous_marks_are_joined_by_all_that_they_say(tmp_path: Path) -> None:
    """`id2` and `scope` tell marks of one name apart, however many events stand around them."""
    marks = [{"ph": phase, "cat": "frames", "name": "frame", "pid": 1, "tid": 2, "ts": 2 * i + (phase == "e") * 1000,
              "id2": {"local": f"0x{i:x}"}, "scope": f"s{i % 3}"} for phase in "be" for i in range(400)]  # fmt: skip
    trace = assert_engines_agree(write_text(tmp_path, compact(marks, METADATA)))
    assert isinstance(trace, ta.Trace)
    assert trace.slices["duration_ns"].to_list() == [1_000_000] * 400


@needs_native
def test_many_files_at_once_have_scanners_of_their_own(tmp_path: Path) -> None:
    paths = []
    for rank in range(4):
        kernels = [kernel(f"k{rank}-{i}", at=i, dur=1) for i in range(50)]
        paths.append(write_trace(tmp_path / f"r{rank}.json", kernels, rank=rank))
    trace = ta.read(paths, cache=False)
    for rank in range(4):
        names = trace.kernels.filter(pl.col("rank") == rank)["name"].cast(pl.String).to_list()
        assert names == [f"k{rank}-{i}" for i in range(50)]


@needs_native
def test_escaped_names_and_compact_text(tmp_path: Path) -> None:
    assert_engines_agree(write_text(tmp_path, compact([kernel('a "quoted" \\ name', at=1, dur=2)] * 3, METADATA)))


@needs_native
@needs_corpus
@pytest.mark.parametrize("path", [path for path in corpus_files() if ".json" in path])
def test_real_files_are_read_alike(path: str) -> None:
    assert_engines_agree(CORPUS / path)


# -- inflating ahead ------------------------------------------------------------------------------------------------


@pytest.fixture
def _always_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("traceanalyzer.ingest.ahead.WORTH_A_THREAD", 0)
    monkeypatch.setattr("traceanalyzer.ingest.ahead._PART_BYTES", 2000)
    monkeypatch.setattr("traceanalyzer.ingest.ahead._idle_cores", lambda: 2)


@needs_native
@pytest.mark.usefixtures("_always_ahead")
@pytest.mark.parametrize("cut", [None, 3000, -4])
def test_reading_ahead_gives_the_same_tables_notes_and_progress(tmp_path: Path, cut: int | None) -> None:
    events = [kernel(f"k{i % 7}", at=i + 1, dur=0.5, correlation=i) for i in range(2000)]
    path = tmp_path / "t.json.gz"
    path.write_bytes(gzip.compress(compact(events, METADATA).encode())[:cut])
    with chunks(512, 4000):
        trace = assert_engines_agree(path)
    assert isinstance(trace, ta.Trace)
    codes = set(trace.notes["code"]) - {"missing-ranks"}
    assert codes == {None: set(), 3000: {"gzip-cut", "json-cut"}, -4: {"gzip-cut"}}[cut]
    seen: list[int] = []
    with mock.patch.dict(os.environ, {ENGINE_VARIABLE: "native"}):
        ta.read(path, cache=False, progress=seen.append)
    assert sum(seen) == path.stat().st_size


@needs_native
@pytest.mark.usefixtures("_always_ahead")
def test_reading_ahead_stops_with_the_reader(tmp_path: Path) -> None:
    path = write_text(tmp_path, "no JSON " * 100_000)
    with chunks(100, 4000):
        assert "is not JSON" in str(read_with("native", path))
    wait = time.monotonic() + 10
    while any(thread.name == "inflate" for thread in threading.enumerate()):
        assert time.monotonic() < wait
        time.sleep(0.01)


@needs_native
@pytest.mark.usefixtures("_always_ahead")
def test_errors_of_the_file_come_through_the_thread(tmp_path: Path) -> None:
    assert "zip archive" in str(read_with("native", write_text(tmp_path, b"PK\x03\x04" + bytes(100))))


@needs_native
def test_a_library_of_other_sources_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("traceanalyzer.ingest.native_engine._sources", lambda: 12345)
    assert native_engine._load() is None
