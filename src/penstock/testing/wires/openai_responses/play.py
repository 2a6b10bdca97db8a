"""The OpenAI Responses API: every item is added, sent in deltas, done, and repeated in the final response."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import msgspec

from penstock.testing.reply import Fail, Refuse, Reply, Say, ScriptedCall, Think, VendorItem
from penstock.testing.request import ReceivedRequest
from penstock.testing.wires.openai_chat.play import OPENAI_CODES, openai_error
from penstock.testing.wires.randomness import HEX
from penstock.testing.wires.reply_encoder import CREATED, Frame, NamedEventEncoder
from penstock.testing.wires.signatures import OPENAI

_ECHOED: dict[str, Any] = {
    "instructions": None, "max_output_tokens": None, "max_tool_calls": None, "metadata": {},
    "parallel_tool_calls": True, "previous_response_id": None, "prompt_cache_key": None,
    "reasoning": {"effort": None, "summary": None}, "safety_identifier": None, "service_tier": "default", "store": True,
    "temperature": 1.0, "text": {"format": {"type": "text"}, "verbosity": "medium"}, "tool_choice": "auto", "tools": [],
    "top_logprobs": 0, "top_p": 1.0, "truncation": "disabled", "user": None,
}  # fmt: skip
"""The fields of a request that a response repeats, with their defaults."""
_INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}


class OpenAIResponsesEncoder(NamedEventEncoder):
    """The events of a response, or the whole response. Reasoning is a summary with encrypted content beside it."""

    FINISH: ClassVar = {"stop": "completed", "tool_calls": "completed", "error": "failed"}
    CODES: ClassVar = OPENAI_CODES

    def __init__(self, reply: Reply, request: ReceivedRequest) -> None:
        super().__init__(reply, request)
        self._number = -1
        self._id = self.random.id("resp_", 50, HEX)
        self._output: list[dict[str, Any]] = []
        self._item: dict[str, Any] = {}  # the one that is being sent

    def opening(self) -> Iterator[Frame]:
        for kind in ("created", "in_progress"):
            yield {"type": f"response.{kind}", "response": self._response("in_progress")}

    def say(self, text: str) -> Iterator[Frame]:
        yield from self._message(text, "output_text", "text", annotations=[], logprobs=[])

    def refuse(self, text: str) -> Iterator[Frame]:
        yield from self._message(text, "refusal", "refusal")

    def think(self, text: str) -> Iterator[Frame]:
        item = self._reasoning_item(text)
        yield self._added(item, summary=[])
        at = {**self._at(item), "summary_index": 0}
        part = item["summary"][0]
        yield {"type": "response.reasoning_summary_part.added", **at, "part": {**part, "text": ""}}
        for piece in self.random.text_pieces(text):
            yield {"type": "response.reasoning_summary_text.delta", **at, "delta": piece, **self._obfuscation()}
        yield {"type": "response.reasoning_summary_text.done", **at, "text": text}
        yield {"type": "response.reasoning_summary_part.done", **at, "part": part}
        yield self._done(item)

    def call(self, call: ScriptedCall) -> Iterator[Frame]:
        item = self._call_item(call)
        yield self._added(item, arguments="", status="in_progress")
        for piece in self.random.argument_pieces(call.arguments):
            delta = {**self._at(item), "delta": piece, **self._obfuscation()}
            yield {"type": "response.function_call_arguments.delta", **delta}

    def call_end(self, call: ScriptedCall) -> Iterator[Frame]:
        item = self._item
        yield {"type": "response.function_call_arguments.done", **self._at(item), "arguments": call.arguments}
        yield self._done(item)

    def item(self, data: dict[str, Any]) -> Iterator[Frame]:
        begun = {"status": "in_progress"} if "status" in data else {}
        yield self._added(data, **begun)
        yield self._done(data)

    def failure(self, fail: Fail) -> Iterator[Frame]:
        error = {"type": fail.code, "code": fail.code, "message": fail.message, "param": None}
        yield {"type": "error", "error": error}
        response = self._response("failed", error={"code": fail.code, "message": fail.message})
        yield {"type": "response.failed", "response": response}

    def closing(self) -> Iterator[Frame]:
        response = self._ended()
        yield {"type": f"response.{response['status']}", "response": response}

    def encode_frame(self, frame: dict[str, Any]) -> bytes:
        self._number += 1
        return super().encode_frame({"type": frame["type"], "sequence_number": self._number, **frame})

    def whole_body(self) -> dict[str, Any]:
        self._output = list(self._items())
        return self._ended()

    def error(self, code: str, message: str) -> dict[str, Any]:
        return openai_error(code, message)

    # Items as they are when done; when they are added, some fields are empty.

    def _items(self) -> Iterator[dict[str, Any]]:
        for part in self.reply.parts:
            match part:
                case Say():
                    yield self._message_item({"type": "output_text", "text": part.text, "annotations": []})
                case Refuse():
                    yield self._message_item({"type": "refusal", "refusal": part.text})
                case Think():
                    yield self._reasoning_item(part.text)
                case ScriptedCall():
                    yield self._call_item(part)
                case VendorItem():
                    yield msgspec.json.decode(part.data)
                case _:
                    pass

    def _message_item(self, part: dict[str, Any]) -> dict[str, Any]:
        status = "incomplete" if self.finish in _INCOMPLETE else "completed"
        id = self.random.id("msg_", 50, HEX)
        return {"id": id, "type": "message", "status": status, "content": [part], "role": "assistant"}

    def _reasoning_item(self, text: str) -> dict[str, Any]:
        summary = [{"type": "summary_text", "text": text}]
        secret = self.random.signature(OPENAI)
        return {
            "id": self.random.id("rs_", 50, HEX),
            "type": "reasoning",
            "summary": summary,
            "encrypted_content": secret,
        }

    def _call_item(self, call: ScriptedCall) -> dict[str, Any]:
        status = "incomplete" if self.finish in _INCOMPLETE and not call.is_whole else "completed"
        return {
            "id": self.random.id("fc_", 50, HEX), "type": "function_call", "status": status,
            "arguments": call.arguments, "call_id": call.id or self.random.id("call_", 24), "name": call.name,
        }  # fmt: skip

    def _message(self, text: str, kind: str, field: str, **extra: Any) -> Iterator[Frame]:
        part = {"type": kind, field: text, **extra}
        item = self._message_item(part)
        at = {**self._at(item), "content_index": 0}
        logprobs: dict[str, Any] = {"logprobs": []} if kind == "output_text" else {}
        yield self._added(item, content=[], status="in_progress")
        yield {"type": "response.content_part.added", **at, "part": {**part, field: ""}}
        for piece in self.random.text_pieces(text):
            yield {"type": f"response.{kind}.delta", **at, "delta": piece, **logprobs, **self._obfuscation()}
        yield {"type": f"response.{kind}.done", **at, field: text, **logprobs}
        yield {"type": "response.content_part.done", **at, "part": part}
        yield self._done(item)

    def _at(self, item: dict[str, Any]) -> dict[str, Any]:
        return {"item_id": item["id"], "output_index": len(self._output)}

    def _added(self, item: dict[str, Any], **begun: Any) -> dict[str, Any]:
        self._item = item
        return {"type": "response.output_item.added", "output_index": len(self._output), "item": {**item, **begun}}

    def _done(self, item: dict[str, Any]) -> dict[str, Any]:
        self._output.append(item)
        return {"type": "response.output_item.done", "output_index": len(self._output) - 1, "item": item}

    def _obfuscation(self) -> dict[str, str]:
        return {"obfuscation": self.random.padding()}

    # The response.

    def _ended(self) -> dict[str, Any]:
        if self.finish == "error":
            return self._response("failed", error={"code": "server_error", "message": "The response failed."})
        if self.finish in self.FINISH or self.finish == "completed":
            return self._response("completed", usage=self._usage(), completed_at=CREATED + 2)
        why = {"reason": _INCOMPLETE.get(self.finish, self.finish)}
        return self._response("incomplete", usage=self._usage(), incomplete_details=why)

    def _response(self, status: str, **fields: Any) -> dict[str, Any]:
        echoed = {key: self.request.head.get(key, usual) for key, usual in _ECHOED.items()}
        response = {
            "id": self._id, "object": "response", "created_at": CREATED, "status": status, "background": False,
            "completed_at": None, "error": None, "incomplete_details": None, "model": self.request.model,
            "output": list(self._output), "usage": None,
        }  # fmt: skip
        return {**response, **echoed, **fields}

    def _usage(self) -> dict[str, Any]:
        usage = self.usage
        return {
            "input_tokens": usage.input_tokens,
            "input_tokens_details": {"cached_tokens": usage.cached_tokens},
            "output_tokens": usage.output_tokens,
            "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
            "total_tokens": usage.input_tokens + usage.output_tokens,
        }
