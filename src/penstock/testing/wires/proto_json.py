"""JSON of protocol buffers, as Google reads it: field names in either case, and bytes in either alphabet of base64."""

from __future__ import annotations

import re
from base64 import b64decode
from binascii import Error as Base64Error
from typing import Any

_FREE = frozenset({
    "args", "response", "parameters", "parametersJsonSchema", "responseSchema", "responseJsonSchema", "labels",
})  # fmt: skip
"""Fields with names of their own in them."""


def camel_case(value: Any) -> Any:
    """A message with the names of its fields in camel case; they may have come in snake case."""
    match value:
        case dict():
            named = ((_camel(name), item) for name, item in value.items())
            return {name: item if name in _FREE else camel_case(item) for name, item in named}
        case list():
            return [*map(camel_case, value)]
    return value


def _camel(name: Any) -> Any:
    return re.sub(r"(?<=[a-z0-9])_([a-z0-9])", lambda match: match[1].upper(), name)


def standard_base64(text: str) -> str:
    """The bytes of a field in the standard alphabet of base64."""
    return text.translate({ord("-"): "+", ord("_"): "/"})


def decoded(text: str) -> str:
    """The bytes of a field as text; empty if they are not text in base64."""
    try:
        return b64decode(standard_base64(text), validate=True).decode()
    except (Base64Error, ValueError):
        return ""
