"""Why cells of the table are not right, or not there: a test compares these reasons with the table."""

from __future__ import annotations

from tests.agents.table import Column

_OTHER_PROTOCOL = "the server speaks only Chat Completions; the agent's column with Chat has direct results"
_ONE_PROTOCOL = "through LiteLLM the agent is measured on Chat Completions"

MISSING = {
    ("codex", "openai-responses", "direct"): "codex speaks only Responses, and the server only Chat Completions",
    ("claude", "anthropic", "direct"): "Claude Code speaks only Messages, and the server only Chat Completions",
    ("gemini", "gemini", "direct"): "Gemini CLI speaks only Gemini's protocol, and the server only Chat Completions",
    **{
        (agent, wire, route): reason
        for agent in ("opencode", "pi")
        for wire in ("openai-responses", "anthropic", "gemini")
        for route, reason in (("direct", _OTHER_PROTOCOL), ("litellm", _ONE_PROTOCOL))
    },
}
"""Columns that are not there: agent, wire and route."""

WRONG: dict[tuple[str, str, str], str] = {}
"""Cells through the gateway that cannot be right: agent, wire and row."""


def reason_for(column: Column, row: str) -> str:
    """Why a cell through the gateway is wrong; empty if there is no reason."""
    return WRONG.get((column.agent, column.wire, row), "")
