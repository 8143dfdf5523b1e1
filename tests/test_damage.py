"""Damaged files: every whole event before the damage is kept, and those behind it wherever the bytes still decode.

One base trace, one fault each. Kernels are named k0, k1, ... so that what was kept can be read off.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import threading
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import polars as pl
import pytest
from builders import kernel
from hypothesis import given
from hypothesis import strategies as st
from layouts import LAYOUTS, bare_array
from test_reader import METADATA, chunks

import traceanalyzer as ta

EVENTS = [kernel(f"k{i}", at=10 * i + 1, dur=5.5, correlation=i + 1) for i in range(40)]
NAMES = [f"k{i}" for i in range(40)]
TEXTS = {layout: write(EVENTS, METADATA) for layout, write in LAYOUTS.items()} | {"bare": bare_array(EVENTS)}
layouts = pytest.mark.parametrize("layout", sorted(TEXTS))


def read_bytes(folder: Path, data: bytes, name: str = "t.json", **options: Any) -> ta.Trace:
    path = folder / name
    path.write_bytes(data)
    return ta.read(path, **options)


def names(trace: ta.Trace) -> list[str]:
    return trace.kernels["name"].cast(pl.String).to_list()


def codes(trace: ta.Trace) -> dict[str, int]:
    return dict(trace.notes.filter(pl.col("level") != "info").select("code", "count").iter_rows())


def whole_events_before(text: str, cut: int) -> int:
    """How many of the events end before `cut`, by their names' places and the braces behind them."""
    ends = []
    for i in range(len(EVENTS)):
        start = text.index(f'"k{i}"')
        following = text.find(f'"k{i + 1}"')
        last = text.rfind("}", start, following if following > 0 else len(text))
        ends.append(_event_end(text, start) if following < 0 else min(last, _event_end(text, start)))
    return sum(end < cut for end in ends)


def _event_end(text: str, position: int) -> int:
    """The closing brace of the event that the name at `position` stands in."""
    depth, inside = 1, False
    for index in range(position, len(text)):
        if text[index] == '"':
            inside = not inside
        elif not inside:
            depth += {"{": 1, "}": -1}.get(text[index], 0)
            if depth == 0:
                return index
    raise AssertionError("an event without an end")


@layouts
@given(data=st.data())
def test_a_cut_file_keeps_its_whole_events(
    tmp_path_factory: pytest.TempPathFactory, layout: str, data: st.DataObject
) -> None:
    text = TEXTS[layout]
    cut = data.draw(st.integers(text.index('"k3"'), text.rindex("]") - 1))
    with chunks(data.draw(st.sampled_from([50, 5000])), 700):
        trace = read_bytes(tmp_path_factory.mktemp("cut"), text[:cut].encode())
    kept = whole_events_before(text, cut)
    assert names(trace) == NAMES[:kept]
    at_a_boundary = layout == "bare" and _is_open_list(text[:cut])
    assert (codes(trace).get("json-cut") == 1) is not at_a_boundary
    assert trace.ranks["whole"].item() is at_a_boundary


def _is_open_list(text: str) -> bool:
    """A list that only lacks its closing bracket: the format allows it, and it is read without a word."""
    try:
        json.loads(text.rstrip().rstrip(",") + "]")
    except ValueError:
        return False
    return True


@given(cut=st.integers(30, 2000), level=st.sampled_from([0, 6]))
def test_a_cut_gzip_file_keeps_its_whole_events(tmp_path_factory: pytest.TempPathFactory, cut: int, level: int) -> None:
    text = TEXTS["kineto-new"]
    packed = gzip.compress(text.encode(), level)
    packed = packed[: min(cut * (4 if level == 0 else 1), len(packed) - 9)]
    inflated = zlib.decompressobj(31).decompress(packed).decode(errors="ignore")
    folder = tmp_path_factory.mktemp("gz")
    if '"traceEvents": [' not in inflated:
        with pytest.raises(ta.UnreadableError):
            read_bytes(folder, packed)
        return
    trace = read_bytes(folder, packed)
    assert names(trace) == NAMES[: whole_events_before(text, len(inflated))]
    assert codes(trace)["gzip-cut"] == 1


def _replace(old: str, new: str) -> Callable[[str], str]:
    def change(text: str) -> str:
        assert old in text
        return text.replace(old, new)

    return change


#: Fault, what it does to the text, codes and counts it must give, names of the kernels that must be there.
FAULTS: list[tuple[str, Callable[[str], str], dict[str, int], list[str]]] = [
    ("trailing comma", lambda t: t[: t.rindex("]")].rstrip() + "," + t[t.rindex("]") :], {}, NAMES),
    ("NaN as an argument", _replace('"correlation": 7,', '"correlation": 7, "x": NaN,'), {"not-a-number": 1}, NAMES),
    ("-nan and inf", _replace('"correlation": 7,', '"a": -nan, "b": inf, "correlation": 7,'), {"not-a-number": 2},
     NAMES),
    ("a raw control character", _replace('"k5"', '"k5\x01"'), {"control-character": 1},
     [*NAMES[:5], "k5\x01", *NAMES[6:]]),
    ("a raw newline in a name", _replace('"k5"', '"k5\n"'), {"control-character": 1},
     [*NAMES[:5], "k5\n", *NAMES[6:]]),
    ("a backslash that escapes nothing", _replace('"k5"', r'"C:\users\k5"'), {"bad-escape": 1},
     [*NAMES[:5], r"C:\users\k5", *NAMES[6:]]),
    ("an unescaped quote", _replace('"k5"', '"k"5"'), {"unescaped-quote": 1}, [*NAMES[:5], 'k"5', *NAMES[6:]]),
    ("a missing opening quote", _replace('"k5"', 'k5"'), {"damaged-event": 1}, [*NAMES[:5], *NAMES[6:]]),
    ("a colon lost", _replace('"name": "k5"', '"name" "k5"'), {"damaged-event": 1}, [*NAMES[:5], *NAMES[6:]]),
    ("a negative time as -1.-05", _replace('"ts": 51,', '"ts": -1.-05,'), {"negative-time": 1}, NAMES),
    ("an id beyond 64 bits", _replace('"correlation": 7,', '"correlation": 700000000000000000000000,'), {}, NAMES),
]  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS, ids=[fault[0] for fault in FAULTS])
@pytest.mark.parametrize("layout", ["kineto-new", "compact"])
@pytest.mark.parametrize("size", [37, 100_000])
def test_one_fault_costs_at_most_its_event(tmp_path: Path, fault: Any, layout: str, size: int) -> None:
    what, change, noted, kept = fault
    with chunks(size, 600):
        trace = read_bytes(tmp_path, change(TEXTS[layout]).encode())
    assert names(trace) == kept, what
    assert codes(trace) == noted


