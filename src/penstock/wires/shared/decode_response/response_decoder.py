"""The decoder of responses: decodes each frame once, and gives it to the wire.

`feed` is the reference; `feed_one` is `feed` for a read that is exactly one frame. test_laws decodes every vector whole
and frame by frame.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from penstock.calls.numbering import ResponseLimit
from penstock.events import Error, StreamChunk
from penstock.framing import Framed, Frames, Stray
from penstock.jsontext.leading import object_end
from penstock.jsontext.meter import is_complex
from penstock.wires.shared.decode_response.invalid_bytes import with_replaced_bytes
from penstock.wires.shared.decode_response.loose_frames import UNREADABLE, MoreThanJSON
from penstock.wires.shared.decode_response.wire import Wire
from penstock.wires.shared.decode_response.wrapped_calls import WrappedCalls

T = TypeVar("T")

DONE = b"[DONE]"
MAX_FRAME_VALUES = 500_000
"""How many values a frame may have, as `jsontext.meter` counts them. One with more is skipped, as nothing else could
happen while it is decoded, and reported as an `Error` with the code `frame_too_complex`."""
MAX_FRAME_ESCAPES = 1_000_000
"""The same for the escapes in its strings."""
TOO_COMPLEX = "a frame has more than MAX_FRAME_VALUES values, or MAX_FRAME_ESCAPES escapes; it was skipped"
_LARGE = 128 * 1024  # the size from which a frame may take long to decode
_BATCH = 512  # how many frames are decoded at once, so that they are still in the cache when they are read


class ResponseDecoder:
    """A stage from frames to events, for one response of a wire."""

    __slots__ = ("_numbering", "_out", "_wire", "_wrapped")

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._out = wire.out
        self._numbering = wire.answers.blocks
        self._wrapped = WrappedCalls(wire.tools, self._numbering) if wire.wraps_calls else None

    def feed(self, framed: list[Framed]) -> list[StreamChunk]:
        """The events that these frames complete."""
        wire = self._wire
        try:
            for item in framed:
                if not isinstance(item, Stray):
                    read = self._read_bodies if item.is_json and wire.ends_with_body else self._read_frames
                    read(item)
                elif item.ends_response and not wire.is_ended:
                    raise ResponseLimit(item.code, item.note)
                elif not wire.is_ended:
                    wire.reports.stray(item)
        except ResponseLimit as limit:
            self._stop(limit)
        return self._take()

    def _stop(self, limit: ResponseLimit) -> None:
        """Ends the response, whatever follows: it has more of something than a response may have."""
        wire = self._wire
        wire.inner.clear()
        wire.answers.lift_limits()
        wire.reports.error(Error(limit.message, limit.code))
        wire.end()

    def _read_bodies(self, frames: Frames) -> None:
        """Reads JSON values one by one: the first whole body ends the response."""
        for payload in frames.data:
            self._read_frames(Frames("", [payload]))
            if not self._wire.is_ended:
                self._wire.end_body()

    def _read_frames(self, frames: Frames) -> None:
        wire = self._wire
        for part in (frames,) if max(map(len, frames.data)) <= _LARGE else without_complex(frames):
            if isinstance(part, Frames):
                self._read(self._read_start(part) if wire.model.is_wanted else part)
            elif not wire.is_ended:
                wire.reports.stray(part)

    def _read_start(self, frames: Frames) -> Frames:
        """Reads frames one by one while the model's name is wanted: a later one may have it. Returns the others."""
        wire = self._wire
        event, payloads = frames.event, frames.data
        while wire.model.is_wanted:
            wire.model.look(payloads[:1])
            if len(payloads) == 1:
                break
            self._read(Frames(event, payloads[:1], frames.is_ascii))
            payloads = payloads[1:]
        return Frames(event, payloads, frames.is_ascii)

    def feed_one(self, payload: bytes, event: str) -> list[StreamChunk]:
        """`feed` for a read that is exactly one frame, as reads are while a model streams."""
        wire = self._wire
        is_plain = len(payload) <= _LARGE and (payload.isascii() or is_utf8(payload))
        if wire.is_ended or wire.loose.surrogates is not None or not is_plain:
            return self.feed([Frames(event, [payload])])
        model = wire.model
        try:
            if model.is_wanted:
                model.look([payload])
            try:
                value = wire.decode(payload)
            except UNREADABLE:
                self._read_misfit(payload, event)
                return self._take()
            if wire.has_short_path:
                wire.read_typed_one(value, payload, event)
                if model.is_wanted:
                    wire.plain_text = wire.plain_call = None  # the next frames have to be searched for the name
            else:
                wire.read_typed([value], [payload], event)
        except ResponseLimit as limit:
            self._stop(limit)
            return self._take()
        out, wrapped = self._out, self._wrapped
        chunks = out[:]
        out.clear()
        return chunks if wrapped is None or wrapped.settled == self._numbering.calls else wrapped.feed(chunks)

    def _read(self, frames: Frames) -> None:
        """Reads consecutive frames: all at once if they have the narrow shape, else one by one."""
        payloads, event = frames.data, frames.event
        last = payloads[-1:] if payloads[-1] == DONE else []
        if last:
            payloads = payloads[:-1]
        if len(payloads) <= _BATCH:
            self._read_batch(payloads, event, frames.is_ascii)
        else:
            for start in range(0, len(payloads), _BATCH):
                self._read_batch(payloads[start : start + _BATCH], event, frames.is_ascii)
        self._one_by_one(last, event)

    def _read_batch(self, payloads: list[bytes], event: str, is_ascii: bool) -> None:
        wire = self._wire
        is_batch = len(payloads) > 1 and not wire.is_ended and (is_ascii or is_utf8(b"\n".join(payloads)))
        values = decode_batch(wire.decode, payloads) if is_batch else None
        if values:
            wire.read_typed(values, payloads, event)
        else:
            self._one_by_one(payloads, event)

    def _one_by_one(self, payloads: list[bytes], event: str) -> None:
        for payload in payloads:
            if not self._wire.is_ended:  # else nothing follows the Finish (QUIRKS 112)
                self._read_one(payload, event)

    def _read_one(self, payload: bytes, event: str) -> None:
        """Reads one frame of any shape."""
        wire = self._wire
        if not is_utf8(payload):
            # An error is not part of the answer, and its message says more than that it is not UTF-8.
            is_error = event == "error"
            readable = payload.decode("utf-8", "replace").encode() if is_error else with_replaced_bytes(payload, event)
            if readable is None:
                self._read_object(payload, object_end(payload), event, "a frame that is not UTF-8")
                return
            payload = readable
        if event in wire.loose_events:
            self._read_misfit(payload, event)
            return
        try:
            value = wire.decode(payload)
        except UNREADABLE:
            self._read_misfit(payload, event)
        else:
            wire.read_typed([value], [payload], event)

    def _read_object(self, payload: bytes, end: int, event: str, note: str) -> None:
        """Reads the object before `end`, if there is one, and reports what follows it as lost."""
        wire = self._wire
        if end:
            self._read_one(payload[:end], event)
        if not wire.is_ended:
            wire.reports.hole(payload[end:].decode("utf-8", "replace"), note)

    def _read_misfit(self, payload: bytes, event: str) -> None:
        wire = self._wire
        if not payload and not event:
            return
        if payload.lstrip().startswith(DONE):  # only at the start: it may also occur in a text (QUIRKS 112)
            wire.end_mark()
            return
        try:
            wire.read_loose(payload, event)
        except MoreThanJSON as more:
            self._read_object(payload, more.end, event, "what follows the JSON of a frame")
        if wire.inner:
            inner, wire.inner = wire.inner, []
            self._one_by_one(inner, "")

    def close(self, rest: Sequence[Framed] = ()) -> list[StreamChunk]:
        """Ends the stream; `rest` are its last frames. Answers that the provider did not end are cut."""
        wire = self._wire
        reports = wire.reports
        before, last = split_last(rest)
        chunks = self.feed(before)
        had_unknown = reports.has_unknown or any(isinstance(item, Stray) and item.is_foreign for item in last)
        wire.answers.end_bytes()
        reports.is_closing = True
        chunks += self.feed(last)
        if not wire.is_ended:
            reports.has_unknown = had_unknown
            try:
                wire.end()
            except ResponseLimit as limit:
                self._stop(limit)
        if wire.loose.surrogates:
            chunks += self._expanded(wire.loose.surrogates.close())
        return chunks + self._take()

    def _take(self) -> list[StreamChunk]:
        surrogates, chunks = self._wire.loose.surrogates, self._out[:]
        self._out.clear()
        return self._expanded(surrogates.feed(chunks) if surrogates else chunks)

    def _expanded(self, chunks: list[StreamChunk]) -> list[StreamChunk]:
        """The events with wrapper calls expanded."""
        wrapped = self._wrapped
        return chunks if wrapped is None or wrapped.settled == self._numbering.calls else wrapped.feed(chunks)


