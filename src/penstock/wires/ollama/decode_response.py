"""Decodes Ollama's native API, `/api/chat` and `/api/generate`: NDJSON lines, and whole responses.

Each line is an object, and the last one has `done: true`; a whole response is that line alone. Calls come whole, in any
line (QUIRKS 156). A line that is not JSON is an error in plain text (QUIRKS 100).

The loose path is the reference for `read_typed`; test_laws decodes every vector by both.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import msgspec
from msgspec import Raw, Struct

from penstock.events import Error, FinishReason, Reasoning, Text
from penstock.framing import FramingName
from penstock.jsontext.portable import as_json_value
from penstock.wires.ollama.facts import USAGE
from penstock.wires.shared.decode_response.answer_writer import AnswerWriter
from penstock.wires.shared.decode_response.in_band_errors import bare_message, is_retryable
from penstock.wires.shared.decode_response.keep_alive import is_keep_alive
from penstock.wires.shared.decode_response.loose import is_empty, items, raw_of, take, text_of, whole_number
from penstock.wires.shared.decode_response.loose_frames import UNREADABLE
from penstock.wires.shared.decode_response.wire import Wire


class Function(Struct, gc=False, forbid_unknown_fields=True):
    name: str | None = None
    arguments: Raw = Raw()
    index: int | None = None  # not used: the calls come whole and in order (QUIRKS 157)


class Call(Struct, gc=False, forbid_unknown_fields=True):
    function: Function | None = None
    id: str | None = None
    type: str | None = None


class Message(Struct, gc=False, forbid_unknown_fields=True):
    role: str | None = None
    content: str | None = None
    thinking: str | None = None
    tool_calls: list[Call] | None = None
    images: None = None


class Line(Struct, gc=False, forbid_unknown_fields=True):
    """Any line but the last, which has counts and is read loosely."""

    message: Message | None = None
    response: str | None = None
    thinking: str | None = None
    done: bool | None = None
    model: str | None = None
    created_at: str | None = None


_NULL = Raw(b"null")
_COUNTS = ("prompt_eval_count", "eval_count", "total_duration", "load_duration", "prompt_eval_duration",
           "eval_duration")  # fmt: skip
_IGNORED = {"model", "created_at", "remote_model", "remote_host", "role", "tool_name", "index", "type"}


class Ollama(Wire):
    """The decoder of Ollama's chats and completions. Every call is whole; `done` ends the stream."""

    name = "ollama"
    USAGE = USAGE
    has_object_arguments: ClassVar[bool] = True
    decode = staticmethod(msgspec.json.Decoder(Line).decode)
    framing: ClassVar[FramingName] = "ndjson"
    FINISH: ClassVar[Mapping[str, FinishReason]] = {
        "stop": "stop", "length": "length", "tool_calls": "tool_calls", "error": "error",
        "done": "stop",  # older servers send no reason
    }  # fmt: skip

    def __init__(self, tools: Sequence[str] = (), id_prefix: str = "call_") -> None:
        super().__init__(tools, id_prefix)
        self._last_rest: dict[str, Any] = {}  # the unknown fields that were reported last

    def read_typed(self, values: list[Line], payloads: list[bytes], event: str) -> None:
        append, answer = self.out.append, self.answer_for()
        self.reports.has_known_frames |= any(line.done is not None for line in values)
        for line in values:
            message = line.message
            if line.response or line.thinking:
                self._content(answer, line.thinking, line.response)
            if message is None:
                pass
            elif message.tool_calls:
                self._content(answer, message.thinking, message.content)
                for call in message.tool_calls:
                    self._call(answer, call)
            else:
                text, thinking = message.content, message.thinking
                if text and not thinking and answer.open_kind == "text":
                    append(Text(answer.open_block, text))
                elif thinking and not text and answer.open_kind == "reasoning":
                    append(Reasoning(answer.open_block, thinking))
                else:
                    self._content(answer, thinking, text)
            if line.done:
                self._finish(answer)
                return  # nothing follows the end

    def _content(self, answer: AnswerWriter, thinking: str | None, text: str | None) -> None:
        answer.reasoning(thinking or "")
        answer.text(text or "")

    def _call(self, answer: AnswerWriter, call: Call) -> None:
        function = call.function or Function()
        arguments = "" if function.arguments == _NULL else text_of(function.arguments)
        if not function.name and not call.id and not arguments:
            return  # QUIRKS 28
        opened = answer.call(call.id or "", function.name or "")
        if arguments:
            opened.add(arguments)
        answer.seal(opened, "whole")

    def _finish(self, answer: AnswerWriter) -> None:
        answer.finish("done")  # does nothing if there was a reason
        self.confirm_calls(answer)
        self.end()

    def end(self, by_mark: bool = False) -> None:
        answer = self.answer_for()
        if self.is_finished(answer):
            answer.cut_unconfirmed()
        super().end(by_mark)

    # Lines of any shape: the last one, errors, and lines with unknown fields.

    def read_loose(self, payload: bytes, event: str) -> None:
        value = self.loose.parse(payload) if payload.startswith(b"{") else _plain_text(payload)
        match value:
            case None:
                pass
            case str() if is_keep_alive(value):
                self.reports.unknown(value, "a keep-alive sent as data")
            case str():
                self.reports.error(Error(value, retryable=is_retryable("", value), raw=value))
            case dict():
                self._loose_object(value)
            case _:
                self.reports.unknown(value, "a line that is not an object")

    def _loose_object(self, value: dict[str, Any]) -> None:
        answer, line = self.answer_for(), dict(value)
        is_error = self.reports.error_in(value) or ("model" not in value and self._bare_error(value))
        message = _without_ignored(take(line, "message", dict) or {})
        line.setdefault("message", message)
        self._loose_message(answer, message)
        self._loose_message(answer, line)
        counts = {key: whole_number(line.pop(key, None)) for key in _COUNTS}
        if not is_empty(counts):
            self.usage.add(counts)
        if context := take(line, "context", list):  # the conversation, for the next /api/generate
            answer.opaque("context", context)
        is_done, reason = take(line, "done", bool), take(line, "done_reason", str)
        self.reports.has_known_frames |= is_done is not None
        if not is_error:
            self._report_rest(line)
        if reason:
            answer.finish(reason)
            self.confirm_calls(answer)
        if is_done:
            self._finish(answer)

    def _bare_error(self, line: dict[str, Any]) -> bool:
        error = bare_message(line)
        if error is not None:
            self.reports.error(error)
        return error is not None

    def _report_rest(self, fields: dict[str, Any]) -> None:
        rest = {key: field for key, field in _without_ignored(fields).items() if not is_empty(field)}
        if rest and rest != self._last_rest:  # it may come with every line
            self._last_rest = rest
            self.reports.unknown(rest, "unknown fields")

    def _loose_message(self, answer: AnswerWriter, message: dict[str, Any]) -> None:
        thinking, text = take(message, "thinking", str), take(message, "content", str)
        self._content(answer, thinking, text or take(message, "response", str))
        for call in items(message.pop("tool_calls", None)):
            self._loose_call(answer, call)

    def _loose_call(self, answer: AnswerWriter, value: Any) -> None:
        call = dict(value) if isinstance(value, dict) else {"tool_calls": value}
        function = _without_ignored(take(call, "function", dict) or {})
        call.setdefault("function", function)
        id, name, arguments = call.pop("id", None), function.pop("name", None), function.pop("arguments", None)
        function_read = Function(None if name is None else str(name), raw_of(arguments))
        self._call(answer, Call(function_read, None if id is None else str(id)))
        self._report_rest(call)


def _plain_text(line: bytes) -> Any:
    """The content of a line that is not an object: a JSON value, or plain text."""
    text = line.decode("utf-8", "replace")
    try:
        return as_json_value(json.loads(text))
    except UNREADABLE:
        return text


def _without_ignored(fields: dict[str, Any]) -> dict[str, Any]:
    return {key: field for key, field in fields.items() if key not in _IGNORED}
