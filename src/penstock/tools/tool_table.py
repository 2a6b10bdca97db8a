"""The tools of an agent by their names, from a list of functions, tools and declarations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from penstock.declarations import check_tool_list, read_declarations
from penstock.errors import UsageError
from penstock.tools.tool import Tool, as_tool, origin_of


def as_tools(tools: Iterable[Any] | None) -> list[Tool[..., Any]]:
    """Converts each to a `Tool`; one declaration may hold several."""
    sources = tools or ()
    check_tool_list(sources)
    groups = (read_declarations([source]) if isinstance(source, Mapping) else [source] for source in sources)
    return [as_tool(source) for group in groups for source in group]


def tool_table(tools: Iterable[Any] | None) -> dict[str, Tool[..., Any]]:
    """The tools by name, which must be unique; hosted tools that nothing here runs may share one, and get a number."""
    table: dict[str, Tool[..., Any]] = {}
    every = as_tools(tools)
    counts = Counter(tool.name for tool in every)
    for tool in every:
        is_shared = counts[tool.name] > 1 or not tool.name
        name = f"hosted:{len(table)}" if tool.is_hosted and tool.is_deferred and is_shared else tool.name
        if name in table:
            raise UsageError(
                f"two tools have the name {name!r}: {origin_of(table[name])} and {origin_of(tool)}; rename one of them"
            )
        table[name] = tool
    return table
