"""From a path to the bytes of its JSON text: plain or gzip, whatever the name says.

Memory stays bounded, whatever the text inflates to. Text goes straight into memory that the caller has already, since
new memory costs as much as inflating what fills it, and copying a fifth of that.

There are two ways to inflate. The quick one says only that something is wrong; the file is then read again from its
start by the careful one, which gives all that can be had, says what is wrong and where, and skips what was given.
"""

from __future__ import annotations

import os
import sys
import zlib
from collections.abc import Callable, Generator, Iterator
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from traceanalyzer.errors import UnreadableError
from traceanalyzer.ingest.losses import Losses
from traceanalyzer.ingest.remote import is_url, open_url, url_size

_inflate: Any
try:
    from isal import isal_zlib as _inflate
except ImportError:  # no wheel for this machine: the standard library is slower and just as right
    _inflate = zlib

#: Inflates all members of a file into given memory, without holding the interpreter. None: not in this version.
_QuickReader: Any = getattr(_inflate, "_GzipReader", None)
_INFLATE_ERRORS: tuple[type[Exception], ...] = (zlib.error, _inflate.error)
#: What the quick reader raises for damage, for a file that is cut, and for a header longer than its memory.
_QUICK_ERRORS: tuple[type[Exception], ...] = (*_INFLATE_ERRORS, OSError, EOFError, ValueError, ArithmeticError)
#: CRC-32 of bytes, several GB/s: ``crc32(data, value_so_far)``.
crc32: Callable[..., int] = _inflate.crc32
#: Stands in the text where bytes are missing. No repair reaches across it.
HOLE = "\x1a\x00\x1a"
GZIP_MAGIC = b"\x1f\x8b"
_MEMBER_HEAD = b"\x1f\x8b\x08"
_TRIAL_BYTES = 1 << 12
#: A damaged member may run on into the next ones before its damage shows: so far back they are looked for.
_OVERRUN_BYTES = 1 << 20
#: So much is kept of what cannot be read again, to look for them.
_KEPT_BYTES = 4 << 20
COMPRESSED_BLOCK = 16 << 10
PLAIN_BLOCK = 64 << 10
INFLATED_BLOCK = 100_000
_MAGIC_BYTES = 16
_TRAILER_BYTES = 8
_TAR, _TAR_AT = b"ustar", 257

_OTHER_FORMATS = {
    b"\x28\xb5\x2f\xfd": "is compressed with zstd; unpack it first",
    b"BZh": "is compressed with bzip2; unpack it first",
    b"\xfd7zXZ": "is compressed with xz; unpack it first",
    b"PK\x03\x04": "is a zip archive; unpack it first",
    b"SQLite format 3": "is an SQLite database, not a JSON trace (nsys export --type json gives one)",
    b"\x80": "is binary (a Python pickle?), not a JSON trace",
}

#: Called with the bytes of the file (compressed ones, where it is compressed) that were consumed since the last call.
Progress = Callable[[int], None]


class _Bytes(Protocol):
    """Gives the bytes of a file."""

    def read(self, size: int, /) -> bytes: ...

    def seek(self, offset: int, whence: int = 0, /) -> int: ...

    def seekable(self) -> bool: ...


class Text(Protocol):
    """Gives JSON text."""

    def readinto(self, room: memoryview) -> int:
        """Put the next text into `room`; gives how many bytes that are, 0 only at the end."""
        ...


