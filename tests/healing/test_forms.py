"""Damaged calls on every protocol, arguments inside other objects, and control characters in arguments."""

from __future__ import annotations

import json

import pytest

from penstock import Healing, ToolCall, ToolCallDelta, collect, decode
from penstock.dialects.reading.schema import Schema
from penstock.healing import calls
from penstock.healing.wrapped import unwrapped
from tests.healing.forms import SCHEMA, TOOLS, table

SHELL = Schema(SCHEMA, SCHEMA)
INNER = '{"command": "ls"}'


def test_every_form_is_healed_on_every_protocol_streamed_and_whole() -> None:
    wrong = [
        (case, one, cell) for case, cells in table().items() for one, cell in cells.items() if cell not in ("2/2", "")
    ]
    assert not wrong


@pytest.mark.parametrize(
    "raw",
    [
        '{"arguments": @}',
        '{"parameters": @}',
        '{"input": @}',
        '{"name": "bash", "arguments": @}',
        '{"name": "Bash", "arguments": @}',
        '{"tool": "bash", "parameters": @}',
        '{"type": "function", "function": {"name": "bash", "arguments": @}}',
        '{"function": {"name": "bash", "arguments": "{\\"command\\": \\"ls\\"}"}, "id": "c1"}',
        '{"arguments": "{\\"command\\": \\"ls\\"}"}',
    ],
)
def test_arguments_inside_another_object_are_taken_out(raw: str) -> None:
    assert unwrapped(raw.replace("@", INNER), "bash", SHELL) == INNER


@pytest.mark.parametrize(
    "raw",
    [
        INNER,
        '{"name": "other", "arguments": @}',
        '{"arguments": {"other": 1}}',
        '{"arguments": 1}',
        '{"arguments": "ls"}',
        '{"arguments": @, "parameters": @}',
        '{"arguments": @, "more": 1}',
        '{"command": "ls", "arguments": {}}',
        '{"name": "bash"}',
        '{"function": {"arguments": @}, "arguments": @}',
        "{}",
        "[]",
        "null",
        "",
        '{"arguments": @',
    ],
)
def test_what_has_another_reading_stays(raw: str) -> None:
    assert unwrapped(raw.replace("@", INNER), "bash", SHELL) is None


def test_a_tool_that_has_such_an_argument_keeps_it() -> None:
    schema = {"type": "object", "properties": {"arguments": {"type": "object"}, "command": {"type": "string"}}}
    assert unwrapped(f'{{"arguments": {INNER}}}', "bash", Schema(schema, schema)) is None
    assert unwrapped(f'{{"arguments": {INNER}}}', "bash", Schema({}, {})) is None
    assert unwrapped(f'{{"arguments": {INNER}}}', "bash", None) is None


def chunks(raw: str, size: int = 3) -> list[dict[str, object]]:
    first = {"index": 0, "id": "c1", "type": "function", "function": {"name": "bash", "arguments": ""}}
    pieces = [raw[place : place + size] for place in range(0, len(raw), size)]
    entries: list[dict[str, object]] = [first, *({"index": 0, "function": {"arguments": piece}} for piece in pieces)]
    frames: list[dict[str, object]] = [
        {"choices": [{"index": 0, "delta": {"tool_calls": [entry]}}]} for entry in entries
    ]
    return [*frames, {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}]


@pytest.mark.parametrize("size", [1, 3, 1000])
@pytest.mark.parametrize(
    "raw", ['{"arguments": @}', '{"name": "bash", "arguments": @}', "@", '{"argument": "x"}', '{"a']
)
def test_the_pieces_of_a_call_are_those_of_its_arguments(raw: str, size: int) -> None:
    events = [*decode(chunks(raw.replace("@", INNER), size), "openai-chat", TOOLS, healing=Healing())]
    pieces = "".join(event.piece for event in events if isinstance(event, ToolCallDelta))
    for call in events:
        if isinstance(call, ToolCall):
            assert pieces == call.arguments_raw
            assert json.loads(pieces) == call.arguments


def test_arguments_that_cannot_be_wrapped_flow_at_once() -> None:
    events = [*decode(chunks(INNER, 1)[:-1], "openai-chat", TOOLS, healing=Healing())]
    assert sum(isinstance(event, ToolCallDelta) for event in events) >= len(INNER) - 4


@pytest.mark.parametrize("backslashes", range(6))
@pytest.mark.parametrize("control", [chr(code) for code in range(0x20)])
def test_a_control_character_after_any_number_of_backslashes_keeps_every_byte(control: str, backslashes: int) -> None:
    """An odd backslash before a raw control character is no escape of JSON: both stand for themselves."""
    raw = '{"command": "a ' + "\\" * backslashes + control + 'b"}'
    value = "a " + "\\" * (backslashes // 2 + backslashes % 2) + control + "b"
    for text in (raw, f"{raw}\n</tool_call>", "{}" + raw):
        for size in (1, 1000):
            turn = collect(decode(chunks(text, size), "openai-chat", TOOLS, healing=Healing()))
            assert [call.arguments for call in turn.tool_calls] == [{"command": value}]
    for form in ('{"name": "bash", "arguments": @}', '<tool_call>{"name": "bash", "arguments": @}</tool_call>'):
        frames = [{"choices": [{"index": 0, "delta": {"content": form.replace("@", raw)}, "finish_reason": "stop"}]}]
        turn = collect(decode(frames, "openai-chat", TOOLS, healing=Healing()))
        assert [call.arguments for call in turn.tool_calls] == [{"command": value}]


def test_an_object_with_many_fields_is_not_searched_for_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = f'{{"name": "bash", "arguments": {INNER}}}'
    for limit, expected in ((2, json.loads(INNER)), (1, json.loads(raw))):
        monkeypatch.setattr(calls, "MAX_WRAPPING", limit)
        turn = collect(decode(chunks(raw), "openai-chat", TOOLS, healing=Healing()))
        assert [call.arguments for call in turn.tool_calls] == [expected]
