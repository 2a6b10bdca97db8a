"""What all wires share: frames are decoded once, answers are numbered, and every stream has exactly one ending."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

import msgspec

from penstock.calls.numbering import Numbering
from penstock.events import Error, Finish, FinishReason, Retry, StreamChunk, Unknown, Usage
from penstock.framing import Framed, Frames, FramingName, Stray
from penstock.jsontext.event_surrogates import EventSurrogateJoiner
from penstock.jsontext.portable import as_json_value
from penstock.jsontext.scan import MAX_DEPTH, is_too_deep
from penstock.wires.shared.answer_writer import AnswerWriter
from penstock.wires.shared.in_band_errors import bare_message, error_in
from penstock.wires.shared.open_call import OpenCall

T = TypeVar("T")

INTERRUPTED = ("length", "content_filter", "error")
"""Reasons for which a model stops in the middle."""
MAX_ERRORS = 64
"""How many errors are remembered, so that each is told once; beyond that they are told as often as they come."""
DONE = b"[DONE]"

UNREADABLE = (msgspec.MsgspecError, ValueError, RecursionError)
"""What decoding a frame may raise; UnicodeDecodeError is a ValueError."""

_OF_JSON = re.compile(r'[{}\[\]"]')


class Wire:
    """A stage from frames to events. A subclass says how one decoded frame is read; it never raises on what arrives."""

    name: ClassVar[str]
    framing: ClassVar[FramingName] = "sse"
    FINISH: ClassVar[Mapping[str, FinishReason]] = {}
    decode: ClassVar[staticmethod[[bytes], Any]]
    """Decodes a frame of the narrow shape that nearly all frames have; raises if it is of another."""

    def __init__(self, tools: Sequence[str] = (), id_prefix: str = "call_") -> None:
        self.tools = tuple(tools)
        self.out: list[StreamChunk] = []
        self.answers: dict[int, AnswerWriter] = {}
        self.is_ended = False
        self.has_known_frames = False  # a frame was of this protocol, though it may have said nothing
        self._blocks = Numbering(id_prefix)
        self._at_risk: list[OpenCall] = []  # calls of which a piece may get lost
        self._usage = Usage()
        self._errors: set[str] = set()
        self._has_unknown = False  # something came that we have no word for
        self._surrogates: EventSurrogateJoiner | None = None

    # What a wire implements.

    def read_typed(self, values: list[Any], payloads: list[bytes], event: str) -> None:
        """Tell what frames of the narrow shape say."""
        raise NotImplementedError

    read_typed_one: Callable[[Any, bytes, str], None] | None = None
    """`read_typed` for one frame, if the wire has a shorter way for it."""

    def read_loose(self, payload: bytes, event: str) -> None:
        """Tell what a frame of another shape says."""
        raise NotImplementedError

    def end_mark(self) -> None:
        """The stream's own end mark came."""
        self.end(by_mark=True)

    def is_finished(self, answer: AnswerWriter) -> bool:
        """Whether the provider has said that this answer is over; asked when the bytes end."""
        return answer.raw_reason is not None

    # The stage.

    def feed(self, framed: list[Framed]) -> list[StreamChunk]:
        for item in framed:
            if isinstance(item, Stray):
                self._stray(item)
            else:
                self.read(item)
        return self._take()

    def feed_one(self, payload: bytes, event: str) -> list[StreamChunk]:
        """`feed` for a read that is exactly one frame, with less ado: so they come when a model streams."""
        if self.is_ended or self._surrogates is not None:
            return self.feed([Frames(event, [payload])])
        try:
            value = self.decode(payload)
        except UNREADABLE:
            self._read_odd(payload, event)
            return self._take()
        if self.read_typed_one is not None:
            self.read_typed_one(value, payload, event)
        else:
            self.read_typed([value], [payload], event)
        out = self.out
        chunks = out[:]
        out.clear()
        return chunks

    def read(self, frames: Frames) -> None:
        """Read neighbouring frames: all at once if they fit the narrow shape, else one by one."""
        payloads, event = frames.data, frames.event
        last = payloads[-1:] if payloads[-1] == DONE else []
        if last:
            payloads = payloads[:-1]
        values = None if self.is_ended else decode_batch(self.decode, payloads)
        if values:
            self.read_typed(values, payloads, event)
        else:
            self._one_by_one(payloads, event)
        self._one_by_one(last, event)

    def _one_by_one(self, payloads: list[bytes], event: str) -> None:
        for payload in payloads:
            if self.is_ended:
                self._late(payload)
            else:
                self.read_one(payload, event)

    def read_one(self, payload: bytes, event: str) -> None:
        """Read one frame, of the narrow shape or not."""
        try:
            value = self.decode(payload)
        except UNREADABLE:
            self._read_odd(payload, event)
        else:
            self.read_typed([value], [payload], event)

    def _read_odd(self, payload: bytes, event: str) -> None:
        if payload.strip() == DONE:  # exactly: the same letters inside a text mean nothing (QUIRKS 112)
            self.end_mark()
        else:
            self.read_loose(payload, event)

    def _late(self, payload: bytes) -> None:
        if payload.strip() != DONE:
            self.unknown(payload.decode("utf-8", "replace"), "a frame after the end of the stream")

    def _stray(self, stray: Stray) -> None:
        """What the framing could not make a frame of."""
        text = stray.data.decode("utf-8", "replace")
        self._lose_piece(text)
        if stray.code:
            self.error(Error(stray.note, stray.code, raw=text))
        else:
            self.unknown(text, stray.note)

    def _lose_piece(self, text: str) -> None:
        """What could not be read may have been a piece of a frame, if it looks like one; a `ping` does not."""
        if _OF_JSON.search(text):
            self.damage_calls()

    def close(self, rest: Sequence[Framed] = ()) -> list[StreamChunk]:
        """The bytes are over, but for the rest. What was not ended by the provider is cut, and says so."""
        had_unknown = self._has_unknown or any(isinstance(item, Stray) and item.is_foreign for item in rest)
        self._at_risk.clear()  # what is left of a frame was cut, and not lost
        chunks = self.feed([*rest])
        if not self.is_ended:
            self._has_unknown = had_unknown
            self.end()
        if self._surrogates:
            chunks += self._surrogates.close()
        return chunks + self._take()

    def _report_not_understood(self) -> None:
        """Tell it if nothing at all was made of what came: it may be another wire's, whose counts look like ours."""
        has_reason = any(answer.raw_reason is not None for answer in self.answers.values())
        is_empty = not (self._blocks.next_block or has_reason or self._errors or self.has_known_frames)
        if is_empty and self._has_unknown:
            self.error(Error(f"nothing in this body was understood: is it really {self.name}?", "not_understood"))

    def _take(self) -> list[StreamChunk]:
        chunks = self.out[:]
        self.out.clear()
        return self._surrogates.feed(chunks) if self._surrogates else chunks

    # What wires say.

    def answer_for(self, choice: int = 0) -> AnswerWriter:
        """The answer of this number."""
        answer = self.answers.get(choice)
        if answer is None:
            answer = self.answers[choice] = AnswerWriter(self.out, choice, self._blocks, self.name, self._at_risk)
        return answer

    def usage(self, raw: Mapping[str, Any], **tokens: Any) -> None:
        """Counts so far: what is told replaces what was told before, field by field (QUIRKS 88, 90)."""
        told = {name: count for name, count in tokens.items() if type(count) is int}
        merged = {**self._usage.raw, **{key: value for key, value in raw.items() if value is not None}}
        fit = as_json_value(merged)
        usage = msgspec.structs.replace(self._usage, raw=fit if isinstance(fit, dict) else {}, **told)
        if usage != self._usage:
            self._usage = usage
            self.out.append(usage)

    def error(self, error: Error) -> None:
        """An error in band; a second telling of the same one is left out (QUIRKS 139)."""
        if error.message not in self._errors:
            if len(self._errors) < MAX_ERRORS:
                self._errors.add(error.message)
            self.out.append(error)

    def unknown(self, raw: Any, note: str = "") -> None:
        self._has_unknown = True
        self.out.append(Unknown(as_json_value(raw), note))

    def damage_calls(self) -> None:
        """A part of the stream could not be read: the calls that are being written may lack it."""
        for call in self._at_risk:  # once for each: of one that has closed nothing more is to be expected
            call.damage()
        self._at_risk.clear()

    def restart(self, why: str) -> None:
        """The provider gave up its first attempt: all that was told is void."""
        self._errors.clear()
        self._usage = Usage()
        self.out.append(Retry(why))

    def end(self, by_mark: bool = False) -> None:
        """End every answer, once. `by_mark`: the stream's own end mark came, which confirms what is open."""
        self.is_ended = True
        self._report_not_understood()
        for _, answer in sorted(self.answers.items()) or [(0, self.answer_for())]:
            is_whole = self.is_finished(answer)
            answer.is_short |= bool(self._errors) or self._is_interrupted_by(answer.raw_reason)
            answer.end_calls("finish" if is_whole else "done" if by_mark and not self._errors else None)
            self.out.append(
                Finish(self._reason(answer, is_whole, by_mark), answer.raw_reason, answer.message, answer.choice)
            )

    def _is_interrupted_by(self, raw_reason: str | None) -> bool:
        """Whether the model stopped for another reason than that it was done, as far as anybody said."""
        return raw_reason is not None and self.FINISH.get(raw_reason) not in ("stop", "tool_calls")

    def _reason(self, answer: AnswerWriter, is_whole: bool, by_mark: bool) -> FinishReason:
        if self._errors:
            return "error"
        if not is_whole:
            return "tool_calls" if by_mark and answer.whole_calls else "cut"
        reason = self.FINISH.get(answer.raw_reason or "", "other")
        if reason == "stop" and answer.whole_calls:
            return "tool_calls"  # QUIRKS 53
        if reason == "tool_calls" and not answer.calls:
            return "other"  # QUIRKS 54
        return reason

    # Frames that do not fit the narrow shape.

    def parse_loosely(self, payload: bytes) -> Any:
        """The frame as plain JSON, read generously; None if it is none, which is then told."""
        if len(payload) <= 2 * MAX_DEPTH:  # too short to be too deep, and mostly sound
            try:
                return msgspec.json.decode(payload)
            except UNREADABLE:
                pass
        text = payload.decode("utf-8", "replace")
        if is_too_deep(text):
            self.damage_calls()
            self.unknown(text, f"a frame that is nested deeper than MAX_DEPTH ({MAX_DEPTH})")
            return None
        try:
            value = json.loads(text, strict=False)
        except UNREADABLE:
            if text.startswith(":"):
                self.out.append(Unknown(as_json_value(text), "a comment that was sent as data"))  # QUIRKS 104
            elif text.strip() not in ("", "[DONE]"):
                self._lose_piece(text)
                self.unknown(text, "a frame that is not JSON")
            return None
        if self._surrogates is None and "\\ud" in text.lower():
            self._surrogates = EventSurrogateJoiner()
        return value

    def report_error(self, value: Any) -> bool:
        """Whether the frame is an error in one of its many shapes; then it is told."""
        error = error_in(value)
        if error is not None:
            self.error(error)
        return error is not None

    def report_bare_error(self, value: Any) -> None:
        """A frame that says nothing known: an error if it is just a message, as gateways answer; else unknown."""
        self.error_or_unknown(bare_message(value), value, "a frame that says nothing known")

    def error_or_unknown(self, error: Error | None, value: Any, note: str) -> None:
        """Tell the error that a frame was found to be; if it is none, tell the frame."""
        if error is not None:
            self.error(error)
        else:
            self.unknown(value, note)


def decode_batch(decode: Callable[[bytes], T], payloads: list[bytes]) -> list[T] | None:
    """All payloads decoded; None if any of them does not fit."""
    try:
        return [decode(payloads[0])] if len(payloads) == 1 else [decode(payload) for payload in payloads]
    except UNREADABLE:
        return None
