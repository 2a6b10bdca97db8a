"""Finds the declared tool for a call name with additions, such as the prefix of a chat template."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.calls.tool_names import meant_tool
from penstock.declarations import ToolDeclaration
from penstock.dialects.reading.schema import Schema

CONTROL_TOKENS, NAME_OF_TEMPLATE = 31, 174


class ToolNames:
    """The names of the tools that a request declares."""

    def __init__(self, tools: Iterable[ToolDeclaration]) -> None:
        self._tools = {tool.name: tool for tool in tools if tool.hosted is None}
        self._declared = frozenset(self._tools)

    def has(self, name: str) -> bool:
        """Whether a tool has this name; any is right if none is declared."""
        return name in self._declared or not self._declared

    def schema(self, name: str) -> Schema | None:
        """The schema of the arguments of a tool; None if no tool has this name."""
        tool = self._tools.get(name)
        return None if tool is None else Schema(tool.parameters, tool.parameters)

    def declared_name(self, name: str) -> tuple[str, int]:
        """The declared name for a name, and its quirk; 0 if the name is declared, or matches no tool."""
        if self.has(name):
            return name, 0
        plain, mark, _ = name.partition("<|")  # QUIRKS 31: control tokens after the name
        tool = meant_tool(plain.strip(), self._declared)
        return (tool, CONTROL_TOKENS if mark else NAME_OF_TEMPLATE) if tool else (name, 0)
