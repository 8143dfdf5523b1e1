"""Damages small traces in every way in which files are found damaged, and checks what the reader makes of them.

    python fuzz/damages.py [--cases 1000] [--seed 1] [--kinds NAME ...] [--command-line 50] [FOLDER ...]

Every case is read by both engines, which must agree, in blocks of odd sizes, within a time limit. What must be kept is
kept: every event before the damage, and every event behind it whose text is whole. Nothing is made up: rows beyond
those of whole events are at most as many as the events that were damaged. Prints a table; exit code 1 if anything
failed, and then the files that did so lie in `build/damages`.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import polars as pl
from excerpts import Event, Excerpt, excerpt, files_under, number_at, real_events
from polars.testing import assert_frame_equal

import traceanalyzer as ta
from traceanalyzer.ingest.engines import ENGINE_VARIABLE

#: Of the processor, for one reading; and of the clock, which a busy machine may stop for long.
SECONDS_A_CASE, SECONDS_OF_THE_CLOCK = 10, 120
SECONDS_A_COMMAND = 60
HERE = Path(__file__).resolve().parent
SHARED = Path(os.environ.get("TRACEANALYZER_SHARED") or HERE.parents[1] / "shared")
FAILED_FILES = HERE.parent / "build" / "damages"
_CHUNKS = [(50, 100), (333, 700), (100_000, 600_000)]
_POINTS = ("flows", "counters")
#: Characters of a failure's message; all of it is kept beside its file.
_SHOWN = 300


@dataclass
class Case:
    """A damaged file and what must come of it."""

    data: bytes
    kept: set[int]
    """The events that must be there."""
    whole: dict[int, Event]
    """All events whose rows can be told: any other row is made up."""
    made_up: int | None = 0
    """At most so many rows that are none of those; None: any number."""
    note: str | None = None
    """The code of a note that must be there, or of several, with "/" between them, one."""
    may_be_refused: bool = False
    names: dict[int, str | None] = field(default_factory=dict)
    """Names that the damage changed; None: any."""


Kind = Callable[[random.Random, Callable[..., Excerpt]], Case]
KINDS: dict[str, Kind] = {}


def kind(function: Kind) -> Kind:
    """Register a way of damaging."""
    KINDS[function.__name__.replace("_", "-")] = function
    return function


def _undamaged(whole: Excerpt, data: bytes, **changes: Any) -> Case:
    return Case(data, **{"kept": set(whole.events), "whole": whole.events, **changes})


def _before(whole: Excerpt, cut: int) -> set[int]:
    return {number for number, (_, end) in whole.spans.items() if end <= cut}


# -- cut ------------------------------------------------------------------------------------------------------------


@kind
def truncated_json(rng: random.Random, new: Callable[..., Excerpt]) -> Case:
    """The writer was killed."""
    whole = new()
    cut = rng.randrange(1, len(whole.text))
    return Case(whole.text[:cut], _before(whole, cut), whole.events, may_be_refused=cut < whole.first)


@kind
def truncated_gzip(rng: random.Random, new: Callable[..., Excerpt]) -> Case:
    whole = new()
    packed = gzip.compress(whole.text, rng.choice([0, 1, 6, 9]))
    packed = packed[: rng.randrange(2, len(packed))]
    inflated = len(zlib.decompressobj(31).decompress(packed))
    return Case(packed, _before(whole, inflated), whole.events, note="gzip-cut", may_be_refused=inflated < whole.first)


# -- compression ----------------------------------------------------------------------------------------------------


def _members(rng: random.Random, text: bytes) -> list[tuple[int, bytearray]]:
    """Gzip members of a text, with where each begins in it."""
    borders = sorted({0, *(rng.randrange(len(text)) for _ in range(rng.randrange(3)))})
    return [
        (start, bytearray(gzip.compress(text[start:end], rng.choice([0, 6]))))
        for start, end in zip(borders, [*borders[1:], len(text)], strict=True)
    ]


@kind
def corrupt_deflate(rng: random.Random, new: Callable[..., Excerpt]) -> Case:
    """Some bytes of a member are others. What it gives before and behind, up to its end, may be anything."""
    whole = new()
    members = _members(rng, whole.text)
    which = rng.randrange(len(members))
    start, member = members[which]
    end = members[which + 1][0] if which + 1 < len(members) else len(whole.text)
    good = bytes(member)
    for _ in range(rng.randint(1, 3)):
        member[rng.randrange(10, len(member) - 8)] = rng.randrange(256)
    kept, note = set(whole.events), None
    if not _inflates(bytes(member)):
        kept = _surely_inflated(whole, start, end, good, bytes(member))
        note = "gzip-damaged/gzip-cut"  # damage may read as content that goes on behind the end of the file
    data = b"".join(bytes(member) for _, member in members)
    return Case(data, kept, whole.events, made_up=None, note=note, may_be_refused=start < whole.first)


def _inflates(member: bytes) -> bool:
    """Not every bit of a member matters."""
    try:
        zlib.decompress(member, 31)
    except zlib.error:
        return False
    return True


def _surely_inflated(whole: Excerpt, start: int, end: int, good: bytes, bad: bytes) -> set[int]:
    """The events before what the member first gives wrong, and those of the members behind it."""
    inflater, text = zlib.decompressobj(31), b""
    try:
        for byte in bad:
            text += inflater.decompress(bytes([byte]))
    except zlib.error:
        pass
    right = zlib.decompress(good, 31)
    same = next((i for i, (a, b) in enumerate(zip(text, right, strict=False)) if a != b), min(len(text), len(right)))
    # damage may look like the start of a string that swallows the first events behind it
    behind = sorted(number for number, (a, _) in whole.spans.items() if a >= end)
    return _before(whole, start + same) | set(behind[_SWALLOWED:])


#: So many events behind a damaged gzip member may be taken for a part of what it gave last.
_SWALLOWED = 2


@kind
def wrong_checksum(rng: random.Random, new: Callable[..., Excerpt]) -> Case:
    whole = new()
    packed = bytearray(gzip.compress(whole.text))
    packed[-rng.randint(1, 8)] ^= rng.randint(1, 255)
    return _undamaged(whole, bytes(packed), note="gzip-damaged")


# -- what writers get wrong -----------------------------------------------------------------------------------------


@kind
def missing_bracket(rng: random.Random, new: Callable[..., Excerpt]) -> Case:
    whole = new()
    return _undamaged(whole, whole.text[: whole.last] + rng.choice([b"", b"\n", b"}", b",", b",\n"]))


@kind
def trailing_comma(rng: random.Random, new: Callable[..., Excerpt]) -> Case:
    whole = new()
    return _undamaged(
        whole, whole.text[: whole.last] + rng.choice([b",", b" ,", b",\n", b",,"]) + whole.text[whole.last :]
    )


def _changed(whole: Excerpt, changes: dict[tuple[int, int], bytes]) -> bytes:
    """The text with other bytes at some places."""
    parts, done = [], 0
    for (start, end), new in sorted(changes.items()):
        parts += [whole.text[done:start], new]
        done = end
    return b"".join([*parts, whole.text[done:]])


def _place_of(whole: Excerpt, number: int, key: str) -> tuple[int, int] | None:
    """Where the value of a key of an event stands."""
    start, end = whole.spans[number]
    mark = f'"{key}": '.encode()
    at = whole.text.find(mark, start, end)
    if at < 0:
        return None
    at += len(mark)
    value = json.JSONDecoder().raw_decode(whole.text[at:end].decode())[1]
    return at, at + len(whole.text[at:end].decode()[:value].encode())


def _some(rng: random.Random, whole: Excerpt) -> list[int]:
    return rng.sample(sorted(whole.events), rng.randint(1, min(3, len(whole.events))))


@kind
def not_a_number(rng: random.Random, new: Callable[..., Excerpt]) -> Case:
    whole = new()
    words = [b"NaN", b"Infinity", b"-Infinity", b"nan", b"-nan", b"inf", b"-inf", b"nan(ind)"]
    changes, timeless = {}, set()
    for number in _some(rng, whole):
        key = rng.choice(["ts", "dur", "pid", "id", "correlation", "External id"])
        if (place := _place_of(whole, number, key)) is not None:
            changes[place] = rng.choice(words)
            timeless |= {number} if key in ("ts", "dur") else set()
    note = "not-a-number" if changes else None
    return Case(_changed(whole, changes), set(whole.events) - timeless, whole.events, note=note)


def _in_names(
    rng: random.Random, whole: Excerpt, insertions: list[bytes], shown: Callable[[str], str | None]
) -> tuple[bytes, dict[int, str | None]]:
    """Bytes put into the names of some events, and what the names are then."""
    changes, names = {}, {}
    for number in _some(rng, whole):
        place = _place_of(whole, number, "name")
        assert place is not None
        content = whole.text[place[0] + 1 : place[1] - 1]
        if b"\\" in content:
            continue
        text = content.decode()
        at = rng.randint(0, len(text))
        new = rng.choice(insertions)
        changes[place] = b'"' + text[:at].encode() + new + text[at:].encode() + b'"'
        told = shown(new.decode("utf-8", "surrogateescape"))
        names[number] = None if told is None else text[:at] + told + text[at:]
    return _changed(whole, changes), names


@kind
def control_characters(rng: random.Random, new: Callable[..., Excerpt]) -> Case:
    whole = new()
    insertions = [bytes([rng.randrange(32)]), b"\n", b"\t", b"\x00", b"\x1b[0m"]
    data, names = _in_names(rng, whole, insertions, lambda new: new)
    return _undamaged(whole, data, names=names, note="control-character" if names else None)


@kind
def invalid_utf8(rng: random.Random, new: Callable[..., Excerpt]) -> Case:
    whole = new()
    insertions = [b"\xff", b"\xc3", b"\xe2\x82", b"\x80", b"\xed\xa0\x80", b"\xf5"]
    data, names = _in_names(rng, whole, insertions, lambda new: "\ufffd" * len(new))
    return _undamaged(whole, data, names=names, note="invalid-utf8" if names else None)


@kind
def bad_escapes(rng: random.Random, new: Callable[..., Excerpt]) -> Case:
    """Paths of Windows: a backslash that escapes nothing stands for itself."""
    whole = new()
    insertions = [rb"\q", rb"C:\Users\x", rb"\u12zz", rb"\p\q", rb"\ ", rb"\x41"]
    data, names = _in_names(rng, whole, insertions, lambda _: None)
    return _undamaged(whole, data, names=names, note="bad-escape" if names else None)


@kind
def unescaped_quotes(rng: random.Random, new: Callable[..., Excerpt]) -> Case:
    """Repaired where that can be told, else the event is dropped; never another one."""
    whole = new()
    insertions = [b'"', b'"a"', b'\n"', b'" ', b'"\n  "', b"\n", b"\r\n"]
    data, names = _in_names(rng, whole, insertions, lambda _: None)
    return Case(data, set(whole.events) - set(names), whole.events, names=names)


@kind
def large_integers(rng: random.Random, new: Callable[..., Excerpt]) -> Case:
    whole = new()
    numbers = [str(value).encode() for value in (2**63, 2**64 - 1, 2**64, -(2**63) - 1, 10**40, -(10**400))] + [
        b"7" * 5000
    ]
    changes, timeless = {}, set()
    for number in _some(rng, whole):
        key = rng.choice(["ts", "dur", "pid", "tid", "id", "correlation", "External id", "device", "stream"])
        if (place := _place_of(whole, number, key)) is not None:
            changes[place] = rng.choice(numbers)
            timeless |= {number} if key in ("ts", "dur") else set()
    return Case(_changed(whole, changes), set(whole.events) - timeless, whole.events)


@kind
def split_negative_times(rng: random.Random, new: Callable[..., Excerpt]) -> Case:
    """-1.-05, as a writer prints whole and part of a negative number; a negative length is dropped."""
    whole = new()
    changes, changed = {}, set()
    for number in _some(rng, whole):
        if (place := _place_of(whole, number, rng.choice(["ts", "dur"]))) is not None:
            changes[place] = rng.choice([b"-1.-05", b"-12.-7", b"0.-250", b"-123.-999"])
            changed.add(number)
    note = "negative-time" if changes else None
    return Case(_changed(whole, changes), set(whole.events) - changed, whole.events, made_up=len(changed), note=note)


@kind
def duplicate_keys(rng: random.Random, new: Callable[..., Excerpt]) -> Case:
    """The last of equal keys counts, as everywhere."""
    whole = new()
    changes, names = {}, {}
    for number in _some(rng, whole):
        end = whole.spans[number][1] - 1
        key, value = rng.choice(
            [("name", '"twice"'), ("pid", "99"), ("args", '{"a": 1}'), ("other", "1"), ("args", "{}")]
        )
        changes[end, end] = f', "{key}": {value}'.encode()
        names |= {number: "twice"} if key == "name" else {}
    return _undamaged(whole, _changed(whole, changes), names=names)


# -- several traces -------------------------------------------------------------------------------------------------


def _said_rank(trace: Excerpt, length: int) -> int:
    """The rank that so much of the text says; -1: none."""
    return trace.rank if b'"world_size": 8}' in trace.text[:length] else -1


@kind
def concatenated(rng: random.Random, new: Callable[..., Excerpt]) -> Case:
    """Whole traces one after another: those of the first one's rank are read, the others never."""
    parts = [new(first_number=1000 * i, rank=rng.choice([3, 3, 1])) for i in range(rng.randint(2, 4))]
    between = rng.choice([b"", b"\n", b",\n", b"\0" * 64, b" "])
    text = between.join(part.text for part in parts)
    events = {n: e for part in parts if part.rank == parts[0].rank for n, e in part.events.items()}
    data = gzip.compress(text) if rng.random() < 0.3 else text
    return Case(data, set(events), events)


