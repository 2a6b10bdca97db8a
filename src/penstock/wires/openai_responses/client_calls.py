"""Calls of tools that OpenAI defines and the client runs: the tool, the arguments and the kind of an item."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from penstock.calls.arguments import strict_object
from penstock.events import CallKind
from penstock.wires.openai_responses.facts import CLIENT_CALLS


def runs_here(item: Mapping[str, Any]) -> bool | None:
    """Whether the client must act on an item; None if only the rest of the response shows it."""
    match item:
        case {"type": "shell_call", "environment": {"type": str(kind)}}:
            return kind == "local"
        case {"type": "shell_call"}:
            return None
        case {"type": "tool_search_call"}:
            return item.get("execution") == "client"
        case {"type": str(kind)}:
            return kind in CLIENT_CALLS
        case _:
            return False


def kind_of(item: Mapping[str, Any]) -> CallKind:
    """The kind of the call that an item is."""
    return "approval" if item["type"] == "mcp_approval_request" else "vendor"


def checks_of(item: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What OpenAI wants a person to confirm before the call of an item runs."""
    checks: Any = item.get("pending_safety_checks")
    return [dict(check) for check in checks if isinstance(check, Mapping)] if isinstance(checks, list) else []


def tool_of(item: Mapping[str, Any], declared: Sequence[str] = ()) -> str:
    """The name of the tool that an item calls: the type with which it is declared, or the label of an MCP server."""
    if kind_of(item) == "approval" and isinstance(item.get("server_label"), str):
        return str(item["server_label"])
    names = CLIENT_CALLS[item["type"]].tools
    return next((name for name in names if name in declared), names[0])


def arguments_of(item: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a call: the fields of its item, or the arguments of a search."""
    arguments = {field: item[field] for field in CLIENT_CALLS[item["type"]].fields if item.get(field) is not None}
    match arguments.get("arguments"):
        case dict(inner) if item["type"] == "tool_search_call":
            return inner
        case str(text) if (parsed := strict_object(text)) is not None:
            return arguments | {"arguments": parsed}
        case _:
            return arguments
