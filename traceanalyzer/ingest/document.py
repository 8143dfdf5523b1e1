"""The JSON structure of a trace file, found while it streams by: metadata values, and the entries of the event array.

Any layout and key order is read: an object with ``traceEvents`` anywhere among its keys, or a bare array. An engine's
`Decoder` is offered the text of the event array and takes as many whole entries as it can at once; what it does not
take is decoded here, one entry at a time, and handed to it as a value. All judgement of damage lies here.

A file may hold further traces, behind the first or inside it, where several were appended or several processes wrote to
one path. Those of the first one's rank are read as part of it, the others are left out: see `later`.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable
from decimal import Decimal
from functools import cached_property, partial
from json import JSONDecodeError
from typing import Any, Literal, Protocol

from traceanalyzer.errors import NotATraceError, UnreadableError
from traceanalyzer.ingest.finder import Finder
from traceanalyzer.ingest.later import Head, HeadFinder, LaterTraces, ReadAgainError, find_head
from traceanalyzer.ingest.losses import REST_KEPT, Losses
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
_EVENT_BEGINS = re.compile(r"\{\s*\"(?:ph|name|cat|args|pid|tid|ts|dur)\"\s*:")
_NEXT_EVENT_BEGINS = re.compile(r"\}\s*,\s*(\{)\s*\"(?:ph|name|cat|args|pid|tid|ts|dur)\"\s*:")
#: Where the text between two events is damaged as well, so many places are tried.
_MOST_TRIES = 20
#: Where damage was met, this share of a text is taken before the next is made: it may be looked through to its end.
_SHARE = 8
_ARRAY_ENDS = re.compile(r"\}\s*(\])\s*(?:\}|,\s*\"|$)")
#: No array of events ends where another event follows (at the end of the text: where one may follow), or where an
#: event goes on that lost its brace, behind a comma. (Without one, it is the rest of a longer trace behind a shorter.)
_STRAY_BRACKET = re.compile(r"\]\s*(?:,?\s*(?P<object>\{)\s*(?:\"|\Z)|\"(?:ph|name|cat|args|pid|tid|ts|dur)\"\s*:)")
_BEGINS_AS_EVENT = re.compile(r"\{\s*(?:\"(?:ph|name|cat|args|pid|tid|ts|dur)\"\s*:|\Z)")
#: Between two events, or where a list of objects begins, which may be another trace.
_BETWEEN_EVENTS = re.compile(r"\}\s*,\s*(\{)\s*\"(?:ph|name|cat|args|pid|tid|ts|dur)\"\s*:|\[\s*\{")
#: Nor are events lists of events.
_OPENING_BRACKET = re.compile(r"\[\s*\{")
#: What follows an array in its object, and no array that is a trace of its own.
_OBJECT_GOES_ON = re.compile(r"\s*(?:[}\]]|,\s*\")")
#: The end of an object whose array was not closed.
_LAST_BRACE = re.compile(r"\}\s*\Z")
_AFTER_ARRAY = re.compile(r"\]\s*(?:,\s*)?[^\s,]")
_LARGEST_METADATA = 64 << 20
_HALF_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")
#: Damage in JSON; nesting without end.
_DECODING_ERRORS = (ValueError, RecursionError)
_BAD_BYTES = re.compile("[\udc80-\udcff]")
_WINDOW_BYTES = 1 << 12
_RETURNED_BYTES = 1 << 14
#: What may stand between two traces: space, padding, remains of the first one's end, marks that begin a text.
_BETWEEN = re.compile(r"[\s\0\],}\x1e\ufeff]*")
#: A list of objects, or of nothing.
_LIST_OF_EVENTS = re.compile(r"\[\s*[{\]]")
#: So much text before its end may be the first part of what begins a trace.
_LONGEST_MARK = 80

#: Stands for a value that does not parse, with all that was passed over behind it.
_SKIPPED = object()

_State = Literal["ended", "more", "another"]


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

    def begin_later(self, shift_ns: int) -> None:
        """Entries of a later trace of the file come next, whose times are to be made so much later."""
        ...


class _PassingBy:
    """Takes the entries of a trace that is left out."""

    patience = most_patience = piece_bytes = PIECE_BYTES

    def take(self, buffer: bytearray, start: int, end: int) -> int:  # noqa: ARG002  (as `Decoder` has it)
        return start

    def entry(self, value: Any) -> None:
        pass

    def begin_later(self, shift_ns: int) -> None:
        pass


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


class _Ahead:
    """What may follow damage in a text. Most texts hold none, and are not asked."""

    def __init__(self, text: str) -> None:
        self._text = text
        self.heads = HeadFinder(text)

    @cached_property
    def events(self) -> Finder:
        return Finder(_EVENT_BEGINS, self._text)

    @cached_property
    def next_events(self) -> Finder:
        return Finder(_NEXT_EVENT_BEGINS, self._text)

    @cached_property
    def array_ends(self) -> Finder:
        return Finder(_ARRAY_ENDS, self._text)

    @cached_property
    def boundaries(self) -> Finder:
        return Finder(_BOUNDARY, self._text)


class Document:
    """Reads one JSON text. `metadata`, `container` and `whole` are filled by `read`."""

    def __init__(
        self, path: str, source: Text, entries: Decoder, losses: Losses, later: LaterTraces | None = None
    ) -> None:
        self.path = path
        self.metadata: dict[str, Any] = {}
        self.container: Literal["object", "array"] = "object"
        self.whole = True
        self._source = source
        self._returned: deque[bytes] = deque()
        """What was read and is to be read again."""
        self._entries: Decoder = entries
        self._into = self._entries
        self._losses = losses
        self._later = later or LaterTraces()
        self._lenient = ExactDecoder()
        self._strict = ExactDecoder(strict=True)
        self._decode = self._lenient.raw_decode
        self._bytes_read = 0
        self._at = 0
        self._began: Callable[[], None] = lambda: None
        self._met_list = False
        """Whether a list of events inside an object's was taken for another trace."""
        self._forget_the_trace_before()
        # the first array may begin with what is left of an event; an empty later one is what it seems
        self._doubts_bracket = True

    def _forget_the_trace_before(self) -> None:
        self._found_events = False
        self._said_cut = False
        self._interrupted = False
        """Whether another trace begins inside this one."""
        self._inside_damage = False
        """Whether the text goes on inside damaged metadata, where an object or a list need not be a trace."""
        self._is_array = False
        self._awaits_entry = True
        """Whether an entry has to follow: where a list of events does, its bracket is a stray one, unless another trace
        begins there. Behind damage, or without a comma before it, it is another trace in any case."""
        self._doubts_bracket = False
        """Whether a closing bracket is not behind an event, but behind a comma, or an entry that is no object: what is
        left of an event that lost its beginning may read so."""
        self._ahead = _Ahead("")
        """Looks ahead in the text at hand."""
        self._event_at = -1
        """Where, in the text at hand, the last event stands that was looked for ahead."""
        self._passed_bracket = False
        """Whether a bracket was passed over that may have begun another trace."""

    def read(self) -> None:
        """Read everything. Raises `UnreadableError` for a text that is no event trace, and `ReadAgainError` where what
        was learned of later traces calls for a second reading."""
        text = self._more("").removeprefix("\ufeff")
        while not text.strip() and (more := self._more("")):
            text = more
        text = text[_SPACE.match(text).end() :]  # type: ignore[union-attr]
        if text[:1] == "[":
            self.container = "array"
        elif text[:1] == "":
            raise UnreadableError(self.path, "is empty")
        elif text[:1] != "{":
            raise UnreadableError(
                self.path, f"is not JSON (starts with {text[:12].encode('utf-8', 'surrogateescape')!r})"
            )
        rest = self._read_trace(text, self.metadata)
        self._refuse_what_holds_no_events()
        self._read_later_traces(rest)

    def _read_trace(self, text: str, metadata: dict[str, Any]) -> str:
        """Read the trace that the text begins with; gives the text behind it."""
        self._is_array = text[:1] == "["
        return self._read_events(text[1:]) if self._is_array else self._read_object(text[1:], metadata)

    # -- the text -----------------------------------------------------------------------------------------------

    def _next_block(self) -> bytes:
        """The next text; nothing at the end."""
        if self._returned:
            block = self._returned.popleft()
        else:
            room = memoryview(bytearray(_READ_BYTES))
            block = bytes(room[: self._source.readinto(room)])
        self._bytes_read += len(block)
        return block

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

    def _read_object(self, text: str, metadata: dict[str, Any]) -> str:
        while True:
            key, text = self._read_key(text, metadata)
            if key is None:
                return text
            if key == "traceEvents" and text[:1] == "[":
                text = self._read_events(text[1:])
                if self._interrupted:
                    return text
                continue
            if self._found_events and text[:1] == "{":
                text = self._up_to_a_head(text)
                if self._interrupted:
                    return text
            value, text = self._read_value(text, metadata)
            if self._interrupted:
                return text
            if isinstance(value, (int, Decimal)):
                text = self._after(text, _SPACE)
                if text[:1] not in (",", "}"):  # some of its digits may be lost
                    continue
            if value is not _SKIPPED:
                metadata[key] = value

    def _up_to_a_head(self, text: str) -> str:
        """The text with as much more as tells whether another trace stands where a metadata key or value is due: this
        one was broken off. Only behind its events: before them such an object is a value."""
        while True:
            text = self._more(text, _LONGEST_MARK) if len(text) < _LONGEST_MARK else text
            head = find_head(text, 0, here=True)
            if head is None or head.sure:
                break
            more = self._more(text)
            if more == text:
                return text
            text = more
        if head:
            self._cut("is broken off inside its metadata, where another trace begins")
            self._interrupted = True
        return text

    def _read_key(self, text: str, metadata: dict[str, Any]) -> tuple[str | None, str]:
        """The next key and the text of its value; no key at the end of the object or of the text."""
        text = self._after(text, _SKIP)
        if text[:1] == "}":
            return None, text[1:]
        if not text:
            self._cut("ends before its closing brace")
            return None, ""
        if self._found_events and text[:1] == "{":
            text = self._up_to_a_head(text)
            if self._interrupted:
                return None, text
        if text[:1] != '"':  # not decoded: it may be another trace, all of it
            return self._damaged_metadata(text, metadata)
        key, text = self._read_value(text, metadata)
        if self._interrupted:
            return None, text
        if key is _SKIPPED:
            return self._read_key(text, metadata)
        text = self._after(text, _SPACE)
        if not text:
            self._cut("ends inside its metadata")
            return None, ""
        if text[:1] != ":" or not isinstance(key, str):
            # a string that was cut swallows what follows up to the next quote, perhaps the start of another trace
            return self._damaged_metadata(f'{key}"{text}' if isinstance(key, str) else text, metadata)
        return key, self._after(text[1:], _SPACE)

    def _read_value(self, text: str, metadata: dict[str, Any]) -> tuple[Any, str]:
        """The value that the text begins with, or `_SKIPPED` where that is damaged, and the text behind it."""
        while True:
            try:
                value, end = self._decode(_readable(text))
            except _DECODING_ERRORS as error:
                if not _may_go_on(error, text, 0):
                    return _SKIPPED, self._skip_damaged_value(text, error, metadata)
                more = self._more(text, max(_WINDOW_BYTES, len(text)))
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

    def _skip_damaged_value(self, text: str, error: Exception, metadata: dict[str, Any]) -> str:
        """Metadata that does not parse: go on at the event array, or at the next trace, if one follows."""
        self._losses.add("damaged-metadata", f"metadata that is not JSON was skipped ({_reason(error)})")
        self.whole = False
        while True:
            events = None if self._found_events else _EVENTS_KEY.search(text)
            head = find_head(text, 0, events.start() if events else None)
            if head and head.sure:
                return self._at_another_trace(text[head.at :], metadata)
            if events:
                return ', "traceEvents": ' + text[events.end() - 1 :]
            if self._found_events:
                self._interrupted = self._inside_damage = True
                return text
            more = self._more(text, max(PIECE_BYTES, len(text)))
            if more == text or len(text) > LARGEST_VALUE:
                if not metadata:
                    raise UnreadableError(self.path, f"is not JSON ({_reason(error)})")
                return ""
            text = more

    def _at_another_trace(self, text: str, metadata: dict[str, Any]) -> str:
        """Another trace begins inside the metadata: where this one had no events yet, all that counts is the other."""
        if self._found_events:
            self._interrupted = True
            return text
        metadata.clear()
        return "," + text[1:]

    def _damaged_metadata(self, text: str, metadata: dict[str, Any]) -> tuple[str | None, str]:
        text = self._skip_damaged_value(text, ValueError("a key without a value"), metadata)
        return self._read_key(text, metadata) if text and not self._interrupted else (None, text)

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
        self._began()
        buffer = _Buffer(text.encode("utf-8", "surrogateescape"))
        size = min(self._into.piece_bytes, PIECE_BYTES)
        final = self._fill(buffer, size)
        careful = self._into.patience
        while True:
            if not final and len(buffer) < size // 8:
                final = self._fill(buffer, size)
            taken = self._into.take(buffer.bytes, buffer.start, buffer.end)
            if taken > buffer.start:
                buffer.start, careful = taken, self._into.patience
                self._awaits_entry = self._doubts_bracket = _ends_with_comma(buffer.bytes, taken)
                continue
            end, state = self._take_one_by_one(buffer, careful, final=final)
            if state != "more":
                self._interrupted = state == "another"
                text = self._behind(buffer, end)
                return self._judge_bracket(text) if self._passed_bracket else text
            if end == buffer.start:  # an entry larger than the buffer wants more text
                final = self._fill(buffer, 2 * len(buffer))
            else:
                buffer.start, careful = end, min(2 * careful, self._into.most_patience)

    def _judge_bracket(self, text: str) -> str:
        """A bracket before an event was passed over. Unless the object goes on behind the array, it may have begun
        another trace, and what is in doubt is left out."""
        text = self._more(text, _LONGEST_MARK) if len(text) < _LONGEST_MARK else text
        if not _OBJECT_GOES_ON.match(text):
            raise ReadAgainError(lists="traces")
        return text

    def _behind(self, buffer: _Buffer, end: int) -> str:
        """The text behind the array, not much of it at once: many small traces may follow."""
        text = buffer.text(end, _WINDOW_BYTES)
        rest = bytes(memoryview(buffer.bytes)[min(end + _WINDOW_BYTES, buffer.end) : buffer.end])
        parts = [rest[i : i + _RETURNED_BYTES] for i in range(0, len(rest), _RETURNED_BYTES)]
        self._returned.extendleft(reversed(parts))
        self._bytes_read -= len(rest)
        return text

    def _fill(self, buffer: _Buffer, size: int) -> bool:
        """Read until the buffer holds at least `size` bytes; whether the text ends in it."""
        buffer.to_the_front()
        while len(buffer) < size:
            if self._returned:
                buffer.append(self._next_block())
                continue
            count = buffer.read_from(self._source)
            if not count:
                return True
            self._bytes_read += count
        return False

    def _take_one_by_one(self, buffer: _Buffer, most: int, *, final: bool) -> tuple[int, _State]:
        """Take about `most` bytes of entries. Only a window of the buffer is decoded to text, the smallest that shows
        a whole entry: most often one odd entry stands among many that `take` takes."""
        position, window = buffer.start, most + _WINDOW_BYTES
        while True:
            to_the_end = window >= len(buffer)
            text = buffer.text(position, window)
            self._at = self._bytes_read - len(buffer)
            end, state = self._take_entries(text, most, final=final and to_the_end)
            if end or state != "more" or to_the_end:
                return position + len(text[:end].encode("utf-8", "surrogateescape")), state
            window *= 4

    def _take_entries(self, text: str, most: int, *, final: bool) -> tuple[int, _State]:
        """Decode entry by entry, about `most` characters of them; gives where it stopped, and whether the array
        (or, in the `final` text, everything) ended there, or another trace begins."""
        position, readable = 0, _readable(text)
        self._ahead, self._event_at = _Ahead(readable), -1
        while position < most:
            position = self._skip(text, position)
            following = text[position : position + 1]
            if following == "]":
                if not final and not _AFTER_ARRAY.match(text, position, len(text) - _LONGEST_MARK):
                    return position, "more"  # what follows tells whether it is the end
                ends = self._ends_array(text, position, final=final)
                if ends is None:
                    return position, "more"
                if ends:
                    return position + 1, "ended"
                position = self._pass_over(text, position)
                continue
            if following == "" or (final and _LAST_BRACE.match(text, position)):
                if final and following == "" and not self._is_array:
                    self._cut("ends inside the event array")
                return position, "ended" if final else "more"
            head = self._ahead.heads.find(position, here=True)
            if head and head.sure and (following == "{" or self._begins_traces()):
                self._cut("is broken off inside the event array, where another trace begins")
                self._met_list |= following == "[" and not self._is_array
                return position, "another"
            if head and not head.sure and not final:
                return position, "more"
            if _OPENING_BRACKET.match(text, position):
                self._passed_bracket |= head is not None
                position = self._pass_over(text, position)
                continue
            try:
                value, end = self._strict.raw_decode(readable, position)
                if not isinstance(value, dict):
                    behind = _SPACE.match(text, end).end()  # type: ignore[union-attr]
                    if behind == len(text) and not final:
                        return position, "more"
                    _refuse_what_runs_on(text, behind)
            except _DECODING_ERRORS as error:
                resumed = self._resume(readable, position, error, final=final)
                if resumed is None:
                    return (len(text), "ended") if final else (position, "more")
                position, self._awaits_entry, self._doubts_bracket = resumed, False, False
                most = max(most, len(text) // _SHARE)
                continue
            value = self._checked(value, text, position, end)
            if constants := self._strict.constants:
                self._count("not-a-number", KINDS["not-a-number"], text, position, constants)
            self._into.entry(value)
            position, self._awaits_entry, self._doubts_bracket = end, False, not isinstance(value, dict)
        return self._skip(text, position), "more"

    def _skip(self, text: str, position: int) -> int:
        """Where the next entry begins, behind commas and space."""
        end = _SKIP.match(text, position).end()  # type: ignore[union-attr]
        comma = "," in text[position:end]
        self._awaits_entry |= comma
        self._doubts_bracket |= comma
        return end

    def _begins_traces(self) -> bool:
        """Whether a list of events among the events is another trace."""
        if self._is_array or self._later.lists != "by place":
            return self._is_array or self._later.lists == "traces"
        return not self._awaits_entry

    def _ends_array(self, text: str, position: int, *, final: bool) -> bool | None:
        """Whether the array ends with a closing bracket; None where the text that follows tells."""
        may_wait = not final and len(text) - position < LONGEST_ENTRY
        found = _STRAY_BRACKET.match(text, position)
        if found and found["object"]:
            begins = self._begins_event(text, found.start("object"), final=final, may_wait=may_wait)
            return None if begins is None else not begins
        if found and self._awaits_entry:
            return False
        if not self._doubts_bracket:
            return True
        if self._event_at <= position:
            self._event_at = self._following_event(text, position)
        follows = self._event_at > position
        return None if not follows and may_wait else not follows

    def _begins_event(self, text: str, position: int, *, final: bool, may_wait: bool) -> bool | None:
        """Whether an object is an event, or seems to be a damaged one; None where the text that follows tells."""
        head = self._ahead.heads.find(position, here=True)
        if head and (head.sure or not final):
            return False if head.sure else None
        try:
            value, _ = self._decode(text, position)
        except _DECODING_ERRORS as error:
            if may_wait and _may_go_on(error, text, position):
                return None
            return _BEGINS_AS_EVENT.match(text, position) is not None
        return isinstance(value.get("ph"), str)

    def _following_event(self, text: str, position: int) -> int:
        """Where a whole event follows behind the end of an object; -1 if none does before a list that may be another
        trace."""
        for tries, place in enumerate(_BETWEEN_EVENTS.finditer(text, position)):
            if place[1] is None or tries == _MOST_TRIES:
                break
            if self._is_event(text, place.start(1)):
                return place.start(1)
        return -1

    def _pass_over(self, text: str, position: int) -> int:
        """Count a bracket that belongs to nothing; gives where to go on."""
        message = f"events that are not JSON were dropped (a stray {text[position]})"
        self._count("damaged-event", message, text, position)
        self.whole = False
        return position + 1

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
        following = self._next_place(text, position, may_wait=may_wait) if repaired is None else repaired.end
        head = self._head_inside(text, position + 1, following)
        if head and (head.sure or may_wait):
            if not head.sure:
                return None
            following = head.at
        elif repaired is not None:
            return self._take_repaired(text, position, repaired)
        if following is None and (may_go_on or may_wait):
            if final:
                self._cut("ends inside an event")
            return None
        self.whole = False
        self._count("damaged-event", f"events that are not JSON were dropped ({_reason(error)})", text, position)
        return len(text) if following is None else following

    def _head_inside(self, text: str, start: int, end: int | None) -> Head | None:
        """The first place from `start` to `end` where another trace begins, or may begin, inside damage."""
        head = self._ahead.heads.find(start, end)
        while head and text[head.at] == "[" and self._later.lists == "stray" and not self._is_array:
            self._passed_bracket = True
            head = self._ahead.heads.find(head.at + 1, end)
        return head

    def _next_place(self, text: str, position: int, *, may_wait: bool) -> int | None:
        """Where to go on behind a damaged entry: at the next event; where there is none, at the end of the array, or at
        another object. None where there is nothing, or where the text that follows may show a better place."""
        next_event = self._ahead.next_events.behind(position)
        event = self._ahead.events.behind(position + 1)
        for _ in range(_MOST_TRIES):
            if event is None or (next_event and event.start() >= next_event.start(1)):
                break
            if self._is_event(text, event.start()):
                return event.start()
            event = self._ahead.events.behind(event.start() + 1)
        if next_event:
            return next_event.start(1)
        if may_wait:
            return None
        if end := self._ahead.array_ends.behind(position):
            return end.start(1)
        boundary = self._ahead.boundaries.behind(position)
        return None if boundary is None else text.index("{", boundary.start() + 1)

    def _is_event(self, text: str, position: int) -> bool:
        """Whether a whole event begins there, whatever stands before it."""
        try:
            value, _ = self._decode(text, position)
        except _DECODING_ERRORS:
            return False
        return isinstance(value.get("ph"), str)

    def _count(self, code: str, message: str, text: str, position: int, count: int = 1) -> None:
        """Count something at a character; where it stands in the file is worked out for the first one only."""
        at = None if code in self._losses else self._byte(text, position)
        self._losses.add(code, message, at=at, count=count)

    def _take_repaired(self, text: str, position: int, repaired: Repaired) -> int:
        for kind, count in repaired.kinds.items():
            self._count(kind, KINDS[kind], text, position, count)
        self._into.entry(self._checked(repaired.value, text, position, repaired.end))
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
        if not self._said_cut:
            self._losses.add("json-cut", f"the JSON text {how}{REST_KEPT}")
        self._said_cut, self.whole = True, False

    # -- the end, and what follows it -----------------------------------------------------------------------------

    def _refuse_what_holds_no_events(self) -> None:
        if self._is_array or self._found_events:
            return
        if not self.whole:
            raise UnreadableError(self.path, "is cut or damaged before its traceEvents")
        keys = ", ".join(" ".join(key.split()) for key in list(self.metadata)[:6]) or "no keys"
        if "rocprofiler-sdk-tool" in self.metadata:
            keys += ": rocprofv3's own format, which is not read"
        raise NotATraceError(self.path, f"holds no traceEvents (a JSON object with {keys})")

    def _read_later_traces(self, rest: str) -> None:
        """Read to the end of the text, so that the state of compressed data is known as well."""
        first = dict(self.metadata)
        while rest := self._next_trace(rest, noted=self._interrupted):
            metadata: dict[str, Any] = {}
            self._forget_the_trace_before()
            self._began = partial(self._begin_later, first, metadata)
            rest = self._read_later(rest, metadata)
            if not self._found_events:
                self._note_trailing_text()
            elif self._later.end(metadata):
                self.metadata = {**metadata, **self.metadata}
            else:
                self.whole = False
        self._doubt_lists_in_damage()
        self._later.finish(self._losses)

    def _doubt_lists_in_damage(self) -> None:
        """What a damaged gzip member gives may look like the start of a list of events. Raises `ReadAgainError` where
        that was taken for another trace, to see whether the object goes on behind its array all the same."""
        if self._met_list and "gzip-resumed" in self._losses and self._later.lists == "by place":
            raise ReadAgainError(lists="stray")

    def _begin_later(self, first: dict[str, Any], metadata: dict[str, Any]) -> None:
        judgement = self._later.begin(first, metadata)
        self._into = self._entries if judgement.ours else _PassingBy()
        self._into.begin_later(judgement.shift_ns)

    def _read_later(self, text: str, metadata: dict[str, Any]) -> str:
        try:
            return self._read_trace(text, metadata)
        except UnreadableError:  # it is no trace
            return ""

    def _next_trace(self, rest: str, *, noted: bool) -> str:
        """The text from where the next trace begins, or an object that may be one; nothing where none follows. Other
        text before it is passed over, and said, unless that was `noted`."""
        rest = self._after(rest, _BETWEEN)
        if rest[:1] == "[" and len(rest) < _LONGEST_MARK:
            rest = self._more(rest, _LONGEST_MARK)
        if not rest or (not self._inside_damage and (rest[0] == "{" or _LIST_OF_EVENTS.match(rest))):
            return rest
        if not noted:
            self._note_trailing_text()
        while True:
            head = find_head(rest, 0)
            if head and head.sure:
                return rest[head.at :]
            passed_over = rest[head.at :] if head else rest[-_LONGEST_MARK:]
            rest = self._more(passed_over)
            if rest == passed_over:
                return ""

    def _note_trailing_text(self) -> None:
        self._losses.add("trailing-text", "text after the end of the trace was not read")


def _readable(text: str) -> str:
    """The text with bytes that are no UTF-8 replaced, each by one character: places stay the same."""
    return text if text.isascii() else _BAD_BYTES.sub("\ufffd", text)


def _ends_with_comma(text: bytearray, end: int) -> bool:
    return text[max(end - _LONGEST_MARK, 0) : end].rstrip().endswith(b",")


def _refuse_what_runs_on(text: str, behind: int) -> None:
    """A value that is no event and is not followed by another entry: its end is the begin of something else, as where
    a stray quote before an event makes a string of the text up to its first key. Raises `ValueError`."""
    if text[behind : behind + 1] not in (",", "]", ""):
        raise ValueError("text between two events")


def _may_go_on(error: Exception, text: str, start: int) -> bool:
    """Whether an entry from `start` on may only be incomplete."""
    if not isinstance(error, JSONDecodeError):
        return False
    return error.msg.startswith("Unterminated string") or error.pos >= max(len(text) - _NEAR_END, start)


def _reason(error: Exception) -> str:
    if isinstance(error, JSONDecodeError):
        return error.msg.lower()
    return str(error) or type(error).__name__