def _begins_with_event(trace: Excerpt, cut: int) -> bool:
    """Whether the text from a place on begins with a whole event. Behind a bare list, that is what a bracket in the
    place of a comma leaves, and is read."""
    rest = trace.text[cut:]
    at = cut + len(rest) - len(rest.lstrip(b" \n,"))
    return any(trace.text.index(b"{", start) == at for start, _ in trace.spans.values())


@kind
def written_over(rng: random.Random, new: Callable[..., Excerpt]) -> Case:
    """Several ranks wrote to one path at once: one lies over the start, or over a part, of another."""
    under, over = new(), new(first_number=1000, rank=1)
    if rng.random() < 0.5:  # the whole of one, and what remains of a longer one
        text = over.text + under.text[len(over.text) :]
        made_up = None if _begins_with_event(under, len(over.text)) and over.rank < 0 else 0
        return Case(text, set(over.events), over.events, made_up=made_up)
    start, length = rng.randrange(under.first, len(under.text)), rng.randrange(1, len(over.text))
    text = under.text[:start] + over.text[:length] + under.text[start + length :]
    same = _said_rank(under, start) == _said_rank(over, length)
    whole = under.events | (over.events if same else {})
    return Case(text, _before(under, start), whole, made_up=4)


@kind
def begun_inside(rng: random.Random, new: Callable[..., Excerpt]) -> Case:
    """A writer was killed, and another one wrote on behind it."""
    first, second = new(), new(first_number=1000, rank=rng.choice([3, 1]))
    cut = rng.randrange(first.first, first.last)
    same = _said_rank(first, cut) == second.rank
    events = first.events | (second.events if same else {})
    return Case(first.text[:cut] + second.text, _before(first, cut) | (set(second.events) if same else set()), events)


