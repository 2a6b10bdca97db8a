"""Generates values that match a JSON Schema: deterministic, and where possible with words of a prompt."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

MAX_DEPTH = 6
"""The depth of generated values; schemas may refer to themselves."""
MAX_VALUES = 1000
"""The number of generated values, whatever the schema requires; further values are null."""
MAX_OPTIONAL = 3
"""The number of properties that are generated if none is required."""
MAX_LENGTH = 10_000
"""The length of a generated string, whatever the schema requires."""

_FORMATS = {
    "date": "2026-01-01", "time": "12:00:00Z", "date-time": "2026-01-01T12:00:00Z", "duration": "PT1H",
    "email": "ada@example.com", "hostname": "example.com", "uri": "https://example.com/", "url": "https://example.com/",
    "ipv4": "192.0.2.1", "ipv6": "2001:db8::1", "uuid": "00000000-0000-4000-8000-000000000000",
}  # fmt: skip
_WHOLE_PROMPT = {"query", "q", "question", "prompt", "text", "message", "input", "search", "search_query", "request"}
_NAME = re.compile(r"\b[A-ZÀ-ÖØ-Þ][\w'’-]*(?: [A-ZÀ-ÖØ-Þ][\w'’-]*)*")
_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?![\w])")
_QUOTED = re.compile(r"\"([^\"\n]+)\"|“([^”\n]+)”|`([^`\n]+)`|(?<!\w)'([^'\n]+)'(?!\w)")
_WORD = re.compile(r"\w+")
_OURSELVES = {"I", "I'm", "I’m", "I'd", "I’d", "I'll", "I’ll", "I've", "I’ve"}

Schema = Mapping[str, Any]


class Sampler:
    """Generates the arguments of one call, using names and numbers of the prompt in turn; the last one is repeated.

    A string is what the prompt has after the name of the argument (`order 17`), a quotation, a name or a number.
    """

    def __init__(self, prompt: str, root: Schema, first_name: int = 0) -> None:
        self._prompt = prompt
        self._root = root
        self._left = MAX_VALUES
        numbers = _NUMBER.findall(prompt)
        self._names = names_in(prompt)[first_name:] or numbers or [_longest_word(prompt)]
        self._numbers = [float(number) for number in numbers]
        self._quotations = quotations_in(prompt)

    def arguments(self) -> dict[str, Any]:
        """Arguments that match the schema."""
        return self._object(self._resolved(self._root), 0)

    def value(self, schema: Any, key: str = "", depth: int = 0) -> Any:
        """A value that matches a schema."""
        self._left -= 1
        if self._left < 0:
            return None
        schema = self._resolved(schema)
        for keyword in ("const", "default"):
            if keyword in schema:
                return schema[keyword]
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
        """The schema with its references followed, and with the first alternative that is not null."""
        for _ in range(MAX_DEPTH):
            match schema:
                case {"$ref": str(path)}:
                    schema = self._schema_at(path)
                case {"anyOf": [*options]} | {"oneOf": [*options]} if options:
                    rest = {key: value for key, value in schema.items() if key not in ("anyOf", "oneOf")}
                    schema = {**rest, **next((option for option in options if _is_not_null(option)), {})}
                case {"allOf": [*parts]} if parts:
                    schema = _merged([{**schema, "allOf": []}, *map(self._resolved, parts)])
                case _:
                    break
        return schema if isinstance(schema, Mapping) else {}

    def _schema_at(self, path: str) -> Any:
        node: Any = self._root
        for step in path.removeprefix("#").strip("/").split("/"):
            if step:
                node = node.get(step, {}) if isinstance(node, Mapping) else {}
        return node

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
        """The option that the prompt mentions, or the first."""
        words = {word.lower() for word in _WORD.findall(self._prompt)}
        return next((option for option in options if str(option).lower() in words), options[0])

    def _number(self, schema: Schema, step: float) -> float:
        """A number of the prompt, or 1, within the bounds; `step` is the distance to an exclusive bound."""
        low = max(_bound(schema, "minimum", -math.inf), _bound(schema, "exclusiveMinimum", -math.inf) + step)
        high = min(_bound(schema, "maximum", math.inf), _bound(schema, "exclusiveMaximum", math.inf) - step)
        number = min(max(_next(self._numbers) if self._numbers else 1, low), high)
        if multiple := _bound(schema, "multipleOf", 0):
            number = math.ceil(number / multiple) * multiple
        return int(number) if number == int(number) else number

    def _string(self, schema: Schema, key: str) -> str:
        if (usual := _FORMATS.get(str(schema.get("format")))) is not None:
            return usual
        text = self._named(key) or self._text(key)
        least, most = _bound(schema, "minLength", 0), _bound(schema, "maxLength", MAX_LENGTH)
        return text.ljust(int(min(least, MAX_LENGTH)), ".")[: int(most)]

    def _named(self, key: str) -> str:
        """The number or the quotation that follows the name of the argument in the prompt; empty if none does."""
        words = [word for word in re.split(r"[\W_]+", key) if word.lower() not in ("", "id", "number", "name")]
        for match in re.finditer(rf"(?i)\b{re.escape(words[0])}\W{{1,3}}", self._prompt) if words else ():
            start = match.end()
            if number := _NUMBER.match(self._prompt, start):
                return number.group()
            if quotation := _QUOTED.match(self._prompt, start) or _QUOTED.match(self._prompt, start - 1):
                return _content(quotation)
        return ""

    def _text(self, key: str) -> str:
        if self._quotations:
            return self._quotations.pop(0)
        text: str = self._prompt if key.lower() in _WHOLE_PROMPT and self._prompt else _next(self._names)
        return text


def quotations_in(prompt: str) -> list[str]:
    """What stands in quotation marks."""
    return [_content(match) for match in _QUOTED.finditer(prompt)]


def _content(quotation: re.Match[str]) -> str:
    return next(group for group in quotation.groups() if group is not None)


def names_in(prompt: str) -> list[str]:
    """Words with a capital letter that do not begin a sentence."""
    names = [
        match.group()
        for match in _NAME.finditer(prompt)
        if not _begins_sentence(prompt, match.start()) and match.group() not in _OURSELVES
    ]
    return list(dict.fromkeys(names))


def _begins_sentence(prompt: str, position: int) -> bool:
    before = prompt[max(0, position - 4) : position].rstrip()
    return not before or before[-1] in ".!?:"


def _longest_word(prompt: str) -> str:
    return max(_WORD.findall(prompt), key=len, default="something")


def _next(values: list[Any]) -> Any:
    """Takes the first value; the last one stays."""
    return values.pop(0) if len(values) > 1 else values[0]


def _bound(schema: Schema, key: str, usual: float) -> float:
    """The number under a keyword of the schema, or `usual`."""
    bound = schema.get(key)
    return bound if isinstance(bound, int | float) and not isinstance(bound, bool) else usual


def _type_of(schema: Schema) -> str:
    kind = schema.get("type")
    if isinstance(kind, list):
        kind = next((name for name in kind if name != "null"), "null")
    if isinstance(kind, str):
        return kind.lower()  # Google writes types in capitals
    return "object" if "properties" in schema else "array" if "items" in schema else "string"


def _is_not_null(option: Any) -> bool:
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
