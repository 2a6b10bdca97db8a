"""Declarations of tools, read from those of any provider, SDK or function, and of an output."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any, NoReturn

from msgspec import Struct

from penstock.errors import UsageError, type_name

FUNCTIONS = (FunctionType, BuiltinFunctionType, MethodType, partial)
"""What is a function, whatever attributes it has."""

FREE_TEXT: dict[str, Any] = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}
"""The schema of the arguments of a custom tool, where it has to be declared as a function."""
_HOLDERS = frozenset({"custom", "function", "toolSpec", "functionDeclarations", "function_declarations"})
"""The fields of a declaration that hold another one."""
_SCHEMA_KEYS = ("parameters", "input_schema", "inputSchema", "parametersJsonSchema", "parameters_json_schema")
_OWN_KEYS = frozenset({"name", "description", "type", *_SCHEMA_KEYS})


class ToolDeclaration(Struct, frozen=True):
    """A tool as it is declared to a model: its name, its description, and the JSON Schema of its arguments.

    `extra` holds the other fields of the declaration (such as `strict`), for providers that support them. A custom tool
    takes free text. `hosted` is the original declaration of a tool that the provider runs.
    """

    name: str
    description: str = ""
    parameters: Mapping[str, Any] = {}
    extra: Mapping[str, Any] = {}
    is_custom: bool = False
    hosted: Mapping[str, Any] | None = None


class OutputDeclaration(Struct, frozen=True, eq=False):
    """The output that a model is asked for: the JSON Schema of an object, its name, and its description.

    It is compared by identity, so that what is derived from it can be kept.
    """

    name: str
    schema: Mapping[str, Any]
    description: str = ""


def read_declarations(tools: Iterable[Any] | None) -> list[ToolDeclaration]:
    """Reads tools: names, objects with a name and a schema, or declarations in any provider's format.

    Of a function it reads the name and the docstring; `tools.declare` also reads the types of its parameters.
    """
    check_tool_list(tools)
    declarations: list[ToolDeclaration] = []
    for tool in tools or ():
        if type(tool) is ToolDeclaration:  # first, as most have been read before
            declarations.append(tool)
        else:
            declarations += _read(tool)
    return declarations


def check_tool_list(tools: object) -> None:
    """Raises if `tools` is not a list of tools, for example a single function."""
    if tools is not None and not is_tool_list(tools):
        raise UsageError(f"tools must be a list of tools, not {type_name(tools)}")


def is_tool_list(tools: object) -> bool:
    """Whether this can be a list of tools: any iterable but a string or a mapping."""
    is_list = type(tools) in (list, tuple)  # first, as the other check is slow
    return is_list or (isinstance(tools, Iterable) and not isinstance(tools, str | bytes | Mapping))


def tool_names(tools: Iterable[Any] | None) -> tuple[str, ...]:
    """The names of the tools."""
    return tuple(tool.name for tool in read_declarations(tools) if tool.name)


def _read(tool: Any) -> Iterable[ToolDeclaration]:
    """The tools in one declaration, which may hold several."""
    if type(tool) is dict and isinstance(tool.get("name"), str) and _HOLDERS.isdisjoint(tool):
        return (_read_named(tool),)
    if type(tool) is dict and type(inner := tool.get("function")) is dict and "custom" not in tool:
        return _read(inner) if "name" in inner else _refuse(tool)
    return _read_any(tool)


def _read_any(tool: Any) -> Iterator[ToolDeclaration]:
    """`_read` for tools of all kinds. It is the reference: `_read` tells the most frequent ones apart in less time."""
    match tool:
        case ToolDeclaration():
            yield tool
        case object(declaration=ToolDeclaration() as declaration):  # a Tool
            yield declaration
        case str():
            yield ToolDeclaration(tool)
        case {"type": "custom", "custom": Mapping() as inner} | {"custom": Mapping() as inner}:
            yield _named(inner, is_custom=True) if isinstance(inner.get("name"), str) else _refuse(tool)
        case {"function": Mapping() as inner} | {"toolSpec": Mapping() as inner}:
            yield from _read(inner) if "name" in inner else _refuse(tool)
        case {"functionDeclarations": list(inner)} | {"function_declarations": list(inner)}:
            for declaration in inner:
                yield from _read(declaration)
        case {"name": str()}:
            yield _read_named(tool)
        case Mapping() if _is_hosted(tool):
            yield ToolDeclaration(str(tool.get("server_label") or tool.get("type") or ""), hosted=tool)
        case Mapping():
            _refuse(tool)
        case _:
            yield from _object(tool)


def _refuse(tool: Mapping[str, Any]) -> NoReturn:
    raise UsageError(f"{dict(tool)!r} is not a tool declaration: it has neither a name nor the type of a hosted tool")


def _is_hosted(tool: Mapping[str, Any]) -> bool:
    """Whether the provider runs the tool: by its type, or, as in Gemini's declarations, by its only field."""
    kind = tool.get("type")
    if kind is not None:
        return isinstance(kind, str) and kind not in ("", "function", "custom")
    return len(tool) > 0 and all(isinstance(value, Mapping) for value in tool.values())


def _read_named(tool: Mapping[str, Any]) -> ToolDeclaration:
    is_custom = tool.get("type") == "custom" and not any(key in tool for key in _SCHEMA_KEYS)
    return _named(tool, is_custom=is_custom)


def _named(tool: Mapping[str, Any], *, is_custom: bool) -> ToolDeclaration:
    kind = tool.get("type")
    if isinstance(kind, str) and kind not in ("function", "custom") and not any(key in tool for key in _SCHEMA_KEYS):
        return ToolDeclaration(tool["name"], hosted=tool)
    schema: Any = next((tool[key] for key in _SCHEMA_KEYS if tool.get(key)), {})
    if not isinstance(schema, Mapping):
        raise UsageError(f"the schema of the tool {tool['name']!r} must be a dict, not {type_name(schema)}")
    extra = {key: value for key, value in tool.items() if key not in _OWN_KEYS}
    return ToolDeclaration(tool["name"], str(tool.get("description") or ""), _unwrap(schema), extra, is_custom)


def _unwrap(schema: Any) -> Mapping[str, Any]:
    match schema:
        case {"json": Mapping() as inner, **rest} if not rest:  # Bedrock's form
            return inner
        case Mapping():
            return schema
        case _:
            return {}


def function_name(function: Any) -> Any:
    """The name of a function, or of the function of a partial."""
    return function_name(function.func) if isinstance(function, partial) else getattr(function, "__name__", "")


def _object(tool: Any) -> Iterator[ToolDeclaration]:
    """A function, or an object with a name and a schema, such as the tool of an SDK or of MCP."""
    name: Any = function_name(tool) if isinstance(tool, FUNCTIONS) else getattr(tool, "name", None)
    if not name and callable(tool):
        name = getattr(tool, "__name__", None) or type(tool).__name__
    if not isinstance(name, str) or not name:
        raise UsageError(f"an object of type {type(tool).__name__} is not a tool: use a function or a declaration")
    description: Any = getattr(tool, "description", None) or getattr(tool, "__doc__", None) or ""
    schema: Any = next((value for key in _SCHEMA_KEYS if (value := getattr(tool, key, None))), {})
    yield ToolDeclaration(name, description if isinstance(description, str) else "", _unwrap(schema))