# -- random bytes ---------------------------------------------------------------------------------------------------


def _random_bytes(rng: random.Random, whole: Excerpt, change: Callable[[int], tuple[int, bytes]]) -> Case:
    """`change` gives, for a place, how many bytes are replaced there and by what."""
    at = rng.randrange(len(whole.text))
    length, new = change(at)
    text = whole.text[:at] + new + whole.text[at + length :]
    kept = _kept_around(whole, at, at + length)
    return Case(text, kept, whole.events, made_up=None, may_be_refused=at < whole.first)


def _kept_around(whole: Excerpt, start: int, end: int) -> set[int]:
    """The events outside the damage; none is sure where it hit what says that events follow."""
    head_is_whole = start >= whole.first or b"traceEvents" not in whole.text[: whole.first]
    return whole.numbers_outside(start, end) if head_is_whole else set()


@kind
def flipped_bytes(rng: random.Random, new: Callable[..., Excerpt]) -> Case:
    return _random_bytes(rng, new(), lambda _: (1, bytes([rng.choice([rng.randrange(256), *b'"\\{}[],:0-e. '])])))


@kind
def dropped_bytes(rng: random.Random, new: Callable[..., Excerpt]) -> Case:
    return _random_bytes(rng, new(), lambda _: (rng.choice([1, 2, 10, rng.randint(1, 300)]), b""))


