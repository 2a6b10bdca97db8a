"""Templates for tool lists, calls and results. Most dialects differ only in these.

Templates are formatted with `str.format`: a literal brace is doubled.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from penstock.declarations import FREE_TEXT, ToolDeclaration
from penstock.dialects.prompts.escaping import escaped, escaped_json, result_marks
from penstock.events import ToolCall
from penstock.messages import ToolResult

# -- values --------------------------------------------------------------------------------------------------------


def to_json(value: Any) -> str:
    """Returns the value as JSON on one line."""
    return json.dumps(value, ensure_ascii=False, default=dict)


_ENDS = re.compile(r"<[/|]|\]<\]")


def raw(value: Any) -> str:
    """Returns text unchanged, and anything else as JSON in which nothing can be taken for an end tag."""
    if isinstance(value, str):
        return value
    text = to_json(value)
    return text.replace("<", "\\u003c") if _ENDS.search(text) else text


def type_of(value: Any) -> str:
    """Returns the JSON Schema type of a value."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int() | float():
            return "number"
        case str():
            return "string"
        case Mapping():
            return "object"
        case _:
            return "array"


# -- tools ---------------------------------------------------------------------------------------------------------

NO_ARGUMENTS: Mapping[str, Any] = {"type": "object", "properties": {}}


def schema_of(tool: ToolDeclaration) -> Mapping[str, Any]:
    """Returns the schema of a tool's arguments; a custom tool has one argument, `input`."""
    return FREE_TEXT if tool.is_custom else tool.parameters or NO_ARGUMENTS


class Listing(Struct, frozen=True):
    """A template for a list of tools.

    The template of a `tool` may use {name}, {description}, {schema}, the whole declaration as {json}, and {function},
    the declaration as most chat templates list it.
    """

    tool: str = "{function}"
    tools: str = "<tools>\n{tools}\n</tools>"
    between: str = "\n"

    def __call__(self, tools: Sequence[ToolDeclaration]) -> str:
        return self.tools.format(tools=self.between.join(map(self._tool, tools)))

    def _tool(self, tool: ToolDeclaration) -> str:
        schema = schema_of(tool)
        declaration = {"name": tool.name, "description": tool.description, "parameters": schema}
        return self.tool.format(
            name=tool.name,
            description=tool.description,
            schema=to_json(schema),
            json=to_json(declaration),
            function=to_json({"type": "function", "function": declaration}),
        )


# -- calls ---------------------------------------------------------------------------------------------------------


def call_id(call: ToolCall, _: int) -> str:
    return call.id


class Calls(Struct, frozen=True, kw_only=True):
    """A template for the calls of a message.

    The template of a `call` may use {name}, {id}, {number}, {arguments} (JSON) and {parameters}. Each parameter is
    formatted with `parameter`, which may use {key}, {value}, {type} and {is_string}; `comma` separates them. `special`
    are templates for certain keys.
    """

    call: str
    calls: str = "{calls}"
    between: str = "\n"
    parameter: str = ""
    special: Mapping[str, str] = {}
    comma: str = ""
    value: Callable[[Any], str] = raw
    id: Callable[[ToolCall, int], str] = call_id

    def __call__(self, calls: Sequence[ToolCall]) -> str:
        texts = (self._call(call, index) for index, call in enumerate(calls))
        return self.calls.format(calls=self.between.join(texts))

    def _call(self, call: ToolCall, index: int) -> str:
        parameters = self.comma.join(self._parameter(key, value) for key, value in call.arguments.items())
        return self.call.format(
            name=call.name,
            id=self.id(call, index),
            number=index + 1,
            arguments=arguments_of(call),
            parameters=parameters,
        )

    def _parameter(self, key: str, value: Any) -> str:
        is_string = "true" if isinstance(value, str) else "false"
        template = self.special.get(key, self.parameter)
        return template.format(key=key, value=self.value(value), type=type_of(value), is_string=is_string)


def arguments_of(call: ToolCall) -> str:
    """Returns the JSON of the arguments, as the model wrote it if that is known."""
    raw = call.arguments_raw.strip()
    return raw if raw and call.kind != "custom" else to_json(call.arguments)


# -- results -------------------------------------------------------------------------------------------------------


def result_id(result: ToolResult, _: int) -> str:
    return result.call_id


class Results(Struct, frozen=True, kw_only=True):
    """A template for the results of a turn.

    The template of a `result` may use {name}, {id}, {index}, {text} and {quoted}, the text as a JSON string. Without a
    template for an `error`, its text begins with "Error: ". Marks of the templates are escaped in the text, so that it
    cannot forge another result; `headings` are patterns of those that are not tags (see `escaping`).
    """

    result: str
    error: str = ""
    results: str = "{results}"
    between: str = "\n"
    id: Callable[[ToolResult, int], str] = result_id
    headings: tuple[str, ...] = ()

    def __call__(self, results: Sequence[ToolResult]) -> str:
        marks = result_marks(self.result, self.error, self.results, headings=self.headings)
        texts = (self._result(result, index, marks) for index, result in enumerate(results))
        return self.results.format(results=self.between.join(texts))

    def _result(self, result: ToolResult, index: int, marks: re.Pattern[str]) -> str:
        text, template = result.text, self.result
        if result.is_error:
            text, template = (text, self.error) if self.error else (f"Error: {text}", template)
        return template.format(
            name=result.name,
            id=self.id(result, index),
            index=index,
            text=escaped(text, marks),
            quoted=escaped_json(to_json(text), marks),
        )


# -- shared templates ----------------------------------------------------------------------------------------------

JSON_LIST = Listing(tool="{json}", tools="[{tools}]", between=", ")
FUNCTION_LIST = Listing(tools="[{tools}]", between=", ")
MARKDOWN = Listing(
    tool="### {name}\nDescription: {description}\nParameters: {schema}", tools="## Tools\n\n{tools}", between="\n\n"
)
IN_WORDS = Results(
    result="Result of {name}:\n<result>\n{text}\n</result>",
    error="Error of {name}:\n<result>\n{text}\n</result>",
    between="\n\n",
)
"""For dialects in which results have no marks, or their format is not known."""
TOOL_RESPONSE = Results(result="<tool_response>\n{text}\n</tool_response>")

JSON_RULE = 'The arguments are a JSON object: text in double quotes, a line break in it as \\n, a quote as \\".'
RAW_RULE = "Write text as it is: no quotes around it, nothing escaped. Write all other values as JSON."
