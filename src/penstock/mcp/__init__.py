"""MCP: the tools of Model Context Protocol servers, for agents. It needs the extra `mcp`."""

from penstock.mcp.errors import ServerError
from penstock.mcp.server import MCPTools, tools

__all__ = ["MCPTools", "ServerError", "tools"]