@kind
def doubled_bytes(rng: random.Random, new: Callable[..., Excerpt]) -> Case:
    whole = new()
    length = rng.choice([1, 2, 10, rng.randint(1, 300)])
    return _random_bytes(rng, whole, lambda at: (0, whole.text[at : at + length]))


@kind
def inserted_bytes(rng: random.Random, new: Callable[..., Excerpt]) -> Case:
    junk = [b'"', b"}", b"]", b"\\", b"\x00", b",", b"NaN", b"\xff", b"{", b"[", rng.randbytes(8), rng.randbytes(200)]
    return _random_bytes(rng, new(), lambda _: (0, rng.choice(junk)))


# -- the check ------------------------------------------------------------------------------------------------------


class CaseError(AssertionError):
    """What the reader did wrong; `kind` is what is counted."""

    def __init__(self, what: str, message: str) -> None:
        super().__init__(message)
        self.what = what


@contextmanager
def time_limit() -> Iterator[None]:
    """Raises `CaseError` in what takes longer."""

    def late(*_: object) -> None:
        raise CaseError("hang", f"more than {SECONDS_A_CASE} s")

    limits = [(signal.SIGPROF, signal.ITIMER_PROF, SECONDS_A_CASE),
              (signal.SIGALRM, signal.ITIMER_REAL, SECONDS_OF_THE_CLOCK)]  # fmt: skip
    before = [signal.signal(number, late) for number, _, _ in limits]
    for _, timer, seconds in limits:
        signal.setitimer(timer, seconds)
    try:
        yield
    finally:
        for (number, timer, _), handler in zip(limits, before, strict=True):
            signal.setitimer(timer, 0)
            signal.signal(number, handler)