class Source:
    """The JSON text of one file, as a `Text`, with what is known about the bytes themselves once it was read."""

    def __init__(self, path: str, losses: Losses, progress: Progress | None = None) -> None:
        self.path = path
        self.losses = losses
        self.gzipped = False
        self.file_bytes = 0
        self.json_bytes = 0
        self.cut = False
        self.checksum = 0
        """CRC-32 of the JSON text: the same for the same text, however it is compressed."""
        self.progress = progress
        self._reported = 0
        self._text_bytes = 0
        """JSON text that the careful way of inflating has given."""
        self._room = memoryview(b"")
        self._counts = self._read_all()

    def readinto(self, room: memoryview) -> int:
        """Put the next text into `room`; gives how many bytes that are, 0 only at the end.

        Raises `UnreadableError` where the file cannot be opened or read at all.
        """
        self._room = room[:INFLATED_BLOCK]
        try:
            count = next(self._counts, 0)
            if not self.json_bytes and self._room[:count][_TAR_AT : _TAR_AT + len(_TAR)] == _TAR:
                raise UnreadableError(self.path, "is a tar archive; unpack it first")
        finally:
            self._room.release()
        self.json_bytes += count
        return count

    def close(self) -> None:
        """Read no more."""
        self._counts.close()

    def _read_all(self) -> Generator[int, None, None]:
        """Fills `_room` again and again; gives how many bytes were put there."""
        with self._open() as handle:
            head = self._head(handle)
            self._refuse_other_formats(head)
            self.gzipped = head[:2] == GZIP_MAGIC
            skip = 0
            if self.gzipped and _QuickReader is not None and _can_rewind(handle, len(head)):
                self._rewind(handle)
                if (yield from self._read_quickly(handle)):
                    return
                self._rewind(handle)
                head, skip = self.read(handle, COMPRESSED_BLOCK), self.json_bytes
            blocks = (
                self._inflated(_again_if_possible(handle, head), head) if self.gzipped else self._plain(handle, head)
            )
            for block in blocks:
                self._text_bytes += len(block)
                self.checksum = crc32(block, self.checksum)
                done, skip = min(skip, len(block)), max(skip - len(block), 0)
                while done < len(block):
                    count = min(len(block) - done, len(self._room))
                    self._room[:count] = memoryview(block)[done : done + count]
                    done += count
                    yield count

    def _read_quickly(self, handle: BinaryIO) -> Generator[int, None, bool]:
        """The quick way; gives whether it went well to the end of the file."""
        compressed = _Compressed(self, handle)
        reader = _QuickReader(compressed, COMPRESSED_BLOCK)
        try:
            while count := reader.readinto(self._room):
                yield count
        except _QUICK_ERRORS:
            return False
        size, checksum = compressed.trailer()
        # each member has a checksum of its own: where there are several, the sizes differ
        self.checksum = checksum if size == self.json_bytes & 0xFFFFFFFF else _checksum_of(handle)
        return True

    def _rewind(self, handle: BinaryIO) -> None:
        handle.seek(0)
        self.file_bytes = 0

    def _head(self, handle: BinaryIO) -> bytes:
        """The first block, long enough to tell the format."""
        head = b""
        while len(head) < _MAGIC_BYTES and (more := self.read(handle, COMPRESSED_BLOCK)):
            head += more
        return head

    def _refuse_other_formats(self, head: bytes) -> None:
        if head[:2] in (b"\xff\xfe", b"\xfe\xff"):
            raise UnreadableError(self.path, "is UTF-16 text; JSON is UTF-8")
        for magic, what in _OTHER_FORMATS.items():
            if head.startswith(magic):
                raise UnreadableError(self.path, what)

    def _open(self) -> BinaryIO:
        if self.path == "-":
            return os.fdopen(os.dup(sys.stdin.fileno()), "rb", buffering=0)
        if is_url(self.path):
            return open_url(self.path)
        try:
            return open(self.path, "rb", buffering=0)
        except OSError as error:
            raise UnreadableError(self.path, _reason(error)) from error

    def read(self, handle: _Bytes, size: int) -> bytes:
        """The next bytes of the file as they are, counted."""
        try:
            data = handle.read(size)
        except OSError as error:
            raise UnreadableError(self.path, _reason(error)) from error
        self._consumed(len(data))
        return data

    def _consumed(self, count: int) -> None:
        """Count bytes of the file, and report those that were not read before."""
        self.file_bytes += count
        if self.progress and self.file_bytes > self._reported:
            self.progress(self.file_bytes - self._reported)
        self._reported = max(self.file_bytes, self._reported)

    def _plain(self, handle: _Bytes, head: bytes) -> Iterator[bytes]:
        while head:
            yield head
            head = self.read(handle, PLAIN_BLOCK)

    def _inflated(self, handle: _Bytes, data: bytes) -> Iterator[bytes]:
        """All gzip members one after the other; behind damage, the members that still inflate."""
        new_member = partial(_Member, comes_again=handle.seekable())
        member = new_member(start=0, text_start=0)
        while data or member.holds_more:
            try:
                block = member.inflate(data)
            except _INFLATE_ERRORS as error:
                data = yield from self._behind_damage(handle, member, error)
                member = new_member(self.file_bytes - len(data), self._text_bytes)
                continue
            if block:
                yield block
            if not member.ended:
                data = member.left
                if not data and not member.holds_more:
                    data = self.read(handle, COMPRESSED_BLOCK)
                    if not data:
                        data = yield from self._behind_cut(handle, member)
                        member = new_member(self.file_bytes - len(data), self._text_bytes)
                continue
            data = self._next_member(handle, member.rest)
            if data:
                member = new_member(self.file_bytes - len(data), self._text_bytes)

    def _behind_damage(self, handle: _Bytes, member: _Member, error: Exception) -> Generator[bytes, None, bytes]:
        """Yield what the damaged member still gives before the damage, and a hole; give the start of the next member.

        The fast library drops what it had inflated when it meets an error, so the member, or where it cannot be read
        again, its last part, is inflated again by the standard one, in steps small enough to lose nothing.
        """
        self.cut = True
        end = yield from member.again(handle) if handle.seekable() else member.last_again(self.file_bytes)
        self._note_damage(member, str(error), end)
        behind = next(_members(handle, max(member.start + 1, end - _OVERRUN_BYTES)), None)
        return (yield from self._resume(handle, handle.seek(0, os.SEEK_END) if behind is None else behind))

    def _behind_cut(self, handle: _Bytes, member: _Member) -> Generator[bytes, None, bytes]:
        """At the end of the file, inside a member. Where a whole one lies in that, it was not cut but damaged, and took
        the next one for its own content: yield a hole, and give the start of that one."""
        self.cut = True
        end = self.file_bytes
        for inside in _members(handle, max(member.start + 1, end - _OVERRUN_BYTES)):
            if _is_whole(handle, inside):
                self._note_damage(member, "it runs on into later gzip members", end)
                return (yield from self._resume(handle, inside))
        self.losses.add("gzip-cut", "compressed data ends before its end mark", at=end)
        return b""

    def _note_damage(self, member: _Member, what: str, end: int) -> None:
        doubt = "" if self._text_bytes == member.text_start else _doubt(member.text_start, self._text_bytes)
        self.losses.add("gzip-damaged", f"compressed data is damaged ({what}){doubt}", at=end)

    def _resume(self, handle: _Bytes, position: int) -> Generator[bytes, None, bytes]:
        """Yield a hole; give the start of the member at a place."""
        handle.seek(position)
        self.file_bytes = position
        data = self.read(handle, COMPRESSED_BLOCK)
        if data:
            self.losses.add("gzip-resumed", "later gzip members were read after damaged ones", at=position)
            yield HOLE.encode()
        return data

    def _next_member(self, handle: _Bytes, rest: bytes) -> bytes:
        """The start of the next gzip member, or nothing. Zero bytes after a member are padding."""
        rest = rest.lstrip(b"\0")
        while len(rest) < len(GZIP_MAGIC):
            more = self.read(handle, COMPRESSED_BLOCK)
            if not more:
                break
            rest = (rest + more).lstrip(b"\0")
        if not rest:
            return b""
        if rest[: len(GZIP_MAGIC)] == GZIP_MAGIC:
            return rest
        self.losses.add("bytes-after-gzip", "bytes after the compressed data are not gzip", at=self.file_bytes)
        return b""


