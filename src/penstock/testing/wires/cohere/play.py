"""Cohere's chat, version 2."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from penstock.testing.reply import Fail, Refuse, Reply, Say, ScriptedCall, Think
from penstock.testing.request import ReceivedRequest
from penstock.testing.wires.openai_chat.play import DONE
from penstock.testing.wires.randomness import HEX
from penstock.testing.wires.reply_encoder import Frame, NamedEventEncoder


class CohereEncoder(NamedEventEncoder):
    """The events of a response, or the whole response. Text and calls are numbered separately."""

    FINISH: ClassVar = {
        "stop": "COMPLETE", "tool_calls": "TOOL_CALL", "length": "MAX_TOKENS", "content_filter": "ERROR_TOXIC",
        "error": "ERROR",
    }  # fmt: skip
    CODES: ClassVar = {
        400: "bad request", 401: "unauthorized", 403: "forbidden", 404: "not found", 422: "unprocessable",
        429: "too many requests", 500: "internal server error", 503: "service unavailable",
    }  # fmt: skip

    def __init__(self, reply: Reply, request: ReceivedRequest) -> None:
        super().__init__(reply, request)
        self._contents = self._calls = 0

    def opening(self) -> Iterator[Frame]:
        message = {"role": "assistant", "content": [], "tool_plan": "", "tool_calls": [], "citations": []}
        yield {"id": self._id(), "type": "message-start", "delta": {"message": message}}

    def say(self, text: str) -> Iterator[Frame]:
        yield from self._content("text", text)

    def think(self, text: str) -> Iterator[Frame]:
        yield from self._content("thinking", text)

    def call(self, call: ScriptedCall) -> Iterator[Frame]:
        head = {"id": self._call_id(call), "type": "function", "function": {"name": call.name, "arguments": ""}}
        yield self._delta("tool-call-start", self._calls, tool_calls=head)
        for piece in self.random.argument_pieces(call.arguments):
            yield self._delta("tool-call-delta", self._calls, tool_calls={"function": {"arguments": piece}})

    def call_end(self, call: ScriptedCall) -> Iterator[Frame]:
        yield {"type": "tool-call-end", "index": self._calls}
        self._calls += 1

    def failure(self, fail: Fail) -> Iterator[Frame]:
        delta = {"finish_reason": "ERROR", "usage": {}, "error": fail.message, "error_type": fail.code}
        yield {"type": "message-end", "delta": delta}
        yield DONE

    def closing(self) -> Iterator[Frame]:
        yield {"type": "message-end", "delta": {"finish_reason": self.raw_finish, "usage": self._usage()}}
        yield DONE

    def whole_body(self) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant"}
        id = self._id()
        if content := list(self._blocks()):
            message["content"] = content
        if self.reply.calls:
            message["tool_calls"] = [
                {"id": self._call_id(call), "type": "function", "function": _function(call)}
                for call in self.reply.calls
            ]
        return {"id": id, "finish_reason": self.raw_finish, "message": message, "usage": self._usage()}

    def error(self, code: str, message: str) -> dict[str, Any]:
        return {"id": self._id(), "message": message}

    def _blocks(self) -> Iterator[dict[str, Any]]:
        for part in self.reply.parts:
            match part:
                case Say() | Refuse():
                    yield {"type": "text", "text": part.text}
                case Think():
                    yield {"type": "thinking", "thinking": part.text}
                case _:
                    pass

    def _content(self, kind: str, text: str) -> Iterator[Frame]:
        index, self._contents = self._contents, self._contents + 1
        yield self._delta("content-start", index, content={"type": kind, kind: ""})
        for piece in self.random.text_pieces(text):
            yield self._delta("content-delta", index, content={kind: piece})
        yield {"type": "content-end", "index": index}

    def _delta(self, kind: str, index: int, **message: Any) -> dict[str, Any]:
        return {"type": kind, "index": index, "delta": {"message": message}}

    def _id(self) -> str:
        letters = self.random.id("", 32, HEX)
        return "-".join((letters[:8], letters[8:12], letters[12:16], letters[16:20], letters[20:]))

    def _call_id(self, call: ScriptedCall) -> str:
        return call.id or self.random.id(f"{call.name}_", 12)

    def _usage(self) -> dict[str, Any]:
        usage = self.usage
        counts = {"input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens}
        thought = {"reasoning_tokens": usage.reasoning_tokens} if usage.reasoning_tokens else {}
        return {"billed_units": counts, "tokens": {**counts, **thought}, "cached_tokens": usage.cached_tokens}


def _function(call: ScriptedCall) -> dict[str, str]:
    return {"name": call.name, "arguments": call.arguments}
