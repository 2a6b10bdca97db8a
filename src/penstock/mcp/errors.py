"""The error of an MCP server, and the check that its SDK is installed."""

from __future__ import annotations

from importlib.util import find_spec

from penstock.errors import ToolError, UsageError


class ServerError(ToolError):
    """An MCP server cannot be reached, ended the connection, or answered with an error; the model reads the message."""


def expect_sdk() -> None:
    """Raise a `UsageError` unless the SDK is installed."""
    if find_spec("mcp") is None or find_spec("mcp_types") is None:
        raise UsageError("MCP servers need the official SDK, version 2: pip install 'penstock-llm[mcp]'")
