"""Reads the bytes of a response as entries: frames, events and oddities."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from bisect import bisect_left
from collections.abc import Iterator
from typing import Any

import msgspec

from penstock.errors import UnknownWireError
from penstock.events import StreamChunk
from penstock.framing import Body, Framed, Frames, Stray
from penstock.inspector.entries import Entry, EventEntry, FrameEntry, OddEntry
from penstock.inspector.oddities import GENERATED_ID, Oddities
from penstock.inspector.quirk_table import quirks
from penstock.redaction import Mask
from penstock.wires import READING_ORDER, find_habits, find_wire
from penstock.wires.shared.decode_response.response_decoder import ResponseDecoder

MAX_TEXT = 64 * 1024
"""How many characters of a frame are shown."""
GENERAL = READING_ORDER[-1]
"""The wire for reading responses of an unknown wire."""
MAX_CALL_FRAMES = 2_000
"""How many frames with calls are looked at together."""
_CALL_SIGNS = (b'"tool_calls"', b'"function_call"')
_COMMENT = re.compile(rb"(?:\A|(?<=[\r\n])):[^\r\n]*")


class FrameReader:
    """Reads one response. It decodes a frame at a time, so that every event belongs to a frame."""

    def __init__(self, wire: str, mask: Mask | None = None) -> None:
        try:
            kind = find_wire(wire)
        except UnknownWireError:
            kind = find_wire(GENERAL)
        self._response = ResponseDecoder(kind(id_prefix=GENERATED_ID))
        self._has_comments = kind.framing == "sse"
        self._body = Body(kind.framing)
        self._odd = Oddities(kind.FINISH)
        self._mask = mask
        self._comments = Comments()
        self.number = 0  # number of the last frame
        self._habits = CallHabits(kind.name)
        self._quirks: set[int] = set()  # found quirks

    def feed(self, data: bytes, at: float) -> Iterator[Entry]:
        """The entries of the bytes of one network read."""
        if self._has_comments:
            for comment in self._comments.feed(data):
                yield self._numbered(":", comment, at)
        for framed in self._body.feed(data):
            for frame in _single(framed):
                yield self._frame(frame, at)
                yield from self._decoded(self._response.feed([frame]), at)

    def close(self, at: float) -> Iterator[Entry]:
        """The entries of the end of the response."""
        rest = self._body.close()
        for framed in rest:  # the wire reads them together, because the last frame may be cut
            for single in _single(framed):
                yield self._frame(single, at)
        yield from self._decoded(self._response.close(rest), at)
        for frame, quirk in self._habits.find():
            if quirk not in self._quirks and quirk in quirks():
                yield OddEntry(at, frame, quirk, quirks()[quirk].sends.replace("`", ""))

    def _frame(self, framed: Framed, at: float) -> FrameEntry:
        if isinstance(framed, Stray):
            return self._numbered("?", framed.data, at)
        entry = self._numbered(framed.event, framed.data[0], at)
        self._habits.add(entry.frame, framed.data[0])
        return entry

    def _numbered(self, name: str, payload: bytes, at: float) -> FrameEntry:
        self.number += 1
        return FrameEntry(at, self.number, name, shown_text(payload, self._mask), len(payload))

    def _decoded(self, events: list[StreamChunk], at: float) -> Iterator[Entry]:
        for event in events:
            yield EventEntry(at, self.number, _encoded(event, self._mask))
            for text, quirk in self._odd.add(event):
                self._quirks.add(quirk)
                yield OddEntry(at, self.number, quirk, text if self._mask is None else self._mask.text(text))


class Comments:
    """Finds the comments of a stream, however the network reads cut them."""

    def __init__(self) -> None:
        self._line = b""  # the start of an open line; a single byte if it is not a comment

    def feed(self, data: bytes) -> list[bytes]:
        """The comments whose line has ended."""
        data = self._line + data
        last = data[max(data.rfind(b"\r"), data.rfind(b"\n")) + 1 :]
        self._line = last[:MAX_TEXT] if last.startswith(b":") else last[:1]
        return _COMMENT.findall(data[: len(data) - len(last)])


class CallHabits:
    """Keeps the frames with calls, and finds the first frame that shows each habit of the server."""

    def __init__(self, wire: str) -> None:
        self._find = find_habits(wire)
        self._frames: list[tuple[int, Any]] = []

    def add(self, number: int, payload: bytes) -> None:
        """Looks at a frame."""
        has_call = self._find is not None and any(sign in payload for sign in _CALL_SIGNS)
        if has_call and len(self._frames) < MAX_CALL_FRAMES:
            try:
                self._frames.append((number, msgspec.json.decode(payload)))
            except (msgspec.MsgspecError, ValueError):
                pass

    def find(self) -> Iterator[tuple[int, int]]:
        """The habits by their quirk, each with the number of the first frame that shows it."""
        for quirk in sorted(self._seen(len(self._frames))):
            first = bisect_left(range(len(self._frames)), True, key=lambda end: quirk in self._seen(end + 1))
            yield self._frames[min(first, len(self._frames) - 1)][0], quirk

    def _seen(self, end: int) -> set[int]:
        frames = [frame for _, frame in self._frames[:end]]
        return set() if self._find is None else {quirk for quirk, count in self._find(frames).items() if count}


def _single(framed: Framed) -> list[Framed]:
    """Frames one by one."""
    if isinstance(framed, Stray):
        return [framed]
    return [Frames(framed.event, [payload], framed.is_ascii, framed.is_json) for payload in framed.data]


def shown_text(data: bytes, mask: Mask | None) -> str:
    """Bytes as text for people: without secrets, not longer than `MAX_TEXT`, and binary data as base64."""
    try:
        text = data[: 4 * MAX_TEXT].decode()
    except UnicodeDecodeError as error:
        is_cut = error.start > 4 * MAX_TEXT - 4
        text = data[: error.start].decode() if is_cut else "base64:" + b64encode(data[:MAX_TEXT]).decode()
    text = text if mask is None else mask.text(text)
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}… ({len(data):,} bytes)"


def _encoded(event: StreamChunk, mask: Mask | None) -> msgspec.Raw:
    try:
        data = msgspec.json.encode(event)
    except (TypeError, ValueError, RecursionError):
        data = json.dumps(msgspec.to_builtins(event)).encode()
    return msgspec.Raw(data if mask is None else mask.data(data))
