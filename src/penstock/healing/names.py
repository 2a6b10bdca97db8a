"""Finds the declared tool for a call name with additions, such as the prefix of a chat template."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.declarations import ToolDeclaration

CONTROL_TOKENS, NAME_OF_TEMPLATE = 31, 174

PREFIXES = "functions.", "default_api.", "default_api:"
"""Prefixes that chat templates write before the name of a tool."""


class ToolNames:
    """The names of the tools that a request declares."""

    def __init__(self, tools: Iterable[ToolDeclaration]) -> None:
        self._declared = frozenset(tool.name for tool in tools if tool.hosted is None)

    def has(self, name: str) -> bool:
        """Whether a tool has this name; any is right if none is declared."""
        return name in self._declared or not self._declared

    def declared_name(self, name: str) -> tuple[str, int]:
        """The declared name for a name, and its quirk; 0 if the name is declared, or matches no tool."""
        if self.has(name):
            return name, 0
        plain, mark, _ = name.partition("<|")  # QUIRKS 31: control tokens after the name
        plain = plain.strip()
        tools = {plain} & self._declared or _without_template(plain) & self._declared
        if len(tools) != 1:  # nor is a tool guessed if several can be meant
            return name, 0
        return tools.pop(), CONTROL_TOKENS if mark else NAME_OF_TEMPLATE


def _without_template(name: str) -> set[str]:
    """The possible names without the additions of a template (QUIRKS 174): a prefix, the number of the call."""
    names = {name}
    for prefix in PREFIXES:
        names |= {variant.removeprefix(prefix) for variant in names}
    return names | {variant.rpartition(":")[0] for variant in names if variant.rpartition(":")[2].isdecimal()}
