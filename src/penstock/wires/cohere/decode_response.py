"""Decodes Cohere's chat API, version 2: SSE events, and whole responses.

Texts and calls are started, continued and ended by their index. The tool plan must be sent back (QUIRKS 159): it is
collected and emitted as one `Opaque`. Citations need not be sent back and are emitted as `Unknown`.

The loose path is the reference for `read_typed`; test_laws decodes every vector by both.
"""

from __future__ import annotations

from collections.abc import Mapping
from io import StringIO
from typing import Any, ClassVar, Literal

import msgspec
from msgspec import Struct

from penstock.events import FinishReason, SealedBy, Text
from penstock.wires.cohere.facts import USAGE
from penstock.wires.shared.decode_response.answer_writer import AnswerWriter
from penstock.wires.shared.decode_response.in_band_errors import bare_message
from penstock.wires.shared.decode_response.indexes import Index, take_index
from penstock.wires.shared.decode_response.loose import arguments_text, is_empty, items, take
from penstock.wires.shared.decode_response.open_call import OpenCall
from penstock.wires.shared.decode_response.progress import INTERRUPTED
from penstock.wires.shared.decode_response.wire import Wire

MAX_PLAN = 1024 * 1024
"""How many characters of a tool plan are collected before they are emitted."""


class Content(Struct, gc=False, forbid_unknown_fields=True):
    text: str | None = None
    thinking: str | None = None
    type: str | None = None


class Function(Struct, gc=False, forbid_unknown_fields=True):
    arguments: str


class Piece(Struct, gc=False, forbid_unknown_fields=True):
    """A piece of a call's arguments."""

    function: Function


class Message(Struct, gc=False, forbid_unknown_fields=True):
    content: Content | None = None
    tool_calls: Piece | None = None
    tool_plan: str | None = None


class Delta(Struct, gc=False, forbid_unknown_fields=True):
    message: Message


class Frame(Struct, gc=False, forbid_unknown_fields=True):
    """The shape of nearly all frames: a piece of a text, of reasoning, of a call or of a plan."""

    delta: Delta
    type: Literal["content-delta", "content-start", "tool-call-delta", "tool-plan-delta"]
    index: Index | None = None


_KINDS = {"message-start", "content-start", "content-delta", "content-end", "tool-plan-delta", "tool-call-start",
          "tool-call-delta", "tool-call-end", "citation-start", "citation-end", "message-end"}  # fmt: skip
_CARRIERS = ("delta", "message", "tool_calls", "function", "arguments")  # the fields that lead to the arguments
_IGNORED = {"id", "type", "role"}


