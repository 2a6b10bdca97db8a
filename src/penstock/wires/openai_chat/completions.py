"""What all variants of Chat Completions write alike: chunks of a stream, and choices and calls of a completion."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from penstock.events import ToolCall, ToolCallInvalid, Usage
from penstock.turn import Turn
from penstock.wires.openai_chat.fragments import FIELDS
from penstock.wires.shared.encode_response.json_writing import PieceWriter, split_around, sse
from penstock.wires.shared.encode_response.response_head import ResponseHead
from penstock.wires.shared.encode_response.written_call import Write, WrittenCall, final_text
from penstock.wires.shared.token_counts import UsageTable, written_usage

Json = dict[str, Any]
MARK = "\x00"
"""Stands for a piece of text in the delta of which a `Chunks.writer` is made."""
DONE = b"data: [DONE]\n\n"
FINISH_REASONS = {
    "stop": "stop", "tool_calls": "tool_calls", "length": "length", "content_filter": "content_filter",
    "other": "other",
}  # fmt: skip
"""The finish reasons by ours."""


class Chunks:
    """The chunks of one response, written to `out`.

    `choice_fields` and `fields` are what a variant adds to the choice of each chunk, and to the chunk.
    """

    def __init__(self, out: list[bytes], head: ResponseHead, choice_fields: Json, fields: Json) -> None:
        self._out = out
        self._head = completion_head(head, "chat.completion.chunk")
        self._choice_fields = choice_fields
        self._fields = fields
        self._begun: set[int] = set()  # choices

    def begin(self, choice: int) -> None:
        """Writes the first chunk of a choice, once."""
        if choice not in self._begun:
            self._begun.add(choice)
            self.delta({"role": "assistant", "content": ""}, choice)

    def delta(self, delta: Json, choice: int) -> None:
        """Writes a chunk with this delta."""
        self._out.append(sse(self._chunk(delta, choice)))

    def end(self, delta: Json, choice: int, reason: str, **fields: Any) -> None:
        """Writes the last chunk of a choice."""
        self._out.append(sse({**self._chunk(delta, choice, reason), **fields}))

    def counts(self, usage: Json) -> None:
        """Writes the chunk that has no choice, but the token counts."""
        self._out.append(sse({**self._head, "choices": [], "usage": usage}))

    def writer(self, delta: Json, choice: int) -> Write:
        """Writes chunks with a piece in the place of the mark in this delta."""
        before, after = split_around(self._chunk(delta, choice), MARK)
        return PieceWriter(self._out, b"data: " + before, after + b"\n\n")

    def _chunk(self, delta: Json, choice: int, reason: str | None = None) -> Json:
        entry = {"index": choice, "delta": delta, **self._choice_fields, "finish_reason": reason}
        return {**self._head, "choices": [entry], **self._fields}


def completion_head(head: ResponseHead, kind: str) -> Json:
    """The fields that every chunk repeats, and that a completion begins with."""
    return {"id": f"chatcmpl-{head.id}", "object": kind, "created": head.created, "model": head.model}


def completion(head: ResponseHead, choices: Iterable[tuple[Json, str]], table: UsageTable, usage: Usage | None) -> Json:
    """A whole completion; each choice is a message and its finish reason. `table` has the names of the token counts."""
    entries = [
        {"index": index, "message": message, "logprobs": None, "finish_reason": reason}
        for index, (message, reason) in enumerate(choices)
    ]
    counts = None if usage is None else written_usage(table, usage)
    return {**completion_head(head, "chat.completion"), "choices": entries, "usage": counts}


def known_reason(reason: str, head: ResponseHead) -> str:
    """A finish reason as the client knows it: after calls in their older form, it is another one."""
    return "function_call" if reason == "tool_calls" and head.has_old_calls else reason


def whole_calls(turn: Turn, states: Mapping[int, Json], head: ResponseHead, *, has_custom: bool) -> list[Json]:
    """The calls of a whole message; `states` is their vendor state, by block."""
    parts = [part for part in turn.parts if isinstance(part, ToolCall | ToolCallInvalid)]
    calls: list[Json] = []
    for index, part in enumerate(parts):
        call = WrittenCall(part.id, part.name, index, part.choice)
        call.kind = "custom" if part.name in head.unwrapped_tools else part.kind
        call.states = states.get(part.block, {})
        kind, field = call_form(call)
        inner = {"name": part.name, field: final_text(part, call.kind, has_custom)}
        calls.append({"id": part.id, "type": kind, kind: inner} | state_fields(call))
    return calls


def call_form(call: WrittenCall) -> tuple[str, str]:
    """The kind of a call, and the field of its arguments."""
    return ("custom", "input") if call.kind == "custom" else ("function", "arguments")


def state_fields(call: WrittenCall) -> Json:
    """The vendor state of a call as fields of its entry."""
    fields: Json = {"extra_content": call.states["extra_content"]} if "extra_content" in call.states else {}
    signed = call.states.get(FIELDS)
    return (
        fields | {key: value for key, value in signed.items() if key not in ("function", "custom")}
        if signed
        else fields
    )
