"""The vendors' SDKs read what the response encoders write: the tests of the loopback server, on encoded events."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from penstock import Finish, Opaque, Reasoning, StreamChunk, Text, ToolCall, ToolCallDelta, ToolCallStart, Usage
from penstock.testing import Loopback, Raw, ReceivedRequest
from penstock.wires import find_response_frames
from penstock.wires.shared.encode_response.response_bodies import encode_body, encode_error
from penstock.wires.shared.encode_response.response_encoder import ResponseEncoder
from penstock.wires.shared.encode_response.response_head import ResponseHead
from tests.testing import test_loopback_sdks as sdks

IDS = ("ABCDEFGH1", "ABCDEFGH2")  # as Mistral has them


def pieces(text: str) -> list[str]:
    return [text[at : at + 5] for at in range(0, len(text), 5)]


def response(is_confirmed_late: bool = False) -> Iterator[StreamChunk]:
    """Reasoning, text and two calls; the calls are confirmed one by one, or at the end as on Chat Completions."""
    yield from (Reasoning(0, piece) for piece in pieces(sdks.THOUGHT))
    for wire in ("anthropic", "bedrock", "gemini-interactions"):
        yield Opaque(0, wire, "signature", "c2lnbmVk")
    summary = [{"type": "summary_text", "text": sdks.THOUGHT}]
    item = {"id": "rs_1", "type": "reasoning", "summary": summary, "encrypted_content": "c2VjcmV0"}
    yield Opaque(0, "openai-responses", "reasoning", item)
    yield from (Text(1, piece) for piece in pieces(sdks.TEXT))
    ends: list[StreamChunk] = []
    for block, (id, (name, arguments)) in enumerate(zip(IDS, sdks.CALLS, strict=True), start=2):
        raw = json.dumps(arguments, indent=1, ensure_ascii=False)
        yield ToolCallStart(block, id, name)
        if block == 2:
            yield Opaque(block, "gemini", "thought_signature", "c2lnbmVk")
        yield from (ToolCallDelta(block, piece) for piece in pieces(raw))
        ends.append(ToolCall(id, name, arguments, raw, sealed_by="call_end", block=block))
        if not is_confirmed_late:
            yield ends.pop()
    yield from ends
    yield Usage(20, 30, 4, 10)
    yield Finish("tool_calls")


def answer(request: ReceivedRequest) -> Raw:
    frames = find_response_frames(request.wire)
    if request.model == "nowhere":
        error = encode_error(frames, 404, "There is no model of this name.")
        return Raw(error.body, "application/json", error.status, error.headers)
    options: Any = request.body.get("stream_options") or {}
    has_usage = request.wire != "openai-chat" or bool(options.get("include_usage"))
    head = ResponseHead(id="1f0c", model=request.model, created=1_767_225_600, has_usage=has_usage)
    events = list(response(is_confirmed_late="late" in request.model))
    if not request.is_streaming:
        return Raw(encode_body(frames, events, head).body, "application/json")
    writing = ResponseEncoder(frames(head))
    return Raw(b"".join([*(writing.feed([event]) for event in events), writing.close()]), frames.format.content_type)


@pytest.fixture(scope="module")
def server() -> Iterator[Loopback]:
    with Loopback(answer) as listening:
        yield listening


openai, anthropic, genai, ollama = sdks.openai, sdks.anthropic, sdks.genai, sdks.ollama
cohere, mistral, boto3 = sdks.cohere, sdks.mistral, sdks.boto3

TESTS = {
    name: test
    for name, test in vars(sdks).items()
    if name.startswith("test_") and name != "test_the_openai_sdk_lists_the_models"
}
globals().update(TESTS)


def test_every_sdk_reads_encoded_responses() -> None:
    assert len(TESTS) == 29


def test_the_anthropic_sdk_reads_calls_that_are_confirmed_at_the_end(anthropic: Any) -> None:
    with anthropic.messages.stream(model="late", max_tokens=9, messages=sdks.PROMPT) as stream:
        sdks.assert_message(stream.get_final_message())


def test_the_openai_sdk_reads_items_that_are_confirmed_at_the_end(openai: Any) -> None:
    with openai.responses.stream(model="late", input="?") as stream:
        for _ in stream:
            pass
        sdks.assert_response(stream.get_final_response())
