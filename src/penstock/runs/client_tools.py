"""Tools that the client of a run declares. They are in the start of the run, and their calls are deferred."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from penstock.agent.config import AgentConfig
from penstock.errors import UsageError
from penstock.tools.tool import Tool
from penstock.tools.tool_table import tool_table

CLIENT_TOOLS = "client_tools"
"""Where the declarations are in the `meta` of a run."""


def with_declarations(meta: Any, tools: Iterable[Mapping[str, Any]]) -> Any:
    """The `meta` of a run with these client tools; a `UsageError` if one cannot be declared to a model."""
    declarations = [_declaration(tool) for tool in _client_tools(tools)]
    if not declarations:
        return meta
    if meta is not None and not isinstance(meta, dict):
        raise UsageError("the meta of a run with client_tools must be a dict")
    return {**(meta or {}), CLIENT_TOOLS: declarations}


def with_client_tools(config: AgentConfig, meta: Any) -> AgentConfig:
    """The configuration of a run whose client may have tools. Tools of the agent hide those of the same name."""
    declarations = meta.get(CLIENT_TOOLS) if isinstance(meta, dict) else None
    if not declarations:
        return config
    tools = {tool.name: tool for tool in _client_tools(declarations) if tool.name not in config.tools}
    return replace(config, tools={**config.tools, **tools})


def client_tool_names(config: AgentConfig, meta: Any) -> frozenset[str]:
    """The names of the client tools in such a configuration."""
    return frozenset(with_client_tools(config, meta).tools) - frozenset(config.tools)


def _client_tools(declarations: Iterable[Mapping[str, Any]]) -> list[Tool[..., Any]]:
    tools = [*tool_table(declarations).values()]
    if any(tool.is_hosted or not tool.is_deferred for tool in tools):
        raise UsageError(
            "client_tools must be declarations, each with a name, a description and the schema of its arguments"
        )
    return tools


def _declaration(tool: Tool[..., Any]) -> dict[str, Any]:
    return {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
