"""The base of all wires: decodes each frame once, numbers the answers, and ends every stream exactly once.

`Wire.feed` is the reference; `feed_one` is `feed` for a read that is exactly one frame. test_laws decodes every vector
whole and frame by frame. A subclass reads frames of a narrow shape by `read_typed` and all others by `read_loose`;
test_laws decodes every vector by both.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

import msgspec

from penstock.calls.arguments import repeats_keys
from penstock.calls.numbering import Numbering
from penstock.events import Error, Finish, FinishReason, Progress, Retry, StreamChunk, Unknown, Usage
from penstock.framing import Framed, Frames, FramingName, Stray
from penstock.jsontext.event_surrogates import EventSurrogateJoiner
from penstock.jsontext.portable import as_json_value
from penstock.jsontext.scan import MAX_DEPTH, is_too_deep
from penstock.wires.shared.answer_writer import AnswerWriter, EndSigns
from penstock.wires.shared.in_band_errors import bare_message, error_in
from penstock.wires.shared.keep_alive import is_keep_alive, is_keep_alive_value
from penstock.wires.shared.loose import has_object_arguments, keep_repeated_keys
from penstock.wires.shared.model_name import ModelName
from penstock.wires.shared.open_call import OpenCall
from penstock.wires.shared.progress import ResponseProgress
from penstock.wires.shared.token_counts import UsageTable, count_tokens

T = TypeVar("T")

MAX_ERRORS = 64
"""How many errors are remembered in order to report each once; further ones are reported as often as they come."""
MAX_FIELDS = 64
"""How many unknown fields are remembered, in order to report them again only when they change."""
DONE = b"[DONE]"

UNREADABLE = (msgspec.MsgspecError, ValueError, RecursionError)
"""The exceptions of decoding a frame; UnicodeDecodeError is a ValueError."""

UNREADABLE_FRAME = "unreadable_frame"
"""The code of the error for a part of the stream that cannot be read."""


class Wire:
    """A stage from frames to events. Subclasses read the decoded frames; they never raise for what arrives."""

    name: ClassVar[str]
    framing: ClassVar[FramingName] = "sse"
    FINISH: ClassVar[Mapping[str, FinishReason]] = {}
    PAUSES: ClassVar[frozenset[str]] = frozenset()
    """The provider's reasons after which the history must be sent again for the rest of the response."""
    USAGE: ClassVar[UsageTable]
    decode: ClassVar[staticmethod[[bytes], Any]]
    """Decodes a frame of the narrow shape, which nearly all frames have; raises for any other."""
    has_object_arguments: ClassVar[bool] = False
    """Whether the arguments of calls are always objects in the frames, and not text."""
    loose_events: ClassVar[frozenset[str]] = frozenset()
    """Names of events whose frames hardly ever have the narrow shape: it is not tried."""
    has_short_path: ClassVar[bool] = False
    """Whether the wire implements `read_typed_one`."""

    def __init__(self, tools: Sequence[str] = (), id_prefix: str = "call_") -> None:
        self.tools = tuple(tools)
        self.out: list[StreamChunk] = []
        self.answers: dict[int, AnswerWriter] = {}
        self.is_ended = False
        self.end_signs = EndSigns()
        self.has_known_frames = False  # a frame was of this protocol, even if it had no content
        self._blocks = Numbering(id_prefix)
        self._progress = ResponseProgress(self.answers, self._blocks, self.FINISH)
        self._at_risk: list[OpenCall] = []  # open calls, which a lost frame may damage
        self._usage = Usage()
        self._errors: set[str] = set()
        self._last_fields: dict[tuple[int, str, str], Any] = {}  # the unknown fields that were reported
        self._has_unknown = False  # an Unknown was emitted
        self._has_hole = False  # a part of the stream could not be read
        self._has_loss = False  # something was lost that may have been a piece of any call
        self._is_closing = False  # the bytes have ended: what cannot be read now was cut
        self._surrogates: EventSurrogateJoiner | None = None
        self._model = ModelName()

    # What a subclass implements.

    def read_typed(self, values: list[Any], payloads: list[bytes], event: str) -> None:
        """Reads frames of the narrow shape."""
        raise NotImplementedError

    def read_typed_one(self, value: Any, payload: bytes, event: str) -> None:
        """Reads one frame of the narrow shape, for wires that have a short path for it."""
        raise NotImplementedError

    def read_loose(self, payload: bytes, event: str) -> None:
        """Reads a frame of any other shape."""
        raise NotImplementedError

    def end_mark(self) -> None:
        """Handles the end mark of the stream, `[DONE]`."""
        self.end(by_mark=True)

    def is_finished(self, answer: AnswerWriter) -> bool:
        """Whether the provider ended this answer; asked when the bytes end."""
        return answer.raw_reason is not None

    # The stage.

    def feed(self, framed: list[Framed]) -> list[StreamChunk]:
        for item in framed:
            if isinstance(item, Stray):
                self._stray(item)
            else:
                self.read(self._read_start(item) if self._model.is_wanted else item)
        return self._take()

    def _read_start(self, frames: Frames) -> Frames:
        """Reads frames one by one while the model's name is wanted: a later one may have it. Returns the others."""
        event, payloads = frames.event, frames.data
        while self._model.is_wanted:
            self._model.look(payloads[:1])
            if len(payloads) == 1:
                break
            self.read(Frames(event, payloads[:1], frames.is_ascii))
            payloads = payloads[1:]
        return Frames(event, payloads, frames.is_ascii)

    def feed_one(self, payload: bytes, event: str) -> list[StreamChunk]:
        """`feed` for a read that is exactly one frame, as reads are while a model streams."""
        if self.is_ended or self._surrogates is not None or not (payload.isascii() or is_utf8(payload)):
            return self.feed([Frames(event, [payload])])
        if self._model.is_wanted:
            self._model.look([payload])
        try:
            value = self.decode(payload)
        except UNREADABLE:
            self._read_misfit(payload, event)
            return self._take()
        if self.has_short_path:
            self.read_typed_one(value, payload, event)
        else:
            self.read_typed([value], [payload], event)
        out = self.out
        chunks = out[:]
        out.clear()
        return chunks

    def read(self, frames: Frames) -> None:
        """Reads consecutive frames: all at once if they have the narrow shape, else one by one."""
        payloads, event = frames.data, frames.event
        last = payloads[-1:] if payloads[-1] == DONE else []
        if last:
            payloads = payloads[:-1]
        is_batch = len(payloads) > 1 and not self.is_ended and (frames.is_ascii or is_utf8(b"\n".join(payloads)))
        values = decode_batch(self.decode, payloads) if is_batch else None
        if values:
            self.read_typed(values, payloads, event)
        else:
            self._one_by_one(payloads, event)
        self._one_by_one(last, event)

    def _one_by_one(self, payloads: list[bytes], event: str) -> None:
        for payload in payloads:
            if not self.is_ended:  # else nothing follows the Finish (QUIRKS 112)
                self.read_one(payload, event)

    def read_one(self, payload: bytes, event: str) -> None:
        """Reads one frame of any shape."""
        if not is_utf8(payload):
            text = payload.decode("utf-8", "replace")
            if event != "error":
                self.report_hole(text, "a frame that is not UTF-8")
                return
            payload = text.encode()  # no part of the answer, and its message says more than that it is not UTF-8
        if event in self.loose_events:
            self._read_misfit(payload, event)
            return
        try:
            value = self.decode(payload)
        except UNREADABLE:
            self._read_misfit(payload, event)
        else:
            self.read_typed([value], [payload], event)

    def _read_misfit(self, payload: bytes, event: str) -> None:
        if payload.strip() == DONE:  # only as the whole payload: it may also occur in a text (QUIRKS 112)
            self.end_mark()
        else:
            self.read_loose(payload, event)

    def _stray(self, stray: Stray) -> None:
        """Reports bytes that are not a frame."""
        if self.is_ended:
            return
        text = stray.data.decode("utf-8", "replace")
        if stray.code:
            self.damage_calls()
            self._emit_error(Error(stray.note, stray.code, raw=text))
        elif stray.is_ignored or is_keep_alive(text):
            self.unknown(text, stray.note)
        else:
            self.report_hole(text, stray.note)

    def report_hole(self, text: str, note: str) -> None:
        """Reports a part of the stream that cannot be read: an error, because something is missing now.

        It may have been a piece of any open call. Before anything was understood it is only unknown, as the whole body
        may be another wire's; the end decides. At the end of the bytes it is a part that was cut.
        """
        self.damage_calls()
        if self._is_closing or self._has_hole or not self._is_understood():
            self.unknown(text, note)
        else:
            self._report_first_hole(text, note)
        self._has_hole |= not self._is_closing

    def _report_first_hole(self, text: str | None, note: str) -> None:
        message = f"a part of the stream could not be read: {note}"
        self._emit_error(Error(message, UNREADABLE_FRAME, raw=as_json_value(text)))

    def _is_understood(self) -> bool:
        has_reason = any(answer.raw_reason is not None for answer in self.answers.values())
        return bool(self._blocks.next_block or has_reason or self._errors or self.has_known_frames)

    def close(self, rest: Sequence[Framed] = ()) -> list[StreamChunk]:
        """Ends the stream; `rest` are its last frames. Answers that the provider did not end are cut."""
        had_unknown = self._has_unknown or any(isinstance(item, Stray) and item.is_foreign for item in rest)
        self._at_risk.clear()  # an incomplete frame at the end is a cut, not a loss
        self._is_closing = True
        chunks = self.feed([*rest])
        if not self.is_ended:
            self._has_unknown = had_unknown
            self.end()
        if self._surrogates:
            chunks += self._surrogates.close()
        return chunks + self._take()

    def _report_not_understood(self) -> None:
        """Reports an error if nothing of the body was understood (it may be another wire's), or not its beginning."""
        has_content = self._blocks.next_block or self._errors or self.has_known_frames
        if has_content or not self._has_unknown:  # a reason for the end alone does not count
            if self._has_hole and not self._errors:
                self._report_first_hole(None, "its beginning")
        else:
            message = f"nothing in this body was understood: is it really {self.name}?"
            self._emit_error(Error(message, "not_understood"))

    def _take(self) -> list[StreamChunk]:
        chunks = self.out[:]
        self.out.clear()
        return self._surrogates.feed(chunks) if self._surrogates else chunks

    def progress(self, chunks: Sequence[StreamChunk]) -> Progress:
        """How far the response is; `chunks` are those of the last read."""
        return "ended" if self.is_ended else self._progress.progress(chunks)

    # What subclasses call.

    def answer_for(self, choice: int = 0) -> AnswerWriter:
        """The writer of this answer."""
        answer = self.answers.get(choice)
        if answer is None:
            answer = self.answers[choice] = AnswerWriter(
                self.out, choice, self._blocks, self.name, self._at_risk, self.end_signs
            )
            answer.has_loss = self._has_loss
        return answer

    def usage(self, raw: Mapping[str, Any]) -> None:
        """Emits token counts; each field of the provider's replaces its earlier value (QUIRKS 88, 90)."""
        merged = {**self._usage.raw, **{key: value for key, value in raw.items() if value is not None}}
        portable = as_json_value(merged)
        usage = Usage(**count_tokens(self.USAGE, merged), raw=portable if isinstance(portable, dict) else {})
        if usage != self._usage:
            self._usage = usage
            self.out.append(usage)

    def error(self, error: Error) -> None:
        """Emits an error of the provider, unless the same one was emitted before (QUIRKS 139)."""
        self._progress.fail(len(self.out))
        self.end_signs.has_any = True
        self._emit_error(error)

    def _emit_error(self, error: Error) -> None:
        if error.message not in self._errors:
            if len(self._errors) < MAX_ERRORS:
                self._errors.add(error.message)
            self.out.append(error)

    def unknown(self, raw: Any, note: str = "") -> None:
        """Reports what has no event of its own."""
        self._has_unknown = True
        self.out.append(Unknown(as_json_value(raw), note))

    def report_field(self, key: str, value: Any, note: str, choice: int = 0) -> None:
        """Reports an unknown field that may come with every frame: again only when its value changes."""
        if self._last_fields.get((choice, key, note)) == value:
            return
        if len(self._last_fields) >= MAX_FIELDS:
            self._last_fields.clear()
        self._last_fields[choice, key, note] = value
        self.unknown({key: value}, note)

    def damage_calls(self) -> None:
        """Marks the open calls as damaged: a part of the stream could not be read."""
        self._has_loss = True
        for answer in self.answers.values():
            answer.has_loss = True
        for call in self._at_risk:  # once for each: a closed call does not open again
            call.damage()
        self._at_risk.clear()

    def restart(self, why: str) -> None:
        """Withdraws all events so far: the provider started the response again."""
        self._errors.clear()
        self._progress.restart()
        self._last_fields.clear()
        self._usage = Usage()
        self._model = ModelName()
        self.out.append(Retry(why))

    def end(self, by_mark: bool = False) -> None:
        """Ends every answer, once. `by_mark` if the stream's end mark came, which confirms the open calls."""
        self.is_ended = self.end_signs.has_any = True
        self._report_not_understood()
        answers = [answer for _, answer in sorted(self.answers.items())] or [self.answer_for()]
        for answer in answers:
            is_whole = self.is_finished(answer)
            answer.is_short |= bool(self._errors) or self._is_interrupted_by(answer.raw_reason)
            answer.end_calls("finish" if is_whole else "done" if by_mark and not self._errors else None)
        for answer in answers:
            reason = self._reason(answer, self.is_finished(answer), by_mark)
            work = self.client_work(answer) if reason in ("stop", "tool_calls", "other") else ""
            end = reason, answer.raw_reason, answer.message, answer.choice
            self.out.append(Finish(*end, work, self._model.name))

    def client_work(self, answer: AnswerWriter) -> str:
        """The work that waits for the client, other than calls: a reason in `PAUSES`, or the type of a vendor item."""
        reason = answer.raw_reason or ""
        return reason if reason in self.PAUSES else ""

    def _is_interrupted_by(self, raw_reason: str | None) -> bool:
        """Whether the reason is not one of a normal end."""
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

    # Frames of any other shape.

    def parse_loosely(self, payload: bytes) -> Any:
        """Parses a frame as plain JSON, with raw control characters; reports it and returns None if it is not JSON."""
        may_repeat_keys = self.has_object_arguments or has_object_arguments(payload)
        if len(payload) <= 2 * MAX_DEPTH:  # too short to be too deep
            try:
                value = msgspec.json.decode(payload)
            except UNREADABLE:
                pass
            else:
                if not isinstance(value, dict) or not may_repeat_keys or not repeats_keys(payload.decode(), value):
                    return value
        text = payload.decode()
        if is_too_deep(text):
            self.report_hole(text, f"a frame nested deeper than MAX_DEPTH ({MAX_DEPTH})")
            return None
        try:
            hook = keep_repeated_keys if may_repeat_keys else None
            value = json.loads(text, strict=False, object_pairs_hook=hook)
        except UNREADABLE:
            if not is_keep_alive(text):
                self.report_hole(text, "a frame that is not JSON")
            elif text.strip():
                self.out.append(Unknown(as_json_value(text), "a keep-alive sent as data"))  # QUIRKS 104
            return None
        if self._surrogates is None and "\\ud" in text.lower():
            self._surrogates = EventSurrogateJoiner()
        return value

    def report_no_object(self, value: Any) -> None:
        """Reports a frame that is JSON but not an object; it may stand for a piece of any call."""
        if not is_keep_alive_value(value):
            self.damage_calls()
        if value is not None:
            self.unknown(value, "a frame that is not an object")

    def report_error(self, value: Any) -> bool:
        """Emits the error if the frame is one; returns whether it is."""
        error = error_in(value)
        if error is not None:
            self.error(error)
        return error is not None

    def report_bare_error(self, value: Any) -> None:
        """Reports a frame without known content: as an error if it has just a message, as gateways send it."""
        self.error_or_unknown(bare_message(value), value, "a frame without any known content")

    def error_or_unknown(self, error: Error | None, value: Any, note: str) -> None:
        """Emits the error, or, without one, the frame as unknown."""
        if error is not None:
            self.error(error)
        else:
            self.unknown(value, note)


def is_utf8(payload: bytes) -> bool:
    """Whether a payload is text. A replaced byte would change the arguments of a call; some may be a part of a name."""
    try:
        payload.decode()
    except UnicodeDecodeError:
        return False
    return True


def decode_batch(decode: Callable[[bytes], T], payloads: list[bytes]) -> list[T] | None:
    """Decodes all payloads; None if any of them has another shape."""
    try:
        return list(map(decode, payloads))
    except UNREADABLE:
        return None
