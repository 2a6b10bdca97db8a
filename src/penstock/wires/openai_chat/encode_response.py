"""Encodes responses as Chat Completions: stream chunks, and whole completions.

Calls have no end of their own here: the finish reason confirms them. Reasoning is `reasoning_content`, the field that
most servers and clients know. `reasoning_details` that contain the text of the reasoning are left out of a stream,
where the text has been sent already; a whole message has them.

Clients that declare `functions` instead of `tools` look for one `function_call`: the first call is written as that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from penstock.events import Error, Finish, Opaque, Reasoning, Refusal, Text, ToolCall, ToolCallInvalid, Usage
from penstock.turn import Turn
from penstock.wires.openai_chat.facts import FACTS
from penstock.wires.openai_chat.fragments import FIELDS
from penstock.wires.openai_chat.reasoning_details import detail_texts
from penstock.wires.shared.json_writing import PieceWriter, split_around, sse
from penstock.wires.shared.openai_errors import OPENAI_ERRORS, openai_error
from penstock.wires.shared.response_encoder import ResponseEncoder
from penstock.wires.shared.response_errors import error_status
from penstock.wires.shared.response_frames import Content
from penstock.wires.shared.response_turns import states_by_block
from penstock.wires.shared.written_call import Write, WrittenCall, final_text

Json = dict[str, Any]
DONE = b"data: [DONE]\n\n"
_FIELD = {Text: "content", Reasoning: "reasoning_content", Refusal: "refusal"}
_MARK = "\x00"


class OpenAIChatEncoder(ResponseEncoder):
    """The encoder of Chat Completions."""

    wire = FACTS.wire
    losses = FACTS.losses
    has_choices = True
    has_custom_calls = True
    FINISH: ClassVar = {
        "stop": "stop", "tool_calls": "tool_calls", "length": "length", "content_filter": "content_filter",
        "other": "other",
    }  # fmt: skip
    ERRORS: ClassVar = OPENAI_ERRORS

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._choices: set[int] = set()  # those that have begun

    # The stream.

    def opening(self) -> None:
        self.begin_choice(0)

    def begin_content(self, event: Content) -> Write:
        self.begin_choice(event.choice)
        return self.writer({_FIELD[type(event)]: _MARK}, event.choice)

    def begin_call(self, call: WrittenCall) -> Write:
        self.begin_choice(call.choice)
        if self._is_old(call):
            self.delta({"function_call": {"name": call.name, "arguments": ""}}, call.choice)
            return self.writer({"function_call": {"arguments": _MARK}}, call.choice)
        kind, field = _kind(call)
        entry = {"index": call.index, "id": call.id, "type": kind, kind: {"name": call.name, field: ""}}
        self.delta({"tool_calls": [entry | _call_fields(call)]}, call.choice)
        return self.writer({"tool_calls": [{"index": call.index, kind: {field: _MARK}}]}, call.choice)

    def _is_old(self, call: WrittenCall) -> bool:
        """Whether a call is written in the older form, which has no list and only functions."""
        return self.head.has_old_calls and not call.index and call.kind != "custom"

    def reason_of(self, finish: Finish) -> str:
        word = super().reason_of(finish)
        return "function_call" if word == "tool_calls" and self.head.has_old_calls else word

    def call_state(self, call: WrittenCall, event: Opaque) -> None:
        if not self._is_old(call) and event.kind in ("extra_content", FIELDS):
            self.delta({"tool_calls": [{"index": call.index, "id": call.id, **_call_fields(call)}]}, call.choice)

    def state(self, event: Opaque, is_open: bool) -> None:
        if event.kind == "reasoning_details" and (details := _without_text(event.data)):
            self.delta({"reasoning_details": details}, event.choice)

    def failure(self, error: Error) -> None:
        self.out.append(sse(self.error_body(error, error_status(error, self.ERRORS))))

    def finish(self, event: Finish) -> None:
        self.begin_choice(event.choice)
        self.out.append(sse(self.frame({}, event.choice, self.reason_of(event))))

    def closing(self) -> None:
        if self.head.has_usage and self.usage is not None:
            self.out.append(
                sse({**self.chunk_head("chat.completion.chunk"), "choices": [], "usage": self.counts(self.usage)})
            )
        self.out.append(DONE)

    def begin_choice(self, choice: int) -> None:
        """Writes the first chunk of a choice, once."""
        if choice not in self._choices:
            self._choices.add(choice)
            self.delta({"role": "assistant", "content": ""}, choice)

    def delta(self, delta: Json, choice: int) -> None:
        """Writes a chunk with this delta."""
        self.out.append(sse(self.frame(delta, choice)))

    def frame(self, delta: Json, choice: int, reason: str | None = None) -> Json:
        """A chunk with this delta."""
        entry = {"index": choice, "delta": delta, "logprobs": None, "finish_reason": reason}
        frame = {**self.chunk_head("chat.completion.chunk"), "choices": [entry]}
        return {**frame, "usage": None} if self.head.has_usage else frame

    def writer(self, delta: Json, choice: int) -> Write:
        """Writes chunks with a piece in the place of the mark in this delta."""
        before, after = split_around(self.frame(delta, choice), _MARK)
        return PieceWriter(self.out, b"data: " + before, after + b"\n\n")

    def chunk_head(self, kind: str) -> Json:
        """The fields that every chunk repeats."""
        head = self.head
        return {"id": f"chatcmpl-{head.id}", "object": kind, "created": head.created, "model": head.model}

    # Whole bodies.

    def whole_body(self, turns: Sequence[Turn]) -> Json:
        choices = [self._whole_choice(choice, turn) for choice, turn in enumerate(turns)]
        counts = turns[0].usage
        return {
            **self.chunk_head("chat.completion"),
            "choices": choices,
            "usage": None if counts is None else self.counts(counts),
        }

    def _whole_choice(self, choice: int, turn: Turn) -> Json:
        reason = self.reason_of(self.finish_of(turn))
        return {"index": choice, "message": self.message(turn), "logprobs": None, "finish_reason": reason}

    def message(self, turn: Turn) -> Json:
        """The message of a whole completion."""
        message: Json = {"role": "assistant", "content": turn.text or None, "refusal": turn.refusal or None}
        states = states_by_block(turn, self.wire)
        if turn.reasoning:
            message["reasoning_content"] = turn.reasoning
        if details := [detail for state in states.values() for detail in state.get("reasoning_details", ())]:
            message["reasoning_details"] = details
        calls = self.whole_calls(turn, states)
        if calls and self.head.has_old_calls and "function" in calls[0]:
            message["function_call"] = calls.pop(0)["function"]
        if calls:
            message["tool_calls"] = calls
        return message

    def whole_calls(self, turn: Turn, states: Mapping[int, Json]) -> list[Json]:
        """The calls of a whole message."""
        parts = [part for part in turn.parts if isinstance(part, ToolCall | ToolCallInvalid)]
        calls: list[Json] = []
        for index, part in enumerate(parts):
            call = WrittenCall(part.id, part.name, index, part.choice)
            call.kind = "custom" if part.name in self.head.unwrapped_tools else part.kind
            call.states = states.get(part.block, {})
            kind, field = _kind(call)
            inner = {"name": part.name, field: final_text(part, call.kind, self.has_custom_calls)}
            calls.append({"id": part.id, "type": kind, kind: inner} | _call_fields(call))
        return calls

    def counts(self, usage: Usage) -> Json:
        """Token counts in OpenAI's arithmetic: the parts are included in the whole."""
        prompt: Json = {"cached_tokens": usage.cached_tokens}
        if usage.cache_write_tokens:
            prompt["cache_write_tokens"] = usage.cache_write_tokens
        return {
            "prompt_tokens": usage.input_tokens,
            "completion_tokens": usage.output_tokens,
            "total_tokens": usage.input_tokens + usage.output_tokens,
            "prompt_tokens_details": prompt,
            "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        }

    def error_body(self, error: Error, status: int) -> Json:
        return openai_error(self.code_of(error, status), error.message, status)


def _kind(call: WrittenCall) -> tuple[str, str]:
    """The kind of a call, and the field of its arguments."""
    return ("custom", "input") if call.kind == "custom" else ("function", "arguments")


def _call_fields(call: WrittenCall) -> Json:
    """The vendor state of a call as fields of its entry."""
    fields: Json = {"extra_content": call.states["extra_content"]} if "extra_content" in call.states else {}
    signed = call.states.get(FIELDS)
    return (
        fields | {key: value for key, value in signed.items() if key not in ("function", "custom")}
        if signed
        else fields
    )


def _without_text(details: Any) -> list[Json]:
    """The details whose text has not been sent as reasoning: they have none."""
    entries = [detail for detail in details if isinstance(detail, dict)] if isinstance(details, list) else []
    return [detail for detail in entries if not any(detail_texts([detail]))]
