"""Amazon Bedrock ConverseStream and Converse: numbered blocks in binary frames with checksums."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import msgspec

from penstock.testing.reply import Fail, Refuse, Reply, Say, ScriptedCall, Think
from penstock.testing.request import ReceivedRequest
from penstock.testing.wires.reply_encoder import Frame, ReplyEncoder
from penstock.testing.wires.signatures import CLAUDE


class BedrockEncoder(ReplyEncoder):
    """The events of a message, or the whole response. Text and reasoning have no start event; reasoning is signed."""

    content_type = "application/vnd.amazon.eventstream"
    FINISH: ClassVar = {
        "stop": "end_turn", "tool_calls": "tool_use", "length": "max_tokens", "content_filter": "guardrail_intervened",
        "error": "malformed_model_output",
    }  # fmt: skip
    REFUSED = "content_filter"
    CODES: ClassVar = {
        400: "ValidationException", 401: "UnrecognizedClientException", 403: "AccessDeniedException",
        404: "ResourceNotFoundException", 408: "ModelTimeoutException", 424: "ModelErrorException",
        429: "ThrottlingException", 500: "InternalServerException", 503: "ServiceUnavailableException",
    }  # fmt: skip

    def __init__(self, reply: Reply, request: ReceivedRequest) -> None:
        super().__init__(reply, request)
        self._index = -1

    def opening(self) -> Iterator[Frame]:
        yield {"messageStart": {"role": "assistant"}}

    def say(self, text: str) -> Iterator[Frame]:
        self._index += 1
        for piece in self.random.text_pieces(text):
            yield self._delta({"text": piece})
        yield self._stop()

    def think(self, text: str) -> Iterator[Frame]:
        self._index += 1
        for piece in self.random.text_pieces(text):
            yield self._delta({"reasoningContent": {"text": piece}})
        yield self._delta({"reasoningContent": {"signature": self._signature()}})
        yield self._stop()

    def call(self, call: ScriptedCall) -> Iterator[Frame]:
        self._index += 1
        start = {"toolUse": {"toolUseId": self._call_id(call), "name": call.name}}
        yield {"contentBlockStart": {"contentBlockIndex": self._index, "start": start}}
        for piece in self.random.argument_pieces(call.arguments):
            yield self._delta({"toolUse": {"input": piece}})

    def call_end(self, call: ScriptedCall) -> Iterator[Frame]:
        yield self._stop()

    def failure(self, fail: Fail) -> Iterator[Frame]:
        code = fail.code if fail.code.endswith("Exception") else "modelStreamErrorException"
        name = code[:1].lower() + code[1:]
        headers = {":exception-type": name, ":content-type": "application/json", ":message-type": "exception"}
        yield aws_frame(headers, msgspec.json.encode({"message": fail.message}))

    def closing(self) -> Iterator[Frame]:
        yield {"messageStop": {"stopReason": self.raw_finish}}
        yield {"metadata": self._metadata()}

    def encode_frame(self, frame: dict[str, Any]) -> bytes:
        [(event, payload)] = frame.items()
        headers = {":event-type": event, ":content-type": "application/json", ":message-type": "event"}
        return aws_frame(headers, msgspec.json.encode({**payload, "p": self.random.padding()}))

    def whole_body(self) -> dict[str, Any]:
        message = {"role": "assistant", "content": list(self._blocks())}
        return {"output": {"message": message}, "stopReason": self.raw_finish, **self._metadata()}

    def error(self, code: str, message: str) -> dict[str, Any]:
        return {"message": message}

    def headers_of(self, status: int) -> dict[str, str]:
        return {"x-amzn-ErrorType": f"{self.code_of(status)}:http://internal.amazon.com/coral/com.amazon.bedrock/"}

    def _blocks(self) -> Iterator[dict[str, Any]]:
        for part in self.reply.parts:
            match part:
                case Say() | Refuse():
                    yield {"text": part.text}
                case Think():
                    yield {"reasoningContent": {"reasoningText": {"text": part.text, "signature": self._signature()}}}
                case ScriptedCall():
                    id, input = self._call_id(part), self.arguments(part)
                    yield {"toolUse": {"toolUseId": id, "name": part.name, "input": input}}
                case _:
                    pass

    def _call_id(self, call: ScriptedCall) -> str:
        return call.id or self.random.id("tooluse_", 22)

    def _signature(self) -> str:
        return self.random.signature(CLAUDE)

    def _delta(self, delta: dict[str, Any]) -> dict[str, Any]:
        return {"contentBlockDelta": {"contentBlockIndex": self._index, "delta": delta}}

    def _stop(self) -> dict[str, Any]:
        return {"contentBlockStop": {"contentBlockIndex": self._index}}

    def _metadata(self) -> dict[str, Any]:
        usage = self.usage
        counts = {
            "inputTokens": usage.input_tokens - usage.cached_tokens - usage.cache_write_tokens,
            "outputTokens": usage.output_tokens,
            "totalTokens": usage.input_tokens + usage.output_tokens,
        }  # fmt: skip
        cached = {
            "cacheReadInputTokens": usage.cached_tokens, "cacheWriteInputTokens": usage.cache_write_tokens
        }  # fmt: skip
        counts |= cached if any(cached.values()) else {}
        return {"usage": counts, "metrics": {"latencyMs": 512}}


def aws_frame(headers: Mapping[str, str], payload: bytes) -> bytes:
    """A frame of an AWS event stream: lengths, headers and payload, with checksums."""
    head = b"".join(_header(name, value.encode()) for name, value in headers.items())
    prelude = struct.pack(">II", 16 + len(head) + len(payload), len(head))
    message = prelude + struct.pack(">I", zlib.crc32(prelude)) + head + payload
    return message + struct.pack(">I", zlib.crc32(message))


def _header(name: str, value: bytes) -> bytes:
    return bytes([len(name)]) + name.encode() + b"\x07" + struct.pack(">H", len(value)) + value
