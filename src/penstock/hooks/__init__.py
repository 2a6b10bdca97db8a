"""Hooks for agents: shorter histories and results, tool search, fallback models, stop conditions, approval by origin.

Each function or class here makes a hook for `before_step`, `before_call` or `after_call`. Several are a list:
`before_step=[compact(50_000), fallback("openai:gpt-5")]`.
"""

from __future__ import annotations

from penstock.history.tokens import estimate_tokens
from penstock.hooks.ask import ask_if_from
from penstock.hooks.compaction import compact
from penstock.hooks.fallback import fallback
from penstock.hooks.large_results import LargeResults
from penstock.hooks.stop import stop_after, stop_when
from penstock.hooks.tool_search import ToolSearch

__all__ = [
    "LargeResults",
    "ToolSearch",
    "ask_if_from",
    "compact",
    "estimate_tokens",
    "fallback",
    "stop_after",
    "stop_when",
]
