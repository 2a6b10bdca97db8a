"""Checks of a JSON Schema that a program writes itself: what is wrong with it, and where.

Schemas of other programs are not checked: what is malformed in them accepts every value (see `schema_form`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from penstock.schemas import schemas_in
from penstock.tools.argument_errors import short_json
from penstock.tools.schema_form import TYPES, References, normal_form

_Path = tuple[str, ...]


def find_malformed(schema: Mapping[str, Any]) -> str:
    """What is wrong with a schema: a malformed keyword, or a reference that leads nowhere or back to itself."""
    return _bad_part(schema) or _bad_keyword(normal_form(schema)) or _circular_reference(normal_form(schema))


def _bad_part(schema: Mapping[str, Any]) -> str:
    """A part that is not a schema, or has a type that does not exist: the normal form leaves them out."""
    for path, part in _parts(schema):
        if not isinstance(part, Mapping | bool):
            return f"{short_json(part)} is not a schema, at {'/'.join(path)}; use a dict"
        if isinstance(part, Mapping) and "type" in part:
            kinds = part["type"] if isinstance(part["type"], list) else [part["type"]]
            for kind in kinds or [kinds]:
                if not isinstance(kind, str) or kind.lower() not in TYPES:
                    return f"{short_json(kind)} is not a type, at {'/'.join((*path, 'type'))}; use {_CHOICE}"
    return ""


_CHOICE = f"{', '.join(TYPES[:-1])} or {TYPES[-1]}"


def _parts(schema: Any) -> Iterator[tuple[_Path, Any]]:
    """The schema and all schemas in it, with their places."""
    pending: list[tuple[_Path, Any]] = [((), schema)]
    while pending:
        path, part = pending.pop()
        yield path, part
        if isinstance(part, Mapping):
            pending += [((*path, *place), inner) for place, inner in schemas_in(part)]


def _bad_keyword(form: Any) -> str:
    from jsonschema_rs import Draft202012Validator, ValidationError

    try:
        Draft202012Validator(form, offline=True)
    except ValidationError as error:  # without a path if it is a reference
        return ", at ".join(filter(None, (error.message, "/".join(map(str, error.instance_path)))))
    except ValueError as error:
        return str(error)
    return ""


def _circular_reference(form: Any) -> str:
    """A reference that leads to itself without a field or an item between."""
    before = [(path, part["$ref"]) for path, part in _parts(form) if isinstance(part, dict) and "$ref" in part]
    References(form).remove_dangling()
    left = {path for path, part in _parts(form) if isinstance(part, dict) and "$ref" in part}
    for path, reference in before:
        if path not in left:
            place = "/".join((*path, "$ref"))
            return f"the reference {reference!r} leads back to itself, at {place}; put a field or an item between"
    return ""
