"""The schemas of tools in a form that providers accept.

A provider that refuses the schema of one tool refuses the whole request, whether the tool is called or not. So what it
would refuse is left out, and said in a description where that is possible. The arguments of a call are validated
against the schema as it was declared.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from penstock.declarations import ToolDeclaration
from penstock.schemas import (
    Json,
    json_contains,
    keep_everywhere,
    pruned,
    repeats_less,
    resolve,
    with_root_definition,
)
from penstock.wires.shared.encode_request.body import function_description, object_schema
from penstock.wires.shared.encode_request.openapi_schemas import json_schema
from penstock.wires.shared.encode_request.output_format import GRAMMAR_REPEATS

_CHOICES = ("allOf", "anyOf", "oneOf")
_NOT_AT_ROOT = frozenset({*_CHOICES, "not", "enum", "$ref"})
"""The keywords that OpenAI and Claude refuse at the root of a schema, and a reference, which may lead to them."""


_CLAUDE_NAME = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
_LIMITING = (b'"pattern"', b'"minLength"', b'"maxLength"', b'"minItems"', b'"maxItems"')
"""The keywords that `for_grammar` may leave out, as they are in JSON."""


def declared_schema(tool: ToolDeclaration) -> Json:
    """The schema of a tool's arguments: an object without alternatives at its root."""
    schema = object_schema(tool)
    if _NOT_AT_ROOT.isdisjoint(schema):
        return schema
    root = with_root_definition(dict(json_schema(tool.parameters)))
    definitions: Json = {key: root[key] for key in ("$defs", "definitions") if key in root}
    return pruned({"properties": {}, **_Folding(root).fold(root), "type": "object", **definitions})


def function_tool(tool: ToolDeclaration) -> Json:
    """A tool as Chat Completions declares it, and the wires that copied it."""
    if tool.hosted is not None:
        return dict(tool.hosted)
    function = {"name": tool.name, **function_description(tool), "parameters": declared_schema(tool)}
    return {"type": "function", "function": function}


def for_claude(schema: Json) -> Json:
    """The schema without fields of names that Claude models refuse; the description has them, so that they can be used.

    Only the names at the root are refused.
    """
    odd = {name: one for name, one in _fields(schema) if not _CLAUDE_NAME.fullmatch(name)}
    if not odd:
        return schema
    note = f"More fields, with their schemas: {json.dumps(odd, ensure_ascii=False)}"
    kept = {key: value for key, value in schema.items() if key != "additionalProperties"}
    return {
        **kept,
        "properties": {name: one for name, one in _fields(schema) if name not in odd},
        "required": [name for name in _required(schema) if name not in odd],
        "description": f"{schema.get('description') or ''} {note}".lstrip(),
    }


def for_grammar(schema: Json) -> Json:
    """The schema for a server that turns it into a grammar: without patterns and large numbers of repetitions."""
    if not json_contains(schema, *_LIMITING):
        return schema
    kept: Json = keep_everywhere(
        schema, lambda key, value: key != "pattern" and repeats_less(key, value, GRAMMAR_REPEATS)
    )
    return kept


# Alternatives at the root.


class _Folding:
    """Schemas of one document as those of objects without alternatives: each has the fields of all of its own."""

    def __init__(self, root: Json) -> None:
        self._root = root
        self._done: dict[int, Json] = {}  # by schema: it may be referred to from many places, and from itself

    def fold(self, schema: Any) -> Json:
        """The schema of an object; it requires what every alternative requires."""
        if not isinstance(schema, dict):
            return {}
        if id(schema) in self._done:
            return self._done[id(schema)]
        self._done[id(schema)] = {}  # what it says of itself says nothing
        form = dict(self.fold(resolve(self._root, schema["$ref"]))) if "$ref" in schema else {}
        form |= {key: value for key, value in schema.items() if key not in _NOT_AT_ROOT}
        for keyword in _CHOICES:
            members: Any = schema.get(keyword)
            folded = map(self.fold, members if isinstance(members, list) else ())
            form = _with_objects(form, [one for one in folded if one.get("type", "object") == "object"], keyword)
        self._done[id(schema)] = form
        return form


def _with_objects(form: Json, objects: list[Json], keyword: str) -> Json:
    """The schema of an object with the fields of others: all of them apply to it, or one of them does."""
    if not objects:
        return form
    fields: dict[str, dict[str, Any]] = {}  # the kinds of each field, once each
    for name, one in (field for each in objects for field in _fields(each)):
        known = fields.setdefault(name, {})
        if not known or keyword != "allOf":
            known.setdefault(repr(one), one)
    added = {name: _either([*kinds.values()]) for name, kinds in fields.items()}
    needs = [_required(one) for one in objects]
    shared = set.union(*map(set, needs)) if keyword == "allOf" else set.intersection(*map(set, needs))
    required = _required(form) | {name: None for names in needs for name in names if name in shared}
    return {
        **form,
        "properties": {**added, **dict(_fields(form))},
        **({"required": list(required)} if required else {}),
        **_described(form, [[name for name in names if name not in required] for names in needs], keyword),
    }


def _either(kinds: list[Any]) -> Any:
    return kinds[0] if len(kinds) == 1 else {"anyOf": kinds}


def _described(form: Json, needs: list[list[str]], keyword: str) -> Json:
    """The description that says which fields belong together, if the alternatives require different ones."""
    if keyword == "allOf" or not all(needs):  # one of them requires no more than the others
        return {}
    wanted = dict.fromkeys(", ".join(names) for names in needs)
    rule = "Exactly" if keyword == "oneOf" else "At least"
    note = f"{rule} one of these must be given: {'; '.join(wanted)}."
    return {"description": f"{form.get('description') or ''} {note}".lstrip()}


def _fields(schema: Json) -> Iterator[tuple[str, Any]]:
    fields = schema.get("properties")
    yield from fields.items() if isinstance(fields, Mapping) else ()


def _required(schema: Json) -> dict[str, None]:
    """The names of the required fields, in their order."""
    names = schema.get("required")
    return {name: None for name in names if isinstance(name, str)} if isinstance(names, list) else {}