class _Compressed:
    """The bytes of a file, as the quick reader takes them."""

    def __init__(self, source: Source, handle: BinaryIO) -> None:
        self._source = source
        self._handle = handle
        self._last = b""

    def read(self, size: int) -> bytes:
        """The next bytes."""
        data = self._source.read(self._handle, size)
        self._last = (self._last + data)[-_TRAILER_BYTES:] if data else self._last
        return data

    def readinto(self, room: memoryview) -> int:
        """The next bytes, put into `room`."""
        data = self.read(len(room))
        room[: len(data)] = data
        return len(data)

    def trailer(self) -> tuple[int, int]:
        """Size, modulo 4 GB, and CRC-32 that the end of the file claims for the content of its last member."""
        return int.from_bytes(self._last[4:], "little"), int.from_bytes(self._last[:4], "little")


def _checksum_of(handle: BinaryIO) -> int:
    """CRC-32 of the content of all members of a file that was inflated without fault before."""
    handle.seek(0)
    reader, room, checksum = _QuickReader(handle, COMPRESSED_BLOCK), memoryview(bytearray(PLAIN_BLOCK)), 0
    while count := reader.readinto(room):
        checksum = crc32(room[:count], checksum)
    return checksum


class _Member:
    """One gzip member while it is inflated."""

    def __init__(self, start: int, text_start: int, *, comes_again: bool) -> None:
        """`comes_again`: whether the file can be read again from where it begins."""
        self.start = start
        """Where it begins in the file."""
        self.text_start = text_start
        """How much JSON text the members before it gave."""
        self._keeps_last = not comes_again
        self._object = (_inflate if comes_again else zlib).decompressobj(31)
        self._last: Any = None
        """Of a member that does not come again: the state before the last part of its data, and that part."""
        self._delivered = 0
        self.holds_more = False
        """Whether there may be content that wants no more input."""

    def inflate(self, data: bytes) -> bytes:
        """The next part of its content."""
        if self._keeps_last:
            self._last = self._object.copy(), data
        block: bytes = self._object.decompress(data, INFLATED_BLOCK)
        self._delivered += len(block)
        self.holds_more = len(block) == INFLATED_BLOCK and not self.ended
        return block

    @property
    def left(self) -> bytes:
        """What of the input was not used yet, since the content was enough for a block."""
        return bytes(self._object.unconsumed_tail)

    @property
    def ended(self) -> bool:
        """Whether its end mark was reached."""
        return bool(self._object.eof)

    @property
    def rest(self) -> bytes:
        """What followed the end mark."""
        return bytes(self._object.unused_data)

    def again(self, handle: _Bytes) -> Generator[bytes, None, int]:
        """Inflate from the start with the standard library, yield what was not delivered yet, up to the damage;
        give the place of the damage in the file."""
        handle.seek(self.start)
        slow, position, skip = zlib.decompressobj(31), self.start, self._delivered
        while data := handle.read(COMPRESSED_BLOCK):
            steps = _Steps(slow, data)
            for block in steps:
                if len(block) > skip:
                    yield block[skip:]
                skip = max(skip - len(block), 0)
            slow, position = steps.state, position + steps.done
            if steps.done < len(data):
                break
        return position

    def last_again(self, end: int) -> Generator[bytes, None, int]:
        """The same from the last part of its data alone, which goes up to `end` in the file."""
        state, data = self._last
        steps = _Steps(state, data)
        yield from steps
        return end - len(data) + steps.done


