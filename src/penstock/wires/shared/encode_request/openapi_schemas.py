"""Schemas in the form of OpenAPI 3.0 with types in capitals (`OBJECT`), as JSON Schemas.

Clients of one vendor declare tools and formats in this form, which all others refuse.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from penstock.schemas import Json, map_schemas

_TYPES = {name.upper(): name for name in ("string", "number", "integer", "boolean", "array", "object", "null")}
_LEFT_OUT = ("nullable", "propertyOrdering", "example")  # `nullable` becomes a type
_FORMATS = ("enum", "int32", "int64", "float", "double")  # which say nothing beside the type
_COUNTS = ("minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties")
_NUMBER = re.compile(r"[0-9]{1,19}")  # 64-bit numbers, which are strings in this form


def has_capital_types(schema: Mapping[str, Any]) -> bool:
    """Whether a schema has this form."""
    kind = schema.get("type")
    return isinstance(kind, str) and kind in _TYPES


def json_schema(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """The JSON Schema of a schema in this form; any other schema stays as it is."""
    return _converted(schema) if has_capital_types(schema) else schema


def _converted(schema: Any) -> Any:
    if not isinstance(schema, Mapping):
        return schema
    form = {key: value for key, value in map_schemas(schema, _converted).items() if key not in _LEFT_OUT}
    kind = form.get("type")
    if isinstance(kind, str):
        form["type"] = _TYPES.get(kind, kind)
        if form["type"] not in _TYPES.values():
            del form["type"]  # TYPE_UNSPECIFIED
    if form.get("format") in _FORMATS:
        del form["format"]
    for key in _COUNTS:
        if isinstance(form.get(key), str) and _NUMBER.fullmatch(form[key]):
            form[key] = int(form[key])
    return _with_null(form) if schema.get("nullable") is True else form


def _with_null(form: Json) -> Json:
    """The schema, which accepts null too."""
    if isinstance(form.get("type"), str):
        form["type"] = [form["type"], "null"]
    if isinstance(form.get("enum"), list):
        form["enum"] = [*form["enum"], None]
    if isinstance(form.get("anyOf"), list):
        form["anyOf"] = [*form["anyOf"], {"type": "null"}]
    return form