def test_negative_time_is_read_as_meant(tmp_path: Path) -> None:
    """The writer prints whole and thousandth part of -1.005 one after the other."""
    trace = read_bytes(tmp_path, TEXTS["bare"].replace('"ts": 51,', '"ts": -1.-05,').encode())
    assert trace.kernels["start_ns"][5] == -1005


def test_invalid_utf8_is_replaced_and_good_text_kept(tmp_path: Path) -> None:
    data = TEXTS["compact"].replace('"k5"', '"kernel_αβ<float>"').encode().replace(b'"k6"', b'"k6\xff\xfe"')
    trace = read_bytes(tmp_path, data)
    assert names(trace)[5:7] == ["kernel_αβ<float>", "k6\ufffd\ufffd"]
    assert codes(trace) == {"invalid-utf8": 2}


def test_a_bom_is_dropped(tmp_path: Path) -> None:
    assert names(read_bytes(tmp_path, b"\xef\xbb\xbf" + TEXTS["compact"].encode())) == NAMES


def test_a_wrong_checksum_loses_nothing(tmp_path: Path) -> None:
    packed = bytearray(gzip.compress(TEXTS["compact"].encode()))
    packed[-6] ^= 1
    trace = read_bytes(tmp_path, bytes(packed))
    assert names(trace) == NAMES
    assert codes(trace) == {"gzip-damaged": 1}
    said = trace.notes.filter(pl.col("code") == "gzip-damaged")["message"].item()
    assert f"read from bytes 0 to {len(TEXTS['compact']):,} of the JSON text may be wrong" in said


def test_members_behind_a_damaged_one_are_read(tmp_path: Path) -> None:
    text = TEXTS["compact"].encode()
    parts = [text[:3000], text[3000:6000], text[6000:]]
    packed = [bytearray(gzip.compress(part, 0)) for part in parts]
    packed[1][1500:1503] = b"\xff\xff\xff"  # stored data: only the checksum tells
    packed[1][10] = 0x07  # an impossible block type: nothing of this member inflates
    trace = read_bytes(tmp_path, b"".join(packed))
    assert {"gzip-damaged", "gzip-resumed"} <= codes(trace).keys()
    assert "may be wrong" not in " ".join(trace.notes["message"])  # the damaged member gave nothing
    before, behind = whole_events_before(text.decode(), 3000), whole_events_before(text.decode(), 6000)
    assert names(trace)[:before] == NAMES[:before]
    assert names(trace)[-(39 - behind) :] == NAMES[behind + 1 :]


def test_members_that_a_damaged_one_ran_into_are_read(tmp_path: Path) -> None:
    """Found by damaging at random: what the damaged member took for its own content are the next ones."""
    text = TEXTS["compact"].encode()
    parts = [gzip.compress(part, 0) for part in (text[:3000], text[3000:3100], text[3100:])]
    longer = bytearray(parts[0])
    head = longer.index((3000).to_bytes(2, "little"), 10)  # the length of the only stored block
    longer[head : head + 4] = (3200).to_bytes(2, "little") + (0xFFFF - 3200).to_bytes(2, "little")
    trace = read_bytes(tmp_path, bytes(longer) + parts[1] + parts[2])
    assert {"gzip-damaged", "gzip-resumed"} <= codes(trace).keys()
    behind = whole_events_before(text.decode(), 3000)
    assert names(trace)[:behind] == NAMES[:behind]
    assert names(trace)[-(39 - behind) :] == NAMES[behind + 1 :]


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("cut", [None, -9])
def test_members_that_a_damaged_one_took_for_its_own_to_the_end_are_read(tmp_path: Path, cut: int | None) -> None:
    """Found by damaging at random: nothing was wrong with what it inflated to, except that the file ended in it."""
    text = TEXTS["compact"].encode()
    parts = [gzip.compress(part) for part in (text[3000:3100], text[3100:6000], text[6000:])]
    longer = bytearray(gzip.compress(text[:3000], 0))
    head = longer.index((3000).to_bytes(2, "little"), 10)  # the length of the only stored block
    longer[head : head + 4] = b"\xff\xff\x00\x00"  # longer than the file
    trace = read_bytes(tmp_path, (bytes(longer) + b"".join(parts))[:cut])
    assert codes(trace)["gzip-damaged"] == 1
    assert codes(trace)["gzip-resumed"] == 1
    assert ("gzip-cut" in codes(trace)) == (cut is not None)
    behind = whole_events_before(text.decode(), 3000)
    assert names(trace)[:behind] == NAMES[:behind]
    assert names(trace)[behind:] == NAMES[behind + 1 :]


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("size", [300, 16_000])
@pytest.mark.parametrize("layout", ["kineto-new", "compact"])
@pytest.mark.parametrize("garbage", ['}, [ {"ph": "X", "nam', '"ac2g" : [ {"ph": "X", "ca'])
def test_what_a_damaged_member_gave_begins_no_other_trace(tmp_path: Path, layout: str, size: int, garbage: str) -> None:
    """Found by damaging at random: it repeated a part of the text before that looked like the start of a bare list, of
    an unknown rank, and all that followed was left out."""
    text = TEXTS[layout].encode()
    at, behind = text.index(b'"k9"'), text.rindex(b"{", 0, text.index(b'"k12"'))
    damaged = bytearray(gzip.compress(garbage.encode() * 2 + text[at : at + 40], 0))
    damaged[-4:] = b"\xff" * 4  # a wrong length
    data = gzip.compress(text[:at]) + bytes(damaged[:-9]) + gzip.compress(text[behind:])
    with chunks(size, 700):
        trace = read_bytes(tmp_path, data)
    assert [name for name in names(trace) if name in NAMES] == [*NAMES[:9], *NAMES[12:]]
    assert {"gzip-damaged", "gzip-resumed"} <= codes(trace).keys()
    assert "other-rank-inside" not in codes(trace)
    assert trace.ranks["rank"].item() == 3


