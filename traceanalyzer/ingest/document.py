"""The JSON structure of a trace file, found while it streams by: metadata values, and the entries of the event array.

Any layout and key order is read: an object with ``traceEvents`` anywhere among its keys, or a bare array. An engine's
`Decoder` is offered the text of the event array and takes as many whole entries as it can at once; what it does not
take is decoded here, one entry at a time, and handed to it as a value. All judgement of damage lies here.
"""

from __future__ import annotations

import re
from json import JSONDecodeError
from typing import Any, Literal, Protocol

from traceanalyzer.errors import NotATraceError, UnreadableError
from traceanalyzer.ingest.losses import Losses
from traceanalyzer.ingest.repair import KINDS, LONGEST_ENTRY, NeedsMoreText, Repaired, repair
from traceanalyzer.ingest.source import Text
from traceanalyzer.ingest.values import ExactDecoder, all_without_half_characters

#: The most text that is offered at once, unless an entry is larger: it stays in the processor's cache.
PIECE_BYTES = 600_000
#: Text that is read at once, at most.
_READ_BYTES = 1 << 16
#: An entry or metadata value larger than this is taken for damage.
LARGEST_VALUE = 64 << 20
_BOUNDARY = re.compile(r"\}\s*,\s*\{\s*\"")
_EVENTS_KEY = re.compile(r"\"traceEvents\"\s*:\s*\[")
_SKIP = re.compile(r"[\s,]*")
_SPACE = re.compile(r"\s*")
#: A decoding error this close to the end of the text may only mean that the text goes on.
_NEAR_END = 12
#: The keys that events begin with: what follows a boundary is the next event, and no metadata behind the array.
_EVENT_BEGINS = re.compile(r"\}\s*,\s*\{\s*\"(?:ph|name|cat|args|pid|tid|ts|dur)\"")
_ARRAY_ENDS = re.compile(r"\}\s*(\])\s*(?:\}|,\s*\"|$)")
#: No array of events ends where another object follows.
_STRAY_BRACKET = re.compile(r"\]\s*,?\s*\{")
_AFTER_ARRAY = re.compile(r"\]\s*(?:,\s*)?[^\s,]")
_LARGEST_METADATA = 64 << 20
_HALF_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")
#: Damage in JSON; nesting without end.
_DECODING_ERRORS = (JSONDecodeError, RecursionError)
_BAD_BYTES = re.compile("[\udc80-\udcff]")
_WINDOW_BYTES = 1 << 12


class Decoder(Protocol):
    """Takes the entries of the event array, in file order."""

    patience: int
    """How many bytes are taken one entry at a time where `take` takes nothing, before it is asked again. The number
    doubles while it keeps taking nothing, up to `most_patience`."""
    most_patience: int
    piece_bytes: int
    """How much text is read before `take` is asked."""

    def take(self, buffer: bytearray, start: int, end: int) -> int:
        """Take whole entries from ``buffer[start:end]``, where an entry begins, as many as can be taken at once.

        Gives the index behind the last entry taken and the comma or space after it; `start` if none was taken. The
        byte before `start` may be overwritten, the others may not change.
        """
        ...

    def entry(self, value: Any) -> None:
        """Take one decoded entry."""
        ...


