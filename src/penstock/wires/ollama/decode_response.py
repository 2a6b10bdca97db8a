"""Ollama's own API, `/api/chat` and `/api/generate`: lines to events.

A line is an object, and the last one says `done`; a whole body is that last line alone. Calls come whole, in any line
(QUIRKS 156). A line that is no JSON is an error in plain words (QUIRKS 100).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec
from msgspec import Raw, Struct

from penstock.events import Error, FinishReason, Reasoning, Text
from penstock.framing import FramingName
from penstock.jsontext.portable import as_json_value
from penstock.wires.shared.answer_writer import AnswerWriter
from penstock.wires.shared.in_band_errors import bare_message, is_retryable
from penstock.wires.shared.loose import is_empty, items, raw_of, take, text_of, whole_number
from penstock.wires.shared.wire import UNREADABLE, Wire


class Function(Struct, gc=False, forbid_unknown_fields=True):
    name: str | None = None
    arguments: Raw = Raw()
    index: int | None = None  # says nothing: the calls come whole and in order (QUIRKS 157)


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
    """A line that is not the last: that one has counts, and is read loosely."""

    message: Message | None = None
    response: str | None = None
    thinking: str | None = None
    done: bool | None = None
    model: str | None = None
    created_at: str | None = None


_COUNTS = ("prompt_eval_count", "eval_count", "total_duration", "load_duration", "prompt_eval_duration",
           "eval_duration")  # fmt: skip
_NOISE = {"model", "created_at", "remote_model", "remote_host", "role", "tool_name", "index", "type"}


class Ollama(Wire):
    """Lines of a chat or of a completion."""

    name = "ollama"
    decode = staticmethod(msgspec.json.Decoder(Line).decode)
    framing: ClassVar[FramingName] = "ndjson"
    FINISH: ClassVar[Mapping[str, FinishReason]] = {
        "stop": "stop", "length": "length", "tool_calls": "tool_calls", "error": "error",
        "done": "stop",  # older servers say no more than that
    }  # fmt: skip

    def read_typed(self, values: list[Line], payloads: list[bytes], event: str) -> None:
        append, answer = self.out.append, self.answer_for()
        self.has_known_frames = True
        for at, line in enumerate(values):
            message = line.message
            if line.response or line.thinking:
                self._say(answer, line.thinking, line.response)
            if message is None:
                pass
            elif message.tool_calls:
                self._say(answer, message.thinking, message.content)
                for call in message.tool_calls:
                    self._call(answer, call)
            else:
                text, thinking = message.content, message.thinking
                if text and not thinking and answer.open_kind == "text":
                    append(Text(answer.open_block, text))
                elif thinking and not text and answer.open_kind == "reasoning":
                    append(Reasoning(answer.open_block, thinking))
                else:
                    self._say(answer, thinking, text)
            if line.done:
                self._done(answer)
                self._one_by_one(payloads[at + 1 :], event)
                return

    def _say(self, answer: AnswerWriter, thinking: str | None, text: str | None) -> None:
        answer.reasoning(thinking or "")
        answer.text(text or "")

    def _call(self, answer: AnswerWriter, call: Call) -> None:
        function = call.function or Function()
        arguments = text_of(function.arguments)
        if not function.name and not call.id and not arguments:
            return  # QUIRKS 28
        opened = answer.call(call.id or "", function.name or "")
        if arguments:
            opened.add(arguments)
        answer.seal(opened, "whole")

    def _done(self, answer: AnswerWriter) -> None:
        answer.finish("done")  # unless it has said more
        self.end()

    # The loose way: the last line, errors, and lines with fields that we have not met.

    def read_loose(self, payload: bytes, event: str) -> None:
        value = self.parse_loosely(payload) if payload.startswith(b"{") else _words(payload)
        match value:
            case None:
                pass
            case str():
                self.error(Error(value, retryable=is_retryable("", value), raw=value))
            case dict():
                self._loose_object(value)
            case _:
                self.unknown(value, "a line that is no object")

    def _loose_object(self, value: dict[str, Any]) -> None:
        answer, line = self.answer_for(), dict(value)
        is_error = self.report_error(value) or ("model" not in value and self._bare_error(value))
        message = _without_noise(take(line, "message", dict) or {})
        line.setdefault("message", message)
        self._loose_message(answer, message)
        self._loose_message(answer, line)
        counts = {key: whole_number(line.pop(key, None)) for key in _COUNTS}
        if not is_empty(counts):
            self.usage(counts, input_tokens=counts["prompt_eval_count"], output_tokens=counts["eval_count"])
        if context := take(line, "context", list):  # the conversation, as the next /api/generate takes it
            answer.opaque("context", context)
        is_done, reason = take(line, "done", bool), take(line, "done_reason", str)
        self.has_known_frames |= is_done is not None
        if not is_error:
            self._tell_rest(line)
        if reason:
            answer.finish(reason)
        if is_done:
            self._done(answer)

    def _bare_error(self, line: dict[str, Any]) -> bool:
        error = bare_message(line)
        if error is not None:
            self.error(error)
        return error is not None

    def _tell_rest(self, fields: dict[str, Any]) -> None:
        rest = {key: field for key, field in _without_noise(fields).items() if not is_empty(field)}
        if rest:
            self.unknown(rest, "fields that we do not know")

    def _loose_message(self, answer: AnswerWriter, message: dict[str, Any]) -> None:
        thinking, text = take(message, "thinking", str), take(message, "content", str)
        self._say(answer, thinking, text or take(message, "response", str))
        for call in items(message.pop("tool_calls", None)):
            self._loose_call(answer, call)

    def _loose_call(self, answer: AnswerWriter, value: Any) -> None:
        call = dict(value) if isinstance(value, dict) else {"tool_calls": value}
        function = _without_noise(take(call, "function", dict) or {})
        call.setdefault("function", function)
        id, name, arguments = call.pop("id", None), function.pop("name", None), function.pop("arguments", None)
        names = [None if given is None else str(given) for given in (id, name)]
        self._call(answer, Call(Function(names[1], raw_of(arguments)), names[0]))
        self._tell_rest(call)


def _words(line: bytes) -> Any:
    """What a line says that is no object: JSON all the same, or plain words."""
    text = line.decode("utf-8", "replace")
    try:
        return as_json_value(json.loads(text))
    except UNREADABLE:
        return text


def _without_noise(fields: dict[str, Any]) -> dict[str, Any]:
    return {key: field for key, field in fields.items() if key not in _NOISE}
