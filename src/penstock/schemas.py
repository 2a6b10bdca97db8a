"""JSON Schemas: walking them, and fitting them to the rules of a provider that enforces them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Struct

Json = dict[str, Any]

NAMED = ("properties", "$defs", "definitions", "patternProperties", "dependentSchemas")
LISTED = ("anyOf", "oneOf", "allOf", "prefixItems")
SINGLE = ("items", "additionalProperties", "not", "contains", "propertyNames", "if", "then", "else")
"""The keywords of a schema that contain schemas: by name, in a list, or a single one."""

_STRUCTURE = frozenset({
    "type", "properties", "required", "additionalProperties", "items", "anyOf", "enum", "const", "$ref", "$defs",
    "definitions", "description",
})  # fmt: skip
"""The keywords that every provider with schemas accepts."""
_KINDS = ("type", "anyOf", "oneOf", "allOf", "enum", "const", "$ref")
"""The keywords of which a schema has one, unless it accepts every value."""
_SILENT = frozenset({"title", "default", "discriminator", "examples", "deprecated", "readOnly", "writeOnly"})
"""Keywords that are no constraints: if they are left out, nothing is missing."""
_REPEATS = ("minLength", "maxLength", "minItems", "maxItems")
_INDEX = re.compile(r"[0-9]{1,9}")  # an index of a list, in a reference
_LOOKAROUND = re.compile(r"(?<!\\)(?:\\\\)*\(\?<?[=!]")


class SchemaRules(Struct, frozen=True, kw_only=True):
    """What a provider accepts in a schema that it enforces.

    `keywords` are accepted in addition to those that all accept, of `format` the values in `formats` (None: all).
    Objects that `are_closed` allow no other fields. With `has_all_required`, an object requires all its fields. If
    `refs_are_alone`, there is no other keyword next to `$ref`. `is_recursive` if a schema may contain itself. Texts and
    arrays may be required to have fewer than `max_repeats` characters or items, and all parts of a schema together may
    have `max_fields` fields and `max_values` values of enums (None: any number). Of `pattern`, those that look ahead or
    behind are never accepted.
    """

    keywords: frozenset[str] = frozenset()
    formats: frozenset[str] | None = frozenset()
    are_closed: bool = True
    has_all_required: bool = True
    refs_are_alone: bool = True
    is_recursive: bool = True
    has_const: bool = True
    max_repeats: int | None = None
    max_fields: int | None = None
    max_values: int | None = None


class InexpressibleError(ValueError):
    """A schema has what the rules of the provider cannot express; the message names it."""


def map_schemas(schema: Mapping[str, Any], change: Callable[[Any], Any]) -> Json:
    """A copy of the schema, with `change` applied to everything directly in it that should be a schema."""
    copied = dict(schema)
    for key, value in schema.items():
        if key in NAMED and isinstance(value, dict):
            copied[key] = {name: change(inner) for name, inner in value.items()}
        elif key in LISTED and isinstance(value, list):
            copied[key] = [change(inner) for inner in value]
        elif key in SINGLE:
            copied[key] = change(value)
    return copied


def schemas_in(schema: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Everything directly in a schema that should be a schema, with its place."""
    for key, value in schema.items():
        if key in NAMED and isinstance(value, Mapping):
            yield from (((key, name), inner) for name, inner in value.items())
        elif key in LISTED and isinstance(value, list):
            yield from (((key, str(index)), inner) for index, inner in enumerate(value))
        elif key in SINGLE and not isinstance(value, list):  # `items` may be a list, in older drafts
            yield (key,), value


def keep_keywords(schema: Json, is_kept: Callable[[str, Any], bool]) -> Json:
    """The schema with the keywords that are kept; the constraints among the others are in its description."""
    kept, notes = {}, []
    for key, value in schema.items():
        if is_kept(key, value):
            kept[key] = value
        elif key not in _SILENT and not key.startswith("$") and type(value) in (str, int, float):
            notes.append(f"{key}: {value}")
    if notes:
        kept["description"] = f"{schema.get('description') or ''} ({', '.join(notes)})".lstrip()
    return kept


def keep_everywhere(schema: Any, is_kept: Callable[[str, Any], bool]) -> Any:
    """The schema and those in it with the keywords that are kept: see `keep_keywords`."""
    if not isinstance(schema, dict):
        return schema
    return map_schemas(keep_keywords(schema, is_kept), lambda one: keep_everywhere(one, is_kept))


def without_lookaround(schema: Json) -> Json:
    """The schema without patterns that look ahead or behind, which OpenAI refuses in schemas of any kind."""
    if not json_contains(schema, b"(?"):
        return schema
    kept: Json = keep_everywhere(schema, lambda key, value: key != "pattern" or not looks_around(value))
    return kept


