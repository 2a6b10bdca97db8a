"""Ollama `/api/chat`: one JSON object per line, calls in one piece."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

import msgspec

from penstock.testing.reply import Reply, ScriptedCall
from penstock.testing.request import ReceivedRequest
from penstock.testing.wires.reply_encoder import CREATED, Frame, ReplyEncoder

_STEP = timedelta(milliseconds=12)
_SECOND = 1_000_000_000


class OllamaEncoder(ReplyEncoder):
    """The lines of a response, or the whole response."""

    content_type = "application/x-ndjson"
    FINISH: ClassVar = {"stop": "stop", "tool_calls": "stop", "length": "length", "error": "error"}
    CODES: ClassVar = {
        400: "bad request", 401: "unauthorized", 403: "forbidden", 404: "not found", 429: "too many requests",
        500: "internal server error", 503: "server busy",
    }  # fmt: skip

    def __init__(self, reply: Reply, request: ReceivedRequest) -> None:
        super().__init__(reply, request)
        self._time = datetime.fromtimestamp(CREATED, UTC)
        self._calls = 0

    def say(self, text: str) -> Iterator[Frame]:
        for piece in self.random.text_pieces(text):
            yield self._line(content=piece)

    def think(self, text: str) -> Iterator[Frame]:
        for piece in self.random.text_pieces(text):
            yield self._line(thinking=piece)

    def call(self, call: ScriptedCall) -> Iterator[Frame]:
        yield from ()

    def call_end(self, call: ScriptedCall) -> Iterator[Frame]:
        yield self._line(tool_calls=[self._call(call, self._calls)])
        self._calls += 1

    def closing(self) -> Iterator[Frame]:
        yield {**self._line(), **self._ending()}

    def encode_frame(self, frame: dict[str, Any]) -> bytes:
        return msgspec.json.encode(frame) + b"\n"

    def whole_body(self) -> dict[str, Any]:
        calls = [self._call(call, at) for at, call in enumerate(self.reply.calls)]
        message: dict[str, Any] = {"content": self.reply.text + self.reply.refusal}
        message |= {"thinking": self.reply.reasoning} if self.reply.reasoning else {}
        message |= {"tool_calls": calls} if calls else {}
        return {**self._line(**message), **self._ending()}

    def error(self, code: str, message: str) -> dict[str, Any]:
        return {"error": message}

    def _line(self, **message: Any) -> dict[str, Any]:
        self._time += _STEP
        created = self._time.isoformat(timespec="microseconds").replace("+00:00", "Z")
        content = {"role": "assistant", "content": "", **message}
        return {"model": self.request.model, "created_at": created, "message": content, "done": False}

    def _call(self, call: ScriptedCall, index: int) -> dict[str, Any]:
        function = {"index": index, "name": call.name, "arguments": self.arguments(call)}
        return {"id": call.id or self.random.id("call_", 8), "function": function}

    def _ending(self) -> dict[str, Any]:
        return {
            "done": True, "done_reason": self.raw_finish, "total_duration": 2 * _SECOND, "load_duration": _SECOND // 20,
            "prompt_eval_count": self.usage.input_tokens, "prompt_eval_duration": _SECOND // 4,
            "eval_count": self.usage.output_tokens, "eval_duration": _SECOND,
        }  # fmt: skip
