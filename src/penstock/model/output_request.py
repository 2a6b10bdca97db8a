"""Requests for structured output: by a response format, a final tool (whose call becomes text), or the prompt."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import takewhile

from msgspec.structs import replace

from penstock.declarations import OutputDeclaration, ToolDeclaration
from penstock.events import (
    Finish,
    Opaque,
    Retry,
    StreamChunk,
    Text,
    ToolCall,
    ToolCallClosed,
    ToolCallDelta,
    ToolCallInvalid,
    ToolCallStart,
    Unknown,
)
from penstock.messages import Message, system
from penstock.providers import OUTPUT_FORMS
from penstock.wires import find_output_form
from penstock.wires.shared.request import OutputForm, Request

OUTPUT_TOOL = "final_output"
"""The final tool for output, where the provider has no response format."""

_DESCRIPTION = "Gives the final output, which ends the task. Call it once, alone, when you have everything you need."
_PROMPT = "Your final answer must be one JSON object that matches this JSON Schema, without any text around it:"


def output_tool(output: OutputDeclaration) -> ToolDeclaration:
    """The final tool."""
    described = f"{_DESCRIPTION}\n\n{output.description}" if output.description else _DESCRIPTION
    return ToolDeclaration(OUTPUT_TOOL, described, output.schema)


def with_prompt(messages: Sequence[Message], output: OutputDeclaration) -> list[Message]:
    """The messages with the schema after the system prompt, for models that would not see it otherwise."""
    first = list(takewhile(lambda message: message.role == "system", messages))
    prompt = system(f"{_PROMPT}\n{json.dumps(output.schema, ensure_ascii=False)}")
    return [*first, prompt, *messages[len(first) :]]


def ask_for_output(
    request: Request, output: OutputDeclaration, wire: str, quirks: frozenset[str]
) -> tuple[Request, OutputForm]:
    """The request for structured output, and the form of the output: the caller's or the wire's choice."""
    with_format = replace(request, output=output)
    chosen: OutputForm | None = next((OUTPUT_FORMS[quirk] for quirk in quirks if quirk in OUTPUT_FORMS), None)
    match form := chosen or find_output_form(wire)(with_format, quirks):
        case "native":
            return with_format, form
        case "grammar":
            return replace(with_format, messages=tuple(with_prompt(request.messages, output))), form
        case "tool":
            tools = (*request.tools, output_tool(output))
            return replace(request, tools=tools, tool_choice=_choice(request)), form
        case "prompt":
            return replace(request, messages=tuple(with_prompt(request.messages, output))), form


def _choice(request: Request) -> str:
    """The tool choice beside a final tool: the model must call a tool."""
    if request.tool_choice == "none" or not request.tools:
        return OUTPUT_TOOL
    return "required" if request.tool_choice in ("", "auto") else request.tool_choice


class OutputCall:
    """A stage: the arguments of the first call of the final tool become text, and other calls pass unchanged.

    The history has the output as the answer of the model, so that it is valid for every provider and the same for every
    form of output.
    """

    def __init__(self) -> None:
        self._reset()

    def _reset(self) -> None:
        self._blocks: set[tuple[int, int]] = set()  # calls of the final tool, by choice and block
        self._written: dict[int, int] = {}  # the block of the output by choice
        self._with_pieces: set[int] = set()  # the choices in which pieces of it have come
        self._with_calls: set[int] = set()  # the choices with other calls

    def feed(self, chunk: StreamChunk) -> list[StreamChunk]:
        match chunk:
            case ToolCallStart(name=name) if name == OUTPUT_TOOL:
                self._open(chunk)
                return []
            case ToolCallDelta() if (chunk.choice, chunk.block) in self._blocks:
                return self._text(chunk, chunk.piece) if self._is_first(chunk) else []
            case ToolCall(name=name) | ToolCallInvalid(name=name) if name == OUTPUT_TOOL:
                return self._whole(chunk)
            case ToolCallClosed() | Opaque() if (chunk.choice, chunk.block) in self._blocks:
                return []
            case ToolCall() | ToolCallInvalid():
                self._with_calls.add(chunk.choice)
            case Finish(reason="tool_calls") if chunk.choice in self._written and chunk.choice not in self._with_calls:
                return [replace(chunk, reason="stop")]
            case Retry():
                self._reset()
            case _:
                pass
        return [chunk]

    def close(self) -> list[StreamChunk]:
        return []

    def _open(self, chunk: ToolCallStart | ToolCall | ToolCallInvalid) -> None:
        self._blocks.add((chunk.choice, chunk.block))
        self._written.setdefault(chunk.choice, chunk.block)

    def _is_first(self, chunk: ToolCallDelta | ToolCall | ToolCallInvalid) -> bool:
        return self._written[chunk.choice] == chunk.block

    def _text(self, chunk: ToolCallDelta | ToolCall | ToolCallInvalid, text: str) -> list[StreamChunk]:
        self._with_pieces.add(chunk.choice)
        return [Text(chunk.block, text, chunk.choice)]

    def _whole(self, call: ToolCall | ToolCallInvalid) -> list[StreamChunk]:
        """The end of a call: its arguments, if they did not come in pieces."""
        self._open(call)
        if not self._is_first(call):
            return [Unknown({"name": call.name, "arguments": call.arguments_raw}, "a second call of the final tool")]
        return [] if call.choice in self._with_pieces else self._text(call, call.arguments_raw)
