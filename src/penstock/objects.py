"""What people already hold, as the JSON that came over the wire: parsed dicts, and the objects of the vendors' SDKs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from penstock.errors import UsageError

# What the SDKs' helper streams derive from the frames they also pass on.
_DERIVED = ("content.delta", "content.done", "refusal.delta", "refusal.done", "logprobs.", "tool_calls.function.")


_SCHEMA_KEYS = ("parameters", "input_schema", "inputSchema", "parametersJsonSchema", "parameters_json_schema")


def payload_of(item: Any) -> bytes | None:
    """The frame that the object stands for; None if it only repeats what others say."""
    value = as_mapping(item)
    if value is None:
        raise UsageError(
            f"cannot decode an object of type {type(item).__name__}: give bytes, dicts, or a vendor's SDK objects"
        )
    match value:
        case {"type": str(kind)} if kind.startswith(_DERIVED):
            return None
        case {"type": "chunk", "chunk": chunk}:  # openai's `chat.completions.stream`
            return payload_of(chunk)
        case {"data": data, **rest} if not rest and as_mapping(data) is not None:  # mistralai wraps each chunk
            return payload_of(data)
    try:
        return msgspec.json.encode(value, enc_hook=_as_plain)
    except UnicodeEncodeError:  # half a character (QUIRKS 50): escaped, it can go on to where it is mended
        return json.dumps(value, default=_as_plain).encode()


def as_mapping(item: Any) -> Mapping[str, Any] | None:
    """The object's fields as the provider named them, without those that the SDK made up; None if it has none."""
    if isinstance(item, Mapping):
        return item
    if hasattr(item, "model_dump"):  # pydantic: all the vendors' SDKs of today
        dumped: Mapping[str, Any] = item.model_dump(by_alias=True, exclude_unset=True, warnings=False)
        return dumped
    if hasattr(item, "to_dict"):
        return as_mapping(item.to_dict())
    fields = getattr(item, "__dict__", None)
    return {key: value for key, value in fields.items() if not key.startswith("_")} if fields else None


def _as_plain(item: Any) -> Any:
    value = as_mapping(item)
    return str(item) if value is None else value


def tool_names(tools: Iterable[Any] | None) -> tuple[str, ...]:
    """The names of the tools, however they are given: names, functions, or declarations in any provider's shape."""
    return tuple(tool_schemas(tools))


def tool_schemas(tools: Iterable[Any] | None) -> dict[str, Mapping[str, Any]]:
    """The tools' names and the schemas of their arguments, however they are given; `{}` where there is no schema."""
    if isinstance(tools, str | bytes | Mapping):
        raise UsageError(f"tools is one {type(tools).__name__}: give a list of tools")
    found = (declared for tool in tools or () for declared in _declared(tool))
    return {name: _bare(schema) for name, schema in found if name}


def _bare(schema: Any) -> Mapping[str, Any]:
    match schema:
        case {"json": Mapping() as inner, **rest} if not rest:  # Bedrock wraps it
            return inner
        case Mapping():
            return schema
        case _:
            return {}


def _declared(tool: Any) -> Iterator[tuple[str, Any]]:
    """The name and the schema of each tool that a declaration declares."""
    match tool:
        case str():
            yield tool, None
        case {"function": Mapping() as inner} | {"toolSpec": Mapping() as inner} | {"custom": Mapping() as inner}:
            yield from _declared(inner)
        case {"functionDeclarations": list(inner)} | {"function_declarations": list(inner)}:
            for declaration in inner:
                yield from _declared(declaration)
        case {"name": str(name)}:
            yield name, next((tool[key] for key in _SCHEMA_KEYS if tool.get(key)), None)
        case Mapping():
            return
        case _:
            named: Any = getattr(tool, "name", None) or getattr(tool, "__name__", "")
            schemas = (getattr(tool, key, None) for key in _SCHEMA_KEYS)
            yield named if isinstance(named, str) else "", next((schema for schema in schemas if schema), None)
