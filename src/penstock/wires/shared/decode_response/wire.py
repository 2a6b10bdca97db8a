"""The base of all wires: reads decoded frames, numbers the answers, and ends every stream exactly once.

The class of a wire reads frames of a narrow shape by `read_typed` and all others by `read_loose`; test_laws decodes
every vector by both. `ResponseDecoder` is the stage that gives it the frames.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import msgspec
from msgspec import Struct, field

from penstock.events import Finish, FinishReason, Progress, Retry, StreamChunk, Text
from penstock.framing import FramingName
from penstock.wires.shared.decode_response.answer_writer import AnswerWriter
from penstock.wires.shared.decode_response.answers import Answers
from penstock.wires.shared.decode_response.loose_frames import LooseFrames
from penstock.wires.shared.decode_response.open_call import OpenCall
from penstock.wires.shared.decode_response.progress import ResponseProgress, is_interruption
from penstock.wires.shared.decode_response.reports import Reports
from penstock.wires.shared.token_counts import UsageTable, UsageWriter


class Wire:
    """The frames of one response, read as a protocol means them. Subclasses never raise for what arrives.

    They write content by `answer_for`, token counts by `usage`, everything else by `reports`, and parse frames of any
    other shape by `loose`. Frames that they find inside a frame go to `inner`, and are read next.
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
    ends_with_body: ClassVar[bool] = False
    """Whether the wire implements `end_body`."""
    wraps_calls: ClassVar[bool] = False
    """Whether models of this wire wrap several calls into one (see `WrappedCalls`)."""
    has_short_path: ClassVar[bool] = False
    """Whether the wire implements `read_typed_one`."""
    text_key: ClassVar[bytes] = b""
    """The quoted name of the field that has a piece of text, if `read_typed_one` tells frames of nothing but text."""
    arguments_key: ClassVar[bytes] = b""
    """The same for the field that has a piece of a call's arguments."""
    response_id: str | None = None
    """The provider's id of the response, for the wires whose servers remember responses."""

    def __init__(self, tools: Sequence[str] = (), id_prefix: str = "call_") -> None:
        self.tools = tuple(tools)
        self.out: list[StreamChunk] = []
        self.is_ended = False
        self.answers = Answers(self.out, self.name, id_prefix)
        self.answer_for = self.answers.writer
        self._progress = ResponseProgress(self.answers.writers, self.answers.blocks, self.FINISH)
        self.reports = Reports(self.answers, self._progress)
        self.loose = LooseFrames(self.reports, has_object_arguments=self.has_object_arguments)
        self.usage = UsageWriter(self.out, self.USAGE)
        self.model = ModelName()
        self.inner: list[bytes] = []
        self.plain_text: Text | None = None  # the frame that `read_typed_one` read, if it was nothing but this
        self.plain_call: OpenCall | None = None  # the call of which it was a piece, if it was nothing else

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

    def end_body(self) -> None:
        """Ends the response if the JSON value that was read last is a whole body, which is its own end mark."""
        raise NotImplementedError

    def is_finished(self, answer: AnswerWriter) -> bool:
        """Whether the provider ended this answer; asked when the bytes end."""
        return answer.raw_reason is not None

    def progress(self, chunks: Sequence[StreamChunk]) -> Progress:
        """How far the response is; `chunks`: the events of the last read."""
        return "ended" if self.is_ended else self._progress.progress(chunks)

    # What subclasses call.

    def restart(self, why: str, model: Any) -> None:
        """Withdraws all events so far: the provider started the response again, with the model of this name."""
        self.reports.restart()
        self.usage.restart()
        self.model = ModelName(model if isinstance(model, str) else "")
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
        self.is_ended = self.answers.end_signs.has_any = True
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
            self.out.append(Finish(*end, work, self.model.name))

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


SEARCHED_FRAMES = 8
"""In how many frames at the start of a response the name is looked for; some begin with frames that lack it."""


class _Envelope(Struct):
    model: str | None = None


class _Frame(Struct):
    """The places of the name: in the frame, or in the message, response or interaction that it announces."""

    model: str | None = None
    version: str | None = field(name="modelVersion", default=None)
    message: _Envelope | None = None
    response: _Envelope | None = None
    interaction: _Envelope | None = None


_decode = msgspec.json.Decoder(_Frame).decode


class ModelName:
    """Looks for the name in the frames of a response, while it `is_wanted`."""

    __slots__ = ("_frames_left", "is_wanted", "name")

    def __init__(self, name: str | None = None) -> None:
        self.name = name or ""
        self.is_wanted = name is None
        self._frames_left = SEARCHED_FRAMES

    def look(self, payloads: list[bytes]) -> None:
        for payload in payloads[: self._frames_left]:
            self._frames_left -= 1
            self.name = _name_in(payload)
            if self.name:
                break
        self.is_wanted = not self.name and self._frames_left > 0


def _name_in(payload: bytes) -> str:
    """The name of the model in a frame; empty if it has none."""
    try:
        frame = _decode(payload)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return ""
    envelope = frame.message or frame.response or frame.interaction or _Envelope()
    return frame.model or frame.version or envelope.model or ""
