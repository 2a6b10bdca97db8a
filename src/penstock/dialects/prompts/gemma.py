"""Prompts for dialects with calls as `call:N{k:…}`, and a special token for quotes."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from penstock.declarations import ToolDeclaration
from penstock.dialects.prompt import Prompt
from penstock.dialects.prompts.escaping import escaped, result_marks
from penstock.dialects.prompts.templates import Calls, schema_of, to_json
from penstock.messages import ToolResult

_PLAIN_KEY = re.compile(r"""[^:={}\[\],<"'\s]+\Z""")


def write(quote: str, value: Any) -> str:
    """Returns a value in the notation of the dialect: text between quote tokens, objects with bare keys."""
    match value:
        case str():
            return f"{quote}{value}{quote}"
        case Mapping():
            items = (f"{_key(quote, key)}:{write(quote, item)}" for key, item in value.items())
            return "{" + ",".join(items) + "}"
        case list() | tuple():
            return "[" + ",".join(write(quote, item) for item in value) + "]"
        case _:
            return to_json(value)


def _key(quote: str, key: str) -> str:
    return key if _PLAIN_KEY.match(key) else f"{quote}{key}{quote}"


def listing(opens: str, closes: str, quote: str) -> Callable[[Sequence[ToolDeclaration]], str]:
    """Returns a function that lists tools: `declaration:N{description:…,parameters:…}` each, between two marks."""

    def list_tools(tools: Sequence[ToolDeclaration]) -> str:
        return "\n".join(f"{opens}declaration:{tool.name}{_declaration(quote, tool)}{closes}" for tool in tools)

    return list_tools


def _declaration(quote: str, tool: ToolDeclaration) -> str:
    return write(quote, {"description": tool.description, "parameters": schema_of(tool)})


def results(opens: str, closes: str, quote: str) -> Callable[[Sequence[ToolResult]], str]:
    """Returns a function that lists results: `response:N{value:…}` each, between two marks."""

    def list_results(results: Sequence[ToolResult]) -> str:
        return "".join(f"{opens}response:{result.name}{_response(quote, result)}{closes}" for result in results)

    return list_results


def _response(quote: str, result: ToolResult) -> str:
    return write(quote, {"error" if result.is_error else "value": escaped(result.text, _MARKS)})


_MARKS = result_marks()


def _prompt(call: tuple[str, str], tool: tuple[str, str], response: tuple[str, str], quote: str) -> Prompt:
    template = f"{call[0]}call:{{name}}{{{{{{parameters}}}}}}{call[1]}"
    return Prompt(
        listing=listing(*tool, quote),
        calls=Calls(call=template, between="", parameter="{key}:{value}", comma=",", value=partial(write, quote)),
        results=results(*response, quote),
        rules=(f"Write text as it is between {quote} and {quote}, and keys without quotes.",),
    )


PROMPTS = {
    "gemma4": _prompt(
        ("<|tool_call>", "<tool_call|>"),
        ("<|tool>", "<tool|>"),
        ("<|tool_response>", "<tool_response|>"),
        '<|"|>',
    ),
    "functiongemma": _prompt(
        ("<start_function_call>", "<end_function_call>"),
        ("<start_function_declaration>", "<end_function_declaration>"),
        ("<start_function_response>", "<end_function_response>"),
        "<escape>",
    ),
}
