"""The facts of Google's Interactions."""

from __future__ import annotations

from penstock.wires.shared.facts import (
    CACHE_WRITE_COUNTS,
    CHANGED_ARGUMENTS,
    CHANGED_NAMES,
    CHOICES,
    CUSTOM_CALLS,
    FINISH_MESSAGES,
    LATE_IDS,
    REFUSALS,
    SEEMING_CALLS,
    VENDOR_CALLS,
    HostedTool,
    Loss,
    StateFacts,
    WireFacts,
)
from penstock.wires.shared.google import GOOGLE_SCHEMAS
from penstock.wires.shared.token_counts import UsageTable, WrittenCount

MEDIA = ("image", "audio", "video", "document")
"""The types of content that are not text."""
HOSTED_TOOLS = (
    "google_search", "code_execution", "url_context", "file_search", "google_maps", "retrieval", "processing",
    "mcp_server_tool",
)  # fmt: skip
"""The tools that Google runs, as the types of their steps begin."""
STATE_ENDINGS = ("_call", "_result")
"""How the types of steps of hosted tools end; new ones are kept too."""
OLD_EVENTS = frozenset({
    "interaction.start", "interaction.complete", "content.start", "content.delta", "content.stop",
})  # fmt: skip
"""The events of versions before May 2026, which Google no longer sends."""
SIGNATURE, ANNOTATIONS, CONTINUATION = "signature", "annotations", "continuation_token"
"""Kinds of vendor state on thoughts and calls, on texts, and of a response that another request continues."""

FACTS = WireFacts(
    wire="gemini-interactions",
    name_characters=".:",
    states=(
        StateFacts(SIGNATURE, data="text", is_signature=True),
        StateFacts(ANNOTATIONS, on="text", data="list"),
        StateFacts(CONTINUATION, data="text"),
    ),
    hosted_tools=tuple(
        HostedTool(calls=(f"{tool}_call",), results=f"{tool}_result", call_id="id", result_id="call_id")
        for tool in HOSTED_TOOLS
    ),
    continued_by=("previous_interaction_id",),
    kept_fields=("cached_content", "environment"),
    system_field="system",
    losses=(
        CACHE_WRITE_COUNTS,
        CHANGED_ARGUMENTS,
        CHANGED_NAMES,
        CHOICES,
        Loss("content_filters", "changed", "no status says that content was filtered"),
        CUSTOM_CALLS,
        FINISH_MESSAGES,
        LATE_IDS,
        REFUSALS,
        SEEMING_CALLS,
        VENDOR_CALLS,
    ),
    output=GOOGLE_SCHEMAS,
)

USAGE = UsageTable(
    input=("total_input_tokens",),
    more_input=("total_tool_use_tokens",),
    output=("total_output_tokens",),
    parts={"cached_tokens": ("total_cached_tokens",), "reasoning_tokens": ("total_thought_tokens",)},
    total=("total_tokens",),
    reasoning_extent="left_out",
    written=(
        WrittenCount("total_input_tokens", "input_tokens"),
        WrittenCount("total_output_tokens", "plain_output"),
        WrittenCount("total_thought_tokens", "reasoning_tokens"),
        WrittenCount("total_cached_tokens", "cached_tokens"),
        WrittenCount("total_tokens", "total"),
    ),
)