class _Buffer:
    """Text of the event array that was not taken yet: ``bytes[start:end]``. One byte goes before it.

    Its memory is used again for the text that follows: new memory costs as much as inflating what fills it.
    """

    def __init__(self, text: bytes) -> None:
        self.bytes = bytearray(1)
        self.start = self.end = 1
        self.append(text)

    def __len__(self) -> int:
        return self.end - self.start

    def append(self, block: bytes) -> None:
        with self.room(len(block)) as room:
            room[: len(block)] = block
        self.end += len(block)

    def read_from(self, source: Text) -> int:
        """Append the next text of a source; gives how many bytes, 0 at its end."""
        with self.room(_READ_BYTES) as room:
            count = source.readinto(room)
        self.end += count
        return count

    def room(self, size: int) -> memoryview:
        """Where the next bytes go: at least `size`. To be released before there can be more."""
        if self.end + size > len(self.bytes):
            self.bytes += bytes(self.end + size + PIECE_BYTES // 2 - len(self.bytes))
        return memoryview(self.bytes)[self.end :]

    def to_the_front(self) -> None:
        length = len(self)
        self.bytes[1 : 1 + length] = memoryview(self.bytes)[self.start : self.end]
        self.start, self.end = 1, 1 + length

    def text(self, position: int, most: int | None = None) -> str:
        """The text from a position on, of at most so many bytes."""
        end = self.end if most is None else min(position + most, self.end)
        return self.bytes[position:end].decode("utf-8", "surrogateescape")


class Document:
    """Reads one JSON text. `metadata`, `container` and `whole` are filled by `read`."""

    def __init__(self, path: str, source: Text, entries: Decoder, losses: Losses) -> None:
        self.path = path
        self.metadata: dict[str, Any] = {}
        self.container: Literal["object", "array"] = "object"
        self.whole = True
        self._source = source
        self._entries = entries
        self._losses = losses
        self._lenient = ExactDecoder()
        self._strict = ExactDecoder(strict=True)
        self._decode = self._lenient.raw_decode
        self._bytes_read = 0
        self._at = 0
        self._found_events = False

    def read(self) -> None:
        """Read everything. Raises `UnreadableError` for a text that is no event trace."""
        text = self._more("").removeprefix("\ufeff")
        while not text.strip() and (more := self._more("")):
            text = more
        start = _SPACE.match(text).end()  # type: ignore[union-attr]
        first = text[start : start + 1]
        if first == "[":
            self.container = "array"
            rest = self._read_events(text[start + 1 :])
        elif first == "{":
            rest = self._read_object(text[start + 1 :])
        elif first == "":
            raise UnreadableError(self.path, "is empty")
        else:
            start_bytes = text[start : start + 12].encode("utf-8", "surrogateescape")
            raise UnreadableError(self.path, f"is not JSON (starts with {start_bytes!r})")
        self._finish(rest)

    # -- the text -----------------------------------------------------------------------------------------------

    def _next_block(self) -> bytes:
        """The next text; nothing at the end."""
        room = memoryview(bytearray(_READ_BYTES))
        count = self._source.readinto(room)
        self._bytes_read += count
        return bytes(room[:count])

    def _more(self, text: str, want: int = 1) -> str:
        """The text with at least `want` more characters, or as many as there are."""
        parts, have = [text], 0
        while have < want:
            block = self._next_block()
            if not block:
                break
            parts.append(block.decode("utf-8", "surrogateescape"))
            have += len(block)
        if len(parts) == 1:
            return text
        # a character may lie across two blocks: its halves were escaped and join here
        whole = "".join(parts)
        return whole.encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape")

    # -- the top-level object -----------------------------------------------------------------------------------

    def _read_object(self, text: str) -> str:
        while True:
            key, text = self._read_key(text)
            if key is None:
                return text
            if key == "traceEvents" and text[:1] == "[":
                text = self._read_events(text[1:])
                continue
            value, text = self._read_value(text)
            self.metadata[key] = value

    def _read_key(self, text: str) -> tuple[str | None, str]:
        """The next key and the text of its value; no key at the end of the object or of the text."""
        text = self._after(text, _SKIP)
        if text[:1] == "}":
            return None, text[1:]
        if not text:
            self._cut("ends before its closing brace")
            return None, ""
        key, text = self._read_value(text)
        text = self._after(text, _SPACE)
        if not text:
            self._cut("ends inside its metadata")
            return None, ""
        if text[:1] != ":" or not isinstance(key, str):
            return self._damaged_metadata(text)
        return key, self._after(text[1:], _SPACE)

    def _read_value(self, text: str) -> tuple[Any, str]:
        while True:
            try:
                value, end = self._decode(_readable(text))
            except _DECODING_ERRORS as error:
                if not _may_go_on(error, text, 0):
                    return None, self._skip_damaged_value(text, error)
                more = self._more(text, max(PIECE_BYTES, len(text)))
                if more == text:
                    self._cut("ends inside its metadata")
                    return None, ""
                text = more
                if len(text) > _LARGEST_METADATA and not self._found_events:
                    raise NotATraceError(
                        self.path, f"holds no traceEvents in its first {len(text) >> 20} MB"
                    ) from error
                continue
            if end == len(text) and not isinstance(value, (dict, list, str)):
                more = self._more(text)
                if more != text:
                    text = more
                    continue
            return self._checked(value, text, 0, end), text[end:]

    def _skip_damaged_value(self, text: str, error: Exception) -> str:
        """Metadata that does not parse: go on at the event array, if one follows."""
        self._losses.add("damaged-metadata", f"metadata that is not JSON was skipped ({_reason(error)})")
        self.whole = False
        while not self._found_events:
            found = _EVENTS_KEY.search(text)
            if found:
                return ', "traceEvents": ' + text[found.end() - 1 :]
            more = self._more(text, max(PIECE_BYTES, len(text)))
            if more == text or len(text) > LARGEST_VALUE:
                if not self.metadata:
                    raise UnreadableError(self.path, f"is not JSON ({_reason(error)})")
                break
            text = more
        return ""

    def _damaged_metadata(self, text: str) -> tuple[str | None, str]:
        text = self._skip_damaged_value(text, ValueError("a key without a value"))
        return self._read_key(text) if text else (None, "")

    def _after(self, text: str, pattern: re.Pattern[str]) -> str:
        """The text behind what the pattern skips, with at least one character if there is one."""
        while True:
            text = text[pattern.match(text).end() :]  # type: ignore[union-attr]
            if text:
                return text
            text = self._more(text)
            if not text:
                return text

    # -- the event array ----------------------------------------------------------------------------------------

    def _read_events(self, text: str) -> str:
        """Hand all entries to the decoder; gives the text behind the closing bracket."""
        self._found_events = True
        buffer = _Buffer(text.encode("utf-8", "surrogateescape"))
        size = min(self._entries.piece_bytes, PIECE_BYTES)
        final = self._fill(buffer, size)
        careful = self._entries.patience
        while True:
            if not final and len(buffer) < size // 8:
                final = self._fill(buffer, size)
            taken = self._entries.take(buffer.bytes, buffer.start, buffer.end)
            if taken > buffer.start:
                buffer.start, careful = taken, self._entries.patience
                continue
            end, state = self._take_one_by_one(buffer, careful, final=final)
            if state == "ended":
                return buffer.text(end)
            if end == buffer.start:  # an entry larger than the buffer wants more text
                final = self._fill(buffer, 2 * len(buffer))
            else:
                buffer.start, careful = end, min(2 * careful, self._entries.most_patience)

    def _fill(self, buffer: _Buffer, size: int) -> bool:
        """Read until the buffer holds at least `size` bytes; whether the text ends in it."""
        buffer.to_the_front()
        while len(buffer) < size:
            count = buffer.read_from(self._source)
            if not count:
                return True
            self._bytes_read += count
        return False

    def _take_one_by_one(self, buffer: _Buffer, most: int, *, final: bool) -> tuple[int, Literal["ended", "more"]]:
        """Take about `most` bytes of entries. Only a window of the buffer is decoded to text, the smallest that shows
        a whole entry: most often one odd entry stands among many that `take` takes."""
        position, window = buffer.start, most + _WINDOW_BYTES
        while True:
            to_the_end = window >= len(buffer)
            text = buffer.text(position, window)
            self._at = self._bytes_read - len(buffer)
            end, state = self._take_entries(text, most, final=final and to_the_end)
            if end or state == "ended" or to_the_end:
                return position + len(text[:end].encode("utf-8", "surrogateescape")), state
            window *= 4

    def _take_entries(self, text: str, most: int, *, final: bool) -> tuple[int, Literal["ended", "more"]]:
        """Decode entry by entry, about `most` characters of them; gives where it stopped, and whether the array
        (or, in the `final` text, everything) ended there."""
        position, readable = 0, _readable(text)
        while position < most:
            position = _SKIP.match(text, position).end()  # type: ignore[union-attr]
            following = text[position : position + 1]
            if following == "]":
                if _STRAY_BRACKET.match(text, position):
                    self._count("damaged-event", "events that are not JSON were dropped (a stray ])", text, position)
                    self.whole = False
                    position += 1
                    continue
                if not final and not _AFTER_ARRAY.match(text, position):
                    return position, "more"  # what follows tells whether it is the end
                return position + 1, "ended"
            if following == "" or (following == "}" and final):
                if final and following == "" and self.container == "object":
                    self._cut("ends inside the event array")
                return position, "ended" if final else "more"
            try:
                value, end = self._strict.raw_decode(readable, position)
            except _DECODING_ERRORS as error:
                resumed = self._resume(readable, position, error, final=final)
                if resumed is None:
                    return (len(text), "ended") if final else (position, "more")
                position = resumed
                continue
            if end == len(text) and not final and not isinstance(value, dict):
                return position, "more"
            value = self._checked(value, text, position, end)
            if constants := self._strict.constants:
                self._count("not-a-number", KINDS["not-a-number"], text, position, constants)
            self._entries.entry(value)
            position = end
        return _SKIP.match(text, position).end(), "more"  # type: ignore[union-attr]

    def _resume(self, text: str, position: int, error: Exception, *, final: bool) -> int | None:
        """Where to go on after an entry that does not decode; None to wait for more text, or at its end."""
        may_go_on = _may_go_on(error, text, position)
        may_wait = not final and len(text) - position < LONGEST_ENTRY
        if may_go_on and not final and len(text) - position < LARGEST_VALUE:
            return None
        try:
            repaired = repair(text, position, self._lenient)
        except NeedsMoreText:
            if may_wait:
                return None
            repaired = None
        if repaired is not None:
            return self._take_repaired(text, position, repaired)
        following = _next_place(text, position)
        if following is None and (may_go_on or may_wait):
            if final:
                self._cut("ends inside an event")
            return None
        self.whole = False
        self._count("damaged-event", f"events that are not JSON were dropped ({_reason(error)})", text, position)
        return len(text) if following is None else following

    def _count(self, code: str, message: str, text: str, position: int, count: int = 1) -> None:
        """Count something at a character; where it stands in the file is worked out for the first one only."""
        at = None if code in self._losses else self._byte(text, position)
        self._losses.add(code, message, at=at, count=count)

    def _take_repaired(self, text: str, position: int, repaired: Repaired) -> int:
        for kind, count in repaired.kinds.items():
            self._count(kind, KINDS[kind], text, position, count)
        self._entries.entry(self._checked(repaired.value, text, position, repaired.end))
        return repaired.end

    def _checked(self, value: Any, text: str, start: int, end: int) -> Any:
        """A decoded value whose texts can be stored; what had to be replaced is counted."""
        self._count_bad_bytes(text, start, end)
        halves = _HALF_ESCAPE.search(text, start, end)
        if halves and (clean := all_without_half_characters(value)) != value:
            message = "texts with half of a surrogate pair; the halves were replaced"
            self._count("half-character", message, text, halves.start())
            return clean
        return value

    def _count_bad_bytes(self, text: str, start: int, end: int) -> None:
        if not text.isascii() and (bad := _BAD_BYTES.search(text, start, end)):
            message = "bytes that are no UTF-8 were replaced"
            count = len(_BAD_BYTES.findall(text, start, end))
            self._count("invalid-utf8", message, text, bad.start(), count)

    def _byte(self, text: str, position: int) -> int:
        """The place of a character in the JSON text of the file, in bytes."""
        return self._at + len(text[:position].encode("utf-8", "surrogateescape"))

    def _cut(self, how: str) -> None:
        if "json-cut" not in self._losses:
            self._losses.add("json-cut", f"the JSON text {how}; every whole event before that was kept")
        self.whole = False

    # -- the end ------------------------------------------------------------------------------------------------

    def _finish(self, rest: str) -> None:
        if self.container == "object" and not self._found_events:
            if not self.whole:
                raise UnreadableError(self.path, "is cut or damaged before its traceEvents")
            keys = ", ".join(list(self.metadata)[:6]) or "no keys"
            if "rocprofiler-sdk-tool" in self.metadata:
                keys += ": rocprofv3's own format, which is not read"
            raise NotATraceError(self.path, f"holds no traceEvents (a JSON object with {keys})")
        while not rest.strip(" \t\r\n\0],}"):
            block = self._next_block()
            if not block:
                return
            rest = block.decode("utf-8", "surrogateescape")
        self._losses.add("trailing-text", "text after the end of the trace was not read")
        while self._next_block():  # so that the size and the state of the compressed data are known
            pass


def _next_place(text: str, position: int) -> int | None:
    """Where to go on behind a damaged entry: at the next entry, else at the end of the array."""
    event = _EVENT_BEGINS.search(text, position)
    if event is None and (end := _ARRAY_ENDS.search(text, position)):
        return end.start(1)
    event = event or _BOUNDARY.search(text, position)
    return None if event is None else text.index("{", event.start() + 1)


def _readable(text: str) -> str:
    """The text with bytes that are no UTF-8 replaced, each by one character: places stay the same."""
    return text if text.isascii() else _BAD_BYTES.sub("\ufffd", text)


def _may_go_on(error: Exception, text: str, start: int) -> bool:
    """Whether an entry from `start` on may only be incomplete."""
    if not isinstance(error, JSONDecodeError):
        return False
    return error.msg.startswith("Unterminated string") or error.pos >= max(len(text) - _NEAR_END, start)


def _reason(error: Exception) -> str:
    if isinstance(error, JSONDecodeError):
        return error.msg.lower()
    return str(error) or type(error).__name__
