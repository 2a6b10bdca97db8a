"""Encodes responses as Mistral's variant of Chat Completions.

Calls come in one piece and together, reasoning is a part of the content, and the last chunk has the finish reason, the
counts, and the calls after which nothing else came.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from penstock.events import Error, Finish, Opaque, Reasoning, Refusal, Text
from penstock.turn import Turn
from penstock.wires.openai_chat.completions import (
    DONE,
    FINISH_REASONS,
    MARK,
    Chunks,
    completion,
    known_reason,
    whole_calls,
)
from penstock.wires.openai_chat.facts import FACTS, MISTRAL_LOSSES, MISTRAL_USAGE
from penstock.wires.shared.encode_response.json_writing import sse
from penstock.wires.shared.encode_response.response_errors import error_status
from penstock.wires.shared.encode_response.response_format import ResponseFormat
from penstock.wires.shared.encode_response.response_frames import Content, ResponseFrames
from penstock.wires.shared.encode_response.response_head import ResponseHead
from penstock.wires.shared.encode_response.response_turns import states_by_block
from penstock.wires.shared.encode_response.written_call import Write, WrittenCall
from penstock.wires.shared.token_counts import written_usage

Json = dict[str, Any]
ERROR_CODES = {
    400: "invalid_request_error", 401: "unauthorized", 403: "forbidden", 404: "not_found",
    422: "invalid_request_message", 429: "rate_limited", 500: "internal_server_error", 503: "service_unavailable",
}  # fmt: skip
"""The provider's error codes by HTTP status."""


class MistralFrames(ResponseFrames):
    """The frames of Mistral's chat."""

    format = ResponseFormat(
        wire=FACTS.wire,
        losses=MISTRAL_LOSSES,
        has_choices=True,
        streams_arguments=False,
        finish_reasons=FINISH_REASONS,
        error_codes=ERROR_CODES,
    )

    def __init__(self, head: ResponseHead) -> None:
        super().__init__(head)
        self._chunks = Chunks(self.out, head, {}, {})
        self._calls: dict[int, list[Json]] = {}  # calls that have not been sent, by choice

    def opening(self) -> None:
        self._chunks.begin(0)

    def begin_content(self, event: Content) -> Write:
        self._send_calls(event.choice)
        self._chunks.begin(event.choice)
        content = [_thinking(MARK)] if isinstance(event, Reasoning) else MARK
        return self._chunks.writer({"content": content}, event.choice)

    def begin_call(self, call: WrittenCall) -> Write:
        self._chunks.begin(call.choice)

        def write(arguments: str) -> None:
            function = {"name": call.name, "arguments": arguments}
            entry = {"id": call.id, "type": "function", "function": function, "index": call.index}
            self._calls.setdefault(call.choice, []).append(entry)

        return write

    def _send_calls(self, choice: int) -> None:
        if calls := self._calls.pop(choice, None):
            self._chunks.delta({"content": "", "tool_calls": calls}, choice)

    def state(self, event: Opaque, open_kind: type[Content] | None) -> None:
        if event.kind == "thinking":
            self._send_calls(event.choice)
            self._chunks.delta({"content": [{"type": "thinking", "thinking": [], **event.data}]}, event.choice)

    def finish(self, event: Finish) -> None:
        self._chunks.begin(event.choice)
        usage = {} if self.usage is None else {"usage": written_usage(MISTRAL_USAGE, self.usage)}
        calls = self._calls.pop(event.choice, None)
        delta: Json = {"content": "", "tool_calls": calls} if calls else {"content": ""}
        self._chunks.end(delta, event.choice, self.reason_of(event), **usage)

    def failure(self, error: Error) -> None:
        for choice in list(self._calls):
            self._send_calls(choice)
        self.out.append(sse(self.error_body(error, error_status(error, self.format.error_codes))))

    def closing(self) -> None:
        self.out.append(DONE)

    def reason_of(self, finish: Finish) -> str:
        return known_reason(super().reason_of(finish), self.head)

    # Whole bodies.

    def whole_body(self, turns: Sequence[Turn]) -> Json:
        choices = [(self._message(turn), self.reason_of(self.finish_of(turn))) for turn in turns]
        return completion(self.head, choices, MISTRAL_USAGE, turns[0].usage)

    def _message(self, turn: Turn) -> Json:
        states = states_by_block(turn, FACTS.wire)
        content: Any = list(_parts(turn, states)) if turn.reasoning else turn.text + turn.refusal
        calls = whole_calls(turn, states, self.head, has_custom=False)
        return {"role": "assistant", "content": content, "tool_calls": calls or None}

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
