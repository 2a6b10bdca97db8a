"""Parts of request bodies that several wires share: options, tools, merged fields."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from penstock.declarations import FREE_TEXT, ToolDeclaration
from penstock.errors import UsageError
from penstock.wires.shared.encode_request.openapi_schemas import json_schema
from penstock.wires.shared.request import OPTIONS, Request

Json = dict[str, Any]
GRAMMAR = "Pass the text as the argument `input`. It must match this {syntax} grammar:\n{definition}"
"""Describes the free text of a tool, where it is declared as a function: only its own provider enforces a grammar."""


def merge(body: Mapping[str, Any], extra: Mapping[str, Any]) -> Json:
    """The body with the caller's fields; objects that are in both are merged."""
    result = dict(body)
    for key, value in extra.items():
        old = result.get(key)
        result[key] = merge(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return result


def rename_options(request: Request, names: Mapping[str, str]) -> Json:
    """The options under the provider's names; `stop` becomes a list.

    Options that the provider does not have are left out; an option that is not in `OPTIONS` raises.
    """
    for name in request.options:
        if name not in OPTIONS:
            raise UsageError(f"unknown option {name!r}; pass options that only this provider has in extra=")
    options = {name: request.options[name] for name in names if request.options.get(name) is not None}
    if isinstance(options.get("stop"), str):
        options["stop"] = [options["stop"]]
    return {names[name]: value for name, value in options.items()}


def missing_options(request: Request, *names: str) -> list[str]:
    """The options of a request that are not among these names."""
    return [name for name, value in request.options.items() if value is not None and name not in names]


def missing_switch(request: Request) -> list[str]:
    """The switch for parallel calls, if a request turns them off: for providers that cannot."""
    return ["parallel_tool_calls"] if request.tools and request.is_parallel is False else []


def cache_lifetime(request: Request) -> Json | None:
    """The `ttl` of the prompt cache that a request asks for, empty if it is the usual one; None if it asks for none."""
    cache = request.options.get("cache")
    return ({"ttl": cache} if isinstance(cache, str) and cache != "5m" else {}) if cache else None


def object_schema(tool: ToolDeclaration) -> Json:
    """The schema of a tool's arguments, always an object; free text is the argument `input`."""
    return FREE_TEXT if tool.is_custom else {"properties": {}, **json_schema(tool.parameters), "type": "object"}


def grammar_of(tool: ToolDeclaration) -> Json:
    """The `syntax` and `definition` of a custom tool's grammar, which has two forms; empty if it has none."""
    format: Any = tool.extra.get("format") if tool.is_custom else None
    match format.get("grammar", format) if isinstance(format, Mapping) else None:
        case {"syntax": str(syntax), "definition": str(definition)}:
            return {"syntax": syntax, "definition": definition}
        case _:
            return {}


def function_description(tool: ToolDeclaration) -> Json:
    """The description of a tool that is declared as a function; a custom tool's includes its grammar."""
    texts = [tool.description] if tool.description else []
    if grammar := grammar_of(tool):
        texts.append(GRAMMAR.format(**grammar))
    return {"description": "\n\n".join(texts)} if texts else {}


def pick_fields(fields: Mapping[str, Any], names: Iterable[str]) -> Json:
    """The fields of these names that are not null."""
    return {name: fields[name] for name in names if fields.get(name) is not None}


def chosen_tool(request: Request) -> ToolDeclaration | None:
    """The tool that the request requires by name; None if the choice is a mode or left to the provider."""
    if request.tool_choice in ("", "auto", "none", "required"):
        return None
    for tool in request.tools:
        if tool.name == request.tool_choice:
            return tool
    names = ", ".join(tool.name for tool in request.tools) or "there are none"
    raise UsageError(
        f"tool_choice {request.tool_choice!r} is neither auto, none, required nor a declared tool ({names})"
    )
