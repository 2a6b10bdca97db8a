"""Lists of tools as TypeScript types, as Python functions, or as nested tags."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from penstock.declarations import ToolDeclaration
from penstock.dialects.prompts.templates import schema_of, to_json

Schema = Mapping[str, Any]


def properties_of(schema: Schema) -> Iterator[tuple[str, Schema, bool]]:
    """Yields the properties of an object: name, schema, and whether it is required."""
    required = schema.get("required") or ()
    for name, inner in (schema.get("properties") or {}).items():
        yield name, inner if isinstance(inner, Mapping) else {}, name in required


def definitions_of(schema: Schema) -> Schema:
    """Returns the schemas that `$ref`s point to."""
    return {**(schema.get("definitions") or {}), **(schema.get("$defs") or {})}


# -- types ---------------------------------------------------------------------------------------------------------

_TYPES = {"integer": "number", "object": "object", "array": "any[]"}


def typescript(tools: Sequence[ToolDeclaration]) -> str:
    """Returns the tools as types of a namespace: `type get_weather = (_: { city: string }) => any;`"""
    types = "\n\n".join(map(_type_of_tool, tools))
    return f"namespace functions {{\n\n{types}\n\n}} // namespace functions"


def _type_of_tool(tool: ToolDeclaration) -> str:
    schema = schema_of(tool)
    lines = [f"type {name} = {_type(inner)};" for name, inner in definitions_of(schema).items()]
    lines += [f"// {line}" for line in tool.description.strip().splitlines()]
    arguments = f"_: {_type(schema)}" if schema.get("properties") else ""
    return "\n".join([*lines, f"type {tool.name} = ({arguments}) => any;"])


def _type(schema: Schema) -> str:
    """Returns a schema as a TypeScript type."""
    match schema:
        case {"$ref": str(reference)}:
            return reference.rpartition("/")[2]
        case {"const": value}:
            return to_json(value)
        case {"enum": [*values]}:
            return " | ".join(map(to_json, values))
        case {"anyOf": [*choices]} | {"oneOf": [*choices]}:
            return " | ".join(_type(choice) for choice in choices)
        case {"type": [*names]}:
            return " | ".join(_type({**schema, "type": name}) for name in names)
        case {"properties": Mapping()}:
            return "{\n" + "".join(_typed_properties(schema)) + "}"
        case {"type": "object", "additionalProperties": Mapping() as inner}:
            return f"Record<string, {_type(inner)}>"
        case {"items": Mapping() as items}:
            return f"Array<{_type(items)}>"
        case {"type": str(name)}:
            return _TYPES.get(name, name)
        case _:
            return "any"


def _typed_properties(schema: Schema) -> Iterator[str]:
    for name, inner, is_required in properties_of(schema):
        for line in str(inner.get("description") or "").strip().splitlines():
            yield f"// {line}\n"
        default = f" // default: {to_json(inner['default'])}" if "default" in inner else ""
        yield f"{name}{'' if is_required else '?'}: {_type(inner)},{default}\n"


# -- Python functions ----------------------------------------------------------------------------------------------

_PYTHON = {
    "string": "str", "integer": "int", "number": "float", "boolean": "bool", "array": "list", "object": "dict",
    "null": "None",
}  # fmt: skip


def python_stubs(tools: Sequence[ToolDeclaration]) -> str:
    """Returns the tools as Python functions without a body: `def get_weather(city: str, days: int = None):`"""
    return "```python\n" + "\n\n".join(map(_stub, tools)) + "\n```"


def _stub(tool: ToolDeclaration) -> str:
    schema = schema_of(tool)
    properties = list(properties_of(schema))
    required = [f"{name}: {_annotation(inner)}" for name, inner, is_required in properties if is_required]
    optional = [f"{name}: {_annotation(inner)} = None" for name, inner, is_required in properties if not is_required]
    lines = [tool.description.strip(), *(["", "    Args:"] if properties else [])]
    lines += [f"        {name}: {_note(inner)}" for name, inner, _ in properties]
    if definitions := definitions_of(schema):
        lines += ["", f"    Definitions: {to_json(definitions)}"]
    doc = "\n".join(lines).replace('"""', r"\"\"\"")
    return f'def {tool.name}({", ".join(required + optional)}):\n    """{doc}\n    """'


def _annotation(schema: Schema) -> str:
    match schema.get("type"):
        case str(name):
            return _PYTHON.get(name, "object")
        case [*names]:
            return " | ".join(_PYTHON.get(str(name), "object") for name in names)
        case _:
            return "object"


def _note(schema: Schema) -> str:
    """Returns the description of an argument, and everything in its schema besides the type."""
    description = str(schema.get("description") or "").strip()
    more = {key: value for key, value in schema.items() if key not in ("type", "description", "title")}
    return " ".join(filter(None, (description, to_json(more) if more else "")))


# -- nested tags ---------------------------------------------------------------------------------------------------


def tagged_tools(tool_tag: str, name_tag: str) -> Callable[[Sequence[ToolDeclaration]], str]:
    """Returns a function that lists tools as nested tags: `<function><name>…</name><parameters><parameter><name>…`"""
    lines_of = partial(_tagged_tool, tool_tag, name_tag)
    return lambda tools: "\n".join(["<tools>", *(line for tool in tools for line in lines_of(tool)), "</tools>"])


def _tagged_tool(tool_tag: str, name_tag: str, tool: ToolDeclaration) -> Iterator[str]:
    schema = schema_of(tool)
    yield f"<{tool_tag}>"
    yield f"<{name_tag}>{tool.name}</{name_tag}>"
    yield f"<description>{tool.description}</description>"
    yield "<parameters>"
    for name, inner, _ in properties_of(schema):
        yield "<parameter>"
        yield f"<name>{name}</name>"
        yield from _fields(inner)
        yield "</parameter>"
    yield from _fields({key: value for key, value in schema.items() if key not in ("type", "properties")})
    yield "</parameters>"
    yield f"</{tool_tag}>"


def _fields(schema: Schema) -> Iterator[str]:
    for key, value in schema.items():
        yield f"<{key}>{value if isinstance(value, str) else to_json(value)}</{key}>"
