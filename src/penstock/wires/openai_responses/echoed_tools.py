"""The tools that a response repeats from its request: they tell custom tools of the client from hosted ones."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from penstock.wires.openai_responses.text_part import text_of
from penstock.wires.shared.decode_response.loose import items


class EchoedTools:
    """The names of the tools that the response repeats; `tools`: the caller's declared tools."""

    def __init__(self, tools: Collection[str]) -> None:
        self._tools = tools
        self._echoed: set[str] = set()
        self._has_echo = False
        self._answers: dict[str, bool] = {}  # cached results of `is_declared`

    def is_declared(self, name: str) -> bool:
        """Whether a custom tool is the client's. The first answer stands: the tools may be repeated after the call."""
        is_declared = not self._has_echo or name in self._echoed or name in self._tools
        return self._answers.setdefault(name, is_declared)

    def read(self, response: Any) -> None:
        """Reads the tools that the response repeats."""
        tools = response.get("tools") if isinstance(response, dict) else None
        self._has_echo |= bool(tools) or (tools == [] and bool(self._tools))  # an empty one may just be a default
        for tool in items(tools):
            if isinstance(tool, dict):
                self._echoed.update(_names(tool))


def _names(tool: dict[str, Any]) -> Iterator[str]:
    """The name of a tool, and of the tools in it if it is a namespace."""
    yield text_of(tool.get("name"))
    for inner in items(tool.get("tools")):
        if isinstance(inner, dict):
            yield text_of(inner.get("name"))
