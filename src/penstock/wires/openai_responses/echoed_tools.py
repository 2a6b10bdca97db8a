"""The tools that a response repeats from its request: they tell custom tools of the client from hosted ones."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from penstock.wires.openai_responses.text_part import text_of
from penstock.wires.shared.loose import items


class EchoedTools:
    """The names of the tools that the response repeats; `tools` are those that the caller declared."""

    def __init__(self, tools: Collection[str]) -> None:
        self._tools = tools
        self._echoed: set[str] = set()
        self._has_echo = False

    def is_declared(self, name: str) -> bool:
        """Whether a custom tool is the client's."""
        return not self._has_echo or name in self._echoed or name in self._tools

    def read(self, response: Any) -> None:
        """Reads the tools that the response repeats."""
        tools = response.get("tools") if isinstance(response, dict) else None
        self._has_echo |= bool(tools) or (tools == [] and bool(self._tools))  # an empty one may just be a default
        for tool in items(tools):
            if isinstance(tool, dict):
                self._echoed.add(text_of(tool.get("name")))
