"""Values that fit a JSON Schema, made without chance: as the schema says, and else from the words of a prompt."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

MAX_DEPTH = 6
"""How deep values are nested; schemas may refer to themselves."""
MAX_VALUES = 1000
"""How many values are made, whatever the schema demands; those beyond are null."""
MAX_OPTIONAL = 3
"""How many properties are given if none is required."""
MAX_LENGTH = 10_000
"""The longest text that is made, whatever the schema demands."""

_FORMATS = {
    "date": "2026-01-01", "time": "12:00:00Z", "date-time": "2026-01-01T12:00:00Z", "duration": "PT1H",
    "email": "ada@example.com", "hostname": "example.com", "uri": "https://example.com/", "url": "https://example.com/",
    "ipv4": "192.0.2.1", "ipv6": "2001:db8::1", "uuid": "00000000-0000-4000-8000-000000000000",
}  # fmt: skip
_WHOLE_PROMPT = {"query", "q", "question", "prompt", "text", "message", "input", "search", "search_query", "request"}
_NAME = re.compile(r"\b[A-ZÀ-ÖØ-Þ][\w'’-]*(?: [A-ZÀ-ÖØ-Þ][\w'’-]*)*")
_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?![\w])")
_WORD = re.compile(r"\w+")
_OURSELVES = {"I", "I'm", "I’m", "I'd", "I’d", "I'll", "I’ll", "I've", "I’ve"}

Schema = Mapping[str, Any]


class Sampler:
    """Makes the arguments of one call. Names and numbers of the prompt are used in turn, the last one again."""

    def __init__(self, prompt: str, root: Schema, first_name: int = 0) -> None:
        self._prompt = prompt
        self._root = root
        self._left = MAX_VALUES
        self._names = names_in(prompt)[first_name:] or [_longest_word(prompt)]
        self._numbers = [float(number) for number in _NUMBER.findall(prompt)]

    def arguments(self) -> dict[str, Any]:
        """Arguments that fit the schema."""
        return self._object(self._resolved(self._root), 0)

    def value(self, schema: Any, key: str = "", depth: int = 0) -> Any:
        """A value that fits."""
        self._left -= 1
        if self._left < 0:
            return None
        schema = self._resolved(schema)
        for given in ("const", "default"):
            if given in schema:
                return schema[given]
        for choice in ("enum", "examples"):
            if isinstance(schema.get(choice), list) and schema[choice]:
                return self._chosen(schema[choice])
        match _type_of(schema):
            case "object":
                return self._object(schema, depth)
            case "array":
                return self._array(schema, key, depth)
            case "integer":
                return math.ceil(self._number(schema, 1))
            case "number":
                return self._number(schema, 0.5)
            case "boolean":
                return True
            case "null":
                return None
            case _:
                return self._string(schema, key)

    def _resolved(self, schema: Any) -> Schema:
        """The schema itself: references are followed, and of alternatives the first that says something is taken."""
        for _ in range(MAX_DEPTH):
            match schema:
                case {"$ref": str(path)}:
                    schema = self._at(path)
                case {"anyOf": [*options]} | {"oneOf": [*options]} if options:
                    rest = {key: value for key, value in schema.items() if key not in ("anyOf", "oneOf")}
                    schema = {**rest, **next((option for option in options if _says(option)), {})}
                case {"allOf": [*parts]} if parts:
                    schema = _merged([{**schema, "allOf": []}, *map(self._resolved, parts)])
                case _:
                    break
        return schema if isinstance(schema, Mapping) else {}

    def _at(self, path: str) -> Any:
        found: Any = self._root
        for step in path.removeprefix("#").strip("/").split("/"):
            if step:
                found = found.get(step, {}) if isinstance(found, Mapping) else {}
        return found

    def _object(self, schema: Schema, depth: int) -> dict[str, Any]:
        properties: Any = schema.get("properties")
        if not isinstance(properties, Mapping) or depth > MAX_DEPTH:
            return {}
        required: Any = schema.get("required")
        if not isinstance(required, list | tuple) or not required:
            required = list(properties)[:MAX_OPTIONAL] if depth == 0 else []
        return {key: self.value(properties.get(key, {}), str(key), depth + 1) for key in required}

    def _array(self, schema: Schema, key: str, depth: int) -> list[Any]:
        if depth > MAX_DEPTH:
            return []
        first: Any = schema.get("prefixItems") or []
        least = int(min(_bound(schema, "minItems", 1), MAX_VALUES))
        rest = [schema.get("items") or {}] * (least - len(first))
        return [self.value(item, key, depth + 1) for item in [*first, *rest]]

    def _chosen(self, options: list[Any]) -> Any:
        """The option that the prompt mentions, or else the first."""
        words = {word.lower() for word in _WORD.findall(self._prompt)}
        return next((option for option in options if str(option).lower() in words), options[0])

    def _number(self, schema: Schema, step: float) -> float:
        """A number of the prompt, or one, kept within the schema's bounds; `step` leads off an excluded bound."""
        low = max(_bound(schema, "minimum", -math.inf), _bound(schema, "exclusiveMinimum", -math.inf) + step)
        high = min(_bound(schema, "maximum", math.inf), _bound(schema, "exclusiveMaximum", math.inf) - step)
        number = min(max(_next(self._numbers) if self._numbers else 1, low), high)
        if multiple := _bound(schema, "multipleOf", 0):
            number = math.ceil(number / multiple) * multiple
        return int(number) if number == int(number) else number

    def _string(self, schema: Schema, key: str) -> str:
        if (usual := _FORMATS.get(str(schema.get("format")))) is not None:
            return usual
        text = self._prompt if key.lower() in _WHOLE_PROMPT and self._prompt else _next(self._names)
        least, most = _bound(schema, "minLength", 0), _bound(schema, "maxLength", MAX_LENGTH)
        return text.ljust(int(min(least, MAX_LENGTH)), ".")[: int(most)]


def names_in(prompt: str) -> list[str]:
    """What looks like names: words with a capital letter that do not merely begin a sentence."""
    found = [
        match.group()
        for match in _NAME.finditer(prompt)
        if not _begins_sentence(prompt, match.start()) and match.group() not in _OURSELVES
    ]
    return list(dict.fromkeys(found))


def _begins_sentence(prompt: str, at: int) -> bool:
    before = prompt[max(0, at - 4) : at].rstrip()
    return not before or before[-1] in ".!?:"


def _longest_word(prompt: str) -> str:
    return max(_WORD.findall(prompt), key=len, default="something")


def _next(values: list[Any]) -> Any:
    """The first value, which is used up unless it is the last."""
    return values.pop(0) if len(values) > 1 else values[0]


def _bound(schema: Schema, key: str, usual: float) -> float:
    """A number that the schema names, if it is one."""
    bound = schema.get(key)
    return bound if isinstance(bound, int | float) and not isinstance(bound, bool) else usual


def _type_of(schema: Schema) -> str:
    kind = schema.get("type")
    if isinstance(kind, list):
        kind = next((name for name in kind if name != "null"), "null")
    if isinstance(kind, str):
        return kind.lower()  # Google writes them in capitals
    return "object" if "properties" in schema else "array" if "items" in schema else "string"


def _says(option: Any) -> bool:
    return isinstance(option, Mapping) and option.get("type") not in ("null", "NULL")


def _merged(parts: list[Schema]) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for part in parts:
        for key, value in part.items():
            match merged.get(key), value:
                case dict(old), Mapping():
                    merged[key] = {**old, **value}
                case list(old), list():
                    merged[key] = [*old, *value]
                case _:
                    merged[key] = value
    del merged["allOf"]
    return merged
