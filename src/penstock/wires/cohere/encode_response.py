"""Encodes responses as Cohere's chat, version 2: SSE events, and whole responses.

Texts and calls are numbered separately. The end event of a call confirms it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from penstock.events import Error, Finish, Opaque, Reasoning, Refusal, Text, ToolCall, ToolCallInvalid, Usage
from penstock.turn import Turn
from penstock.wires.cohere.facts import FACTS, USAGE
from penstock.wires.shared.encode_response.json_writing import PieceWriter, named_sse, split_around
from penstock.wires.shared.encode_response.response_format import ResponseFormat
from penstock.wires.shared.encode_response.response_frames import Content, ResponseFrames
from penstock.wires.shared.encode_response.response_head import ResponseHead
from penstock.wires.shared.encode_response.written_call import Write, WrittenCall, final_text
from penstock.wires.shared.token_counts import written_usage

Json = dict[str, Any]
_MARK = "\x00"
DONE = b"data: [DONE]\n\n"
FINISH_REASONS = {
    "stop": "COMPLETE", "tool_calls": "TOOL_CALL", "length": "MAX_TOKENS", "content_filter": "ERROR_TOXIC",
    "other": "OTHER",
}  # fmt: skip
"""The provider's finish reasons by ours."""
ERROR_CODES = {
    400: "bad request", 401: "unauthorized", 403: "forbidden", 404: "not found", 422: "unprocessable",
    429: "too many requests", 500: "internal server error", 503: "service unavailable",
}  # fmt: skip
"""The provider's error codes by HTTP status."""


class CohereFrames(ResponseFrames):
    """The frames of Cohere's chat."""

    format = ResponseFormat(
        wire=FACTS.wire,
        losses=FACTS.losses,
        one_block_at_a_time=True,
        finish_reasons=FINISH_REASONS,
        error_codes=ERROR_CODES,
    )

    def __init__(self, head: ResponseHead) -> None:
        super().__init__(head)
        self._index = -1  # index of the last text

    # The stream.

    def opening(self) -> None:
        message = {"role": "assistant", "content": [], "tool_plan": "", "tool_calls": [], "citations": []}
        self._frame({"type": "message-start", "id": self.head.id, "delta": {"message": message}})

    def begin_content(self, event: Content) -> Write:
        self._index += 1
        kind = "thinking" if isinstance(event, Reasoning) else "text"
        self._frame(_delta("content-start", self._index, content={"type": kind, kind: ""}))
        return self._writer(_delta("content-delta", self._index, content={kind: _MARK}))

    def end_content(self) -> None:
        self._frame({"type": "content-end", "index": self._index})

    def begin_call(self, call: WrittenCall) -> Write:
        head = {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": ""}}
        self._frame(_delta("tool-call-start", call.index, tool_calls=head))
        return self._writer(_delta("tool-call-delta", call.index, tool_calls={"function": {"arguments": _MARK}}))

    def end_call(self, call: WrittenCall, arguments: str) -> None:
        self._frame({"type": "tool-call-end", "index": call.index})

    def leave_call(self, call: WrittenCall, event: ToolCallInvalid) -> None:
        if event.why != "cut":
            self.end_call(call, event.arguments_raw)

    def state(self, event: Opaque, open_kind: type[Content] | None) -> None:
        if event.kind == "tool_plan":
            self._frame({"type": "tool-plan-delta", "delta": {"message": {"tool_plan": event.data}}})

    def failure(self, error: Error) -> None:
        code = self.in_band_code(error)
        delta = {"finish_reason": "ERROR", "usage": {}, "error": error.message, "error_type": code}
        self._frame({"type": "message-end", "delta": delta})
        self.out.append(DONE)

    def finish(self, event: Finish) -> None:
        delta = {"finish_reason": self.reason_of(event), "usage": written_usage(USAGE, self.usage or Usage())}
        self._frame({"type": "message-end", "delta": delta})

    def closing(self) -> None:
        self.out.append(DONE)

    def _frame(self, frame: Json) -> None:
        self.out.append(named_sse(frame))

    def _writer(self, frame: Json) -> Write:
        before, after = split_around(frame, _MARK)
        return PieceWriter(self.out, f"event: {frame['type']}\ndata: ".encode() + before, after + b"\n\n")

    # Whole bodies.

    def whole_body(self, turns: Sequence[Turn]) -> Json:
        [turn] = turns
        message: Json = {"role": "assistant"}
        if content := list(_blocks(turn)):
            message["content"] = content
        plans = [part.data for part in turn.parts if isinstance(part, Opaque) and part.kind == "tool_plan"]
        if plans:
            message["tool_plan"] = "".join(plans)
        calls = [part for part in turn.parts if isinstance(part, ToolCall | ToolCallInvalid)]
        if calls:
            message["tool_calls"] = [_whole_call(call) for call in calls]
        reason = self.reason_of(self.finish_of(turn))
        counts = written_usage(USAGE, turn.usage or Usage())
        return {"id": self.head.id, "finish_reason": reason, "message": message, "usage": counts}

    def error_body(self, error: Error, status: int) -> Json:
        return {"id": self.head.id, "message": error.message}


def _delta(kind: str, index: int, **message: Any) -> Json:
    return {"type": kind, "index": index, "delta": {"message": message}}


def _blocks(turn: Turn) -> Iterator[Json]:
    for part in turn.parts:
        match part:
            case Text() | Refusal():
                yield {"type": "text", "text": part.text}
            case Reasoning():
                yield {"type": "thinking", "thinking": part.text}
            case _:
                pass


def _whole_call(call: ToolCall | ToolCallInvalid) -> Json:
    function = {"name": call.name, "arguments": final_text(call, call.kind, has_custom=False)}
    return {"id": call.id, "type": "function", "function": function}
