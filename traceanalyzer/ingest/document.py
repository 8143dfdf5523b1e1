"""The JSON structure of a trace file, found while it streams by: metadata values, and the entries of the event array.

Any layout and key order is read: an object with ``traceEvents`` anywhere among its keys, or a bare array. Entries
go to a `Decoder`, which is given pieces of whole entries where the text can be cut cheaply, and single decoded
entries everywhere else. Cutting is guess and verify: the text between two entries is learned from the file, its
last occurrence is taken for a boundary, and the piece counts only if it parses, which proves that the boundary was
one (a piece that starts between entries and parses as a list ends between entries).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from json import JSONDecodeError
from typing import Any, Literal, Protocol

from traceanalyzer.errors import UnreadableError
from traceanalyzer.ingest.losses import Losses
from traceanalyzer.ingest.values import decoder

#: Pieces of this size keep the text and the decoded entries in the processor's cache.
PIECE_BYTES = 600_000
#: An entry or metadata value larger than this is taken for damage.
LARGEST_VALUE = 256 << 20
_LEARN_BYTES = 1 << 16
_BOUNDARY = re.compile(rb"\}\s*,\s*\{\s*\"")
_BOUNDARY_TEXT = re.compile(r"\}\s*,\s*\{\s*\"")
_EVENTS_KEY = re.compile(r"\"traceEvents\"\s*:\s*\[")
_SKIP = re.compile(r"[\s,]*")
_SPACE = re.compile(r"\s*")
_TRIES = 4
#: How much is taken entry by entry after a piece that did not fit, before a piece is tried again; it doubles each time.
_CAREFUL_BYTES = 1 << 14
#: A decoding error this close to the end of the text may only mean that the text goes on.
_NEAR_END = 12


class BoundaryError(Exception):
    """A piece does not parse: it was cut in the wrong place, or something in it is damaged."""


class MismatchError(Exception):
    """A piece holds something that only the entry-by-entry way can take."""


class Decoder(Protocol):
    """Takes the entries of the event array, in file order."""

    def piece(self, text: bytearray, end: int) -> None:
        """Take ``text[:end]``, a JSON list of entries; raises before taking any of them or takes all."""
        ...

    def entry(self, value: Any) -> None:
        """Take one decoded entry."""
        ...

    def wants_pieces(self) -> bool:
        """Whether pieces are worth trying."""
        ...


class Document:
    """Reads one JSON text. `metadata`, `container` and `whole` are filled by `read`."""

    def __init__(self, path: str, blocks: Iterator[bytes], entries: Decoder, losses: Losses) -> None:
        self.path = path
        self.metadata: dict[str, Any] = {}
        self.container: Literal["object", "array"] = "object"
        self.whole = True
        self._blocks = blocks
        self._entries = entries
        self._losses = losses
        self._decode = decoder().raw_decode
        self._offset = 0
        self._separator: bytes | None = None
        self._found_events = False

    def read(self) -> None:
        """Read everything. Raises `UnreadableError` for a text that is no event trace."""
        text = self._more("")
        if text.startswith("\ufeff"):
            text = text[1:]
        while text is not None and not text.strip() and (more := self._more(text)) != text:
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
            raise UnreadableError(self.path, f"is not JSON (starts with {text[start : start + 12]!r})")
        self._finish(rest)

    # -- the text -----------------------------------------------------------------------------------------------

    def _more(self, text: str, want: int = 1) -> str:
        """The text with at least `want` more characters, or as many as there are."""
        parts, have = [text], 0
        while have < want:
            block = next(self._blocks, None)
            if block is None:
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
        if text[:1] != ":" or not isinstance(key, str):
            return self._damaged_metadata(text)
        return key, self._after(text[1:], _SPACE)

    def _read_value(self, text: str) -> tuple[Any, str]:
        while True:
            try:
                value, end = self._decode(text)
            except (JSONDecodeError, RecursionError) as error:
                if _may_go_on(error, text, 0) and (more := self._more(text, max(PIECE_BYTES, len(text)))) != text:
                    text = more
                    continue
                return None, self._skip_damaged_value(text, error)
            if end == len(text) and not isinstance(value, (dict, list, str)):
                more = self._more(text)
                if more != text:
                    text = more
                    continue
            return value, text[end:]

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
                if not self.metadata and not self._found_events:
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
        rest = text.encode("utf-8", "surrogateescape")
        careful, size = _CAREFUL_BYTES, PIECE_BYTES
        while True:
            buffer, final = self._fill(rest, size)
            taken = self._take_piece(buffer)
            if taken > 1:
                rest, careful = bytes(memoryview(buffer)[taken:]), _CAREFUL_BYTES
                continue
            text = buffer[1:].decode("utf-8", "surrogateescape")
            end, state = self._take_entries(text, careful, final=final)
            if state == "ended":
                return text[end:]
            rest = text[end:].encode("utf-8", "surrogateescape")
            careful *= 2
            size = PIECE_BYTES if end else 2 * len(buffer)  # an entry larger than the buffer wants more text

    def _fill(self, rest: bytes, size: int) -> tuple[bytearray, bool]:
        """A buffer that starts with "[" and holds at least `size` bytes; whether the text ends in it."""
        buffer = bytearray(b"[")
        buffer += rest
        while len(buffer) < size:
            block = next(self._blocks, None)
            if block is None:
                return buffer, True
            buffer += block
        return buffer, False

    def _take_piece(self, buffer: bytearray) -> int:
        """Let the decoder take a piece; gives the index of the first byte that was not taken (1: none)."""
        separator = self._separator or self._learn(buffer)
        if separator is None or not self._entries.wants_pieces():
            return 1
        end = len(buffer)
        for _ in range(_TRIES):
            end = buffer.rfind(separator, 0, end)
            if end < 0:
                break
            comma = buffer.index(b",", end)
            buffer[comma] = ord("]")
            try:
                self._entries.piece(buffer, comma + 1)
            except BoundaryError:
                continue
            except MismatchError:
                break
            finally:
                buffer[comma] = ord(",")
            return comma + 1
        return 1

    def _learn(self, buffer: bytearray) -> bytes | None:
        """The most common text between two entries near the start of the array."""
        found = Counter(_BOUNDARY.findall(bytes(buffer[:_LEARN_BYTES])))
        if found:
            self._separator = found.most_common(1)[0][0]
        return self._separator

    def _take_entries(self, text: str, most: int, *, final: bool) -> tuple[int, Literal["ended", "more"]]:
        """Decode entry by entry, about `most` characters of them; gives where it stopped, and whether the array
        (or, in the `final` text, everything) ended there."""
        position = 0
        while position < most:
            position = _SKIP.match(text, position).end()  # type: ignore[union-attr]
            following = text[position : position + 1]
            if following == "]":
                return position + 1, "ended"
            if following == "" or (following == "}" and final):
                if final and following == "" and self.container == "object":
                    self._cut("ends inside the event array")
                return position, "ended" if final else "more"
            try:
                value, end = self._decode(text, position)
            except (JSONDecodeError, RecursionError) as error:
                resumed = self._resume(text, position, error, final=final)
                if resumed is None:
                    return (len(text), "ended") if final else (position, "more")
                position = resumed
                continue
            if end == len(text) and not final and not isinstance(value, dict):
                return position, "more"
            self._entries.entry(value)
            position = end
        return _SKIP.match(text, position).end(), "more"  # type: ignore[union-attr]

    def _resume(self, text: str, position: int, error: Exception, *, final: bool) -> int | None:
        """Where to go on after an entry that does not decode; None to wait for more text, or at its end."""
        may_go_on = _may_go_on(error, text, position)
        if may_go_on and not final and len(text) - position < LARGEST_VALUE:
            return None
        following = _BOUNDARY_TEXT.search(text, position)
        if following is None and not final:
            return None
        if following is None and may_go_on:
            self._cut("ends inside an event")
            return None
        self.whole = False
        self._losses.add("damaged-event", f"events that are not JSON were dropped ({_reason(error)})")
        return text.index("{", following.start() + 1) if following else len(text)

    def _cut(self, how: str) -> None:
        if self.whole:
            self._losses.add("json-cut", f"the JSON text {how}; every whole event before that was kept")
        self.whole = False

    # -- the end ------------------------------------------------------------------------------------------------

    def _finish(self, rest: str) -> None:
        if self.container == "object" and not self._found_events:
            keys = ", ".join(list(self.metadata)[:6])
            raise UnreadableError(self.path, f"holds no traceEvents (a JSON object with {keys or 'no keys'})")
        while not rest.strip(" \t\r\n\0],}"):
            block = next(self._blocks, None)
            if block is None:
                return
            rest = block.decode("utf-8", "surrogateescape")
        self._losses.add("trailing-text", "text after the end of the trace was not read")
        for _ in self._blocks:  # so that the size and the state of the compressed data are known
            pass


def _may_go_on(error: Exception, text: str, start: int) -> bool:
    """Whether an entry from `start` on may only be incomplete."""
    if not isinstance(error, JSONDecodeError):
        return False
    return error.msg.startswith("Unterminated string") or error.pos >= max(len(text) - _NEAR_END, start)


def _reason(error: Exception) -> str:
    if isinstance(error, JSONDecodeError):
        return error.msg.lower()
    return str(error) or type(error).__name__
