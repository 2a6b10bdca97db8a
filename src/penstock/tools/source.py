"""Tool sources: tools that may change during a run, such as those of an MCP server."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from penstock.declarations import is_tool_list
from penstock.tools.tool import Tool, origin_of

Listing = tuple[Tool[..., Any], ...]


class ToolSource(ABC):
    """Tools that are listed again before each request to the model.

    Both methods return the same tuple until the tools change. They raise if the tools were never listed and cannot be;
    later, a list that cannot be brought up to date is returned as it is.
    """

    def __iter__(self) -> Iterator[Tool[..., Any]]:
        """The tools as they are now, for code that takes a list of tools."""
        return iter(self.listing())

    @property
    @abstractmethod
    def is_listed(self) -> bool:
        """Whether `listing` returns at once."""

    @abstractmethod
    def listing(self) -> Listing:
        """The tools as they are now. This may block."""

    @abstractmethod
    async def alisting(self) -> Listing:
        """The tools as they are now."""


def split_sources(tools: Any) -> tuple[Any, tuple[ToolSource, ...]]:
    """The tools of an agent that do not change, and its sources of tools that do."""
    if isinstance(tools, ToolSource):
        return (), (tools,)
    if not is_tool_list(tools):
        return tools, ()  # which the reader of tools refuses
    every = list(tools)
    sources = tuple(item for item in every if isinstance(item, ToolSource))
    return [item for item in every if not isinstance(item, ToolSource)], sources


def merge(
    own: Mapping[str, Tool[..., Any]], listings: Iterable[Listing]
) -> tuple[dict[str, Tool[..., Any]], list[str]]:
    """The tools by name, and a message for each listed tool that is left out because its name is taken.

    The caller's own tools come first: a server cannot replace one of them.
    """
    tools, problems = dict(own), list[str]()
    for listing in listings:
        for tool in listing:
            if tool.name in tools:
                problems.append(
                    f"two tools have the name {tool.name!r}: {origin_of(tools[tool.name])} and {origin_of(tool)}"
                )
            else:
                tools[tool.name] = tool
    return tools, problems
