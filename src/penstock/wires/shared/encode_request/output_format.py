"""Response formats: the schema of an output in the form that a provider enforces."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from penstock.declarations import OutputDeclaration
from penstock.schemas import InexpressibleError, Json, SchemaRules, fit_schema, without_lookaround

STRING_FORMATS = frozenset({"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"})
"""The formats of strings that most providers enforce."""

OPENAI_SCHEMAS = SchemaRules(
    keywords=frozenset({
        "title", "pattern", "format", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf",
        "minItems", "maxItems",
    }),
    formats=STRING_FORMATS,
    max_fields=5_000,
    max_values=1_000,
)  # fmt: skip
"""What OpenAI enforces, on both of its wires."""

GRAMMAR_REPEATS = 1_000
"""So many characters or items a grammar may not ask for: llama.cpp refuses 2,000, and counts what is in an item."""

GRAMMAR_SCHEMAS = SchemaRules(
    keywords=frozenset({
        "title", "oneOf", "allOf", "prefixItems", "format", "minimum", "maximum", "exclusiveMinimum",
        "exclusiveMaximum", "minLength", "maxLength", "minItems", "maxItems",
    }),
    formats=frozenset({"date", "time", "date-time", "uuid"}),
    are_closed=False,
    has_all_required=False,
    refs_are_alone=False,
    max_repeats=GRAMMAR_REPEATS,
)  # fmt: skip
"""What local servers turn into a grammar; a `pattern` without both anchors is an error there."""


@lru_cache(maxsize=128)
def enforced_schema(output: OutputDeclaration, rules: SchemaRules) -> Json | None:
    """The schema of an output as the provider enforces it; None if its rules cannot express it.

    Each request of a run needs the same, so it is kept.
    """
    try:
        return fit_schema(dict(output.schema), rules)
    except InexpressibleError:
        return None


def is_enforceable(output: OutputDeclaration | None, rules: SchemaRules) -> bool:
    """Whether there is an output that the rules of the provider can express."""
    return output is not None and enforced_schema(output, rules) is not None


def json_schema_format(output: OutputDeclaration, rules: SchemaRules) -> Json:
    """The fields of OpenAI's format `json_schema`; it is not strict if the rules cannot express the schema."""
    schema = enforced_schema(output, rules)
    described: Mapping[str, Any] = {"description": output.description} if output.description else {}
    is_strict = schema is not None and rules.are_closed
    return {
        "name": output.name,
        **described,
        "schema": schema or without_lookaround(dict(output.schema)),
        "strict": is_strict,
    }
