"""Raw control characters in strings of arguments, after any number of backslashes: the value keeps what was written.

JSON has no escape of a backslash and a control character, so both stand for themselves. Pairs of backslashes before
them are escapes, and stand for one backslash each.
"""

from __future__ import annotations

import asyncio
import json

import pytest

import penstock
from penstock import PartialJSON, ToolCall, ToolCallInvalid
from penstock.gateway import Healing
from penstock.healing.repairs import CONTROL, PYTHON, repair_arguments
from penstock.testing import Raw
from tests.asgi_client import serving
from tests.gateways import TOOLS, chat, delta, events, gateway, sse, tool_call, upstream

CONTROLS = [chr(code) for code in range(0x20)]
PARITIES = range(6)
WRITTEN = [("\\" * count + sign, "\\" * (count - count // 2) + sign) for sign in CONTROLS for count in PARITIES]
"""What a model writes inside a string, and the value that it stands for."""
ALL_WRITTEN = " b\\n ".join(written for written, _ in WRITTEN)
ALL_MEANT = " b\n ".join(meant for _, meant in WRITTEN)


def invalid_of(raw: str) -> ToolCallInvalid:
    body = sse(delta(tool_calls=[tool_call(raw)]), delta("tool_calls"))
    [call] = penstock.collect(penstock.decode(body, wire="openai-chat")).invalid_calls
    return call


@pytest.mark.parametrize(("written", "meant"), WRITTEN)
def test_a_damaged_call_is_reported_with_every_character_that_the_model_wrote(written: str, meant: str) -> None:
    for raw, arguments in (
        (f'{{"command": "echo a {written} b"}}', {"command": f"echo a {meant} b"}),
        (f'{{"command": ["{written}"]}}', {"command": [meant]}),
        (f'{{"a{written}": 1}}', {f"a{meant}": 1}),
    ):
        call = invalid_of(raw)
        assert (call.why, call.arguments_raw, call.repaired) == ("control_characters", raw, arguments)
        for mode in ("safe", "guess"):
            repaired = repair_arguments(call, mode)
            assert repaired is not None
            assert (repaired.arguments, repaired.quirks) == (arguments, (CONTROL,))
            assert json.loads(repaired.text) == arguments


@pytest.mark.parametrize(("written", "meant"), WRITTEN)
def test_a_guess_keeps_every_character_in_strings_of_python(written: str, meant: str) -> None:
    call = invalid_of(f"{{'command': 'echo a {written} b', \"x\": \"{written}\", 'is_it': True}}")
    repaired = repair_arguments(call, "guess")
    assert repaired is not None
    assert repaired.arguments == {"command": f"echo a {meant} b", "x": meant, "is_it": True}
    assert PYTHON in repaired.quirks
    assert repair_arguments(call, "safe") is None


@pytest.mark.parametrize(("written", "meant"), WRITTEN)
def test_the_partial_view_keeps_every_character_however_the_text_is_cut(written: str, meant: str) -> None:
    text = f'{{"k{written}": "a{written}b", "x": "{written}"}}'
    for cut in range(len(text) + 1):
        view = PartialJSON()
        view.feed(text[:cut])
        view.feed(text[cut:])
        assert (view.value, view.is_complete, view.error) == ({f"k{meant}": f"a{meant}b", "x": meant}, True, "")


def test_a_cut_call_is_cut_wherever_it_ends() -> None:
    raw = f'{{"command": "{ALL_WRITTEN}"}}'
    assert {invalid_of(raw[:size]).why for size in range(1, len(raw))} == {"cut"}


@pytest.mark.parametrize("form", ["object", "string"])
def test_a_call_in_the_text_keeps_every_character(form: str) -> None:
    arguments = f'{{"command": "{ALL_WRITTEN}"}}'
    if form == "string":  # its own control characters stay raw
        arguments = '"' + arguments.replace("\\", "\\\\").replace('"', '\\"') + '"'
    text = f'<tool_call>{{"name": "shell", "arguments": {arguments}}}</tool_call>'
    for pieces in ([text], list(text)):
        parser = penstock.TextParser("hermes", tools=TOOLS)
        found = [event for piece in pieces for event in parser.feed(piece)] + parser.close()
        [call] = [event for event in found if isinstance(event, ToolCall | ToolCallInvalid)]
        assert isinstance(call, ToolCallInvalid)
        assert (call.why, call.repaired) == ("control_characters", {"command": ALL_MEANT})


def test_a_backslash_before_a_control_character_of_a_wrapping_string_stands_for_itself() -> None:
    text = '<tool_call>{"name": "shell", "arguments": "{\\"command\\": \\"a \\\n b\\"}"}</tool_call>'
    parser = penstock.TextParser("hermes", tools=TOOLS)
    [call] = [event for event in [*parser.feed(text), *parser.close()] if isinstance(event, ToolCallInvalid)]
    assert (call.why, call.repaired) == ("control_characters", {"command": "a \\\n b"})


@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_the_client_of_a_gateway_gets_every_character(size: int) -> None:
    raw = f'{{"command": "echo a \\\n b", "all": "{ALL_WRITTEN}"}}'
    pieces = [raw[start : start + size] for start in range(0, len(raw), size)]
    body = sse(
        delta(tool_calls=[tool_call(pieces[0])]),
        *(delta(tool_calls=[{"index": 0, "function": {"arguments": piece}}]) for piece in pieces[1:]),
        delta("tool_calls"),
    )

    async def arguments() -> str:
        async with serving(gateway(upstream([Raw(body)]), healing=Healing())) as browser:
            reply = await browser.post("/v1/chat/completions", chat(tools=TOOLS))
        return "".join(
            call["function"]["arguments"]
            for event in events(reply.body)
            for choice in event["choices"]
            for call in choice["delta"].get("tool_calls", ())
        )

    assert json.loads(asyncio.run(arguments())) == {"command": "echo a \\\n b", "all": ALL_MEANT}
