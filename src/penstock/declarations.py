"""Tools as they are declared to a model, whatever shape they are given in."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from msgspec import Struct

from penstock.errors import UsageError

_SCHEMA_KEYS = ("parameters", "input_schema", "inputSchema", "parametersJsonSchema", "parameters_json_schema")


class ToolDeclaration(Struct, frozen=True):
    """A tool as a model is told of it: its name, what it does, and the JSON Schema of its arguments.

    `extra` holds what else the declaration said (`strict`, say), for providers that know it; a `custom` tool takes free
    text. `hosted` is the declaration of a tool that the provider runs itself, kept as it was given.
    """

    name: str
    description: str = ""
    parameters: Mapping[str, Any] = {}
    extra: Mapping[str, Any] = {}
    is_custom: bool = False
    hosted: Mapping[str, Any] | None = None


def read_declarations(tools: Iterable[Any] | None) -> list[ToolDeclaration]:
    """The tools, however they are given: names, functions, or declarations in any provider's shape."""
    if isinstance(tools, str | bytes | Mapping):
        raise UsageError(f"tools is one {type(tools).__name__}: give a list of tools")
    return [found for tool in tools or () for found in _read(tool)]


def tool_names(tools: Iterable[Any] | None) -> tuple[str, ...]:
    """The names of the tools."""
    return tuple(tool.name for tool in read_declarations(tools) if tool.name)


def _read(tool: Any) -> Iterator[ToolDeclaration]:
    """The tools that one declaration declares."""
    match tool:
        case ToolDeclaration():
            yield tool
        case object(declaration=ToolDeclaration() as known):  # one of our tools
            yield known
        case str():
            yield ToolDeclaration(tool)
        case {"type": "custom", "custom": Mapping() as inner} | {"custom": Mapping() as inner}:
            yield from (_named(inner, is_custom=True),)
        case {"function": Mapping() as inner} | {"toolSpec": Mapping() as inner}:
            yield from _read(inner)
        case {"functionDeclarations": list(inner)} | {"function_declarations": list(inner)}:
            for declaration in inner:
                yield from _read(declaration)
        case {"name": str()}:
            yield _named(tool, is_custom=tool.get("type") == "custom" and not any(key in tool for key in _SCHEMA_KEYS))
        case Mapping() if _says_what_it_is(tool):
            yield ToolDeclaration(str(tool.get("type") or ""), hosted=tool)
        case Mapping():
            raise UsageError(f"{dict(tool)!r} is no tool: a declaration has a name, or is one of a vendor's own tools")
        case _:
            yield from _object(tool)


def _says_what_it_is(tool: Mapping[str, Any]) -> bool:
    """Whether it is one of a vendor's own tools: its type says so, or its one field does, as Gemini's do."""
    kind = tool.get("type")
    if kind is not None:
        return isinstance(kind, str) and kind not in ("", "function", "custom")
    return len(tool) > 0 and all(isinstance(value, Mapping) for value in tool.values())


def _named(tool: Mapping[str, Any], *, is_custom: bool) -> ToolDeclaration:
    kind = tool.get("type")
    if isinstance(kind, str) and kind not in ("function", "custom") and not any(key in tool for key in _SCHEMA_KEYS):
        return ToolDeclaration(tool["name"], hosted=tool)
    schema: Any = next((tool[key] for key in _SCHEMA_KEYS if tool.get(key)), {})
    extra = {key: value for key, value in tool.items() if key not in ("name", "description", "type", *_SCHEMA_KEYS)}
    return ToolDeclaration(tool["name"], str(tool.get("description") or ""), _bare(schema), extra, is_custom)


def _bare(schema: Any) -> Mapping[str, Any]:
    match schema:
        case {"json": Mapping() as inner, **rest} if not rest:  # Bedrock wraps it
            return inner
        case Mapping():
            return schema
        case _:
            return {}


def _object(tool: Any) -> Iterator[ToolDeclaration]:
    """A function, or an object with a name and a schema: an SDK's tool, one of MCP, one of ours."""
    named: Any = getattr(tool, "name", None) or getattr(tool, "__name__", "")
    if not isinstance(named, str) or not named:
        raise UsageError(f"an object of type {type(tool).__name__} is no tool: give a function, or a declaration")
    described: Any = getattr(tool, "description", None) or getattr(tool, "__doc__", None) or ""
    schema: Any = next((found for key in _SCHEMA_KEYS if (found := getattr(tool, key, None))), {})
    yield ToolDeclaration(named, described if isinstance(described, str) else "", _bare(schema))
