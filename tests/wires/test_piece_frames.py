"""Frames that differ in nothing but their piece of text or arguments are read without the parser, and mean the same."""

from __future__ import annotations

import json

import pytest

import penstock
from penstock import StreamChunk, Text, ToolCall
from penstock.wires.openai_chat.decode_response import OpenAIChat
from penstock.wires.shared.decode_response.open_call import OpenCall
from penstock.wires.shared.decode_response.piece_frames import ATTEMPTS
from penstock.wires.shared.decode_response.wire import SEARCHED_FRAMES
from tests.support import joined


def frame(delta: str, rest: str = '"finish_reason":null', extra: str = "") -> bytes:
    return f'data: {{"id":"c","model":"m"{extra},"choices":[{{"index":0,"delta":{delta},{rest}}}]}}\n\n'.encode()


def text_frame(text: str) -> bytes:
    return frame(f'{{"content":{json.dumps(text, ensure_ascii=False)}}}')


def read_one_by_one(frames: list[bytes]) -> list[StreamChunk]:
    decoder = penstock.Decoder("openai-chat")
    return [event for data in frames for event in decoder.feed(data)] + decoder.close()


def read_byte_by_byte(frames: list[bytes]) -> list[StreamChunk]:
    return read_one_by_one([bytes([byte]) for data in frames for byte in data])


CALL = '{"content":"so","tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{}"}}]}'
BETWEEN = {
    "escapes": text_frame('a "quoted"\nline'),
    "a backslash at the end": text_frame("\\"),
    "other letters": text_frame("größer 猫 😀"),
    "a line separator": text_frame("a\u2028b"),
    "no text": text_frame(""),
    "half of a pair": frame('{"content":"\\ud83d"}'),
    "bytes that are not UTF-8": text_frame("x").replace(b'"x"', b'"\xff"'),
    "a raw line end": text_frame("x").replace(b'"x"', b'"a\nb"'),
    "two frames in a read": text_frame("x") + text_frame("y"),
    "half a frame": text_frame("half")[:-20],
    "a call beside the text": frame(CALL),
    "reasoning": frame('{"reasoning_content":"hm"}'),
    "the field twice": frame('{"content":"one","content":"two"}'),
    "the field with an escape": frame('{"cont\\u0065nt":"one"}', extra=',"x":{"content":"one"}'),
    "a comment": b": keep-alive\n\n",
    "an error": b'data: {"error":{"message":"no","type":"x"}}\n\n',
    "the reason for the end": frame("{}", '"finish_reason":"stop"'),
    "the end mark": b"data: [DONE]\n\n",
    "another choice": text_frame("x").replace(b'"index":0', b'"index":1'),
}


@pytest.mark.parametrize("name", BETWEEN)
def test_frames_mean_the_same_with_and_without_the_parser(name: str) -> None:
    frames = [
        text_frame("One "),
        text_frame("two "),
        text_frame("three "),
        BETWEEN[name],
        text_frame("four "),
        text_frame("five "),
        text_frame("six"),
    ]
    assert joined(read_one_by_one(frames)) == joined(read_byte_by_byte(frames))
    again = [*frames, BETWEEN[name], *frames]
    assert joined(read_one_by_one(again)) == joined(read_byte_by_byte(again))


@pytest.mark.parametrize("name", BETWEEN)
@pytest.mark.parametrize("together", [2, 3])
def test_several_frames_in_a_read_mean_the_same(name: str, together: int) -> None:
    words = [text_frame(f"word {number} ") for number in range(6)]
    for place in range(together + 1):
        frames = [*words[:3], *words[:place], BETWEEN[name], *words[place:], *words]
        reads = frames[:3] + [b"".join(frames[at : at + together]) for at in range(3, len(frames), together)]
        assert joined(read_one_by_one(reads)) == joined(read_byte_by_byte(frames)), place


def parsed(frames: list[bytes], monkeypatch: pytest.MonkeyPatch) -> int:
    """How many frames the parser reads."""
    seen: list[bytes] = []
    decode = OpenAIChat.decode

    def count(payload: bytes) -> object:
        seen.append(payload)
        return decode(payload)

    monkeypatch.setattr(OpenAIChat, "decode", staticmethod(count))
    assert [event for event in read_one_by_one(frames) if isinstance(event, Text)]
    return len(seen)


def test_frames_of_nothing_but_text_are_not_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert parsed([text_frame(f"word {number} ") for number in range(100)], monkeypatch) == 2


def test_several_frames_of_text_in_a_read_are_not_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    frames = [text_frame(f"word {number} ") for number in range(100)]
    reads = [*frames[:3], *(b"".join(frames[at : at + 3]) for at in range(3, 60, 3)), *frames[60:]]
    assert parsed(reads, monkeypatch) == 2


def test_an_escape_does_not_end_that(monkeypatch: pytest.MonkeyPatch) -> None:
    words, lines = text_frame("word "), text_frame("a line\n")
    reads = [words, words, *[words + lines, words + words] * 3 * ATTEMPTS]
    assert parsed(reads, monkeypatch) == 2