def json_contains(schema: Json, *words: bytes) -> bool:
    """Whether the JSON of a schema contains one of these words: a search is faster than a walk for every request."""
    try:
        encoded = msgspec.json.encode(schema)
    except (TypeError, ValueError, RecursionError):  # it cannot be sent, which is reported elsewhere
        return False
    return any(word in encoded for word in words)


def looks_around(pattern: Any) -> bool:
    """Whether a regular expression looks ahead or behind, as no provider that enforces patterns can."""
    return isinstance(pattern, str) and _LOOKAROUND.search(pattern) is not None


def repeats_less(key: str, value: Any, most: int) -> bool:
    """Whether a keyword does not ask for so many characters or items, or more."""
    return key not in _REPEATS or not isinstance(value, int) or value < most


def with_root_definition(schema: Json) -> Json:
    """The schema, with its root as a definition if it refers to itself by its place: such a schema cannot be moved."""
    if all(reference.startswith(_DEFINED) or not reference.startswith("#") for reference in _references(schema)):
        return schema
    definitions = _definitions(schema)
    name = next(
        name for name in (f"root{'_' * count}" for count in range(len(definitions) + 1)) if name not in definitions
    )

    def moved(part: Any) -> Any:
        if not isinstance(part, dict):
            return part
        form, reference = map_schemas(part, moved), part.get("$ref")
        if isinstance(reference, str) and reference.startswith("#") and not reference.startswith(_DEFINED):
            form["$ref"] = f"#/$defs/{name}{reference[1:]}"
        return form

    form = moved(schema)
    kept = {key: form.pop(key) for key in ("$defs", "definitions") if key in form}
    return {"$ref": f"#/$defs/{name}", **kept, "$defs": {**_definitions(kept), name: form}}


_DEFINED = ("#/$defs/", "#/definitions/")


def with_root(schema: Json) -> Json:
    """The schema with its root in place: some types are a reference to one of their own definitions."""
    target = resolve(schema, schema.get("$ref"))
    if not isinstance(target, dict):
        return schema
    return pruned({**target, **{key: value for key, value in schema.items() if key != "$ref"}})


def fit_schema(schema: Json, rules: SchemaRules) -> Json:
    """The schema in the form that the provider accepts; raises an `InexpressibleError` if there is none.

    Constraints that the provider does not know are in the descriptions instead.
    """
    if not rules.is_recursive and _is_recursive(schema):
        raise InexpressibleError("types that contain themselves")
    _check_counts(schema, rules)
    return _Fitting(schema, rules).fit(schema)


def _check_counts(schema: Json, rules: SchemaRules) -> None:
    """Raise an `InexpressibleError` if a schema has more fields or values than the provider accepts."""
    fields = values = 0
    for node in _nodes(schema):
        fields += len(node["properties"]) if isinstance(node.get("properties"), dict) else 0
        values += len(node["enum"]) if isinstance(node.get("enum"), list) else 0
    if rules.max_fields is not None and fields > rules.max_fields:
        raise InexpressibleError(f"{fields} fields")
    if rules.max_values is not None and values > rules.max_values:
        raise InexpressibleError(f"{values} values of enums")


class _Fitting:
    """Fits the parts of one schema."""

    def __init__(self, root: Json, rules: SchemaRules) -> None:
        self._root = root
        self._rules = rules
        self._known = _STRUCTURE | rules.keywords
        self._inlined: list[str] = []

    def fit(self, schema: Any) -> Json:
        if not isinstance(schema, dict) or not any(keyword in schema for keyword in _KINDS):
            if self._rules.are_closed:
                raise InexpressibleError("fields of any type")
            return schema if isinstance(schema, dict) else {}
        if "$ref" in schema:
            return self._reference(schema)
        form = self._with_known(_rewritten(schema, self._rules))
        fitted = map_schemas(form, self._fit_inner)
        kinds = fitted["type"] if isinstance(fitted.get("type"), list) else [fitted.get("type")]
        if self._rules.are_closed and "array" in kinds and "items" not in fitted:
            raise InexpressibleError("arrays of anything")
        return self._object(fitted) if "properties" in fitted or "object" in kinds else fitted

    def _fit_inner(self, schema: Any) -> Any:
        return schema if isinstance(schema, bool) else self.fit(schema)

    def _reference(self, schema: Json) -> Json:
        """A `$ref`; one with keywords next to it is replaced by its target, where it may not have them."""
        reference, others = schema["$ref"], {key: value for key, value in schema.items() if key != "$ref"}
        beside = {key for key in others if not key.startswith("$") and key != "definitions"}
        if not beside or not self._rules.refs_are_alone:
            return map_schemas(self._with_known(schema), self._fit_inner)
        target = resolve(self._root, reference)
        if reference in self._inlined or not isinstance(target, dict):
            return {"$ref": reference}
        self._inlined.append(reference)
        fitted = self.fit({**target, **others})
        self._inlined.pop()
        return fitted

    def _with_known(self, schema: Json) -> Json:
        """The schema with the keywords that the provider knows; the others are in its description."""
        return keep_keywords(schema, self._takes)

    def _takes(self, key: str, value: Any) -> bool:
        rules = self._rules
        match key:
            case "format":
                return key in self._known and (rules.formats is None or value in rules.formats)
            case "pattern":
                return key in self._known and not looks_around(value)
            case _:
                is_bounded = rules.max_repeats is None or repeats_less(key, value, rules.max_repeats)
                return key in self._known and is_bounded

    def _object(self, schema: Json) -> Json:
        if not self._rules.are_closed:
            return schema
        if schema.get("additionalProperties") or "properties" not in schema:
            raise InexpressibleError("objects with arbitrary fields")
        names = list(schema["properties"])
        required = names if self._rules.has_all_required else schema.get("required", [])
        others = {key: value for key, value in schema.items() if key != "required"}
        return {**others, **({"required": required} if required else {}), "additionalProperties": False}


