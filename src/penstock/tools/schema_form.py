"""Brings a JSON Schema into the form that the validator compiles.

Schemas come in the words of several providers and drafts: types in capitals, `nullable`, lists as `items`, boolean
bounds. What is malformed, and a `$ref` that leads outside of the document, nowhere, or back to itself, is left out: it
says nothing about a value.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from penstock.schemas import LISTED, NAMED, Json, map_schemas, resolve

TYPES = ("string", "integer", "number", "boolean", "null", "array", "object")
"""The types of JSON Schema."""
_IN_PLACE = ("anyOf", "oneOf", "allOf", "not", "if", "then", "else", "dependentSchemas")
"""The keywords with schemas for the same value, not for a part of it."""
_IDENTITY = ("$schema", "$id", "id", "$anchor", "$dynamicAnchor", "$dynamicRef", "$recursiveRef", "$vocabulary")
_BOUNDS = {"exclusiveMinimum": "minimum", "exclusiveMaximum": "maximum"}


def normal_form(schema: Any) -> Any:
    """The schema as a schema of draft 2020-12; what is not a schema at all accepts every value."""
    if isinstance(schema, bool) or not isinstance(schema, Mapping):
        return schema is not False
    if isinstance(schema.get("items"), list):
        others = {key: value for key, value in schema.items() if key not in ("items", "additionalItems")}
        schema = {**others, "prefixItems": schema["items"], "items": schema.get("additionalItems", True)}
    form = map_schemas({key: value for key, value in schema.items() if key not in _IDENTITY}, normal_form)
    _set_types(form)
    _set_bounds(form)
    if form.get("additionalProperties") is False:
        form.setdefault("properties", {})  # else the validator does not say which fields are unknown
    if form.pop("nullable", False) is True:
        return {"anyOf": [form, {"type": "null"}]}
    return form


def _set_types(form: Json) -> None:
    """Google writes types in capitals; a type that does not exist accepts every value."""
    if "type" not in form:
        return
    listed = form["type"] if isinstance(form["type"], list) else [form["type"]]
    kinds = list(dict.fromkeys(kind.lower() if isinstance(kind, str) else "" for kind in listed))
    if kinds and all(kind in TYPES for kind in kinds):
        form["type"] = kinds[0] if len(kinds) == 1 else kinds
    else:
        del form["type"]


def _set_bounds(form: Json) -> None:
    """In draft 4, `exclusiveMinimum` is true or false, and says what `minimum` means."""
    for exclusive, bound in _BOUNDS.items():
        if isinstance(form.get(exclusive), bool):
            is_exclusive = form.pop(exclusive)
            if is_exclusive and bound in form:
                form[exclusive] = form.pop(bound)


def without(schema: Any, path: list[str | int]) -> Any:
    """The schema without what is at this path."""
    if not path:
        return True
    first, rest = path[0], path[1:]
    if isinstance(schema, list) and isinstance(first, int):
        return [without(item, rest) if index == first else item for index, item in enumerate(schema)]
    if not isinstance(schema, dict) or first not in schema:
        return schema
    if rest:
        return {**schema, first: without(schema[first], rest)}
    return {key: value for key, value in schema.items() if key != first}


class References:
    """The references of a schema: removes those that lead nowhere, and measures how many follow one another."""

    def __init__(self, root: Any) -> None:
        self._root = root
        self._steps: dict[int, int] = {}  # by node: the schemas that are applied to one value, one inside the other

    def remove_dangling(self) -> int:
        """Removes the references in place; returns the number of schemas that may be applied to one value."""
        return max((self._measure(node, set()) for node in _nodes(self._root)), default=1)

    def _measure(self, node: Any, above: set[int]) -> int:
        if not isinstance(node, dict) or id(node) in above:
            return 1
        if id(node) not in self._steps:
            above.add(id(node))
            target = self.find_target(node.get("$ref"))
            if "$ref" in node and (target is None or id(target) in above):
                del node["$ref"]
                target = None
            inner = [self._measure(inner_node, above) for inner_node in [*_in_place(node), target]]
            self._steps[id(node)] = 1 + max(inner)
            above.remove(id(node))
        return self._steps[id(node)]

    def find_target(self, reference: Any) -> Any:
        """The schema that a reference leads to; None if there is none in this document."""
        return resolve(self._root, reference)


def _in_place(node: Json) -> Iterator[Any]:
    for key in _IN_PLACE:
        value = node.get(key)
        if key in LISTED:
            yield from value if isinstance(value, list) else ()
        elif key in NAMED:
            yield from value.values() if isinstance(value, dict) else ()
        else:
            yield value


def _nodes(root: Any) -> Iterator[Json]:
    """All schemas of a document."""
    pending = [root]
    while pending:
        node = pending.pop()
        if isinstance(node, dict):
            yield node
            map_schemas(node, pending.append)
