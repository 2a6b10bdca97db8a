"""Types of raw values: the JSON Schema of a tool decides whether `2` is a number or a string.

Many dialects write values without quotes. The declared types are tried in this order: null, integer, number, boolean,
object, array, string. A value that fits none of them, or that has no schema, is a string. A call is never invalid
because of a type: the tool validates its arguments anyway.
"""

from __future__ import annotations

import ast
import json
import re
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from penstock.calls.tool_names import meant_tool
from penstock.jsontext.scan import is_too_deep
from penstock.tools.declare import declare

MAX_ALTERNATIVES = 256
"""How many `$ref`s and alternatives of a value's schema are followed; further ones are ignored."""
MAX_DIGITS = 1000
"""How many digits a number may have; a longer one stays a string."""

_ALIASES = {
    "str": "string", "text": "string", "int": "integer", "long": "integer", "float": "number", "double": "number",
    "bool": "boolean", "dict": "object", "list": "array", "tuple": "array", "none": "null",
}  # fmt: skip
_INTEGER = re.compile(r"[+-]?\d+(?:\.0*)?\Z")
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?\Z")


class Tools:
    """The declared tools, by name."""

    def __init__(self, tools: Iterable[Any] | None) -> None:
        self._schemas = {tool.name: tool.parameters for tool in declare(tools) if tool.name}

    def __contains__(self, name: str) -> bool:
        return name in self._schemas

    def __bool__(self) -> bool:
        return bool(self._schemas)

    @property
    def names(self) -> list[str]:
        return list(self._schemas)

    def meant(self, name: str) -> str:
        """The tool with this name, or the only one that the name can mean; "" if there is none."""
        return name if name in self._schemas else meant_tool(name, self._schemas)

    def fit(self, name: str, arguments: Mapping[str, Any]) -> bool:
        """Whether a tool has all of these arguments, and requires no others."""
        schema = self.schema(name)
        return bool(schema.keys) and arguments.keys() <= {*schema.keys} and schema.required <= arguments.keys()

    def schema(self, name: str) -> Schema:
        """Returns the schema of a tool's arguments; an empty one, which allows anything, for an undeclared tool."""
        node = self._schemas.get(name, {})
        return Schema(node, node)


class Schema:
    """The schema of a value: its possible types, its properties, its items."""

    __slots__ = ("_nodes", "_root", "types")

    def __init__(self, node: Any, root: Any) -> None:
        self._root = root
        self._nodes = list(_alternatives(node, root, set()))
        self.types = frozenset(name for node in self._nodes for name in _types_of(node))

    @property
    def is_text(self) -> bool:
        """Whether raw text is the value itself, so that it can be emitted before it is complete."""
        return self.types <= {"string"}

    @property
    def keys(self) -> list[str]:
        return [key for node in self._nodes for key in _mapping(node.get("properties"))]

    @property
    def required(self) -> set[str]:
        names = (node.get("required") for node in self._nodes)
        return {key for keys in names if isinstance(keys, list) for key in keys}

    def allows(self, key: str) -> bool:
        """Whether an object may have this key: a declared one, unless none are or others are allowed explicitly."""
        keys = self.keys
        return not keys or key in keys or any(map(_allows_others, self._nodes))

    def field(self, key: str) -> Schema:
        """Returns the schema of a property."""
        for node in self._nodes:
            if (own := _mapping(node.get("properties")).get(key)) is not None:
                return Schema(own, self._root)
        others = (node.get("additionalProperties") for node in self._nodes)
        return Schema(next((other for other in others if isinstance(other, Mapping)), {}), self._root)

    def items(self) -> Schema:
        """Returns the schema of a list's items."""
        candidates = (node.get("items") for node in self._nodes)
        return Schema(next((items for items in candidates if isinstance(items, Mapping)), {}), self._root)

    @property
    def writer(self) -> Callable[[str], str] | None:
        """The function that converts complete raw text to JSON; None for a string, which need not wait."""
        return None if self.is_text else self.write

    def write(self, raw: str) -> str:
        """Returns the raw text as JSON, of the first declared type that it fits."""
        if not self.is_text:
            text = raw.strip()
            for name, read in _READERS.items():
                if name in self.types and (value := read(text)) is not None:
                    return value
        return quote(raw)


