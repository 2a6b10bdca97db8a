"""Synthetic responses of the providers, frame by frame, with the expected text and calls.

The frames have the fields that the providers send, but none of the padding that some add (OpenAI's `obfuscation`,
Anthropic's trailing spaces): padding would make the floor slower and every ratio look better.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from benchmarks.content import cut, edits, words

FRAMES = "frame by frame"
READS = "64 KiB reads"
READ = 64 * 1024
TOOL = "edit_file"
TOOL_PARAMETERS = {
    "type": "object",
    "properties": {"path": {"type": "string"}, "edits": {"type": "array", "items": {"type": "object"}}},
    "required": ["path", "edits"],
}


@dataclass(frozen=True)
class Stream:
    """A response: its frames, its text, and the arguments of each call."""

    wire: str
    name: str
    frames: tuple[bytes, ...]
    text: str = ""
    calls: tuple[str, ...] = ()

    @property
    def body(self) -> bytes:
        return b"".join(self.frames)

    @property
    def ways(self) -> dict[str, Sequence[bytes]]:
        """The pieces in which the body arrives: one frame at a time, or large reads."""
        body = self.body
        return {FRAMES: self.frames, READS: [body[start : start + READ] for start in range(0, len(body), READ)]}

    def is_answered_by(self, text: str, calls: Iterable[str | dict[str, Any]]) -> bool:
        """Whether the result of a reader is right; arguments may be text or parsed."""
        parsed = [orjson.loads(call) if isinstance(call, str) else call for call in calls]
        return text == self.text and parsed == [orjson.loads(call) for call in self.calls]


def standard() -> list[Stream]:
    """The streams that `decode` and `peers` measure."""
    sizes = {"one tool": [10_000], "eight tools": [2_000] * 8}
    return [
        openai_chat_text(words(2000)),
        *(openai_chat_calls(name, [edits(size) for size in sizes]) for name, sizes in sizes.items()),
        anthropic_text(words(2000)),
        *(anthropic_calls(name, [edits(size) for size in sizes]) for name, sizes in sizes.items()),
        openai_responses_text(words(2000)),
        openai_responses_call("one tool", edits(10_000)),
        gemini_text(words(2000)),
    ]


# OpenAI Chat Completions


def openai_chat_text(pieces: Sequence[str]) -> Stream:
    deltas: list[Any] = [
        {"role": "assistant", "content": "", "refusal": None},
        *({"content": piece} for piece in pieces),
    ]
    return Stream("openai-chat", "text", _openai_chat(deltas, "stop"), text="".join(pieces))


def openai_chat_calls(name: str, calls: Sequence[str]) -> Stream:
    deltas: list[Any] = [{"role": "assistant", "content": None, "refusal": None}]
    for index, arguments in enumerate(calls):
        function = {"name": TOOL, "arguments": ""}
        deltas.append(
            {"tool_calls": [{"index": index, "id": f"call_{index:024}", "type": "function", "function": function}]}
        )
        deltas += ({"tool_calls": [{"index": index, "function": {"arguments": piece}}]} for piece in cut(arguments))
    return Stream("openai-chat", name, _openai_chat(deltas, "tool_calls"), calls=tuple(calls))


def _openai_chat(deltas: Sequence[Any], finish: str) -> tuple[bytes, ...]:
    head = {
        "id": "chatcmpl-CXWVXfNfKMel8GL4qQKsiJrzLbKQI",
        "object": "chat.completion.chunk",
        "created": 1762105819,
        "model": "gpt-4o-2024-11-20",
        "service_tier": "default",
        "system_fingerprint": "fp_8488db5e34",
    }
    usage = {
        "prompt_tokens": 84,
        "completion_tokens": 2000,
        "total_tokens": 2084,
        "prompt_tokens_details": {"cached_tokens": 0, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 0, "audio_tokens": 0},
    }

    def chunk(delta: Any, finish_reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        return _data({**head, "choices": [choice]})

    return (
        *(chunk(delta) for delta in deltas),
        chunk({}, finish),
        _data({**head, "choices": [], "usage": usage}),
        b"data: [DONE]\n\n",
    )


# Anthropic Messages


def anthropic_text(pieces: Sequence[str]) -> Stream:
    block = _anthropic_block(
        0, {"type": "text", "text": ""}, ({"type": "text_delta", "text": piece} for piece in pieces)
    )
    return Stream("anthropic", "text", _anthropic(block, "end_turn"), text="".join(pieces))


def anthropic_calls(name: str, calls: Sequence[str]) -> Stream:
    blocks: list[bytes] = []
    for index, arguments in enumerate(calls):
        start = {"type": "tool_use", "id": f"toolu_{index:024}", "name": TOOL, "input": {}}
        deltas = ({"type": "input_json_delta", "partial_json": piece} for piece in cut(arguments))
        blocks += _anthropic_block(index, start, deltas)
    return Stream("anthropic", name, _anthropic(blocks, "tool_use"), calls=tuple(calls))


def _anthropic_block(index: int, start: Any, deltas: Iterable[Any]) -> list[bytes]:
    return [
        _named({"type": "content_block_start", "index": index, "content_block": start}),
        *(_named({"type": "content_block_delta", "index": index, "delta": delta}) for delta in deltas),
        _named({"type": "content_block_stop", "index": index}),
    ]


def _anthropic(blocks: Iterable[bytes], stop_reason: str) -> tuple[bytes, ...]:
    message: dict[str, Any] = {
        "model": "claude-sonnet-4-20250514",
        "id": "msg_01JCJXSfyzkcecJUydp157cS",
        "type": "message",
        "role": "assistant",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {
            "input_tokens": 351,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
            "output_tokens": 1,
            "service_tier": "standard",
        },
    }
    delta = {"stop_reason": stop_reason, "stop_sequence": None}
    return (
        _named({"type": "message_start", "message": message}),
        _named({"type": "ping"}),
        *blocks,
        _named({"type": "message_delta", "delta": delta, "usage": {"output_tokens": 2000}}),
        _named({"type": "message_stop"}),
    )


# OpenAI Responses


def openai_responses_text(pieces: Sequence[str]) -> Stream:
    text = "".join(pieces)
    item = {"id": "msg_04041325ab8ae30400698c51c5468c81", "type": "message", "role": "assistant"}
    place = {"item_id": item["id"], "output_index": 0, "content_index": 0}
    empty, whole = (
        {"type": "output_text", "annotations": [], "logprobs": [], "text": content} for content in ("", text)
    )
    done = {**item, "status": "completed", "content": [whole]}
    events = [
        {
            "type": "response.output_item.added",
            "output_index": 0,
            "item": {**item, "status": "in_progress", "content": []},
        },
        {"type": "response.content_part.added", **place, "part": empty},
        *({"type": "response.output_text.delta", **place, "delta": piece, "logprobs": []} for piece in pieces),
        {"type": "response.output_text.done", **place, "text": text, "logprobs": []},
        {"type": "response.content_part.done", **place, "part": whole},
        {"type": "response.output_item.done", "output_index": 0, "item": done},
    ]
    return Stream("openai-responses", "text", _openai_responses(events, done), text=text)


def openai_responses_call(name: str, arguments: str) -> Stream:
    item = {
        "id": "fc_04041325ab8ae30400698c51c5468c81",
        "type": "function_call",
        "name": TOOL,
        "call_id": "call_H5DxLSF",
    }
    place = {"item_id": item["id"], "output_index": 0}
    done = {**item, "status": "completed", "arguments": arguments}
    events = [
        {
            "type": "response.output_item.added",
            "output_index": 0,
            "item": {**item, "status": "in_progress", "arguments": ""},
        },
        *({"type": "response.function_call_arguments.delta", **place, "delta": piece} for piece in cut(arguments)),
        {"type": "response.function_call_arguments.done", **place, "arguments": arguments},
        {"type": "response.output_item.done", "output_index": 0, "item": done},
    ]
    return Stream("openai-responses", name, _openai_responses(events, done), calls=(arguments,))


def _openai_responses(events: Sequence[dict[str, Any]], item: dict[str, Any]) -> tuple[bytes, ...]:
    response = {"id": "resp_04041325ab8ae30400698c519fb7fc81", "object": "response", "created_at": 1770803615}
    begun = {**response, "status": "in_progress", "model": "gpt-5.1", "output": [], "usage": None}
    usage = {
        "input_tokens": 84,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": 2000,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 2084,
    }
    ended = {**begun, "status": "completed", "output": [item], "usage": usage}
    whole = [
        {"type": "response.created", "response": begun},
        {"type": "response.in_progress", "response": begun},
        *events,
        {"type": "response.completed", "response": ended},
    ]
    return tuple(
        _named({"type": event["type"], "sequence_number": number, **event}) for number, event in enumerate(whole)
    )


# Gemini


def gemini_text(pieces: Sequence[str]) -> Stream:
    def chunk(number: int, piece: str) -> dict[str, Any]:
        candidate: dict[str, Any] = {"content": {"parts": [{"text": piece}], "role": "model"}, "index": 0}
        if number == len(pieces):
            candidate["finishReason"] = "STOP"
        usage = {
            "promptTokenCount": 8,
            "candidatesTokenCount": number,
            "totalTokenCount": 8 + number,
            "promptTokensDetails": [{"modality": "TEXT", "tokenCount": 8}],
        }
        return {
            "candidates": [candidate],
            "usageMetadata": usage,
            "modelVersion": "gemini-2.5-flash",
            "responseId": "a1B2c3D4e5F6g7H8",
        }

    frames = itertools.starmap(chunk, enumerate(pieces, start=1))
    return Stream("gemini", "text", tuple(_data(frame, end=b"\r\n\r\n") for frame in frames), text="".join(pieces))


CALL_STREAMS: dict[str, Callable[[str, Sequence[str]], Stream]] = {
    "openai-chat": openai_chat_calls,
    "anthropic": anthropic_calls,
}
"""By wire, a response with tool calls: its name, and the arguments of each call."""


# Frames


def _data(payload: Any, end: bytes = b"\n\n") -> bytes:
    return b"data: " + orjson.dumps(payload) + end


def _named(payload: dict[str, Any]) -> bytes:
    return f"event: {payload['type']}\n".encode() + _data(payload)
