"""Calls as servers and models damage them × protocols, streamed or not: `python -m tests.healing.forms` prints a table.

A cell says how many of the two ways (a stream, a whole body) give exactly the intended call.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from penstock import (
    Finish,
    Healing,
    Reasoning,
    StreamChunk,
    Text,
    ToolCall,
    ToolCallDelta,
    ToolCallInvalid,
    ToolCallStart,
    collect,
    decode,
)
from penstock.calls.arguments import strict_object
from tests.healing.rescue_corpus import ARGUMENTS, FORMS, TOOL
from tests.round_trip import PROTOCOLS, encode_stream, encode_whole

SCHEMA = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}
TOOLS = [{"type": "function", "function": {"name": TOOL, "parameters": SCHEMA}}]
RAW = json.dumps(ARGUMENTS)
HERMES = f'<tool_call>\n{{"name": "bash", "arguments": {RAW}}}\n</tool_call>'

IN_TEXT = {
    **FORMS,
    "hermes": HERMES,
    "<atem:…>": '<atem:function_calls>\n<atem:invoke name="bash">\n<atem:parameter name="command">ls -la'
    "</atem:parameter>\n</atem:invoke>\n</atem:function_calls>",
    "qwen XML": "<tool_call>\n<function=bash>\n<parameter=command>\nls -la\n</parameter>\n</function>\n</tool_call>",
    "qwen XML without </tool_call>": "<tool_call>\n<function=bash>\n<parameter=command>\nls -la\n</parameter>\n"
    "</function>",
    "qwen XML without </function>": "<tool_call>\n<function=bash>\n<parameter=command>\nls -la\n</parameter>\n",
    "name()": json.dumps({"name": "bash()", "arguments": ARGUMENTS}),
}
"""The call in the text."""

IN_ARGUMENTS = {
    "{} first": "{}" + RAW,
    "</tool_call> after": f"{RAW}\n</tool_call>",
    "</function> after": f"{RAW}</function>",
    "<|im_end|> after": f"{RAW}<|im_end|>",
    "fence after": f"{RAW}\n```",
    "arguments in arguments": json.dumps({"arguments": ARGUMENTS}),
    "arguments in parameters": json.dumps({"parameters": ARGUMENTS}),
    "arguments in a string": json.dumps({"arguments": RAW}),
    "call object": json.dumps({"name": TOOL, "arguments": ARGUMENTS}),
    "OpenAI call object": json.dumps({"id": "1", "type": "function", "function": {"name": TOOL, "arguments": RAW}}),
}
"""The arguments of a native call."""

NAMES = {"Bash": "Bash", "BASH": "BASH", "bash()": "bash()", "functions.bash:0": "functions.bash:0"}
"""The name of a native call."""

WITH_TEXT_ARGUMENTS = ("openai-chat", "openai-responses", "anthropic")
"""The protocols whose arguments are text, so that they can be damaged."""


def native(name: str, raw: str) -> Iterator[StreamChunk]:
    yield ToolCallStart(0, "call_1", name)
    for place in range(0, len(raw), 7):
        yield ToolCallDelta(0, raw[place : place + 7])
    arguments = strict_object(raw)
    if arguments is None:
        yield ToolCallInvalid(0, "call_1", name, raw, "malformed", "")
    else:
        yield ToolCall("call_1", name, arguments, raw)
    yield Finish("tool_calls")


def cases() -> dict[str, list[StreamChunk]]:
    """The responses by name."""
    found: dict[str, list[StreamChunk]] = {}
    for form, text in IN_TEXT.items():
        pieces = [text[place : place + 5] for place in range(0, len(text), 5)]
        found[f"text: {form}"] = [*(Text(0, piece) for piece in ("Let me look.\n", *pieces)), Finish("stop")]
    found["reasoning: hermes"] = [Reasoning(0, "I look. "), Reasoning(0, HERMES), Finish("stop")]
    for form, raw in IN_ARGUMENTS.items():
        found[f"arguments: {form}"] = [*native(TOOL, raw)]
    for form, name in NAMES.items():
        found[f"name: {form}"] = [*native(name, RAW)]
    return found


def is_right(wire: Any, body: bytes) -> bool:
    pieces = [body[place : place + 11] for place in range(0, len(body), 11)]
    turn = collect(decode(pieces, wire, TOOLS, healing=Healing(reasoning_calls=True)))
    return [(call.name, call.arguments) for call in turn.tool_calls] == [(TOOL, ARGUMENTS)]


def cell(events: Sequence[StreamChunk], protocol: str) -> str:
    """How many ways are right; "" if the protocol cannot carry this damage."""
    if ToolCallInvalid in map(type, events) and protocol not in WITH_TEXT_ARGUMENTS:
        return ""
    bodies = [encode_stream(protocol, events), encode_whole(protocol, events).body]
    return f"{sum(is_right(protocol, body) for body in bodies)}/2"


def table() -> dict[str, dict[str, str]]:
    """The cells by case and protocol."""
    return {case: {one: cell(events, one) for one in PROTOCOLS} for case, events in cases().items()}


def main() -> Iterator[str]:
    yield f"| case | {' | '.join(PROTOCOLS)} |"
    yield "|---|" + "--:|" * len(PROTOCOLS)
    for case, cells in table().items():
        yield f"| {case} | {' | '.join(cells.values())} |"


if __name__ == "__main__":
    for line in main():
        print(line)  # noqa: T201