class _Steps:
    """Inflates data up to damage in it, in ever smaller steps."""

    def __init__(self, state: Any, data: bytes) -> None:
        self.state = state
        """How far inflating has come."""
        self.done = 0
        """How many bytes of the data were good."""
        self._data = data

    def __iter__(self) -> Iterator[bytes]:
        step = len(self._data)
        while self.done < len(self._data):
            before = self.state.copy()
            try:
                block = self.state.decompress(self._data[self.done : self.done + step])
            except zlib.error:
                self.state = before
                if step == 1:
                    return
                step = max(step // 16, 1)
                continue
            self.done = min(self.done + step, len(self._data))
            yield block


class _Once:
    """Bytes that come once, such as those of a pipe, of which the last ones are kept to be looked at again."""

    def __init__(self, handle: BinaryIO, head: bytes) -> None:
        """`head` was read before."""
        self._handle = handle
        self._kept = bytearray(head)
        self._start = 0
        """Where, in all that came, those begin that are kept."""
        self._position = len(head)

    def seekable(self) -> bool:
        """Not to its start."""
        return False

    def seek(self, offset: int, whence: int = 0) -> int:
        """Go back to what is kept, or to its end."""
        self._position = offset if whence == os.SEEK_SET else self._start + len(self._kept)
        assert self._start <= self._position <= self._start + len(self._kept)
        return self._position

    def read(self, size: int) -> bytes:
        """The next bytes."""
        at = self._position - self._start
        data = bytes(self._kept[at : at + size])
        if not data:
            data = self._handle.read(size)
            self._kept += data
            if len(self._kept) > 2 * _KEPT_BYTES:
                self._start += len(self._kept) - _KEPT_BYTES
                del self._kept[:-_KEPT_BYTES]
        self._position += len(data)
        return data


def _again_if_possible(handle: BinaryIO, head: bytes) -> _Bytes:
    """The bytes of a file, of which the head was read."""
    return handle if _can_rewind(handle, len(head)) else _Once(handle, head)


def _doubt(start: int, end: int) -> str:
    """Which rows of a damaged member cannot be trusted: its checksum covers all of it, and damage is not always noticed
    where it is."""
    return f"; what was read from bytes {start:,} to {end:,} of the JSON text may be wrong"


def _members(handle: _Bytes, position: int) -> Iterator[int]:
    """Where, at or after `position`, gzip members begin that inflate, as far as a trial tells."""
    window = b""
    while True:
        handle.seek(position + len(window))
        data = handle.read(1 << 20)
        if not data:
            return
        window += data
        found = window.find(_MEMBER_HEAD)
        while found >= 0:
            handle.seek(position + found)
            if _inflates(handle.read(_TRIAL_BYTES)):
                yield position + found
            found = window.find(_MEMBER_HEAD, found + 1)
        passed = max(len(window) - len(_MEMBER_HEAD), 0)
        position, window = position + passed, window[passed:]


def _is_whole(handle: _Bytes, position: int) -> bool:
    """Whether a member begins there and goes on to its end mark with the right checksum."""
    handle.seek(position)
    inflater = zlib.decompressobj(31)
    try:
        while not inflater.eof:
            data = inflater.unconsumed_tail or handle.read(COMPRESSED_BLOCK)
            if not inflater.decompress(data, INFLATED_BLOCK) and not data:
                return False
    except zlib.error:
        return False
    return True


def _inflates(data: bytes) -> bool:
    try:
        return bool(zlib.decompressobj(31).decompress(data))
    except zlib.error:
        return False


def file_size(path: str) -> int:
    """Size in bytes, 0 where it cannot be known (standard input)."""
    if is_url(path):
        return url_size(path)
    try:
        return Path(path).stat().st_size
    except OSError:
        return 0


def _can_rewind(handle: BinaryIO, read: int) -> bool:
    """Whether the file can be read again from its start. Standard input may be one that was read in part before."""
    return handle.seekable() and handle.tell() == read


def _reason(error: OSError) -> str:
    text: Any = error.strerror or str(error)
    return str(text).lower()
