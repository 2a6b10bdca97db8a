"""Cohere's chat, version 2: frames to events.

Texts and calls are begun, continued and ended by their index. The tool plan is neither, but Cohere wants it back
(QUIRKS 159): it is gathered, and told whole as an opaque part. Citations say where a text is from; they need not go
back, and come out as unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
from io import StringIO
from typing import Any, ClassVar, Literal

import msgspec
from msgspec import Struct

from penstock.events import FinishReason, SealedBy, Text
from penstock.wires.shared.answer_writer import NO_ARGUMENTS
from penstock.wires.shared.loose import arguments_text, is_empty, items, take, whole_number
from penstock.wires.shared.open_call import OpenCall
from penstock.wires.shared.wire import INTERRUPTED, Wire

MAX_PLAN = 1024 * 1024
"""How many characters of a tool plan are gathered before they are told."""


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
    """What nearly all frames are: a piece of a text, of a thought, of a call or of a plan."""

    delta: Delta
    type: Literal["content-delta", "content-start", "tool-call-delta", "tool-plan-delta"]
    index: int | None = None


_KINDS = {"message-start", "content-start", "content-delta", "content-end", "tool-plan-delta", "tool-call-start",
          "tool-call-delta", "tool-call-end", "citation-start", "citation-end", "message-end"}  # fmt: skip
_NOISE = {"id", "type", "role"}


class Cohere(Wire):
    """Frames of a chat, or the whole answer."""

    name = "cohere"
    decode = staticmethod(msgspec.json.Decoder(Frame).decode)
    FINISH: ClassVar[Mapping[str, FinishReason]] = {
        "COMPLETE": "stop", "STOP_SEQUENCE": "stop", "TOOL_CALL": "tool_calls",
        "MAX_TOKENS": "length", "ERROR_LIMIT": "length", "ERROR_TOXIC": "content_filter",
        "ERROR": "error", "TIMEOUT": "error",
    }  # fmt: skip

    def __init__(self, tools: tuple[str, ...] = (), id_prefix: str = "call_") -> None:
        super().__init__(tools, id_prefix)
        self._answer = self.answer_for()
        self._calls: dict[int | None, OpenCall] = {}  # those that have not ended, by index
        self._ended: set[int | None] = set()  # the indexes of those that have
        self._doubtful: list[tuple[OpenCall, SealedBy]] = []  # those that ended without arguments
        self._plan = StringIO()
        self._index: int | None = None  # of the text that is being written

    def end(self, by_mark: bool = False) -> None:
        self._tell_plan()
        is_interrupted = self.FINISH.get(self._answer.raw_reason or "") in INTERRUPTED
        if is_interrupted:
            for call in self._calls.values():
                call.fail("cut", "the answer broke off before the call ended")
        if is_interrupted or self._errors:
            for call, _ in self._doubtful:
                call.fail("cut", "the answer broke off before the call had any arguments")
        self._settle()
        super().end(by_mark)

    def end_mark(self) -> None:
        """A gateway's `[DONE]` in place of `message-end` (QUIRKS 113): it confirms nothing that is open."""
        self.end()

    def read_typed(self, values: list[Frame], payloads: list[bytes], event: str) -> None:
        if self._doubtful:
            message = values[0].delta.message
            self._goes_on(values[0].index, bool(message.tool_calls and message.tool_calls.function.arguments))
        append, answer, calls = self.out.append, self._answer, self._calls
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
                self._plan_on(message.tool_plan)

    def _content(self, index: int | None, content: Content) -> None:
        """A text or a thought, or a piece of one; with a type it begins."""
        answer = self._answer
        self._tell_plan()
        if content.type is not None or index != self._index:
            answer.open_kind = ""
        self._index = index
        answer.reasoning(content.thinking or "")
        answer.text(content.text or "")

    def _plan_on(self, piece: str) -> None:
        if not piece:
            return
        self._answer.open_kind = ""
        self._plan.write(piece)
        if self._plan.tell() > MAX_PLAN:
            self._tell_plan()

    def _tell_plan(self) -> None:
        if plan := self._plan.getvalue():
            self._plan = StringIO()
            self._answer.opaque("tool_plan", plan)

    def _entry(self, index: int | None, value: Any, is_start: bool = False) -> None:
        """The head of a call, or a piece of one, which belongs to the open call of its index (QUIRKS 160)."""
        entry = dict(value) if isinstance(value, dict) else {"tool_calls": value}
        function = dict(take(entry, "function", dict) or {})
        id, name = entry.pop("id", None), take(function, "name", str) or ""
        arguments = arguments_text(function.pop("arguments", None))
        given_id = "" if id is None else str(id)
        call = self._begun_again(index, given_id, name) if is_start else self._calls.get(self._label(index))
        if call is None and (name or id is not None):
            self._tell_plan()
            call = self._calls[index] = self._answer.call(given_id, name)
            self._ended.discard(index)
        if call is not None:
            call.name = call.name or name
            if arguments:
                call.add(arguments)
        elif arguments:
            self._answer.is_short = True
            self.unknown({"index": index, "arguments": arguments}, "a piece of a call that is not known")
        rest = {**entry, **function}
        if not name and id is None and not arguments and not is_empty(_without_noise(rest)):
            self._harm(index)
        self._tell(rest, "fields of a call that we do not know")

    def _harm(self, index: int | None) -> None:
        """Something that we do not know was said of a call: it may have been a piece of the arguments."""
        if call := self._calls.get(self._label(index)):
            call.damage()

    def _begun_again(self, index: int | None, given_id: str, name: str) -> OpenCall | None:
        """The call whose start is repeated. Of any other that has the index nothing more can come, nor its end."""
        call = None if index is None else self._calls.get(index)
        if call is None:
            return None
        if not call.size and given_id in ("", call.id) and name == call.name:
            return call
        call.fail("cut", "another call took the call's index before the call ended")
        return None

    def _label(self, index: int | None) -> int | None:
        """The index of an open call; if there is none of this index, and never was, that of the only one."""
        is_strange = index not in self._calls and index not in self._ended
        return next(iter(self._calls)) if is_strange and len(self._calls) == 1 else index

    # The loose way: heads, ends, whole answers, errors, and fields that we have not met.

    def read_loose(self, payload: bytes, event: str) -> None:
        value = self.parse_loosely(payload)
        if not isinstance(value, dict):
            self._tell(value, "a frame that is no object")
            return
        frame = dict(value)
        kind, index = take(frame, "type", str) or event, take(frame, "index", int)
        if kind in _KINDS:
            self.has_known_frames = True
            if kind != "message-end":
                self._goes_on(index, kind == "tool-call-delta")
            delta = dict(take(frame, "delta", dict) or {})
            self._loose_message(index, delta, is_start=kind == "tool-call-start")
            if kind == "tool-call-delta" and not is_empty({**_without_noise(delta), "delta": frame.get("delta")}):
                self._harm(index)
            self._tell(frame, "fields of a frame that we do not know")
            self._ends(kind, index, delta)
        elif self.report_error(value) or (event == "error" and self.report_error({"error": value})):
            pass
        elif "finish_reason" in frame:  # the whole answer
            self._loose_message(None, frame, is_start=True)
            for at in list(self._calls):
                self._end_call(at, "whole")
            self._finish(frame)
        elif kind:
            if index is not None:  # else it is no piece of a call: a keep-alive, say
                self._harm(index)
            self.unknown(value, "a frame of a kind that we do not know")
        else:
            self.report_bare_error(value)

    def _ends(self, kind: str, index: int | None, delta: dict[str, Any]) -> None:
        match kind:
            case "content-end":
                self._answer.open_kind = ""
            case "tool-call-end":
                self._end_call(index, "call_end")
            case "message-end":
                self._finish(delta)
                return
        self._tell(delta, "fields of a delta that we do not know")

    def _end_call(self, index: int | None, sealed_by: SealedBy) -> None:
        label = self._label(index)
        if label not in self._calls:
            return
        call = self._calls.pop(label)
        self._ended.add(label)
        if call.has_arguments:
            self._answer.seal(call, sealed_by)
        else:
            self._doubtful.append((call, sealed_by))

    def _goes_on(self, index: int | None, is_piece: bool) -> None:
        """The answer goes on; a piece for a call that has ended shows that arguments are missing."""
        if self._doubtful:
            self._answer.is_short |= is_piece and self._label(index) not in self._calls
            self._settle()

    def _settle(self) -> None:
        """The answer goes on or ended well: no arguments are the empty object (QUIRKS 33)."""
        for call, sealed_by in self._doubtful:
            if self._answer.is_short:
                call.fail("cut", NO_ARGUMENTS)
            self._answer.seal(call, sealed_by)
        self._doubtful.clear()

    def _finish(self, delta: dict[str, Any]) -> None:
        reason, usage = take(delta, "finish_reason", str), take(delta, "usage", dict)
        if self.report_error({"error": delta.get("error"), "code": delta.get("error_type")}):
            delta = {**delta, "error": None, "error_type": None}
        if usage is not None:
            self._usage_of(usage)
        self._tell(delta, "fields of the end that we do not know")
        if reason:
            self._answer.finish(reason)
        self.end(by_mark=True)

    def _usage_of(self, usage: dict[str, Any]) -> None:
        """Of the two sets of counts, `tokens` is what was read and written; `billed_units` is what is paid for."""
        sets = [take(dict(usage), key, dict) or {} for key in ("billed_units", "tokens")]
        tokens = sets[0] | sets[1]
        self.usage(
            usage,
            input_tokens=whole_number(tokens.get("input_tokens")),
            output_tokens=whole_number(tokens.get("output_tokens")),
            cached_tokens=whole_number(usage.get("cached_tokens")),
            reasoning_tokens=whole_number(tokens.get("reasoning_tokens")),
        )

    def _loose_message(self, index: int | None, fields: dict[str, Any], is_start: bool) -> None:
        message = dict(take(fields, "message", dict) or {})
        for content in items(message.pop("content", None)):
            self._loose_content(index, content)
        self._plan_on(take(message, "tool_plan", str) or "")
        calls = message.pop("tool_calls", None)
        for at, entry in enumerate(items(calls)):
            self._entry((index or 0) + at if isinstance(calls, list) else index, entry, is_start)
        for citation in items(message.pop("citations", None)):
            self.unknown(citation, "a citation")
        self._tell(message, "fields of a message that we do not know")

    def _loose_content(self, index: int | None, value: Any) -> None:
        content = dict(value) if isinstance(value, dict) else {"type": "text", "text": value}
        typed = Content(take(content, "text", str), take(content, "thinking", str), take(content, "type", str))
        self._content(index, typed)
        if not is_empty(content):
            self.unknown(value, "content that we do not know")

    def _tell(self, rest: Any, note: str) -> None:
        """What is left over, if it says something."""
        if isinstance(rest, dict):
            rest = _without_noise(rest)
        if not is_empty(rest):
            self.unknown(rest, note)


def _without_noise(fields: dict[str, Any]) -> dict[str, Any]:
    return {key: field for key, field in fields.items() if key not in _NOISE and not is_empty(field)}
