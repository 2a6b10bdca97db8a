"""The facts of OpenAI's Responses."""

from __future__ import annotations

from penstock.wires.shared.facts import HostedTool, IdRules, StateFacts, WireFacts
from penstock.wires.shared.token_counts import UsageTable

_CALLS_WITH_OUTPUT_ITEMS = ("computer_call", "shell_call", "local_shell_call", "apply_patch_call")
"""The items of hosted calls that have an output item of their own; all others contain their output."""
CLIENT_ITEMS = frozenset({*_CALLS_WITH_OUTPUT_ITEMS, "mcp_approval_request"})
"""The items that the client must act on, unless their output is in the same response."""

FACTS = WireFacts(
    wire="openai-responses",
    ids=IdRules(max_length=64),
    max_name=128,
    states=(
        StateFacts("message", on="text"),
        StateFacts("function_call", on="call"),
        StateFacts("custom_tool_call", on="call"),
        StateFacts("reasoning", on="reasoning"),
    ),
    hosted_tools=tuple(
        HostedTool(calls=(call,), results=f"{call}_output", call_id="call_id", result_id="call_id")
        for call in _CALLS_WITH_OUTPUT_ITEMS
    ),
    item_id="id",
    results_may_come_late=True,
    export_extra={"store": True},  # items that the provider stores are written by their id
)

USAGE = UsageTable(
    input=("input_tokens", "prompt_tokens"),
    output=("output_tokens", "completion_tokens"),
    cached=("input_tokens_details.cached_tokens", "prompt_tokens_details.cached_tokens"),
    cache_write=("input_tokens_details.cache_write_tokens", "prompt_tokens_details.cache_write_tokens"),
    reasoning=("output_tokens_details.reasoning_tokens", "completion_tokens_details.reasoning_tokens"),
    total=("total_tokens",),
)
