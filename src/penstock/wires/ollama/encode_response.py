"""Encodes responses as Ollama's `/api/chat`: NDJSON lines, and whole responses, which are one line.

Calls come whole, and their arguments are objects: an invalid call ends the response with an error, and a call that was
cut by the token limit is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from penstock.events import Error, Finish, Opaque, Reasoning, ToolCall, Usage
from penstock.turn import Turn
from penstock.wires.ollama.facts import FACTS
from penstock.wires.shared.encode_response.json_writing import PieceWriter, encode_json, raw_json, split_around
from penstock.wires.shared.encode_response.response_format import ResponseFormat
from penstock.wires.shared.encode_response.response_frames import Content, ResponseFrames
from penstock.wires.shared.encode_response.response_head import ResponseHead
from penstock.wires.shared.encode_response.written_call import Write, WrittenCall, final_text

Json = dict[str, Any]
_MARK = "\x00"
FINISH_REASONS = {
    "stop": "stop", "tool_calls": "stop", "length": "length", "content_filter": "content_filter", "other": "other",
}  # fmt: skip
"""The provider's finish reasons by ours."""
ERROR_CODES = {
    400: "bad request", 401: "unauthorized", 403: "forbidden", 404: "not found", 429: "too many requests",
    500: "internal server error", 503: "server busy",
}  # fmt: skip
"""The provider's error codes by HTTP status."""


class OllamaFrames(ResponseFrames):
    """The frames of Ollama's chats. Clients parse every line, so a keep-alive is white space before the next one."""

    format = ResponseFormat(
        wire=FACTS.wire,
        losses=FACTS.losses,
        content_type="application/x-ndjson",
        keep_alive=b" ",
        streams_arguments=False,
        has_text_arguments=False,
        finish_reasons=FINISH_REASONS,
        error_codes=ERROR_CODES,
    )

    def __init__(self, head: ResponseHead) -> None:
        super().__init__(head)
        created = datetime.fromtimestamp(self.head.created, UTC).isoformat(timespec="microseconds")
        self._head: Json = {"model": self.head.model, "created_at": created.replace("+00:00", "Z")}
        self._context: Any = None

    def begin_content(self, event: Content) -> Write:
        field = {"content": "", "thinking": _MARK} if isinstance(event, Reasoning) else {"content": _MARK}
        before, after = split_around(self._line(field), _MARK)
        return PieceWriter(self.out, before, after + b"\n")

    def begin_call(self, call: WrittenCall) -> Write:
        return _ignore

    def end_call(self, call: WrittenCall, arguments: str) -> None:
        self._frame(self._line({"content": "", "tool_calls": [_call(call.id, call.name, arguments, call.index)]}))

    def state(self, event: Opaque, open_kind: type[Content] | None) -> None:
        if event.kind == "context":
            self._context = event.data

    def failure(self, error: Error) -> None:
        self._frame(self.error_body(error, 500))

    def finish(self, event: Finish) -> None:
        self._frame({**self._line({"content": ""}), **self._ending(event, self.usage)})

    def _frame(self, frame: Json) -> None:
        self.out.append(encode_json(frame) + b"\n")

    def _line(self, message: Json) -> Json:
        return {**self._head, "message": {"role": "assistant", **message}, "done": False}

    def _ending(self, finish: Finish, counts: Usage | None) -> Json:
        context = {} if self._context is None else {"context": self._context}
        return {"done": True, "done_reason": self.reason_of(finish), **context, **usage(counts or Usage())}

    def whole_body(self, turns: Sequence[Turn]) -> Json:
        [turn] = turns
        message: Json = {"content": turn.text + turn.refusal}
        if turn.reasoning:
            message["thinking"] = turn.reasoning
        if calls := [part for part in turn.parts if isinstance(part, ToolCall)]:
            message["tool_calls"] = [
                _call(call.id, call.name, final_text(call, call.kind, has_custom=False), index)
                for index, call in enumerate(calls)
            ]
        for part in turn.parts:
            if isinstance(part, Opaque) and part.wire == FACTS.wire:
                self.state(part, open_kind=None)
        return {**self._line(message), **self._ending(self.finish_of(turn), turn.usage)}

    def error_body(self, error: Error, status: int) -> Json:
        return {"error": error.message}


def _ignore(piece: str) -> None:
    """Does nothing: a call is written when it is whole."""


def _call(id: str, name: str, arguments: str, index: int) -> Json:
    return {"id": id, "function": {"index": index, "name": name, "arguments": raw_json(arguments)}}


def usage(counts: Usage) -> Json:
    """Token counts, and durations, which are not known here."""
    return {
        "total_duration": 0, "load_duration": 0, "prompt_eval_count": counts.input_tokens, "prompt_eval_duration": 0,
        "eval_count": counts.output_tokens, "eval_duration": 0,
    }  # fmt: skip