def read_with(engine: str, path: Path, sizes: tuple[int, int]) -> ta.Trace | str:
    """The trace, or why it was refused. Raises `CaseError` for anything else."""
    block, piece = sizes
    patches = [("source.COMPRESSED_BLOCK", block), ("source.PLAIN_BLOCK", block), ("source.INFLATED_BLOCK", 2 * block),
               ("document.PIECE_BYTES", piece)]  # fmt: skip
    with mock.patch.dict(os.environ, {ENGINE_VARIABLE: engine, "TRACEANALYZE_DEBUG": "1"}):
        for name, value in patches:
            mock.patch(f"traceanalyzer.ingest.{name}", value).start()
        try:
            with time_limit():
                return ta.read(path, cache=False)
        except ta.UnreadableError as error:
            if "\n" in str(error):
                raise CaseError("exception", f"a refusal of several lines: {error}") from error
            return str(error)
        except CaseError:
            raise
        except Exception as error:  # whatever the reader raises here is a finding, to be told with its case
            frames = "".join(traceback.format_exception(error))
            raise CaseError("exception", f"{type(error).__name__}: {str(error)[:200]}\n{frames}") from error
        finally:
            mock.patch.stopall()


def agree(ours: ta.Trace | str, theirs: ta.Trace | str) -> None:
    """Raises `CaseError` where the engines differ."""
    if isinstance(ours, str) or isinstance(theirs, str):
        if ours != theirs:
            raise CaseError("engines differ", f"{ours!r}\n{theirs!r}")
        return
    for name, frame in ours.tables.items():
        other = theirs.tables[name]
        if name == "notes":
            kept = ("level", "code", "count")
            frame, other = frame.select(kept).sort(kept), other.select(kept).sort(kept)
        try:
            assert_frame_equal(frame, other, categorical_as_str=True)
        except AssertionError as error:
            raise CaseError("engines differ", f"{name}: {error}\n{frame}\n{other}") from error


