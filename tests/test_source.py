"""The bytes of a file's JSON text: the same for every way of packing it, and for the quick and the careful way."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from traceanalyzer.ingest import source as source_module
from traceanalyzer.ingest.losses import Losses
from traceanalyzer.ingest.source import Source

FIXTURES_ARE_KEPT = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
TEXT = "".join(f'{{"ph": "X", "name": "k{i % 97}", "ts": {i * i}}},\n' for i in range(20_000)).encode()


def read(path: Path, room: int = 1 << 16) -> tuple[bytes, Source, list[str], int]:
    """The text, the source, the codes of what it noted, and the bytes that it reported."""
    losses = Losses()
    progress: list[int] = []
    source = Source(str(path), losses, progress.append)
    parts, into = [], memoryview(bytearray(room))
    while count := source.readinto(into):
        parts.append(bytes(into[:count]))
    codes = [note.code for note in losses.notes(None)]
    return b"".join(parts), source, codes, sum(progress)


def packed(parts: list[bytes], padding: int = 0) -> bytes:
    return b"".join(map(gzip.compress, parts)) + bytes(padding)


@pytest.mark.parametrize("quick", [True, False])
@pytest.mark.parametrize(
    "content",
    [
        TEXT,
        packed([TEXT]),
        packed([TEXT[:1000], TEXT[1000:]]),
        packed([TEXT, b""]),
        packed([TEXT], padding=300),
        gzip.compress(TEXT, 1),
    ],
    ids=["plain", "gzip", "two members", "empty member", "padded", "level 1"],
)
def test_the_checksum_is_that_of_the_text_however_it_is_packed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes, *, quick: bool
) -> None:
    if not quick:
        monkeypatch.setattr(source_module, "_QuickReader", None)
    path = tmp_path / "t"
    path.write_bytes(content)
    text, source, codes, reported = read(path)
    assert text == TEXT
    assert (source.json_bytes, source.checksum) == (len(TEXT), zlib.crc32(TEXT))
    assert (codes, reported, source.file_bytes) == ([], len(content), len(content))


@FIXTURES_ARE_KEPT
@given(
    st.lists(st.binary(max_size=3000), min_size=1, max_size=3),
    st.integers(0, 9),
    st.one_of(st.none(), st.integers(0, 400)),
    st.one_of(st.none(), st.integers(0, 400)),
    st.integers(1, 5000),
)
def test_both_ways_give_the_same_of_a_damaged_file(
    tmp_path: Path, parts: list[bytes], padding: int, cut: int | None, flipped: int | None, room: int
) -> None:
    """Whatever the quick way had given before it met the damage is given once."""
    content = bytearray(packed([b"some text that is in every file" * 20, *parts], padding)[:cut])
    if flipped is not None and flipped < len(content):
        content[flipped] ^= 0x55
    path = tmp_path / "t"
    path.write_bytes(content)
    text, source, codes, reported = read(path, room)
    with mock.patch.object(source_module, "_QuickReader", None):
        other_text, other, other_codes, other_reported = read(path, room)
    assert text == other_text
    assert codes == other_codes
    assert (source.cut, source.json_bytes, source.gzipped) == (other.cut, other.json_bytes, other.gzipped)
    assert source.checksum == other.checksum
    assert reported == other_reported


def test_standard_input_that_was_read_in_part_is_not_read_again(tmp_path: Path) -> None:
    """`(read line; traceanalyze ...) < file` must go on behind the line."""
    path = tmp_path / "t"
    path.write_bytes(b"a line\n" + packed([TEXT]))
    with path.open("rb", buffering=0) as file:
        file.read(7)
        with mock.patch.object(Source, "_open", return_value=file):
            text, *_ = read(path)
    assert text == TEXT
