"""What the wires of Google share: versions of models, schemas of outputs, and codes of errors."""

from __future__ import annotations

import re

from penstock.schemas import SchemaRules

_VERSION = re.compile(r"gemini-(\d+)")

GOOGLE_SCHEMAS = SchemaRules(
    keywords=frozenset({"title", "format", "minItems", "maxItems", "minimum", "maximum", "prefixItems"}),
    formats=None,
    are_closed=False,
    has_all_required=False,
    has_const=False,
)
"""What the schema of a response format may have."""

GOOGLE_ERRORS = {
    400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED", 404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED", 500: "INTERNAL", 503: "UNAVAILABLE", 504: "DEADLINE_EXCEEDED",
}  # fmt: skip
"""The error codes by HTTP status."""


def model_version(model: str) -> int:
    """The major version of a model; names without a number (`gemini-flash-latest`) mean the newest."""
    match = _VERSION.search(model)
    return int(match[1]) if match else 3 if "gemini" in model else 0
