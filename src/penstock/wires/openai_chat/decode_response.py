"""Decodes Chat Completions responses: stream chunks, and whole completions.

A frame is decoded into a narrow struct, which nearly all frames fit. One that does not fit (an error, a whole message,
a number where text should be, an unknown field) is parsed as plain JSON and read loosely.

The loose path is the reference; `read_typed` handles the usual chunks inline, `add_run` many pieces of one
call, and `read_typed_one` a chunk that comes alone. test_laws decodes every vector by all of them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec

from penstock.events import Error, FinishReason, Text
from penstock.jsontext.leading import object_end
from penstock.jsontext.portable import as_json_value
from penstock.wires.openai_chat.calls import add_run
from penstock.wires.openai_chat.choice import ChatChoice
from penstock.wires.openai_chat.facts import USAGE
from penstock.wires.openai_chat.frames import Chunk
from penstock.wires.openai_chat.reasoning_fields import ReasoningState
from penstock.wires.openai_chat.text_fields import may_have_numbers, restore_numbers
from penstock.wires.shared.decode_response.answer_writer import AnswerWriter
from penstock.wires.shared.decode_response.in_band_errors import bare_message, error_in
from penstock.wires.shared.decode_response.indexes import as_index
from penstock.wires.shared.decode_response.loose import is_empty
from penstock.wires.shared.decode_response.loose_frames import UNREADABLE, MoreThanJSON
from penstock.wires.shared.decode_response.open_block import MAX_STATE
from penstock.wires.shared.decode_response.wire import Wire

_IGNORED = {"choices", "usage", "id", "object", "created", "model", "system_fingerprint", "service_tier",
            "provider", "obfuscation", "x_groq", "citations", "timings", "prompt_filter_results"}  # fmt: skip


class OpenAIChat(Wire):
    """The decoder of Chat Completions. Calls are confirmed by the finish reason, and emitted when the stream ends."""

    name = "openai-chat"
    USAGE = USAGE
    FINISH: ClassVar[Mapping[str, FinishReason]] = {
        "stop": "stop", "eos": "stop", "end_turn": "stop", "stop_sequence": "stop",
        "tool_calls": "tool_calls", "function_call": "tool_calls", "tool_use": "tool_calls",
        "length": "length", "max_tokens": "length", "model_length": "length",
        "content_filter": "content_filter", "sensitive": "content_filter", "safety": "content_filter",
        "error": "error", "insufficient_system_resource": "error", "network_error": "error", "abort": "error",
    }  # fmt: skip

    ends_with_body: ClassVar[bool] = True
    wraps_calls: ClassVar[bool] = True
    has_short_path: ClassVar[bool] = True
    text_key: ClassVar[bytes] = b'"content"'
    arguments_key: ClassVar[bytes] = b'"arguments"'
    decode = staticmethod(msgspec.json.Decoder(Chunk).decode)

    def __init__(self, tools: tuple[str, ...] = (), id_prefix: str = "call_") -> None:
        super().__init__(tools, id_prefix)
        self._choices: dict[int, ChatChoice] = {}
        self._state = ReasoningState(MAX_STATE)
        self._citations: Any = None
        self._is_body = False  # every choice so far was a whole message

    def end(self, by_mark: bool = False) -> None:
        self.reports.has_known_frames |= bool(self.answers.writers)
        for index, fields in self._state.by_choice.items():
            choice = self._choice(index)
            for field, state in fields.items():
                choice.reasoning_block = choice.answer.opaque(field, state, choice.reasoning_block)
        for choice in self._choices.values():
            choice.calls.close()
        for choice in self._choices.values():
            if choice.error is not None:
                choice.answer.is_short = True
                if not self.is_finished(choice.answer):  # an end mark does not confirm a failed choice
                    choice.answer.end_calls(None)
        super().end(by_mark)

    def end_body(self) -> None:
        """Confirms the calls of a body without a reason for its end, which is whole as it is (QUIRKS 176)."""
        open_choices = [choice for choice in self._choices.values() if choice.answer.raw_reason is None]
        if not self._is_body or not open_choices or self.reports.errors:
            return
        for choice in open_choices:
            choice.calls.close()
            for call in choice.answer.calls if choice.error is None else ():
                choice.answer.seal_confirmed(call, "whole")
        self.end(by_mark=True)

    def _reason(self, answer: AnswerWriter, is_whole: bool, by_mark: bool) -> FinishReason:
        is_failed = answer.choice in self._choices and self._choices[answer.choice].error is not None
        return "error" if is_failed else super()._reason(answer, is_whole, by_mark)

    def read_typed(self, values: list[Chunk], payloads: list[bytes], event: str) -> None:
        if event == "error":
            for payload in payloads:
                self._read_error_event(payload)
            return
        append, choices = self.out.append, self._choices
        position, end = 0, len(values)
        while position < end:
            chunk = values[position]
            position += 1
            if len(chunk.choices) != 1:  # none: usage, or an error; several are rare
                self._loose_chunk(payloads[position - 1])
                continue
            entry = chunk.choices[0]
            index, delta = entry.index, entry.delta
            choice = choices.get(index) or self._choice(index)
            answer = choice.answer
            if delta is None:
                pass
            elif delta.reasoning_content or delta.reasoning or delta.reasoning_details or delta.refusal:
                choice.delta(delta)
            else:
                if delta.content and answer.open_kind == "text":
                    append(Text(answer.open_block, delta.content, index))
                elif delta.content:
                    answer.text(delta.content)
                if delta.tool_calls and (orphans := choice.calls.add(delta.tool_calls)):
                    choice.report_orphans(orphans)
            if entry.finish_reason:  # some send an empty one on every chunk (QUIRKS 56)
                answer.finish(entry.finish_reason)
            if chunk.usage is not None:
                self.usage.add(chunk.usage)
            if delta is not None and delta.tool_calls and position < end:
                position += add_run(choice.calls, values, position, delta.tool_calls[-1].index)

    def read_typed_one(self, value: Chunk, payload: bytes, event: str) -> None:
        """Reads a chunk that is a piece of the open text or of one call; any other takes the path of several."""
        if len(value.choices) == 1 and value.usage is None and not event:
            entry = value.choices[0]
            delta, choice = entry.delta, self._choices.get(entry.index)
            if choice and delta and not entry.finish_reason:
                if delta.reasoning_content or delta.reasoning or delta.reasoning_details or delta.refusal:
                    pass
                elif delta.tool_calls:
                    call = None if delta.content else choice.calls.add_piece(delta.tool_calls)
                    if call is not None:
                        self.plain_call = call
                        return
                elif delta.content and choice.answer.open_kind == "text":
                    self.plain_text = Text(choice.answer.open_block, delta.content, entry.index)
                    self.out.append(self.plain_text)
                    return
        self.read_typed([value], [payload], event)

    def read_loose(self, payload: bytes, event: str) -> None:
        if event == "error":
            self._read_error_event(payload)
        else:
            self._loose_chunk(payload)

    def _choice(self, index: int) -> ChatChoice:
        choice = self._choices.get(index)
        if choice is None:
            choice = self._choices[index] = ChatChoice(
                self.answer_for(index), self.tools, self._state, self.reports.unknown, self.answers.damage_calls
            )
        return choice

    def _read_error_event(self, payload: bytes) -> None:
        """Reads an event named `error`: it is an error whatever its payload (QUIRKS 95, 96).

        The name may come after the data, where a stream that is cut before it has a chunk: so a chunk is read first.
        """
        text = payload.decode("utf-8", "replace")
        try:
            value = as_json_value(json.loads(text, strict=False))
        except UNREADABLE:
            value = text
            if (end := object_end(payload)) and json.loads(payload[:end], strict=False).get("choices"):
                raise MoreThanJSON(end) from None
        is_chunk = isinstance(value, dict) and bool(value.get("choices"))
        if is_chunk:
            self._loose_chunk(payload)
        if not self.reports.error_in(value):
            error = value if isinstance(value, dict) and value else value if isinstance(value, str) else text
            self.reports.error_in({"error": (not is_chunk and error) or "the provider sent an error without a message"})

    # Chunks of any shape.

    def _loose_chunk(self, payload: bytes) -> None:
        value = self.loose.parse(payload)
        if not isinstance(value, dict):
            self.reports.no_object(value)
            return
        choices = value.get("choices") or []
        is_error = self.reports.error_in(_without_tags(value) if choices else value)
        if not isinstance(choices, list):
            self._report_loss(value, "choices that are not a list")
            choices, value = [], {"choices": None, "usage": _object(value.get("usage"))}
        if may_have_numbers(payload):
            restore_numbers(choices, payload)
        self._loose_choices(choices)
        has_more = self._loose_rest(value)
        if not is_error and not choices and not has_more:
            self._report_unread(value)

    def _loose_choices(self, choices: list[Any]) -> None:
        position = 0
        for entry in choices:
            if isinstance(entry, dict):
                self._loose_choice(entry, position)
                position += 1
            elif entry:
                self._report_loss(entry, "a choice that is not an object")

    def _loose_choice(self, entry: dict[str, Any], position: int) -> None:
        delta, message = entry.get("delta"), entry.get("message")
        has_content = any(isinstance(part, dict) and part for part in (delta, message))
        choice = self._choice(_choice_index(entry.get("index"), position if has_content else 0))
        self._is_body = isinstance(message, dict) and not delta and (self._is_body or choice.answer.is_untouched)
        choice.loose_delta(delta)
        if not delta or entry.get("finish_reason"):  # a message earlier in the stream may be incomplete (QUIRKS 75)
            choice.loose_message(message)
        if not delta and not message and ("delta" not in entry or choice.answer.is_untouched):
            choice.loose_content(entry.get("text"))
        error = error_in({"error": entry.get("error")})
        if error is not None:
            self._fail_choice(choice, error)
        self._loose_usage(entry.get("usage"))
        if reason := entry.get("finish_reason"):
            choice.answer.finish(str(reason))

    def _fail_choice(self, choice: ChatChoice, error: Error) -> None:
        """Reports an error of one choice; the others continue."""
        is_repeated = choice.error is not None and choice.error.message == error.message
        if error.message not in self.reports.errors and not is_repeated:
            self.out.append(error)
        choice.error = error

    def _loose_rest(self, value: dict[str, Any]) -> bool:
        """Reads the fields besides the choices; returns whether any of them says something."""
        usage, groq, citations = value.get("usage"), _object(value.get("x_groq")), value.get("citations")
        usage = usage or groq.get("usage")  # QUIRKS 89
        self._loose_usage(usage)
        is_error = self.reports.error_in({"error": groq.get("error")})  # QUIRKS 97
        if citations and citations != self._citations:
            self._citations = citations
            self.reports.unknown({"citations": citations}, "the sources that the provider cites")
        return bool(usage or is_error or citations)

    def _loose_usage(self, usage: Any) -> None:
        if isinstance(usage, dict):
            self.usage.add(usage)
        elif usage:
            self.reports.unknown({"usage": usage}, "usage that is not an object")

    def _report_unread(self, value: dict[str, Any]) -> None:
        """Reports a frame without choices, usage or a known error, if it has any fields with content."""
        unread = {key: field for key, field in value.items() if key not in _IGNORED and not is_empty(field)}
        if unread.keys() & {"delta", "tool_calls"}:
            self._report_loss(unread, "a delta outside of any choice")
        elif unread or not value.keys() & _IGNORED:
            self.reports.error_or_unknown(bare_message(value), unread or value, "a frame without any known content")

    def _report_loss(self, raw: Any, note: str) -> None:
        """Reports something that may have been a piece of any call."""
        self.answers.damage_calls()
        self.reports.unknown(raw, note)


def _choice_index(index: Any, position: int) -> int:
    """The index of a choice, which may be sent as text; its position if it has none (QUIRKS 66)."""
    if isinstance(index, float) or (isinstance(index, str) and len(index) < 10):
        try:
            index = int(index)
        except (ValueError, OverflowError):
            return position
    number = as_index(index)
    return position if number is None else number


def _without_tags(value: dict[str, Any]) -> dict[str, Any]:
    """A frame without the names of its kind, which do not make it an error if it has choices."""
    return {key: field for key, field in value.items() if key not in ("object", "type")}


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