def _rewritten(schema: Json, rules: SchemaRules) -> Json:
    """The schema with keywords that mean the same, or more, where the provider does not have its own."""
    form = dict(schema)
    if "oneOf" in form and "oneOf" not in rules.keywords:
        form["anyOf"] = [*form.get("anyOf", []), *form.pop("oneOf")]
    if "allOf" in form and len(form["allOf"]) == 1 and isinstance(form["allOf"][0], dict):
        form = {**form.pop("allOf")[0], **form}
    if "prefixItems" in form and "prefixItems" not in rules.keywords:
        kinds = form.pop("prefixItems")
        form["items"] = kinds[0] if all(kind == kinds[0] for kind in kinds) else {"anyOf": kinds}
    if "const" in form and not rules.has_const:
        form["enum"] = [form.pop("const")]
    if "allOf" in form and "allOf" not in rules.keywords:
        raise InexpressibleError("allOf")
    return form


def resolve(root: Any, reference: Any) -> Any:
    """The schema that a reference leads to; None if there is none in this document."""
    if not isinstance(reference, str) or not reference.startswith("#"):
        return None
    node = root
    for step in filter(None, reference[1:].split("/")):
        key = step.replace("~1", "/").replace("~0", "~")
        if isinstance(node, list):
            node = node[int(key)] if _INDEX.fullmatch(key) and int(key) < len(node) else None
        else:
            node = node.get(key) if isinstance(node, dict) else None
    return node if isinstance(node, dict | bool) else None


def pruned(root: Json) -> Json:
    """The schema without definitions that nothing refers to."""
    definitions = _definitions(root)
    bare = {key: value for key, value in root.items() if key != "$defs"}
    needed: set[str] = set()
    pending = list(_references(bare))
    while pending:
        name = pending.pop().removeprefix("#/$defs/").partition("/")[0]  # it may lead to a part of a definition
        name = name.replace("~1", "/").replace("~0", "~")
        if name in definitions and name not in needed:
            needed.add(name)
            pending += _references(definitions[name])
    kept = {name: schema for name, schema in definitions.items() if name in needed}
    return {**bare, **({"$defs": kept} if kept else {})}


def _definitions(schema: Json) -> Json:
    """The definitions of a schema; none if there is something else in their place."""
    definitions = schema.get("$defs")
    return definitions if isinstance(definitions, dict) else {}


def _is_recursive(root: Json) -> bool:
    """Whether a schema can be reached from itself, by references and by its parts."""
    definitions = {id(target): reference for reference in _references(root) if (target := resolve(root, reference))}
    open_targets: set[int] = set()
    done: set[int] = set()

    def reaches_itself(node: Json) -> bool:
        if id(node) in open_targets:
            return True
        if id(node) in done or id(node) not in definitions:
            return False
        open_targets.add(id(node))
        is_recursive = any(reaches_itself(resolve(root, reference)) for reference in _references(node))
        open_targets.discard(id(node))
        done.add(id(node))
        return is_recursive

    return any(reaches_itself(resolve(root, reference)) for reference in _references(root))


def _references(schema: Any) -> Iterator[str]:
    """All references in a schema and its parts."""
    for node in _nodes(schema):
        if isinstance(node.get("$ref"), str):
            yield node["$ref"]


def _nodes(schema: Any) -> Iterator[Json]:
    """A schema and all its parts."""
    pending = [schema]
    while pending:
        node = pending.pop()
        if isinstance(node, dict):
            yield node
            map_schemas(node, pending.append)