def without_complex(frames: Frames) -> Iterator[Framed]:
    """The frames in order, with a report instead of each that would take too long to decode."""
    event, start = frames.event, 0
    for number, payload in enumerate(frames.data):
        if len(payload) > _LARGE and is_complex(payload, MAX_FRAME_VALUES, MAX_FRAME_ESCAPES):
            if number > start:
                yield Frames(event, frames.data[start:number], frames.is_ascii)
            yield Stray(payload[:200], TOO_COMPLEX, "frame_too_complex")
            start = number + 1
    if start < len(frames.data):
        yield Frames(event, frames.data[start:], frames.is_ascii)


def is_utf8(payload: bytes) -> bool:
    """Whether a payload is text. A replaced byte would change the arguments of a call; some may be a part of a name."""
    try:
        payload.decode()
    except UnicodeDecodeError:
        return False
    return True


def split_last(framed: Sequence[Framed]) -> tuple[list[Framed], list[Framed]]:
    """Splits the last frame, or stray, from those before it: it alone may be cut by the end of the bytes."""
    before, last = [*framed[:-1]], [*framed[-1:]]
    if last and isinstance(frames := last[0], Frames) and len(frames.data) > 1:
        before.append(Frames(frames.event, frames.data[:-1], frames.is_ascii, frames.is_json))
        last[0] = Frames(frames.event, frames.data[-1:], frames.is_ascii, frames.is_json)
    return before, last


def decode_batch(decode: Callable[[bytes], T], payloads: list[bytes]) -> list[T] | None:
    """Decodes all payloads; None if any of them has another shape."""
    try:
        return list(map(decode, payloads))
    except UNREADABLE:
        return None
