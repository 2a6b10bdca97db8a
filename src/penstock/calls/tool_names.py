"""The declared tool that the name of a call means, if templates or models have added to it."""

from __future__ import annotations

from collections.abc import Iterable

PREFIXES = "functions.", "default_api.", "default_api:"
"""Prefixes that chat templates write before the name of a tool."""


def meant_tool(name: str, declared: Iterable[str]) -> str:
    """The only declared tool that a name can mean; "" if there is none, or several.

    Template additions, `()` and the case of letters are ignored, in this order: `functions.weather:0`, `Weather()`.
    """
    tools = frozenset(declared)
    names = {name} if name in tools else _without_template(name)
    for spelled in (names, {each.removesuffix("()").rstrip() for each in names}):
        if found := spelled & tools:
            return _only(found)
    folded = {each.removesuffix("()").rstrip().casefold() for each in names}
    return _only({tool for tool in tools if tool.casefold() in folded})


def _only(names: Iterable[str]) -> str:
    first, *others = [*names] or [""]
    return "" if others else first


def _without_template(name: str) -> set[str]:
    """The possible names without the additions of a template (QUIRKS 174): a prefix, the number of the call."""
    names = {name}
    for prefix in PREFIXES:
        names |= {variant.removeprefix(prefix) for variant in names}
    return names | {variant.rpartition(":")[0] for variant in names if variant.rpartition(":")[2].isdecimal()}
