"""The generated tables of the README: `python -m tests.readme` prints them."""

from __future__ import annotations

import sys
from importlib import import_module

from penstock.dialects.registry import FAMILIES
from penstock.providers import PROVIDERS
from penstock.wires import ALIASES, WIRES
from tests.dialect_page import FAMILY, entry

PROTOCOLS = {
    "openai-chat": "OpenAI Chat Completions", "openai-responses": "OpenAI Responses", "anthropic": "Anthropic Messages",
    "gemini": "Gemini", "gemini-interactions": "Gemini Interactions",
    "ollama": "Ollama", "cohere": "Cohere v2", "bedrock": "Bedrock Converse",
}  # fmt: skip


def providers() -> str:
    """Which providers speak which wire."""
    rows = ["| wire | protocol | providers |", "|---|---|---|"]
    for wire in WIRES:
        names = ", ".join(f"`{name}`" for name, row in PROVIDERS.items() if wire in (row.wire, *row.other_wires))
        called = ", also ".join(f"`{name}`" for name in (wire, *(alias for alias in ALIASES if ALIASES[alias] == wire)))
        protocol = entry(PROTOCOLS, wire, "PROTOCOLS in tests/readme.py")
        rows.append(f"| {called} | {protocol} | {names} |")
    return "\n".join(rows) + "\n"


def dialects() -> str:
    """Which dialects are of which family."""
    rows = ["| family | a call is | dialects |", "|---|---|---|"]
    for family in FAMILIES:
        name, what = entry(FAMILY, family, "FAMILY in tests/dialect_page.py")
        rows_of = import_module(f"penstock.dialects.grammars.{family}").DIALECTS
        rows.append(f"| {name} | {what} | {', '.join(f'`{dialect}`' for dialect in sorted(rows_of))} |")
    return "\n".join(rows) + "\n"


if __name__ == "__main__":
    sys.stdout.write(f"{providers()}\n{dialects()}")
