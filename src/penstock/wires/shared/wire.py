"""The base of all wires: decodes each frame once, numbers the answers, and ends every stream exactly once.

`Wire.feed` is the reference; `feed_one` is `feed` for a read that is exactly one frame. test_laws decodes every vector
whole and frame by frame. A subclass reads frames of a narrow shape by `read_typed` and all others by `read_loose`;
test_laws decodes every vector by both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

from penstock.events import Finish, FinishReason, Progress, Retry, StreamChunk, Text
from penstock.framing import Framed, Frames, FramingName, Stray
from penstock.jsontext.leading import object_end
from penstock.wires.shared.answer_writer import AnswerWriter
from penstock.wires.shared.answers import Answers
from penstock.wires.shared.loose_frames import UNREADABLE, LooseFrames, MoreThanJSON
from penstock.wires.shared.model_name import ModelName
from penstock.wires.shared.progress import ResponseProgress, is_interruption
from penstock.wires.shared.reports import Reports
from penstock.wires.shared.token_counts import UsageTable, UsageWriter

T = TypeVar("T")

DONE = b"[DONE]"
_BATCH = 512  # how many frames are decoded at once, so that they are still in the cache when they are read


class Wire:
    """A stage from frames to events. Subclasses read the decoded frames; they never raise for what arrives.

    They write content by `answer_for`, token counts by `usage`, everything else by `reports`, and parse frames of any
    other shape by `loose`.
    """

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
    text_key: ClassVar[bytes] = b""
    """The quoted name of the field that has a piece of text, if `read_typed_one` tells frames of nothing but text."""

    def __init__(self, tools: Sequence[str] = (), id_prefix: str = "call_") -> None:
        self.tools = tuple(tools)
        self.out: list[StreamChunk] = []
        self.is_ended = False
        self.answers = Answers(self.out, self.name, id_prefix)
        self.answer_for = self.answers.writer
        self.end_signs = self.answers.end_signs
        self._progress = ResponseProgress(self.answers.writers, self.answers.blocks, self.FINISH)
        self.reports = Reports(self.answers, self._progress)
        self.loose = LooseFrames(self.reports, has_object_arguments=self.has_object_arguments)
        self.usage = UsageWriter(self.out, self.USAGE)
        self._model = ModelName()
        self.plain_text: Text | None = None  # the last frame that `feed_one` read, if it was nothing but this

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
            if not isinstance(item, Stray):
                self.read(self._read_start(item) if self._model.is_wanted else item)
            elif not self.is_ended:
                self.reports.stray(item)
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
        self.plain_text = None
        if self.is_ended or self.loose.surrogates is not None or not (payload.isascii() or is_utf8(payload)):
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
            if self._model.is_wanted:
                self.plain_text = None  # the next frames have to be searched for the name
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
        if len(payloads) <= _BATCH:
            self._read_batch(payloads, event, frames.is_ascii)
        else:
            for start in range(0, len(payloads), _BATCH):
                self._read_batch(payloads[start : start + _BATCH], event, frames.is_ascii)
        self._one_by_one(last, event)

    def _read_batch(self, payloads: list[bytes], event: str, is_ascii: bool) -> None:
        is_batch = len(payloads) > 1 and not self.is_ended and (is_ascii or is_utf8(b"\n".join(payloads)))
        values = decode_batch(self.decode, payloads) if is_batch else None
        if values:
            self.read_typed(values, payloads, event)
        else:
            self._one_by_one(payloads, event)

    def _one_by_one(self, payloads: list[bytes], event: str) -> None:
        for payload in payloads:
            if not self.is_ended:  # else nothing follows the Finish (QUIRKS 112)
                self.read_one(payload, event)

    def read_one(self, payload: bytes, event: str) -> None:
        """Reads one frame of any shape."""
        if not is_utf8(payload):
            if event != "error":
                self._read_object(payload, object_end(payload), event, "a frame that is not UTF-8")
                return
            # No part of the answer, and its message says more than that it is not UTF-8.
            payload = payload.decode("utf-8", "replace").encode()
        if event in self.loose_events:
            self._read_misfit(payload, event)
            return
        try:
            value = self.decode(payload)
        except UNREADABLE:
            self._read_misfit(payload, event)
        else:
            self.read_typed([value], [payload], event)

    def _read_object(self, payload: bytes, end: int, event: str, note: str) -> None:
        """Reads the object before `end`, if there is one, and reports what follows it as lost."""
        if end:
            self.read_one(payload[:end], event)
        if not self.is_ended:
            self.reports.hole(payload[end:].decode("utf-8", "replace"), note)

    def _read_misfit(self, payload: bytes, event: str) -> None:
        if payload.lstrip().startswith(DONE):  # only at the start: it may also occur in a text (QUIRKS 112)
            self.end_mark()
            return
        try:
            self.read_loose(payload, event)
        except MoreThanJSON as more:
            self._read_object(payload, more.end, event, "what follows the JSON of a frame")

    def close(self, rest: Sequence[Framed] = ()) -> list[StreamChunk]:
        """Ends the stream; `rest` are its last frames. Answers that the provider did not end are cut."""
        reports = self.reports
        before, last = split_last(rest)
        chunks = self.feed(before)
        had_unknown = reports.has_unknown or any(isinstance(item, Stray) and item.is_foreign for item in last)
        self.answers.end_bytes()
        reports.is_closing = True
        chunks += self.feed(last)
        if not self.is_ended:
            reports.has_unknown = had_unknown
            self.end()
        if self.loose.surrogates:
            chunks += self.loose.surrogates.close()
        return chunks + self._take()

    def _take(self) -> list[StreamChunk]:
        chunks = self.out[:]
        self.out.clear()
        return self.loose.surrogates.feed(chunks) if self.loose.surrogates else chunks

    def progress(self, chunks: Sequence[StreamChunk]) -> Progress:
        """How far the response is; `chunks` are those of the last read."""
        return "ended" if self.is_ended else self._progress.progress(chunks)

    # What subclasses call.

    def restart(self, why: str, model: Any) -> None:
        """Withdraws all events so far: the provider started the response again, with the model of this name."""
        self.reports.restart()
        self.usage.restart()
        self._model = ModelName(model if isinstance(model, str) else "")
        self.out.append(Retry(why))

    def confirm_calls(self, answer: AnswerWriter) -> None:
        """Confirms the calls without arguments that had an end of their own, if the reason is one of a normal end.

        This may be the last frame that is read, so what follows it does not change these calls. Calls that come later
        wait for the next such reason.
        """
        if not self.reports.errors and not is_interruption(self.FINISH, answer.raw_reason):
            answer.confirm()

    def end(self, by_mark: bool = False) -> None:
        """Ends every answer, once. `by_mark` if the stream's end mark came, which confirms the open calls."""
        self.is_ended = self.end_signs.has_any = True
        self.reports.end(self.name)
        answers, errors = self.answers.in_order, self.reports.errors
        for answer in answers:
            is_whole = self.is_finished(answer)
            answer.is_short |= bool(errors) or is_interruption(self.FINISH, answer.raw_reason)
            answer.end_calls("finish" if is_whole else "done" if by_mark and not errors else None)
        for answer in answers:
            reason = self._reason(answer, self.is_finished(answer), by_mark)
            work = self.client_work(answer) if reason in ("stop", "tool_calls", "other") else ""
            end = reason, answer.raw_reason, answer.message, answer.choice
            self.out.append(Finish(*end, work, self._model.name))

    def client_work(self, answer: AnswerWriter) -> str:
        """The work that waits for the client, other than calls: a reason in `PAUSES`, or the type of a vendor item."""
        reason = answer.raw_reason or ""
        return reason if reason in self.PAUSES else ""

    def _reason(self, answer: AnswerWriter, is_whole: bool, by_mark: bool) -> FinishReason:
        if self.reports.errors:
            return "error"
        if not is_whole:
            return "tool_calls" if by_mark and answer.whole_calls else "cut"
        reason = self.FINISH.get(answer.raw_reason or "", "other")
        if reason == "stop" and answer.whole_calls:
            return "tool_calls"  # QUIRKS 53
        if reason == "tool_calls" and not answer.calls:
            return "other"  # QUIRKS 54
        return reason


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
        before.append(Frames(frames.event, frames.data[:-1], frames.is_ascii))
        last[0] = Frames(frames.event, frames.data[-1:], frames.is_ascii)
    return before, last


def decode_batch(decode: Callable[[bytes], T], payloads: list[bytes]) -> list[T] | None:
    """Decodes all payloads; None if any of them has another shape."""
    try:
        return list(map(decode, payloads))
    except UNREADABLE:
        return None