def test_a_field_that_changes_now_and_then_does_not_end_that(monkeypatch: pytest.MonkeyPatch) -> None:
    frames = [text_frame("word ").replace(b'"c"', b'"%d"' % (number // 10)) for number in range(50 * ATTEMPTS)]
    assert parsed(frames, monkeypatch) == 1 + 5 * ATTEMPTS


def test_a_server_whose_frames_differ_elsewhere_is_not_compared_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    frames = [text_frame("word ").replace(b'"c"', b'"%d"' % number) for number in range(2 * ATTEMPTS)]
    assert parsed([*frames, *[text_frame("again ")] * 10], monkeypatch) == len(frames) + 10


def test_the_name_of_the_model_does_not_depend_on_the_cuts() -> None:
    for count in range(1, 3 * SEARCHED_FRAMES):
        frames = [*[text_frame("word ").replace(b',"model":"m"', b"")] * count, text_frame("last")]
        assert joined(read_one_by_one(frames)) == joined(read_byte_by_byte(frames)), count


MISLEADING = {
    "the field twice": [frame(f'{{"content":"{word}","content":"one"}}') for word in ("one", "two")],
    "the field with an escape": [
        frame('{"cont\\u0065nt":"one"}', extra=f',"x":{{"content":"{word}"}}') for word in ("one", "two")
    ],
}


@pytest.mark.parametrize("name", MISLEADING)
def test_a_field_that_only_looks_like_the_text_is_not_read(name: str) -> None:
    first, second = MISLEADING[name]
    events = read_one_by_one([first, first, first, second])
    assert [event.text for event in events if isinstance(event, Text)] == ["one"] * 4


# Pieces of calls.


def piece_frame(piece: str, index: int = 0, more: str = "") -> bytes:
    arguments = json.dumps(piece, ensure_ascii=False)
    return frame(f'{{"tool_calls":[{{"index":{index}{more},"function":{{"arguments":{arguments}}}}}]}}')


def start_frame(name: str, index: int = 0) -> bytes:
    call = f'{{"index":{index},"id":"{name}{index}","type":"function","function":{{"name":"{name}","arguments":""}}}}'
    return frame(f'{{"tool_calls":[{call}]}}')


CALL_END = frame("{}", '"finish_reason":"tool_calls"')
ARGUMENTS = '{"command": "ls -l", "files": [{"name": "größer 😀"}, {"n": 1.5, "is": true}], "note": "a \\"b\\" \\n c"}'
BETWEEN_PIECES = {
    **BETWEEN,
    "another call": start_frame("g", 1),
    "a piece of another call": start_frame("g", 1) + piece_frame('{"a', 1),
    "the same index again": start_frame("g", 0),
    "a wrapper": start_frame("parallel", 1),
    "an id again": piece_frame("", more=',"id":"f0"'),
    "half of a pair in arguments": piece_frame("x").replace(b'"x"', b'"\\ud83d"'),
    "an empty piece": piece_frame(""),
    "a piece with text": frame('{"content":"so","tool_calls":[{"index":0,"function":{"arguments":"x"}}]}'),
}


def cut(text: str, size: int) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)]


@pytest.mark.parametrize("name", BETWEEN_PIECES)
@pytest.mark.parametrize("size", [1, 4])
def test_pieces_of_calls_mean_the_same_with_and_without_the_parser(name: str, size: int) -> None:
    pieces = [piece_frame(piece) for piece in cut(ARGUMENTS, size)]
    for place in (0, 3, 7, len(pieces)):
        frames = [start_frame("f"), *pieces[:place], BETWEEN_PIECES[name], *pieces[place:], CALL_END]
        assert joined(read_one_by_one(frames)) == joined(read_byte_by_byte(frames)), place


def test_pieces_of_two_calls_in_turns_mean_the_same() -> None:
    first, second = cut(ARGUMENTS, 3), cut(ARGUMENTS, 3)
    both = [piece_frame(piece, index) for pair in zip(first, second, strict=True) for index, piece in enumerate(pair)]
    frames = [start_frame("f"), start_frame("g", 1), *both, CALL_END]
    assert joined(read_one_by_one(frames)) == joined(read_byte_by_byte(frames))
    calls = [event for event in read_one_by_one(frames) if isinstance(event, ToolCall)]
    assert [call.arguments_raw for call in calls] == [ARGUMENTS, ARGUMENTS]


def test_pieces_of_a_call_are_not_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    pieces = [piece_frame(piece) for piece in ['{"a": "b', *["word \\n"] * 100, '"}']]
    text = text_frame("Hi.")
    assert parsed([text, start_frame("f"), *pieces, CALL_END], monkeypatch) <= 8


def call_frames(arguments: str, size: int) -> list[bytes]:
    """A call whose arguments come in pieces of this size."""
    pieces = [arguments[at : at + size] for at in range(0, len(arguments), size)]
    entries = [f'{{"index":0,"function":{{"arguments":{json.dumps(piece)}}}}}' for piece in pieces]
    start = '{"index":0,"id":"a","function":{"name":"f","arguments":""}}'
    frames = [frame(f'{{"tool_calls":[{entry}]}}') for entry in (start, *entries)]
    return [text_frame("Hm."), *frames, frame("{}", '"finish_reason":"tool_calls"'), b"data: [DONE]\n\n"]


ROWS = json.dumps({"rows": [{"n": [1, {}]}, {"text": "}] {"}] * 30})
BRACKETS = (
    "{text}",
    "{text}}",
    "{text} x}",
    '{text} "x}',
    "{text}{text}",
    "{}{text}",
    "[{text}]",
    '"}" {text}',
    "1}2}",
)


@pytest.mark.parametrize("arguments", BRACKETS)
@pytest.mark.parametrize("size", [1, 2, 5, 11])
def test_brackets_inside_arguments_mean_the_same_without_the_parser(
    arguments: str, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    frames = call_frames(arguments.replace("{text}", ROWS), size)
    fast = read_one_by_one(frames)
    monkeypatch.setattr(OpenCall, "takes", lambda *_: False)
    assert fast == read_one_by_one(frames)


def test_a_bracket_that_does_not_close_the_arguments_is_not_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert parsed(call_frames(ROWS, 1), monkeypatch) < 10
