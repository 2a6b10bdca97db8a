"""Requests for structured output: by a response format, a final tool, or the prompt."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import takewhile

from msgspec.structs import replace

from penstock.declarations import OutputDeclaration, ToolDeclaration
from penstock.messages import Message, system
from penstock.providers import OUTPUT_FORMS
from penstock.wires import find_output_form
from penstock.wires.shared.request import OutputForm, Request

OUTPUT_TOOL = "final_output"
"""The tool by which a model gives its output where the provider has no response format for it."""

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
