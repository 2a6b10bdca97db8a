"""The dialects by name."""

from __future__ import annotations

from functools import cache
from importlib import import_module

from penstock.dialects.dialect import PLAIN, Dialect
from penstock.errors import UnknownDialectError

FAMILIES = (
    "marked", "bare", "named", "message", "tags", "elements", "keys",
    "gemma", "python",
)  # fmt: skip
"""The modules that hold dialects, each in a table `DIALECTS`."""
ALIASES = {"xml": "anthropic_xml", "bare_json_array": "bare_json", "deepseek_v3_ascii": "deepseek_v3"}


@cache
def dialects() -> dict[str, Dialect]:
    """All dialects: name to row."""
    found: dict[str, Dialect] = {"plain": PLAIN}
    for family in FAMILIES:
        found |= import_module(f"penstock.dialects.grammars.{family}").DIALECTS
    return found


def find_dialect(name: str) -> tuple[str, Dialect]:
    """The dialect of this name or alias, under its own name."""
    known = dialects()
    found = ALIASES.get(name.replace("-", "_"), name.replace("-", "_"))
    if found not in known:
        raise UnknownDialectError(name, (*known, *ALIASES))
    return found, known[found]