def check(case: Case, trace: ta.Trace | str) -> None:
    """Raises `CaseError` where an event is lost or made up, or a note is missing."""
    if isinstance(trace, str):
        if case.kept and not case.may_be_refused:
            raise CaseError("lost", f"{len(case.kept)} events, refused: {trace}")
        return
    rows = _rows(trace)
    lost = [n for n in sorted(case.kept) if not _is_there(rows[n], case.whole[n], case.names.get(n, ...))]
    if lost:
        raise CaseError("lost", f"events {lost} of {len(case.whole)}; notes: {_notes(trace)}")
    strange = [n for n, found in rows.items() if n not in case.whole for _ in found]
    twice = [n for n, found in rows.items() if n in case.whole and len(found) > 1]
    if case.made_up is not None and len(strange) + len(twice) > case.made_up:
        raise CaseError("made up", f"rows {strange[:10]}, twice {twice[:10]}; notes: {_notes(trace)}")
    if case.note is not None and not set(case.note.split("/")) & _notes(trace).keys():
        raise CaseError("no note", f"no {case.note}; notes: {_notes(trace)}")


def _rows(trace: ta.Trace) -> defaultdict[int | None, list[str | None]]:
    """The names of all rows, by the event they come from. A flow has no name."""
    rows: defaultdict[int | None, list[str | None]] = defaultdict(list)
    for table in ("kernels", "launches", "ops", "annotations", "python_calls", "slices", "flows"):
        frame = trace.tables[table]
        times = frame["time_ns" if table in _POINTS else "start_ns"].to_list()
        names = [None] * len(times) if table == "flows" else frame["name"].cast(pl.String).to_list()
        for at, name in zip(times, names, strict=True):
            rows[number_at(at)].append(name)
    return rows


def _is_there(found: list[str | None], event: Event, name: Any) -> bool:
    if event["ph"] != "X" or name is None:
        return bool(found)
    return (event["name"] if name is ... else name) in found


def _notes(trace: ta.Trace) -> dict[str, int]:
    return dict(trace.notes.select("code", "count").iter_rows())


def check_strict(path: Path, trace: ta.Trace | str) -> None:
    """Raises `CaseError` if --strict lets pass what has a note, or refuses what has none."""
    damaged = isinstance(trace, str) or bool((trace.notes["level"] != "info").any())
    try:
        ta.read(path, cache=False, strict=True)
    except ta.UnreadableError:
        if not damaged:
            raise CaseError("strict", "refused what is whole") from None
        return
    if damaged:
        raise CaseError("strict", "let damage pass")


