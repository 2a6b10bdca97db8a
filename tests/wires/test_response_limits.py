"""Limits of a response: too many calls, choices, blocks or comments end it; a frame that takes long is skipped."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest

from penstock import Decoder, Error, Finish, Healing, Text, TextParser, ToolCall, ToolCallInvalid, decode
from penstock.calls import arguments
from penstock.dialects.stage import TextCalls
from penstock.events import StreamChunk
from penstock.framing import frames as framing
from penstock.jsontext.meter import is_complex
from penstock.testing import Reply, call
from penstock.testing.wires.play import frames
from penstock.wires import WIRES, wire_name
from penstock.wires.shared.decode_response import answers, response_decoder
from tests.support import decode_pieces, joined, pieces_of, random_pieces

every_wire = pytest.mark.parametrize("wire", sorted(WIRES))
TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}]


def codes(events: list[StreamChunk]) -> list[str]:
    return [event.code for event in events if isinstance(event, Error)]


def reasons(events: list[StreamChunk]) -> list[str]:
    return [event.reason for event in events if isinstance(event, Finish)]


def calls(events: list[StreamChunk]) -> list[str]:
    return [event.id for event in events if isinstance(event, ToolCall)]


def with_calls(wire: str, count: int, *, is_streaming: bool = True) -> bytes:
    reply = Reply("Let me look.", *(call("look", {"n": number}) for number in range(count)))
    return b"".join(frames(wire, reply, is_streaming))


@pytest.fixture
def few_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.calls.numbering.MAX_CALLS", 5)


@every_wire
def test_one_call_too_many_ends_the_response_however_it_is_cut(wire: str, few_calls: None) -> None:
    body = with_calls(wire, 8)
    whole = joined(decode_pieces(wire, [body]))
    assert codes(whole) == ["too_many_calls"]
    assert reasons(whole) == ["error"]
    assert len([event for event in whole if isinstance(event, ToolCall | ToolCallInvalid)]) in (5, 6)
    assert len(calls(whole)) <= 5
    for pieces in (pieces_of(body, 1), pieces_of(body, 100), *(random_pieces(body, seed) for seed in range(5))):
        assert joined(decode_pieces(wire, pieces)) == whole


@every_wire
@pytest.mark.parametrize("is_streaming", [True, False])
def test_as_many_calls_as_allowed_are_calls(wire: str, is_streaming: bool, few_calls: None) -> None:
    events = decode_pieces(wire, [with_calls(wire, 5, is_streaming=is_streaming)])
    assert len(calls(events)) == 5
    assert not codes(events)
    assert codes(decode_pieces(wire, [with_calls(wire, 6, is_streaming=is_streaming)])) == ["too_many_calls"]


@every_wire
def test_what_follows_the_limit_is_not_read(wire: str, few_calls: None) -> None:
    decoder = Decoder(wire_name(wire))
    decoder.feed(with_calls(wire, 8))
    assert decoder.progress() == "ended"
    assert decoder.feed(with_calls(wire, 8)) == []
    assert decoder.close() == []


def test_a_response_has_at_most_a_thousand_calls() -> None:
    events = decode_pieces("openai-chat", [with_calls("openai-chat", 1000)])
    assert len(calls(events)) == 1000
    assert codes(decode_pieces("openai-chat", [with_calls("openai-chat", 1001)])) == ["too_many_calls"]


# -- calls in the text -------------------------------------------------------------------------------------------------

IN_TEXT = '<tool_call>{"name":"look","arguments":{"n":%d}}</tool_call>\n'


def chat(*texts: str) -> list[bytes]:
    chunks: list[dict[str, Any]] = [{"choices": [{"index": 0, "delta": {"content": text}}]} for text in texts]
    chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    return [f"data: {json.dumps(chunk)}\n\n".encode() for chunk in chunks]


@pytest.mark.parametrize("together", [1, 2, 8])
def test_calls_in_the_text_count(together: int, few_calls: None) -> None:
    text = "".join(IN_TEXT % number for number in range(8))
    size = len(IN_TEXT % 0) * together
    texts = [text[start : start + size] for start in range(0, len(text), size)]
    events = list(decode(chat(*texts), "openai-chat", TOOLS, healing=Healing()))
    assert len(calls(events)) == 5
    assert codes(events) == ["too_many_calls"]
    assert reasons(events) == ["error"]


def test_calls_that_stay_text_do_not_count(few_calls: None) -> None:
    text = '<tool_call>{"name":"look","arguments":[]}</tool_call>\n' * 8
    events = list(decode(chat(text), "openai-chat", TOOLS, healing=Healing()))
    assert "".join(event.text for event in events if isinstance(event, Text)) == text
    assert reasons(events) == ["stop"]


def test_native_calls_and_calls_in_the_text_count_together(few_calls: None) -> None:
    stage = TextCalls("hermes", TOOLS)
    events = [event for n in range(3) for event in stage.feed(Text(0, IN_TEXT % n))]
    native = decode_pieces("openai-chat", [with_calls("openai-chat", 4)])
    events += [event for chunk in native for event in stage.feed(chunk)]
    assert codes(events) == ["too_many_calls"]
    assert reasons(events) == ["error"]


def test_a_parser_reports_too_many_calls(few_calls: None) -> None:
    parser = TextParser("hermes", TOOLS)
    events = parser.feed("".join(IN_TEXT % number for number in range(8)))
    assert len(calls(events)) == 5
    assert codes(events) == ["too_many_calls"]
    assert parser.feed("more") + parser.close() == []


# -- other limits ------------------------------------------------------------------------------------------------------


def test_too_many_choices_end_the_response(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "MAX_CHOICES", 3)
    body = b"".join(b'data: {"choices":[{"index":%d,"delta":{"content":"a"}}]}\n\n' % index for index in range(9))
    for pieces in ([body], pieces_of(body, 7)):
        events = decode_pieces("openai-chat", pieces)
        assert codes(events) == ["too_many_choices"]
        assert len(reasons(events)) == 3


def test_too_many_blocks_end_the_response(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.calls.numbering.MAX_BLOCKS", 4)
    frame = '{"choices":[{"index":0,"delta":{"%s":"a"}}]}'
    body = "".join(f"data: {frame % field}\n\n" for field in ("content", "reasoning_content") * 4).encode()
    events = decode_pieces("openai-chat", [body])
    assert codes(events) == ["too_many_blocks"]
    assert reasons(events) == ["error"]


@pytest.mark.parametrize("flood", [b": ping\n\n", b"\n", b":\n:\n\n", b"data:\n\n", b"id: 1\n\n", b"\r\n"])
def test_too_many_comments_end_the_response(flood: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(framing, "MAX_COMMENT_BYTES", 500)
    first, last = chat("Hello")
    for pieces in ([first + flood * 2000 + last], [first, *[flood] * 2000, last]):
        events = decode_pieces("openai-chat", pieces)
        assert codes(events) == ["too_many_comments"]
        assert reasons(events) == ["error"]
    assert codes(decode_pieces("openai-chat", [first, flood * 10, last])) == []


def test_blank_lines_between_lines_of_json_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(framing, "MAX_COMMENT_BYTES", 500)
    line = b'{"message":{"role":"assistant","content":"a"},"done":false}\n'
    assert codes(decode_pieces("ollama", [line, b"\n" * 600, line])) == ["too_many_comments"]


@pytest.mark.parametrize("fault", [b"[]," * 500, rb'"\u0041",' * 500, b'{"a":1},' * 500])
def test_a_frame_that_takes_long_is_skipped(fault: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(response_decoder, "MAX_FRAME_VALUES", 400)
    monkeypatch.setattr(response_decoder, "MAX_FRAME_ESCAPES", 400)
    monkeypatch.setattr(response_decoder, "_LARGE", 1000)
    first, last = chat("Hello")
    odd = b'data: {"choices":[{"index":0,"delta":{"content":"lost"}}],"z":[' + fault + b"0]}\n\n"
    body = first + odd + first + last
    for pieces in ([body], [first, odd, first, last], pieces_of(body, 77)):
        events = decode_pieces("openai-chat", pieces)
        assert "".join(event.text for event in events if isinstance(event, Text)) == "HelloHello"
        assert codes(events) == ["frame_too_complex"]
        assert reasons(events) == ["error"]


def test_arguments_with_too_many_values_are_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arguments, "MAX_ARGUMENT_VALUES", 400)
    monkeypatch.setattr(arguments, "_LARGE", 1000)
    written = '{"z":[' + "[]," * 500 + "0]}"
    pieces = [{"index": 0, "id": "a", "function": {"name": "look", "arguments": ""}}]
    pieces += [{"index": 0, "function": {"arguments": written[a:b]}} for a, b in pairwise([0, 10, 600, len(written)])]
    chunks: list[Any] = [{"choices": [{"index": 0, "delta": {"tool_calls": [piece]}}]} for piece in pieces]
    chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]})
    body = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks).encode()
    for parts in ([body], pieces_of(body, 50)):
        [invalid] = [event for event in decode_pieces("openai-chat", parts) if isinstance(event, ToolCallInvalid)]
        assert invalid.why == "too_large"
        assert "MAX_ARGUMENT_VALUES" in invalid.message
        assert invalid.arguments_raw == written


def test_what_is_complex() -> None:
    assert is_complex(b"[" + b"1," * 1000 + b"1]", 500, 500)
    assert not is_complex(b'"' + b"1, " * 1000 + b'"', 500, 500)
    assert is_complex(b'"' + rb"\n" * 1000 + b'"', 500, 500)
    assert not is_complex(b'"' + rb"\n" * 1000 + b'"', 500, 5000)