class Cohere(Wire):
    """The decoder of Cohere's chat API. A call is confirmed by its end event; `message-end` ends the stream."""

    name = "cohere"
    USAGE = USAGE
    decode = staticmethod(msgspec.json.Decoder(Frame).decode)
    FINISH: ClassVar[Mapping[str, FinishReason]] = {
        "COMPLETE": "stop", "STOP_SEQUENCE": "stop", "TOOL_CALL": "tool_calls",
        "MAX_TOKENS": "length", "ERROR_LIMIT": "length", "ERROR_TOXIC": "content_filter",
        "ERROR": "error", "TIMEOUT": "error",
    }  # fmt: skip

    def __init__(self, tools: tuple[str, ...] = (), id_prefix: str = "call_") -> None:
        super().__init__(tools, id_prefix)
        self._answer = self.answer_for()
        self._calls = IndexedCalls(self._answer)
        self._plan = StringIO()
        self._index: int | None = None  # index of the open text

    def end(self, by_mark: bool = False) -> None:
        self._emit_plan()
        is_interrupted = self.FINISH.get(self._answer.raw_reason or "") in INTERRUPTED
        if is_interrupted:
            self._calls.cut("the response was interrupted before the call ended")
        super().end(by_mark)

    def end_mark(self) -> None:
        """Ends the stream: some gateways send `[DONE]` instead of `message-end`; it confirms no call (QUIRKS 113)."""
        self.end()

    def read_typed(self, values: list[Frame], payloads: list[bytes], event: str) -> None:
        append, answer, calls = self.out.append, self._answer, self._calls.open
        self.reports.has_known_frames = True
        for piece in values:
            message, index = piece.delta.message, piece.index
            content = message.content
            if content is not None:
                text = content.text
                is_next = content.type is None and index == self._index and answer.open_kind == "text"
                if text and is_next and content.thinking is None:
                    append(Text(answer.open_block, text))
                else:
                    self._content(index, content)
            if message.tool_calls is not None:
                arguments = message.tool_calls.function.arguments
                if arguments and index in calls:
                    calls[index].add(arguments)
                elif arguments:
                    self._entry(index, {"function": {"arguments": arguments}})
            if message.tool_plan:
                self._add_plan(message.tool_plan)

    def _content(self, index: int | None, content: Content) -> None:
        """Reads a piece of text or reasoning; one with a type begins a new block."""
        answer = self._answer
        self._emit_plan()
        if content.type is not None or index != self._index:
            answer.open_kind = ""
        self._index = index
        answer.reasoning(content.thinking or "")
        answer.text(content.text or "")

    def _add_plan(self, piece: str) -> None:
        if not piece:
            return
        self._answer.open_kind = ""
        self._plan.write(piece)
        if self._plan.tell() > MAX_PLAN:
            self._emit_plan()

    def _emit_plan(self) -> None:
        if plan := self._plan.getvalue():
            self._plan = StringIO()
            self._answer.opaque("tool_plan", plan)

    def _entry(self, index: int | None, value: Any, is_start: bool = False) -> None:
        """Reads the start of a call, or a piece, which belongs to the open call of its index (QUIRKS 160)."""
        entry = dict(value) if isinstance(value, dict) else {"tool_calls": value}
        function = dict(take(entry, "function", dict) or {})
        id, name = entry.pop("id", None), take(function, "name", str) or ""
        arguments = arguments_text(function.pop("arguments", None))
        provider_id = "" if id is None else str(id)
        call = self._calls.repeated(index, provider_id, name) if is_start else self._calls.at(index)
        if call is None and (name or id is not None):
            self._emit_plan()
            call = self._calls.begin(index, provider_id, name)
        if call is not None:
            call.name = call.name or name
            if arguments:
                call.add(arguments)
        elif arguments:
            self._answer.is_short = True
            self.reports.unknown({"index": index, "arguments": arguments}, "a piece of an unknown call")
        rest = {**entry, **function}
        if not name and id is None and not arguments and not is_empty(_without_ignored(rest)):
            self._add_unknown(index, is_misshapen=not rest.keys().isdisjoint(_CARRIERS))
        self._report(rest, "unknown fields of a call")

    def _add_unknown(self, index: int | None, is_misshapen: bool = False) -> None:
        """Records that something unknown came for a call; damages it if a known field has another type."""
        if call := self._calls.at(index):
            call.has_unknown_pieces = True
            if is_misshapen:
                call.damage()

    # Frames of any shape: starts, ends, whole responses, errors, and unknown fields.

    def read_loose(self, payload: bytes, event: str) -> None:
        value = self.loose.parse(payload)
        if not isinstance(value, dict):
            self.reports.no_object(value)
            return
        frame = dict(value)
        kind, index = take(frame, "type", str) or event, take_index(frame, "index")
        if kind in _KINDS:
            self.reports.has_known_frames = True
            delta = dict(take(frame, "delta", dict) or {})
            self._loose_message(index, delta, is_start=kind == "tool-call-start")
            rest = {**_without_ignored(delta), "delta": frame.get("delta")}
            if kind == "tool-call-delta" and not is_empty(rest):
                self._add_unknown(index, is_misshapen=any(not is_empty(rest.get(key)) for key in _CARRIERS))
            self.reports.fields(frame, _IGNORED, "an unknown field of the frame")
            self._end_part(kind, index, delta)
        elif self.reports.error_in(value) or (event == "error" and self.reports.error_in({"error": value})):
            pass
        elif "finish_reason" in frame:  # a whole response
            self.reports.has_known_frames |= isinstance(frame.get("message"), dict)
            self._loose_message(None, frame, is_start=True)
            for open_index in list(self._calls.open):
                self._calls.end(open_index, "whole")
            self._finish(frame)
        elif kind:
            if index is not None:  # else it is not a piece of a call, but for example a keep-alive
                self._add_unknown(index)
            self.reports.unknown(value, "a frame of an unknown kind")
        else:
            self.reports.error_or_unknown(bare_message(value), value, "a frame without any known content")

    def _end_part(self, kind: str, index: int | None, delta: dict[str, Any]) -> None:
        match kind:
            case "content-end":
                self._answer.open_kind = ""
            case "tool-call-end":
                self._calls.end(index, "call_end")
            case "message-end":
                self._finish(delta)
                return
        self._report(delta, "unknown fields of a delta")

    def _finish(self, delta: dict[str, Any]) -> None:
        reason, usage = take(delta, "finish_reason", str), take(delta, "usage", dict)
        if self.reports.error_in({"error": delta.get("error"), "code": delta.get("error_type")}):
            delta = {**delta, "error": None, "error_type": None}
        if usage is not None:
            self.usage.add(usage)
        self._report(delta, "unknown fields of message-end")
        if reason:
            self._answer.finish(reason)
        self.end(by_mark=True)

    def _loose_message(self, index: int | None, fields: dict[str, Any], is_start: bool) -> None:
        message = dict(take(fields, "message", dict) or {})
        for content in items(message.pop("content", None)):
            self._loose_content(index, content)
        self._add_plan(take(message, "tool_plan", str) or "")
        calls = message.pop("tool_calls", None)
        for position, entry in enumerate(items(calls)):
            self._entry((index or 0) + position if isinstance(calls, list) else index, entry, is_start)
        for citation in items(message.pop("citations", None)):
            self.reports.unknown(citation, "a citation")
        self._report(message, "unknown fields of a message")

    def _loose_content(self, index: int | None, value: Any) -> None:
        content = dict(value) if isinstance(value, dict) else {"type": "text", "text": value}
        typed = Content(take(content, "text", str), take(content, "thinking", str), take(content, "type", str))
        self._content(index, typed)
        if not is_empty(content):
            self.reports.unknown(value, "unknown content")

    def _report(self, rest: Any, note: str) -> None:
        """Reports what was not read, if it has any content."""
        if isinstance(rest, dict):
            rest = _without_ignored(rest)
        self.reports.rest(rest, note)


