"""Encodes responses as Mistral's variant of Chat Completions.

Calls come in one piece and together, reasoning is a part of the content, and the last chunk has the finish reason, the
counts, and the calls after which nothing else came.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from penstock.events import Error, Finish, Opaque, Reasoning, Refusal, Text, Usage
from penstock.turn import Turn
from penstock.wires.openai_chat.encode_response import DONE, OpenAIChatEncoder
from penstock.wires.openai_chat.facts import MISTRAL_LOSSES
from penstock.wires.shared.json_writing import sse
from penstock.wires.shared.response_frames import Content
from penstock.wires.shared.response_turns import states_by_block
from penstock.wires.shared.written_call import Write, WrittenCall

Json = dict[str, Any]
_MARK = "\x00"


class MistralEncoder(OpenAIChatEncoder):
    """The encoder of Mistral's chat."""

    losses = MISTRAL_LOSSES
    streams_arguments = False
    has_custom_calls = False
    ERRORS: ClassVar = {
        400: "invalid_request_error", 401: "unauthorized", 403: "forbidden", 404: "not_found",
        422: "invalid_request_message", 429: "rate_limited", 500: "internal_server_error", 503: "service_unavailable",
    }  # fmt: skip

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._calls: dict[int, list[Json]] = {}  # those that have not been sent, by choice

    def begin_content(self, event: Content) -> Write:
        self._send_calls(event.choice)
        self.begin_choice(event.choice)
        content = [_thinking(_MARK)] if isinstance(event, Reasoning) else _MARK
        return self.writer({"content": content}, event.choice)

    def begin_call(self, call: WrittenCall) -> Write:
        self.begin_choice(call.choice)

        def write(arguments: str) -> None:
            function = {"name": call.name, "arguments": arguments}
            entry = {"id": call.id, "type": "function", "function": function, "index": call.index}
            self._calls.setdefault(call.choice, []).append(entry)

        return write

    def _send_calls(self, choice: int) -> None:
        if calls := self._calls.pop(choice, None):
            self.delta({"content": "", "tool_calls": calls}, choice)

    def call_state(self, call: WrittenCall, event: Opaque) -> None:
        pass  # there is none on this variant

    def state(self, event: Opaque, is_open: bool) -> None:
        if event.kind == "thinking":
            self._send_calls(event.choice)
            self.delta({"content": [{"type": "thinking", "thinking": [], **event.data}]}, event.choice)

    def finish(self, event: Finish) -> None:
        self.begin_choice(event.choice)
        counts = {} if self.usage is None else {"usage": self.counts(self.usage)}
        calls = self._calls.pop(event.choice, None)
        delta: Json = {"content": "", "tool_calls": calls} if calls else {"content": ""}
        self.out.append(sse({**self.frame(delta, event.choice, self.reason_of(event)), **counts}))

    def counts(self, usage: Usage) -> Json:
        return {
            "prompt_tokens": usage.input_tokens,
            "total_tokens": usage.input_tokens + usage.output_tokens,
            "completion_tokens": usage.output_tokens,
            "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
        }

    def failure(self, error: Error) -> None:
        for choice in list(self._calls):
            self._send_calls(choice)
        super().failure(error)

    def closing(self) -> None:
        self.out.append(DONE)

    def frame(self, delta: Json, choice: int, reason: str | None = None) -> Json:
        entry = {"index": choice, "delta": delta, "finish_reason": reason}
        return {**self.chunk_head("chat.completion.chunk"), "choices": [entry]}

    def message(self, turn: Turn) -> Json:
        states = states_by_block(turn, self.wire)
        content: Any = list(_parts(turn, states)) if turn.reasoning else turn.text + turn.refusal
        return {"role": "assistant", "content": content, "tool_calls": self.whole_calls(turn, states) or None}

    def error_body(self, error: Error, status: int) -> Json:
        code = self.code_of(error, status)
        if code == "unauthorized":
            return {"detail": error.message}
        return {
            "object": "error", "message": error.message, "type": code, "param": None, "code": "1500",
            "raw_status_code": status,
        }  # fmt: skip


def _parts(turn: Turn, states: Mapping[int, Json]) -> Iterator[Json]:
    for part in turn.parts:
        match part:
            case Reasoning():
                yield _thinking(part.text) | states.get(part.block, {}).get("thinking", {})
            case Text() | Refusal():
                yield {"type": "text", "text": part.text}
            case _:
                pass


def _thinking(text: str) -> Json:
    return {"type": "thinking", "thinking": [{"type": "text", "text": text}]}
