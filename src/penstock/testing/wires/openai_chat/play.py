"""OpenAI Chat Completions; reasoning is sent as DeepSeek does, since OpenAI sends none on this wire."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from penstock.testing.reply import Reply, ScriptedCall
from penstock.testing.request import ReceivedRequest
from penstock.testing.wires.reply_encoder import CREATED, Frame, ReplyEncoder

DONE = b"data: [DONE]\n\n"
OPENAI_CODES = {
    400: "invalid_request_error", 401: "invalid_api_key", 403: "permission_denied", 404: "model_not_found",
    413: "request_too_large", 429: "rate_limit_exceeded", 500: "server_error", 503: "overloaded",
}  # fmt: skip
_ERROR_TYPES = {"rate_limit_exceeded": "requests", "server_error": "server_error", "overloaded": "server_error"}


def openai_error(code: str, message: str) -> dict[str, Any]:
    """The body of an error, on both OpenAI wires."""
    kind = _ERROR_TYPES.get(code, "invalid_request_error")
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


class OpenAIChatEncoder(ReplyEncoder):
    """The chunks of a completion, or the whole completion."""

    FINISH: ClassVar = {
        "stop": "stop", "tool_calls": "tool_calls", "length": "length", "content_filter": "content_filter",
        "error": "error",
    }  # fmt: skip
    CODES: ClassVar = OPENAI_CODES

    def __init__(self, reply: Reply, request: ReceivedRequest) -> None:
        super().__init__(reply, request)
        self._id = self.random.id("chatcmpl-", 29)
        self._calls = 0

    def opening(self) -> Iterator[Frame]:
        begins_with_call = bool(self.reply.parts) and isinstance(self.reply.parts[0], ScriptedCall)
        yield self._delta(role="assistant", content=None if begins_with_call else "", refusal=None)

    def say(self, text: str) -> Iterator[Frame]:
        for piece in self.random.text_pieces(text):
            yield self._delta(content=piece)

    def think(self, text: str) -> Iterator[Frame]:
        for piece in self.random.text_pieces(text):
            yield self._delta(content=None, reasoning_content=piece)

    def refuse(self, text: str) -> Iterator[Frame]:
        for piece in self.random.text_pieces(text):
            yield self._delta(refusal=piece)

    def call(self, call: ScriptedCall) -> Iterator[Frame]:
        index, self._calls = self._calls, self._calls + 1
        function = {"name": call.name, "arguments": ""}
        head = {"index": index, "id": self._call_id(call), "type": "function", "function": function}
        yield self._delta(tool_calls=[head])
        for piece in self.random.argument_pieces(call.arguments):
            yield self._delta(tool_calls=[{"index": index, "function": {"arguments": piece}}])

    def closing(self) -> Iterator[Frame]:
        yield self._chunk([{"index": 0, "delta": {}, "logprobs": None, "finish_reason": self.raw_finish}])
        if self._sends_usage:
            yield {**self._chunk([]), "usage": self._usage()}
        yield DONE

    def whole_body(self) -> dict[str, Any]:
        reply = self.reply
        message: dict[str, Any] = {
            "role": "assistant", "content": reply.text or None, "refusal": reply.refusal or None, "annotations": [],
        }  # fmt: skip
        if reply.reasoning:
            message["reasoning_content"] = reply.reasoning
        if reply.calls:
            message["tool_calls"] = [self._whole_call(call) for call in reply.calls]
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": self.raw_finish}
        return {**self._head("chat.completion"), "choices": [choice], "usage": self._usage()}

    def error(self, code: str, message: str) -> dict[str, Any]:
        return openai_error(code, message)

    def _call_id(self, call: ScriptedCall) -> str:
        return call.id or self.random.id("call_", 24)

    def _whole_call(self, call: ScriptedCall) -> dict[str, Any]:
        function = {"name": call.name, "arguments": call.arguments}
        return {"id": self._call_id(call), "type": "function", "function": function}

    def _head(self, kind: str) -> dict[str, Any]:
        return {
            "id": self._id, "object": kind, "created": CREATED, "model": self.request.model, "service_tier": "default",
            "system_fingerprint": None,
        }  # fmt: skip

    def _usage(self) -> dict[str, Any]:
        usage = self.usage
        return {
            "prompt_tokens": usage.input_tokens,
            "completion_tokens": usage.output_tokens,
            "total_tokens": usage.input_tokens + usage.output_tokens,
            "prompt_tokens_details": {"cached_tokens": usage.cached_tokens, "audio_tokens": 0},
            "completion_tokens_details": {
                "reasoning_tokens": usage.reasoning_tokens, "audio_tokens": 0, "accepted_prediction_tokens": 0,
                "rejected_prediction_tokens": 0,
            },
        }  # fmt: skip

    @property
    def _sends_usage(self) -> bool:
        """Whether usage is streamed: if the request asks for it, or if there is no request."""
        options = self.request.head.get("stream_options")
        return not self.request.head or (isinstance(options, dict) and bool(options.get("include_usage")))

    def _chunk(self, choices: list[dict[str, Any]]) -> dict[str, Any]:
        usage = {"usage": None} if self._sends_usage else {}
        chunk = {**self._head("chat.completion.chunk"), "choices": choices, **usage}
        return {**chunk, "obfuscation": self.random.padding()}

    def _delta(self, **delta: Any) -> dict[str, Any]:
        return self._chunk([{"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}])
