"""Google Gemini `generateContent`: chunks in the format of the whole response, calls in one piece."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from penstock.testing.reply import Reply, Say, ScriptedCall, Think
from penstock.testing.request import ReceivedRequest
from penstock.testing.wires.reply_encoder import Frame, ReplyEncoder
from penstock.testing.wires.signatures import GEMINI


class GeminiEncoder(ReplyEncoder):
    """The chunks of a response, or the whole response. After reasoning, the first call or the last part is signed."""

    FINISH: ClassVar = {
        "stop": "STOP", "tool_calls": "STOP", "length": "MAX_TOKENS", "content_filter": "SAFETY",
        "error": "MALFORMED_FUNCTION_CALL", "other": "OTHER",
    }  # fmt: skip
    REFUSED = "content_filter"
    CODES: ClassVar = {
        400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED", 404: "NOT_FOUND",
        429: "RESOURCE_EXHAUSTED", 500: "INTERNAL", 503: "UNAVAILABLE", 504: "DEADLINE_EXCEEDED",
    }  # fmt: skip

    def __init__(self, reply: Reply, request: ReceivedRequest) -> None:
        super().__init__(reply, request)
        self._id = self.random.id("", 23)
        self._signature = self.random.signature(GEMINI) if self.reply.reasoning else ""

    def say(self, text: str) -> Iterator[Frame]:
        for piece in self.random.text_pieces(text):
            yield self._chunk([{"text": piece}])

    def think(self, text: str) -> Iterator[Frame]:
        for piece in self.random.text_pieces(text):
            yield self._chunk([{"text": piece, "thought": True}])

    def refuse(self, text: str) -> Iterator[Frame]:
        yield from ()

    def call(self, call: ScriptedCall) -> Iterator[Frame]:
        yield from ()

    def call_end(self, call: ScriptedCall) -> Iterator[Frame]:
        yield self._chunk([self._call(call)])

    def closing(self) -> Iterator[Frame]:
        yield {**self._chunk([{"text": "", **self._signed()}], **self._ending()), "usageMetadata": self._usage()}

    def whole_body(self) -> dict[str, Any]:
        parts = list(self._parts())
        if signed := self._signed():
            parts.append({"text": "", **signed})
        return {**self._chunk(parts, **self._ending()), "usageMetadata": self._usage()}

    def error(self, code: str, message: str) -> dict[str, Any]:
        return {"error": {"code": self.status_of(code), "message": message, "status": code}}

    def http_error(self, status: int, message: str = "", retry_after: float | None = None) -> dict[str, Any]:
        body = super().http_error(status, message)
        if retry_after is not None:  # Google sends it here, not in a header
            kind = "type.googleapis.com/google.rpc.RetryInfo"
            body["error"]["details"] = [{"@type": kind, "retryDelay": f"{retry_after:g}s"}]
        return body

    def _signed(self) -> dict[str, str]:
        """The signature, for the only part that has one."""
        signature, self._signature = self._signature, ""
        return {"thoughtSignature": signature} if signature else {}

    def _parts(self) -> Iterator[dict[str, Any]]:
        for part in self.reply.parts:
            match part:
                case Say():
                    yield {"text": part.text}
                case Think():
                    yield {"text": part.text, "thought": True}
                case ScriptedCall():
                    yield self._call(part)
                case _:
                    pass

    def _call(self, call: ScriptedCall) -> dict[str, Any]:
        id = {"id": call.id} if call.id else {}
        return {"functionCall": {"name": call.name, "args": self.arguments(call), **id}, **self._signed()}

    def _ending(self) -> dict[str, str]:
        message = {"finishMessage": self.reply.refusal} if self.reply.refusal else {}
        return {"finishReason": self.raw_finish, **message}

    def _chunk(self, parts: list[dict[str, Any]], **ending: str) -> dict[str, Any]:
        candidate = {"content": {"parts": parts, "role": "model"}, **ending, "index": 0}
        tokens = self.usage.input_tokens
        usage = {
            "promptTokenCount": tokens, "totalTokenCount": tokens,
            "promptTokensDetails": [{"modality": "TEXT", "tokenCount": tokens}],
        }  # fmt: skip
        model = self.request.model
        return {"candidates": [candidate], "usageMetadata": usage, "modelVersion": model, "responseId": self._id}

    def _usage(self) -> dict[str, Any]:
        usage = self.usage
        all_counts = {
            "promptTokenCount": usage.input_tokens,
            "candidatesTokenCount": usage.output_tokens - usage.reasoning_tokens,
            "totalTokenCount": usage.input_tokens + usage.output_tokens,
            "cachedContentTokenCount": usage.cached_tokens,
            "thoughtsTokenCount": usage.reasoning_tokens,
        }
        counts: dict[str, Any] = {key: count for key, count in all_counts.items() if count}
        return {**counts, "promptTokensDetails": [{"modality": "TEXT", "tokenCount": usage.input_tokens}]}
