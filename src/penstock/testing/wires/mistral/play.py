"""Mistral's variant of Chat Completions: calls in one piece; the last chunk has all calls, finish reason and usage."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from penstock.testing.reply import Refuse, Reply, Say, ScriptedCall, Think
from penstock.testing.request import ReceivedRequest
from penstock.testing.wires.openai_chat.play import DONE
from penstock.testing.wires.randomness import HEX
from penstock.testing.wires.reply_encoder import CREATED, Frame, ReplyEncoder


class MistralEncoder(ReplyEncoder):
    """The chunks of a completion, or the whole completion."""

    FINISH: ClassVar = {"stop": "stop", "tool_calls": "tool_calls", "length": "length", "error": "error"}
    CODES: ClassVar = {
        400: "invalid_request_error", 401: "unauthorized", 403: "forbidden", 404: "not_found",
        422: "invalid_request_message", 429: "rate_limited", 500: "internal_server_error", 503: "service_unavailable",
    }  # fmt: skip

    def __init__(self, reply: Reply, request: ReceivedRequest) -> None:
        super().__init__(reply, request)
        self._id = self.random.id("", 32, HEX)
        self._calls: list[dict[str, Any]] = []  # those for the chunk that holds all calls

    def opening(self) -> Iterator[Frame]:
        yield self._chunk({"role": "assistant", "content": ""})

    def say(self, text: str) -> Iterator[Frame]:
        yield from self._waiting_calls()
        for piece in self.random.text_pieces(text):
            yield self._chunk({"content": piece})

    def think(self, text: str) -> Iterator[Frame]:
        yield from self._waiting_calls()
        for piece in self.random.text_pieces(text):
            yield self._chunk({"content": [_thinking(piece)]})

    def call(self, call: ScriptedCall) -> Iterator[Frame]:
        yield from ()

    def call_end(self, call: ScriptedCall) -> Iterator[Frame]:
        self._calls.append(self._whole_call(call, len(self._calls)))
        yield from ()

    def closing(self) -> Iterator[Frame]:
        delta: dict[str, Any] = {"content": "", **({"tool_calls": self._calls} if self._calls else {})}
        yield {**self._chunk(delta, self.raw_finish), "usage": self._usage()}
        yield DONE

    def whole_body(self) -> dict[str, Any]:
        parts = self.reply.parts
        content = [
            _thinking(part.text) if isinstance(part, Think) else {"type": "text", "text": part.text}
            for part in parts
            if isinstance(part, Say | Refuse | Think)
        ]
        text = self.reply.text + self.reply.refusal
        message: dict[str, Any] = {"role": "assistant", "content": content if self.reply.reasoning else text}
        calls = [self._whole_call(call, at) for at, call in enumerate(self.reply.calls)]
        message["tool_calls"] = calls or None
        choice = {"index": 0, "message": message, "finish_reason": self.raw_finish}
        return {**self._head("chat.completion"), "choices": [choice], "usage": self._usage()}

    def error(self, code: str, message: str) -> dict[str, Any]:
        if code == "unauthorized":
            return {"detail": message}
        status = self.status_of(code)
        return {
            "object": "error", "message": message, "type": code, "param": None, "code": "1500",
            "raw_status_code": status,
        }  # fmt: skip

    def _waiting_calls(self) -> Iterator[Frame]:
        if self._calls:
            yield self._chunk({"content": "", "tool_calls": self._calls})
            self._calls = []

    def _whole_call(self, call: ScriptedCall, index: int) -> dict[str, Any]:
        function = {"name": call.name, "arguments": call.arguments}
        return {"id": call.id or self.random.id("", 9), "type": "function", "function": function, "index": index}

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": self._id, "object": kind, "created": CREATED, "model": self.request.model}

    def _chunk(self, delta: dict[str, Any], reason: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "finish_reason": reason}
        return {**self._head("chat.completion.chunk"), "choices": [choice]}

    def _usage(self) -> dict[str, Any]:
        usage = self.usage
        return {
            "prompt_tokens": usage.input_tokens,
            "total_tokens": usage.input_tokens + usage.output_tokens,
            "completion_tokens": usage.output_tokens,
            "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
        }


def _thinking(text: str) -> dict[str, Any]:
    return {"type": "thinking", "thinking": [{"type": "text", "text": text}]}
