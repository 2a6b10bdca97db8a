"""The registry of dialects: name to `Dialect`."""

from __future__ import annotations

from functools import cache, lru_cache
from importlib import import_module

from penstock.dialects.dialect import PLAIN, Dialect, Dialects
from penstock.errors import UnknownDialectError

FAMILIES = (
    "marked", "bare", "named", "message", "tags", "elements", "keys",
    "gemma", "python",
)  # fmt: skip
"""The modules of `grammars`. Each has a table `DIALECTS`."""
ALIASES = {"xml": "anthropic_xml", "bare_json_array": "bare_json", "deepseek_v3_ascii": "deepseek_v3"}


@cache
def dialects() -> dict[str, Dialect]:
    """Returns all dialects by name."""
    rows: dict[str, Dialect] = {"plain": PLAIN}
    for family in FAMILIES:
        rows |= import_module(f"penstock.dialects.grammars.{family}").DIALECTS
    return rows


def find_dialect(name: str) -> tuple[str, Dialect]:
    """Returns the dialect with this name or alias, and its own name. Hyphens count as underscores."""
    known = dialects()
    plain = name.replace("-", "_")
    own_name = ALIASES.get(plain, plain)
    if own_name not in known:
        raise UnknownDialectError(name, (*known, *ALIASES))
    return own_name, known[own_name]


@lru_cache(maxsize=64)
def find_dialects(*names: str) -> Dialects:
    """Returns the dialects with these names or aliases: the same object for the same names."""
    return Dialects(dict(map(find_dialect, names)))