@pytest.mark.usefixtures("engine")
def test_a_list_of_another_trace_is_one_beside_a_damaged_member_too(tmp_path: Path) -> None:
    """A writer was killed and another one wrote a bare list behind, of which a later part is damaged."""
    text, other = a_trace("compact", 0, 20), a_trace("bare", 20, 20)
    cut, middle, behind = text.index('"k7"'), other.index('"k24"'), other.rindex("{", 0, other.index('"k30"'))
    damaged = gzip.compress(other[middle : middle + 90].encode(), 0)[:-9]
    data = gzip.compress((text[:cut] + other[:middle]).encode()) + damaged + gzip.compress(other[behind:].encode())
    trace = read_bytes(tmp_path, data)
    assert names(trace) == NAMES[:7]
    assert {"gzip-resumed", "other-rank-inside"} <= codes(trace).keys()


def test_what_a_damaged_member_gave_may_be_wrong(tmp_path: Path) -> None:
    """A flipped bit in deflated data changes text before it is noticed: only the checksum tells, at the end."""
    text = TEXTS["compact"].encode()
    first, second = bytearray(gzip.compress(text[:3000], 0)), bytearray(gzip.compress(text[3000:], 0))
    place = second.index(b"5.5") + len(first)
    data = first + second
    data[place] = ord("6")  # a wrong duration that parses
    trace = read_bytes(tmp_path, bytes(data))
    assert sorted(set(trace.kernels["duration_ns"])) == [5500, 6500]
    said = trace.notes.filter(pl.col("code") == "gzip-damaged")["message"].item()
    assert f"read from bytes 3,000 to {len(text):,} of the JSON text may be wrong" in said


REFUSED = [
    ("empty", b"", "is empty"),
    ("blank", b" \n\t ", "is empty"),
    ("not JSON", b"hello there", "is not JSON"),
    ("another object", b'{"a": 1, "b": [1, 2]}', r"holds no traceEvents \(a JSON object with a, b\)"),
    ("a list of numbers", b"[1, 2, 3]", "not of trace events"),
    ("a list of other objects", b'[{"a": 1}]', "not of trace events"),
    ("cut before the events", b'{"schemaVersion": 1, "deviceProperties": [{"id"', "cut or damaged before"),
    ("zstd", b"\x28\xb5\x2f\xfd" + b"x" * 50, "compressed with zstd"),
    ("an SQLite export", b"SQLite format 3\x00", "SQLite database"),
    ("a pickle", b"\x80\x04\x95\x00", "binary"),
    ("a tar archive", b"name".ljust(257, b"\0") + b"ustar\0" + bytes(300), "tar archive"),
    ("UTF-16", "{}".encode("utf-16"), "UTF-16"),
    ("a gzip file cut in its head", gzip.compress(b"[]" * 99)[:11], "ends before its end mark, first at byte 11"),
    ("gzip of nothing", gzip.compress(b""), "is empty"),
    ("events that are no list", b'{"traceEvents": 5}', "holds no traceEvents"),
]


@pytest.mark.parametrize(("what", "data", "reason"), REFUSED, ids=[row[0] for row in REFUSED])
def test_what_is_no_trace_is_refused_with_file_and_reason(tmp_path: Path, what: str, data: bytes, reason: str) -> None:
    with pytest.raises(ta.UnreadableError, match=reason) as caught:
        read_bytes(tmp_path, data)
    assert str(tmp_path / "t.json") in str(caught.value), what
    assert "\n" not in str(caught.value)


ACCEPTED = [b"[]", b'{"traceEvents": []}', b'{"traceEvents": [], "displayTimeUnit": "ns"}', b'{"traceEvents": [',
            b'[{"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "x"}}]']  # fmt: skip


@pytest.mark.parametrize("data", ACCEPTED)
def test_a_trace_may_be_tiny(tmp_path: Path, data: bytes) -> None:
    assert read_bytes(tmp_path, data).kernels.height == 0


def test_a_missing_file_and_an_empty_folder_are_named(tmp_path: Path) -> None:
    with pytest.raises(ta.UnreadableError, match=r"absent.json: no such file"):
        ta.read(tmp_path / "absent.json")
    with pytest.raises(ta.UnreadableError, match="holds no trace files"):
        ta.read(tmp_path)
    with pytest.raises(ta.UnreadableError, match="no file matches"):
        ta.read(str(tmp_path / "*.json"))


def test_one_bad_file_never_loses_the_others(tmp_path: Path) -> None:
    (tmp_path / "good.json").write_text(TEXTS["compact"])
    (tmp_path / "bad.json").write_text("hello")
    (tmp_path / "settings.json").write_text('{"a": 1}')
    in_folder = ta.read(tmp_path)
    assert names(in_folder) == NAMES
    assert {("error", "unreadable"), ("info", "not-a-trace")} <= set(in_folder.notes.select("level", "code").rows())
    with pytest.raises(ta.UnreadableError, match=r"bad\.json"):
        ta.read(tmp_path, strict=True)
    named = ta.read([tmp_path / "bad.json", tmp_path / "good.json"])
    assert named.notes.select("level", "code").row(0) == ("error", "unreadable")
    with pytest.raises(ta.UnreadableError, match=r"bad\.json"):
        ta.read([tmp_path / "bad.json", tmp_path / "good.json"], strict=True)


def test_strict_makes_damage_an_error(tmp_path: Path) -> None:
    text = TEXTS["compact"].replace('"k5"', '"k5\x01"')
    with pytest.raises(ta.UnreadableError, match=r"control characters.*\[control-character: 1\]"):
        read_bytes(tmp_path, text.encode(), strict=True)