def quote(text: str) -> str:
    """Returns the text as a JSON string."""
    return json.dumps(text, ensure_ascii=False)


def _allows_others(node: Mapping[str, Any]) -> bool:
    return node.get("additionalProperties") not in (None, False) or bool(node.get("patternProperties"))


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _alternatives(node: Any, root: Any, seen: set[int]) -> Iterable[Mapping[str, Any]]:
    """Yields the schema, and every schema that it refers to or chooses from, each once."""
    if not isinstance(node, Mapping) or id(node) in seen or len(seen) > MAX_ALTERNATIVES:
        return
    seen.add(id(node))
    yield node
    if isinstance(reference := node.get("$ref"), str):
        yield from _alternatives(_resolve(reference, root), root, seen)
    for word in ("anyOf", "oneOf", "allOf"):
        for choice in node.get(word) or ():
            yield from _alternatives(choice, root, seen)


def _resolve(reference: str, root: Any) -> Any:
    node = root
    for step in reference.removeprefix("#").strip("/").split("/"):
        node = _mapping(node).get(step.replace("~1", "/").replace("~0", "~"))
    return node


def _types_of(node: Mapping[str, Any]) -> Iterable[str]:
    names = node.get("type")
    for name in [names] if isinstance(names, str) else names or ():
        yield _ALIASES.get(str(name).lower(), str(name).lower())
    if node.get("nullable") is True:
        yield "null"
    if not names:
        yield from {
            _type_of(value) for value in [*(node.get("enum") or ()), *([node["const"]] if "const" in node else ())]
        }
        if "properties" in node:
            yield "object"
        if "items" in node:
            yield "array"


def _type_of(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case Mapping():
            return "object"
        case str():
            return "string"
        case _:
            return "array"


def _null(text: str) -> str | None:
    return "null" if text in ("null", "None") else None


def _integer(text: str) -> str | None:
    return str(int(text.partition(".")[0])) if len(text) <= MAX_DIGITS and _INTEGER.match(text) else None


def _number(text: str) -> str | None:
    if (whole := _integer(text)) is not None or len(text) > MAX_DIGITS or not _NUMBER.match(text):
        return whole
    number = float(text)
    return json.dumps(number) if abs(number) != float("inf") else None


def _boolean(text: str) -> str | None:
    lower = text.lower()
    return lower if lower in ("true", "false") else None


def _container(kind: type[dict[Any, Any] | list[Any]]) -> Callable[[str], str | None]:
    def read(text: str) -> str | None:
        if is_too_deep(text):
            return None
        try:
            value = json.loads(text, parse_constant=_refuse)
        except (ValueError, RecursionError):
            value = literal(text)
            return json.dumps(value, ensure_ascii=False) if isinstance(value, kind) else None
        return text if isinstance(value, kind) else None  # as the model wrote it

    return read


def _refuse(constant: str) -> None:
    raise ValueError(constant)


class _AsJSON(ast.NodeTransformer):
    """Converts sets to lists, in the order in which they are written. A key that is given twice is a `ValueError`."""

    def visit_Dict(self, node: ast.Dict) -> ast.AST:
        if len({str(key.value) for key in node.keys if isinstance(key, ast.Constant)}) < len(node.keys):
            raise ValueError("a key is given twice, or is not a constant")
        return self.generic_visit(node)

    def visit_Set(self, node: ast.Set) -> ast.AST:
        return ast.copy_location(ast.List(self.generic_visit(node).elts, ast.Load()), node)  # type: ignore[attr-defined]


def literal(text: str) -> Any:
    """Returns the value of a Python literal; None if it is not one, or has values that JSON does not have."""
    try:
        with warnings.catch_warnings(action="ignore"):  # about escapes that Python does not know
            tree = _AsJSON().visit(ast.parse(text.strip(), mode="eval"))
            value = json.loads(json.dumps(ast.literal_eval(tree), allow_nan=False))
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None
    return value


_READERS: dict[str, Callable[[str], str | None]] = {
    "null": _null,
    "integer": _integer,
    "number": _number,
    "boolean": _boolean,
    "object": _container(dict),
    "array": _container(list),
}
