"""Anthropic Messages: numbered blocks, each with a start, deltas and a stop."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import msgspec

from penstock.testing.reply import Refuse, Reply, Say, ScriptedCall, Think, VendorItem
from penstock.testing.request import ReceivedRequest
from penstock.testing.wires.reply_encoder import Frame, NamedEventEncoder
from penstock.testing.wires.signatures import CLAUDE


class AnthropicEncoder(NamedEventEncoder):
    """The events of a message, or the whole message. Thinking is signed; a refusal is in the stop details."""

    FINISH: ClassVar = {
        "stop": "end_turn", "tool_calls": "tool_use", "length": "max_tokens", "content_filter": "refusal",
    }  # fmt: skip
    REFUSED = "content_filter"
    CODES: ClassVar = {
        400: "invalid_request_error", 401: "authentication_error", 403: "permission_error", 404: "not_found_error",
        413: "request_too_large", 429: "rate_limit_error", 500: "api_error", 529: "overloaded_error",
    }  # fmt: skip

    def __init__(self, reply: Reply, request: ReceivedRequest) -> None:
        super().__init__(reply, request)
        self._index = -1

    def opening(self) -> Iterator[Frame]:
        message = {**self._head(), "content": [], "stop_reason": None, "stop_sequence": None, "stop_details": None}
        yield {"type": "message_start", "message": {**message, "usage": {**self._usage_at_start(), "output_tokens": 1}}}

    def say(self, text: str) -> Iterator[Frame]:
        yield from self._start({"type": "text", "text": ""})
        for piece in self.random.text_pieces(text):
            yield self._delta("text_delta", text=piece)
        yield self._stop()

    def think(self, text: str) -> Iterator[Frame]:
        yield from self._start({"type": "thinking", "thinking": "", "signature": ""})
        for piece in self.random.text_pieces(text):
            yield self._delta("thinking_delta", thinking=piece)
        yield self._delta("signature_delta", signature=self._signature())
        yield self._stop()

    def refuse(self, text: str) -> Iterator[Frame]:
        yield from ()

    def call(self, call: ScriptedCall) -> Iterator[Frame]:
        yield from self._start(self._tool(call, {}))
        yield self._delta("input_json_delta", partial_json="")
        for piece in self.random.argument_pieces(call.arguments):
            yield self._delta("input_json_delta", partial_json=piece)

    def call_end(self, call: ScriptedCall) -> Iterator[Frame]:
        yield self._stop()

    def item(self, data: dict[str, Any]) -> Iterator[Frame]:
        yield from self._start(data)
        yield self._stop()

    def closing(self) -> Iterator[Frame]:
        yield {"type": "message_delta", "delta": self._ending(), "usage": self._usage_at_end()}
        yield {"type": "message_stop"}

    def whole_body(self) -> dict[str, Any]:
        return {
            **self._head(),
            "content": list(self._blocks()),
            **self._ending(),
            "usage": {**self._usage_at_start(), **self._usage_at_end()},
        }

    def error(self, code: str, message: str) -> dict[str, Any]:
        error = {"details": None, "type": code, "message": message}
        return {"type": "error", "error": error, "request_id": self.random.id("req_", 24)}

    def _head(self) -> dict[str, Any]:
        return {"model": self.request.model, "id": self.random.id("msg_01", 22), "type": "message", "role": "assistant"}

    def _blocks(self) -> Iterator[dict[str, Any]]:
        for part in self.reply.parts:
            match part:
                case Say():
                    yield {"type": "text", "text": part.text}
                case Think():
                    yield {"type": "thinking", "thinking": part.text, "signature": self._signature()}
                case ScriptedCall():
                    yield self._tool(part, self.arguments(part))
                case VendorItem():
                    yield msgspec.json.decode(part.data)
                case _:
                    pass

    def _tool(self, call: ScriptedCall, input: Any) -> dict[str, Any]:
        id = call.id or self.random.id("toolu_01", 22)
        return {"type": "tool_use", "id": id, "name": call.name, "input": input, "caller": {"type": "direct"}}

    def _signature(self) -> str:
        return self.random.signature(CLAUDE)

    def _start(self, block: dict[str, Any]) -> Iterator[Frame]:
        self._index += 1
        yield {"type": "content_block_start", "index": self._index, "content_block": block}
        if self._index == 0:
            yield {"type": "ping"}

    def _delta(self, kind: str, **delta: str) -> dict[str, Any]:
        return {"type": "content_block_delta", "index": self._index, "delta": {"type": kind, **delta}}

    def _stop(self) -> dict[str, Any]:
        return {"type": "content_block_stop", "index": self._index}

    def _ending(self) -> dict[str, Any]:
        words = " ".join(part.text for part in self.reply.parts if isinstance(part, Refuse))
        details = {"type": "refusal", "category": None, "explanation": words} if words else None
        return {"stop_reason": self.raw_finish, "stop_sequence": None, "stop_details": details}

    def _usage_at_start(self) -> dict[str, Any]:
        created = {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 0}
        return {**self._usage_read(), "cache_creation": created, "service_tier": "standard"}

    def _usage_at_end(self) -> dict[str, Any]:
        details = {"thinking_tokens": self.usage.reasoning_tokens}
        return {**self._usage_read(), "output_tokens": self.usage.output_tokens, "output_tokens_details": details}

    def _usage_read(self) -> dict[str, Any]:
        return {
            "input_tokens": self.usage.input_tokens - self.usage.cached_tokens - self.usage.cache_write_tokens,
            "cache_creation_input_tokens": self.usage.cache_write_tokens,
            "cache_read_input_tokens": self.usage.cached_tokens,
        }
