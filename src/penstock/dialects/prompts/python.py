"""Prompts for dialects with calls in Python syntax: `f(k=LITERAL, …)`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from penstock.dialects.prompt import Prompt
from penstock.dialects.prompts.escaping import escaped, result_marks
from penstock.dialects.prompts.listings import python_stubs
from penstock.dialects.prompts.templates import IN_WORDS, JSON_LIST, Calls, Listing, to_json
from penstock.dialects.reading.code_spans import FENCE
from penstock.messages import ToolResult

RULE = (
    "Name every argument. Write values as Python literals: text in double quotes with a line break as \\n; True, None."
)


def literal(value: Any) -> str:
    """Returns a value as a Python literal."""
    match value:
        case None | bool():
            return str(value)
        case Mapping():
            return "{" + ", ".join(f"{to_json(key)}: {literal(item)}" for key, item in value.items()) + "}"
        case list() | tuple():
            return "[" + ", ".join(map(literal, value)) + "]"
        case _:
            return to_json(value)


def _calls(calls: str, between: str = ", ") -> Calls:
    return Calls(
        calls=calls,
        call="{name}({parameters})",
        between=between,
        parameter="{key}={value}",
        comma=", ",
        value=literal,
    )


def tool_output(results: Sequence[ToolResult]) -> str:
    """Returns the results, each in a code fence that is longer than any fence in it."""
    return "\n".join(map(_output, results))


def _output(result: ToolResult) -> str:
    text = escaped(f"Error: {result.text}" if result.is_error else result.text, _MARKS)
    longest = max(map(len, re.findall("`+", text)), default=0)
    fence = max(FENCE, "`" * (longest + 1))
    return f"{fence}tool_output\n{text}\n{fence}"


_MARKS = result_marks(headings=(r"`(?=`{2,}\s*tool_output)",))

PROMPTS = {
    "gemma_tool_code": Prompt(
        listing=python_stubs,
        calls=_calls("```tool_code\n{calls}\n```", "\n"),
        results=tool_output,
        rules=(RULE,),
        stop=("\n```tool_output",),
    ),
    "pythonic": Prompt(
        listing=JSON_LIST,
        calls=_calls("[{calls}]"),
        results=IN_WORDS,
        rules=(RULE, "If you call tools, write nothing but the calls."),
    ),
    "lfm2": Prompt(
        listing=Listing(tool="{json}", tools="List of tools: [{tools}]", between=", "),
        calls=_calls("<|tool_call_start|>[{calls}]<|tool_call_end|>"),
        results=IN_WORDS,
        rules=(RULE,),
    ),
    "olmo3": Prompt(
        listing=Listing(tool="{json}", tools="<functions>[{tools}]</functions>", between=", "),
        calls=_calls("<function_calls>{calls}</function_calls>", "\n"),
        results=IN_WORDS,
        rules=(RULE,),
    ),
}