@given(data=st.data())
def test_random_damage_gives_a_table_or_a_refusal(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Bytes flipped, dropped, doubled or put in: never an exception, and what stands before the damage is kept."""
    text = bytearray(TEXTS[data.draw(st.sampled_from(sorted(TEXTS)))].encode())
    first = len(text)
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(text) - 1))
        first = min(first, place)
        kind = data.draw(st.sampled_from(["flip", "drop", "put", "double"]))
        if kind == "flip":
            text[place] = data.draw(st.integers(0, 255))
        elif kind == "drop":
            del text[place : place + data.draw(st.integers(1, 300))]
        elif kind == "put":
            text[place:place] = data.draw(st.sampled_from([b'"', b"}", b"]", b"\\", b"\x00", b",", b"NaN", b"\xff"]))
        else:
            text[place:place] = text[place : place + 500]
    try:
        trace = read_bytes(tmp_path_factory.mktemp("damage"), bytes(text))
    except ta.UnreadableError:
        assert first < 700
        return
    untouched = text[:first].decode("utf-8", "ignore")
    before = [name for name in NAMES if f'"{name}"' in untouched][:-1]
    assert names(trace)[: len(before)] == before


EXTREMES: list[tuple[str, str, dict[str, int]]] = [
    ("a time beyond all years", '"ts": 99999999999999999999', {"unusable-time": 1}),
    ("a time of sixteen nines", '"ts": 9999999999999999', {"unusable-time": 1}),
    ("a time with an exponent beyond all", '"ts": 1e99999999999999999999', {"unusable-time": 1}),
    ("a number of five thousand digits", f'"ts": {"9" * 5000}', {"unusable-time": 1}),
    ("half a character in the category", '"ts": 51, "cat": "ker\\ud800nel"', {"half-character": 1}),
    ("half a character in the phase", '"ts": 51, "ph": "\\udc00"', {"half-character": 1}),
    ("half a character in the thread", '"ts": 51, "tid": "\\ud800"', {"half-character": 1}),
    ("a thousand brackets", f'"ts": {"[" * 3000}{"]" * 3000}', {}),
]


@pytest.mark.parametrize(("what", "change", "noted"), EXTREMES, ids=[row[0] for row in EXTREMES])
@pytest.mark.parametrize("layout", ["kineto-new", "minimal"])
def test_extremes_cost_at_most_their_event(
    tmp_path: Path, what: str, change: str, noted: dict[str, int], layout: str
) -> None:
    old = '"ts": 51' if layout == "kineto-new" else '"ts":51'
    trace = read_bytes(tmp_path, TEXTS[layout].replace(old, change, 1).encode())
    assert [name for name in names(trace) if name != "k5"] == [*NAMES[:5], *NAMES[6:]], what
    assert {code: codes(trace)[code] for code in noted} == noted
    assert repr(ta.top_kernels(trace))


@pytest.mark.parametrize("layout", ["kineto-new", "minimal"])
def test_a_length_of_centuries_is_unusable(tmp_path: Path, layout: str) -> None:
    text = re.sub(r'("ts": ?51,\s*"dur": ?)5\.5', r"\g<1>18446744073709551", TEXTS[layout])
    trace = read_bytes(tmp_path, text.encode())
    assert names(trace) == [*NAMES[:5], *NAMES[6:]]
    assert codes(trace) == {"unusable-duration": 1}


@pytest.mark.parametrize("base", ["1e30", str(2**63), "-9e18", '"12"', "null", "[]", "1.5"])
@pytest.mark.parametrize("key", ["host_name", "trace_id", "distributedInfo"])
def test_odd_metadata_is_no_obstacle(tmp_path: Path, base: str, key: str) -> None:
    text = f'{{"baseTimeNanoseconds": {base}, "{key}": "\\ud800", "traceEvents": {bare_array(EVENTS)}}}'
    trace = read_bytes(tmp_path, text.encode())
    assert names(trace) == NAMES
    assert trace.ranks.height == 1


def test_metadata_behind_a_damaged_last_event_is_read(tmp_path: Path) -> None:
    text = TEXTS["kineto-old"].replace('"name": "k39"', '"name": "k39', 1)
    trace = read_bytes(tmp_path, text.encode())
    assert names(trace) == NAMES[:39]
    assert trace.ranks.select("rank", "base_ns").row(0) == (3, METADATA["baseTimeNanoseconds"])
    assert codes(trace) == {"damaged-event": 1}


def test_damage_and_a_cut_are_both_said(tmp_path: Path) -> None:
    text = TEXTS["compact"].replace('"name": "k5"', '"name" "k5"', 1)
    trace = read_bytes(tmp_path, text[: text.index('"k30"')].encode())
    assert names(trace) == [*NAMES[:5], *NAMES[6:30]]
    assert codes(trace) == {"damaged-event": 1, "json-cut": 1}


@pytest.mark.parametrize("layout", ["compact", "minimal", "kineto-new"])
@pytest.mark.parametrize("size", [41, 100_000])
def test_a_stray_bracket_ends_nothing(tmp_path: Path, layout: str, size: int) -> None:
    text = TEXTS[layout]
    comma = text.index(",", _event_end(text, text.index('"k7"')))
    with chunks(size, 700):
        trace = read_bytes(tmp_path, (text[:comma] + "]" + text[comma + 1 :]).encode())
    assert names(trace) == NAMES
    assert codes(trace) == {"damaged-event": 1}


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("layout", ["compact", "kineto-new", "bare"])
@pytest.mark.parametrize("size", [41, 100_000])
@pytest.mark.parametrize("byte", list('"[]{},:\\0'))
def test_a_byte_put_between_two_events_costs_none(tmp_path: Path, layout: str, size: int, byte: str) -> None:
    """Wherever it stands between them. What follows a stray quote up to the next event's first key is no string."""
    text = TEXTS[layout]
    start = _event_end(text, text.index('"k7"')) + 1
    end = text.index("{", start)
    for place in range(start, end + 1):
        with chunks(size, 700):
            trace = read_bytes(tmp_path, (text[:place] + byte + text[place:]).encode())
        assert names(trace) == NAMES, text[place - 5 : place + 5]
        assert codes(trace) or byte == ","


@pytest.mark.usefixtures("engine")
@layouts
@pytest.mark.parametrize("byte", ['"', "["])
def test_a_byte_put_before_the_first_event_costs_none(tmp_path: Path, layout: str, byte: str) -> None:
    text = TEXTS[layout]
    place = [match.end() for match in re.finditer(r'("traceEvents": ?|^)\[', text[: text.index('"k0"')])][-1]
    assert names(read_bytes(tmp_path, (text[:place] + byte + text[place:]).encode())) == NAMES


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("size", [41, 100_000])
def test_a_quote_before_empty_args_costs_its_event(tmp_path: Path, size: int) -> None:
    """It is no unescaped quote in a string that goes on to the next event."""
    events = [{key: value for key, value in event.items() if key != "args"} | {"args": {}} for event in EVENTS]
    named_first = [{"name": event["name"], **event} for event in events]
    text = LAYOUTS["compact"](named_first, METADATA)
    place = text.index("{}", text.index('"k7"'))
    with chunks(size, 700):
        trace = read_bytes(tmp_path, (text[:place] + '"' + text[place:]).encode())
    assert names(trace) == [*NAMES[:7], *NAMES[8:]]
    assert codes(trace) == {"damaged-event": 1}


@pytest.mark.usefixtures("engine")
@layouts
@pytest.mark.parametrize("size", [41, 100_000])
def test_a_bracket_in_the_place_of_a_brace_costs_its_event(tmp_path: Path, layout: str, size: int) -> None:
    """Found by damaging at random: the array seemed to end there, with 32 events behind it."""
    text = TEXTS[layout]
    brace = text.index("{", _event_end(text, text.index('"k7"')))
    with chunks(size, 700):
        trace = read_bytes(tmp_path, (text[:brace] + "]" + text[brace + 1 :]).encode())
    assert [name for name in names(trace) if name != "k8"] == [*NAMES[:8], *NAMES[9:]]
    assert "damaged-event" in codes(trace)


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("size", [41, 100_000])
@pytest.mark.parametrize(
    "instead", ["]}}0 {", "]}} {", "]}0, {", "]}, {", ", {", "{", ']}}, {"": 0}}, {', "]}},\n}, {"]
)
def test_a_damaged_separator_costs_at_most_the_event_before_it(tmp_path: Path, size: int, instead: str) -> None:
    """Found by damaging at random: the event behind it is whole, and so it is kept."""
    text = TEXTS["compact"]
    place = text.index("]}}, {", text.index('"k7"'))
    with chunks(size, 700):
        trace = read_bytes(tmp_path, (text[:place] + instead + text[place + len("]}}, {") :]).encode())
    assert [name for name in names(trace) if name != "k7"] == [*NAMES[:7], *NAMES[8:]]
    assert codes(trace).keys() <= {"damaged-event", "no-phase", "not-an-event"}


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("size", [41, 100_000])
@pytest.mark.parametrize("layout", ["bare", "compact", "kineto-new"])
@pytest.mark.parametrize(
    "remains",
    ['"0", "", "False"], "x": [[], [1, 2]], "y": 678}}', '224, 224]], "y": [true]}}', '], "x": [""], "y": 1}}'],
)
def test_the_rest_of_an_event_that_lost_its_beginning_does_not_end_the_array(
    tmp_path: Path, layout: str, size: int, remains: str
) -> None:
    """Found by damaging at random: its args ended with a bracket behind which an object seemed to go on."""
    text = TEXTS[layout]
    start, end = text.rindex("{", 0, text.index('"k7"')), _event_end(text, text.index('"k7"')) + 1
    with chunks(size, 700):
        trace = read_bytes(tmp_path, (text[:start] + remains + text[end:]).encode())
    assert names(trace) == [*NAMES[:7], *NAMES[8:]]
    assert codes(trace).keys() - {"not-an-event"} == {"damaged-event"}
    assert trace.ranks["rank"].item() == (None if layout == "bare" else 3)


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("size", [41, 100_000])
@pytest.mark.parametrize("last", ["null", "1", '"x"'])
def test_an_array_may_end_with_what_is_no_event(tmp_path: Path, size: int, last: str) -> None:
    """The object goes on behind it, and so may other traces."""
    text = a_trace("kineto-old", 0, 5)
    end = _event_end(text, text.index('"k4"')) + 1
    both = text[:end] + ", " + last + text[end:] + a_trace("compact", 5, 5, rank=1)
    with chunks(size, 700):
        trace = read_bytes(tmp_path, both.encode())
    assert names(trace) == NAMES[:5]
    assert codes(trace) == {"not-an-event": 1, "other-rank-inside": 1}


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("number", [2**64, -(2**63) - 1, -(10**400), 10**400])
def test_ids_beyond_64_bits_are_unknown(tmp_path: Path, number: int) -> None:
    """Found by damaging at random: one far below made the file unreadable."""
    text = TEXTS["compact"].replace('"correlation": 7,', f'"correlation": {number},')
    correlations = read_bytes(tmp_path, text.encode()).kernels["correlation"].to_list()
    assert correlations == [*range(1, 7), None, *range(8, 41)]


def test_an_event_of_megabytes_is_an_event(tmp_path: Path) -> None:
    large = {**kernel("large", at=55, dur=1), "args": {"list": [{"a": i} for i in range(150_000)]}}
    path = tmp_path / "t.json"
    path.write_text(LAYOUTS["compact"]([*EVENTS[:5], large, *EVENTS[5:]], METADATA))
    trace = ta.read(path)
    assert names(trace) == [*NAMES[:5], "large", *NAMES[5:]]
    assert codes(trace) == {}


@pytest.mark.parametrize("damage", ['"name" "x"', '"name": "x\\u"', '"name": "x", {'])
def test_damage_costs_its_own_length(tmp_path: Path, damage: str) -> None:
    """One in ten of many events damaged: the time for twice as many is about twice as long, not four times."""
    seconds = []
    for count in (2000, 8000):
        events = [kernel(f"k{i}", at=i, dur=0.5) for i in range(count)]
        text = LAYOUTS["compact"](events, {})
        for i in range(0, count, 10):
            text = text.replace(f'"name": "k{i}"', damage, 1)
        began = time.process_time()
        trace = read_bytes(tmp_path, text.encode(), name=f"{count}.json")
        seconds.append(time.process_time() - began)
        assert trace.kernels.height >= count * 9 // 10 - 1
    assert seconds[1] < 8 * seconds[0] + 1


@pytest.mark.parametrize("rest", ["]", "1],"])
def test_brackets_in_damage_cost_their_length(tmp_path: Path, rest: str) -> None:
    """Each of them might end the array, and an event is looked for behind it."""
    text = TEXTS["compact"]
    start, end = text.rindex("{", 0, text.index('"k7"')), _event_end(text, text.index('"k7"'))
    seconds = []
    for count in (10_000, 40_000):
        began = time.process_time()
        trace = read_bytes(tmp_path, (text[:start] + "1" + rest * count + text[end:]).encode(), name=f"{count}.json")
        seconds.append(time.process_time() - began)
        assert names(trace) == [*NAMES[:7], *NAMES[8:]]
    assert seconds[1] < 8 * seconds[0] + 1


@pytest.mark.parametrize(
    ("begin", "rubbish"),
    [
        ('{"ph": "X", "name": "x" ', '"a" '),
        ('{"ph": "X", "name": "', '"a", '),
        ("", '}, {"'),
        ("", '{"trace_id": "1", "ph": "X", "ts": x}, '),
    ],
)
def test_rubbish_costs_its_length(tmp_path: Path, begin: str, rubbish: str) -> None:
    """What may follow damage was looked for again and again, up to the end of the text."""
    text = TEXTS["compact"]
    at = text.rindex("{", 0, text.index('"k7"'))
    seconds = []
    for size in (20_000, 80_000):
        began = time.process_time()
        trace = read_bytes(
            tmp_path, (text[:at] + begin + rubbish * (size // len(rubbish))).encode(), name=f"{size}.json"
        )
        seconds.append(time.process_time() - began)
        assert names(trace) == NAMES[:7]
    assert seconds[1] < 8 * seconds[0] + 1


def test_leading_blanks_cost_their_length(tmp_path: Path) -> None:
    trace = read_bytes(tmp_path, b" \n" * 3_000_000 + TEXTS["compact"].encode())
    assert names(trace) == NAMES


# -- several traces in one file -----------------------------------------------------------------------------------


def a_trace(layout: str, first: int, count: int, *, rank: int | None = 3, base: int | None = None) -> str:
    """A trace of the kernels k<first>, ...; as a bare array it says neither rank nor base."""
    events = [kernel(f"k{i}", at=10 * i + 1, dur=5.5, correlation=i + 1) for i in range(first, first + count)]
    if layout == "bare":
        return bare_array(events)
    metadata = {**METADATA, "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": 4}}
    if rank is None:
        del metadata["distributedInfo"]
    if base is not None:
        metadata["baseTimeNanoseconds"] = base
    return LAYOUTS[layout](events, metadata)


@pytest.mark.parametrize("between", ["", "\n", ",\n", "\0" * 300, "\x1e"])
@pytest.mark.parametrize("size", [41, 100_000])
@layouts
@pytest.mark.usefixtures("engine")
def test_traces_one_after_another_are_read_as_one(tmp_path: Path, layout: str, size: int, between: str) -> None:
    text = between.join(a_trace(layout, *part) for part in ((0, 15), (15, 1), (16, 24)))
    with chunks(size, 700):
        trace = read_bytes(tmp_path, text.encode())
    assert names(trace) == NAMES
    assert codes(trace) == {"concatenated": 2}
    assert ("several ranks" in trace.notes["message"].str.join("").item()) is (layout == "bare")
    assert trace.ranks["whole"].item() is True
    with pytest.raises(ta.UnreadableError, match=r"\[concatenated: 2\]"):
        read_bytes(tmp_path, text.encode(), strict=True)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("first_layout", ["kineto-new", "kineto-old"])
@pytest.mark.parametrize("layout", sorted(LAYOUTS))
@pytest.mark.usefixtures("engine")
def test_two_ranks_are_never_read_as_one(tmp_path: Path, first_layout: str, layout: str, packed: bool) -> None:
    """Metadata behind the events says it too late for one reading: the file is read again."""
    parts = [a_trace(first_layout, 0, 20), a_trace(layout, 100, 20, rank=1), a_trace(layout, 20, 20),
             a_trace(layout, 200, 2, rank=0)]  # fmt: skip
    data = b"".join(gzip.compress(part.encode()) if packed else part.encode() for part in parts)
    with chunks(300, 700):
        trace = read_bytes(tmp_path, data)
    assert names(trace) == NAMES
    assert trace.ranks.select("rank", "whole").rows() == [(3, False)]
    assert codes(trace) == {"concatenated": 1, "other-rank-inside": 2}
    assert trace.notes.filter(pl.col("code") == "other-rank-inside")["message"].str.contains("of rank 0, 1 ").all()
    assert trace.event_counts["count"].sum() == 40
    with pytest.raises(ta.UnreadableError, match="other-rank-inside"):
        read_bytes(tmp_path, data, strict=True)


@pytest.mark.parametrize("layout", ["kineto-new", "kineto-old"])
@pytest.mark.usefixtures("engine")
def test_two_recordings_stand_at_their_own_times(tmp_path: Path, layout: str) -> None:
    base = METADATA["baseTimeNanoseconds"]
    assert isinstance(base, int)
    text = a_trace(layout, 0, 2) + a_trace(layout, 2, 2, base=base + 7_000_000_001) + a_trace(layout, 4, 1)
    trace = read_bytes(tmp_path, text.encode())
    later = [0, 0, 7_000_000_001, 7_000_000_001, 0]
    assert trace.kernels["start_ns"].to_list() == [base + 10_000 * i + 1000 + later[i] for i in range(5)]
    text = a_trace(layout, 0, 2) + a_trace(layout, 2, 2, base=-base)
    trace = read_bytes(tmp_path, text.encode())
    assert names(trace) == ["k0", "k1"]
    assert codes(trace) == {"other-rank-inside": 1}


@pytest.mark.parametrize("rank", [3, 1])
@pytest.mark.parametrize(("outer", "inner"), [("kineto-new", "kineto-new"), ("compact", "minimal"), ("bare", "bare"),
                                               ("minimal", "kineto-old"), ("bare", "compact")])  # fmt: skip
@given(data=st.data())
def test_a_trace_that_begins_inside_another(
    tmp_path_factory: pytest.TempPathFactory, outer: str, inner: str, rank: int, data: st.DataObject
) -> None:
    """A writer was killed and another wrote on behind it. Every whole event before and behind stays, of one rank."""
    whole = a_trace(outer, 0, 20)
    cut = data.draw(st.integers(whole.index('"k3"'), whole.rindex("]") - 1))
    with chunks(data.draw(st.sampled_from([50, 5000])), 700):
        text = whole[:cut] + a_trace(inner, 20, 20, rank=rank)
        trace = read_bytes(tmp_path_factory.mktemp("inside"), text.encode())
    before = [name for name in NAMES[:20] if _event_end(whole, whole.index(f'"{name}"')) < cut]
    assert names(trace)[: len(before)] == before
    behind = names(trace)[len(before) :]
    said = 3 if re.search('"world_size": ?4}', whole[:cut]) else None  # where the metadata stands behind, it is lost
    assert behind == (NAMES[20:] if said == (None if inner == "bare" else rank) else [])


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("size", [41, 100_000])
@pytest.mark.parametrize("behind", ["", "\n", a_trace("compact", 40, 3)])
def test_a_list_that_begins_between_two_events_is_told_by_its_end(tmp_path: Path, size: int, behind: str) -> None:
    """A writer was killed behind a comma, and another one wrote a bare list: of an unknown rank, so it is left out. The
    same bracket is a stray one where the object goes on behind the array."""
    text = a_trace("compact", 0, 20)
    cut = text.index("{", _event_end(text, text.index('"k7"')))
    with chunks(size, 700):
        trace = read_bytes(tmp_path, (text[:cut] + a_trace("bare", 20, 5) + behind).encode())
        assert names(trace) == [*NAMES[:8], *([f"k{i}" for i in range(40, 43)] if len(behind) > 1 else [])]
        assert codes(trace).keys() - {"concatenated"} == {"json-cut", "other-rank-inside"}
        stray = read_bytes(tmp_path, (text[:cut] + "[" + text[cut:] + behind).encode())
        nothing_between = text[: text.rindex("}", 0, cut) + 1] + a_trace("bare", 20, 5) + text[cut:]
        without_comma = read_bytes(tmp_path, nothing_between.encode())
    assert names(stray)[:20] == NAMES[:20]
    assert codes(stray).keys() - {"concatenated"} == {"damaged-event"}
    assert names(without_comma)[:8] == NAMES[:8]
    assert not {f"k{i}" for i in range(20, 25)} & set(names(without_comma))


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("size", [50, 5000])
@pytest.mark.parametrize("rank", [3, 1])
def test_a_trace_that_begins_behind_a_metadata_key_is_no_value(tmp_path: Path, size: int, rank: int) -> None:
    """Found by a property test with 1,000 examples: the second trace was read as the value of that key."""
    first = a_trace("minimal", 0, 20)
    cut = first.index('"deviceProperties":') + len('"deviceProperties":')
    with chunks(size, 700):
        trace = read_bytes(tmp_path, (first[:cut] + a_trace("kineto-old", 20, 20, rank=rank)).encode())
    assert names(trace) == (NAMES if rank == 3 else NAMES[:20])
    assert codes(trace) == {"json-cut": 1, "concatenated" if rank == 3 else "other-rank-inside": 1}


def test_remains_of_a_longer_trace_behind_a_shorter_one_are_not_read(tmp_path: Path) -> None:
    """Two processes wrote to one path at once: nothing says whose events the remains are."""
    longer, shorter = a_trace("kineto-new", 0, 40, rank=1), a_trace("kineto-new", 0, 20)
    trace = read_bytes(tmp_path, (shorter + longer[len(shorter) :]).encode())
    assert names(trace) == NAMES[:20]
    assert codes(trace) == {"trailing-text": 1}


@pytest.mark.parametrize("size", [41, 100_000])
@pytest.mark.parametrize("begin", ['{"schemaVersion": 1, nccl", "a": 2, ', '{"schemaVersion": 1, "a": nccl", '])
def test_a_trace_behind_damaged_metadata_keeps_its_rank(tmp_path: Path, size: int, begin: str) -> None:
    """Found by damaging at random: its metadata was passed over as well where a key was damaged."""
    with chunks(size, 700):
        trace = read_bytes(tmp_path, (begin + a_trace("kineto-new", 0, 20, rank=3)).encode())
    assert names(trace) == NAMES[:20]
    assert codes(trace).keys() - {"missing-ranks"} == {"damaged-metadata"}
    assert trace.ranks["rank"].to_list() == [3]


@pytest.mark.parametrize("size", [41, 16_000, 100_000])
@pytest.mark.parametrize("begin", ['"deviceProperties": [', '"other": [{"a": [', '"x": {"y": {'])
def test_lists_and_objects_in_damaged_metadata_are_no_traces(tmp_path: Path, size: int, begin: str) -> None:
    """Found by damaging at random: how many traces there were depended on how much of the text was at hand."""
    devices = ", ".join(f'{{"id": {i}, "name": "GPU"}}' for i in range(500))
    before = a_trace("minimal", 0, 20, rank=None).rstrip().removesuffix("}")
    text = f'{before}, {begin}{{"id": 0, "name": nccl"}}, {devices}]}}\n' + a_trace("minimal", 20, 20, rank=None)
    with chunks(size, 700):
        trace = read_bytes(tmp_path, text.encode())
    assert names(trace) == NAMES
    assert codes(trace) == {"damaged-metadata": 1, "concatenated": 1}


@pytest.mark.parametrize("behind", ["", "\n", a_trace("kineto-old", 20, 20)])
def test_a_number_that_was_cut_is_none(tmp_path: Path, behind: str) -> None:
    """Found by a property: the first digits of a base time were another one, and a trace behind it of another time."""
    whole = a_trace("minimal", 0, 20)
    at = whole.index("1790857026000000000")
    expected = read_bytes(tmp_path, whole.encode(), name="whole.json").ranks["base_ns"].item()
    for cut in (at + 1, at + 10, at + 18):
        trace = read_bytes(tmp_path, (whole[:cut] + behind).encode())
        assert names(trace) == (NAMES if behind.strip() else NAMES[:20])
        assert trace.ranks["base_ns"].to_list() == [expected if behind.strip() else 0]


@pytest.mark.parametrize("size", [41, 100_000])
@pytest.mark.parametrize("begin", ['{"schemaVersion": 1,', '{"schemaVersion": 1, "a": 2', '{"a": [1, 2], '])
def test_a_trace_in_the_place_of_a_key_is_one(tmp_path: Path, size: int, begin: str) -> None:
    """A writer was killed before its events, and another one wrote on behind it."""
    with chunks(size, 700):
        trace = read_bytes(tmp_path, (begin + a_trace("kineto-new", 0, 20)).encode())
    assert names(trace) == NAMES[:20]
    assert codes(trace).keys() - {"missing-ranks"} == {"damaged-metadata"}
    assert trace.ranks["rank"].to_list() == [3]


def test_a_refusal_is_one_line_whatever_the_keys(tmp_path: Path) -> None:
    with pytest.raises(ta.UnreadableError, match=r"holds no traceEvents \(a JSON object with a b, c\)"):
        read_bytes(tmp_path, b'{"a\nb": 1, "c": 2}')


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("size", [41, 100_000])
@pytest.mark.parametrize("begin", ['{lambda(long)#1}>(float)"', '\n    "tid": 7'])
def test_remains_that_look_like_an_event_are_not_read(tmp_path: Path, size: int, begin: str) -> None:
    """Found by damaging at random: a brace in a name of the longer trace stood behind the shorter one."""
    shorter, longer = a_trace("bare", 0, 20), a_trace("bare", 20, 40)
    remains = begin + longer[longer.index(",", longer.index('"k45"')) :]
    with chunks(size, 700):
        trace = read_bytes(tmp_path, (shorter + remains).encode())
    assert names(trace) == NAMES[:20]
    assert codes(trace).keys() - {"damaged-metadata"} == {"trailing-text"}


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("size", [41, 100_000])
@pytest.mark.parametrize(
    "args", ['{"External id": 381, "Ev Idx": 380}', '{"name": "python"}', '{"": "\\q"}', ', []], "x": 1}']
)
def test_remains_that_begin_with_the_args_of_an_event_are_not_read(tmp_path: Path, size: int, args: str) -> None:
    """Found by damaging at random: the brace behind the shorter trace made its bracket a stray one."""
    shorter, longer = a_trace("bare", 0, 20), a_trace("bare", 20, 40)
    remains = "\n " + args + longer[_event_end(longer, longer.index('"k45"')) :]
    with chunks(size, 700):
        trace = read_bytes(tmp_path, (shorter + remains).encode())
    assert names(trace) == NAMES[:20]
    assert codes(trace).keys() - {"damaged-metadata", "concatenated"} == {"trailing-text"}


@pytest.mark.usefixtures("engine")
def test_objects_that_are_no_traces_are_trailing_text(tmp_path: Path) -> None:
    for tail in ['{"a": 1}', "[1, 2]", "garbage", '{"a', '{"a": 1}{"b": 2}', "[[", '{"schemaVersion": 1', "\xff"]:
        trace = read_bytes(tmp_path, (TEXTS["compact"] + tail).encode())
        assert names(trace) == NAMES
        assert codes(trace).keys() - {"damaged-metadata", "json-cut"} == {"trailing-text"}
    trace = read_bytes(tmp_path, (TEXTS["compact"] + "garbage" * 1000 + a_trace("compact", 40, 1)).encode())
    assert names(trace) == [*NAMES, "k40"]
    assert codes(trace) == {"trailing-text": 1, "concatenated": 1}


def _damaged_members() -> dict[str, bytes]:
    text = TEXTS["compact"].encode()
    one = bytearray(gzip.compress(text))
    one[len(one) // 2 : len(one) // 2 + 4] = b"\xff" * 4
    three = [bytearray(gzip.compress(part)) for part in (text[:2000], text[2000:6000], text[6000:])]
    three[1][100:104] = b"\xff" * 4
    longer = bytearray(gzip.compress(text[:3000], 0))
    head = longer.index((3000).to_bytes(2, "little"), 10)
    longer[head : head + 4] = b"\xff\xff\x00\x00"  # a stored block that is longer than the file
    wrong = bytearray(gzip.compress(text))
    wrong[-6] ^= 1
    return {
        "one member": bytes(one),
        "of three": b"".join(three),
        "runs on": bytes(longer) + gzip.compress(text[3000:]),
        "checksum": bytes(wrong),
        "cut": gzip.compress(text)[:-20],
        "whole": gzip.compress(text[:100]) + gzip.compress(text[100:]),
    }


@pytest.mark.parametrize("kind", ["one member", "of three", "runs on", "checksum", "cut", "whole"])
@pytest.mark.parametrize("block", [50, 16 << 10])
def test_damaged_members_from_a_pipe_are_read_as_from_a_file(tmp_path: Path, kind: str, block: int) -> None:
    data = _damaged_members()[kind]
    with mock.patch("traceanalyzer.ingest.source.COMPRESSED_BLOCK", block):
        expected = read_bytes(tmp_path, data)
        pipe = tmp_path / "pipe.json"
        os.mkfifo(pipe)
        writing = threading.Thread(target=lambda: pipe.write_bytes(data), daemon=True)
        writing.start()
        trace = ta.read(pipe)
        writing.join(10)
    assert names(trace)[:2] == NAMES[:2]
    assert names(trace) == names(expected)
    assert codes(trace) == codes(expected)


def test_a_pipe_is_refused_where_it_would_have_to_be_read_twice(tmp_path: Path) -> None:
    text = a_trace("kineto-old", 0, 20) + a_trace("kineto-old", 20, 20)
    pipe = tmp_path / "pipe.json"
    os.mkfifo(pipe)
    writing = threading.Thread(target=lambda: pipe.write_text(text), daemon=True)
    writing.start()
    with pytest.raises(ta.UnreadableError, match=r"several traces; to be told apart, they must come from a file"):
        ta.read(pipe)
    writing.join(10)


def test_many_small_traces_cost_their_length(tmp_path: Path) -> None:
    """As tools write them that put one object a line."""
    text = "\n".join(a_trace("minimal", i, 1, rank=None) for i in range(3000))
    trace = read_bytes(tmp_path, text.encode())
    assert names(trace) == [f"k{i}" for i in range(3000)]
    assert codes(trace) == {"concatenated": 2999}