def _without_ignored(fields: dict[str, Any]) -> dict[str, Any]:
    return {key: field for key, field in fields.items() if key not in _IGNORED and not is_empty(field)}


class IndexedCalls:
    """The `open` calls of an answer, by index. Some servers send no index, or an unknown one (QUIRKS 160)."""

    def __init__(self, answer: AnswerWriter) -> None:
        self.open: dict[int | None, OpenCall] = {}
        self._answer = answer
        self._ended: set[int | None] = set()  # the indexes of calls that have ended

    def at(self, index: int | None) -> OpenCall | None:
        """The open call that a piece with this index belongs to."""
        return self.open.get(self._label(index))

    def begin(self, index: int | None, provider_id: str, name: str) -> OpenCall:
        """Opens a call."""
        call = self.open[index] = self._answer.call(provider_id, name)
        self._ended.discard(index)
        return call

    def repeated(self, index: int | None, provider_id: str, name: str) -> OpenCall | None:
        """The call of this index if its start is repeated; any other call of this index cannot be completed."""
        call = None if index is None else self.open.get(index)
        if call is None:
            return None
        if not call.size and provider_id in ("", call.id) and name == call.name:
            return call
        call.fail("cut", "another call took the index of the call before the call ended")
        del self.open[index]
        self._ended.add(index)
        return None

    def end(self, index: int | None, sealed_by: SealedBy) -> None:
        """Ends a call as the protocol did."""
        label = self._label(index)
        if label not in self.open:
            return
        call = self.open.pop(label)
        self._ended.add(label)
        self._answer.seal(call, sealed_by)

    def cut(self, message: str) -> None:
        """Fails all open calls."""
        for call in self.open.values():
            call.fail("cut", message)

    def _label(self, index: int | None) -> int | None:
        """The index, or, if no call ever had it, the index of the only open call.

        After a loss, the index may be that of a call whose start was lost.
        """
        is_new = index not in self.open and index not in self._ended and not self._answer.has_loss
        return next(iter(self.open)) if is_new and len(self.open) == 1 else index