def check_command(path: Path) -> None:
    """Raises `CaseError` where the command line gives no table and no clean refusal."""
    command = [sys.executable, "-c", "import sys; from traceanalyzer.cli import main; sys.exit(main())"]
    try:
        done = subprocess.run(
            [*command, "top-kernels", str(path), "--format", "json", "--no-cache"],
            capture_output=True, text=True, timeout=SECONDS_A_COMMAND, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise CaseError("hang", "the command") from None
    if "Traceback" in done.stderr or done.returncode not in (0, 3):
        raise CaseError("exception", f"the command, exit code {done.returncode}: {done.stderr}")
    if done.returncode == 0:
        json.loads(done.stdout)
    elif not done.stderr.strip() or str(path) not in done.stderr:
        raise CaseError("exception", f"the command names no file: {done.stderr!r}")


# -- the run --------------------------------------------------------------------------------------------------------


def run(name: str, number: int, seed: int, sources: list[list[Event]], path: Path, *, command: bool) -> str:
    """One case; gives "table" or "refusal". Raises `CaseError`."""
    rng = random.Random(f"{seed} {name} {number}")
    case = KINDS[name](rng, lambda **options: excerpt(rng, sources, **options))
    path.write_bytes(case.data)
    if command:
        check_command(path)
    sizes = rng.choice(_CHUNKS)
    trace = read_with("native", path, sizes)
    agree(trace, read_with("python", path, sizes))
    check(case, trace)
    if number % 10 == 0:
        check_strict(path, trace)
    return "refusal" if isinstance(trace, str) else "table"


def main() -> int:
    """Run the cases that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=1000, help="of each kind")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=list(KINDS), metavar="NAME")
    parser.add_argument("--command-line", type=int, default=50, help="so many of all cases by the command line as well")
    parser.add_argument("--only", type=int, help="the case of this number only")
    parser.add_argument("folders", nargs="*", type=Path, metavar="FOLDER", help="where real traces are looked for")
    options = parser.parse_args()
    folders = options.folders or [HERE.parent / "sample_traces", SHARED / "corpus"]
    sources = real_events(files_under(*folders))
    print(f"{len(sources)} real files, seed {options.seed}", flush=True)
    every = max(1, options.cases * len(options.kinds) // max(options.command_line, 1))
    print(f"{'damage':22} {'cases':>6} {'tables':>7} {'refused':>8} {'failed':>7} {'seconds':>8}", flush=True)
    failures: Counter[str] = Counter()
    count = 0
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.json"
        for name in options.kinds:
            began, outcomes = time.monotonic(), Counter[str]()
            for number in range(options.cases) if options.only is None else [options.only]:
                count += 1
                command = bool(options.command_line) and count % every == 0
                try:
                    outcomes[run(name, number, options.seed, sources, path, command=command)] += 1
                except CaseError as failure:
                    outcomes["failed"] += 1
                    failures[failure.what] += 1
                    _keep(path, name, number, failure, shown=outcomes["failed"] <= 3)
            took = time.monotonic() - began
            print(f"{name:22} {sum(outcomes.values()):6} {outcomes['table']:7} {outcomes['refusal']:8} "
                  f"{outcomes['failed']:7} {took:8.0f}", flush=True)  # fmt: skip
    print("failures:", dict(failures) or "none")
    return 1 if failures else 0


def _keep(path: Path, name: str, number: int, failure: CaseError, *, shown: bool) -> None:
    FAILED_FILES.mkdir(parents=True, exist_ok=True)
    kept = FAILED_FILES / f"{name}-{number}.json"
    kept.write_bytes(path.read_bytes())
    kept.with_suffix(".txt").write_text(f"{failure.what}: {failure}\n")
    if shown:
        print(f"  {kept.name}: {failure.what}: {str(failure)[:_SHOWN]}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
