"""The facts of Anthropic's Messages."""

from __future__ import annotations

from penstock.wires.shared.claude import CLAUDE_SCHEMAS
from penstock.wires.shared.facts import (
    CHANGED_ARGUMENTS,
    CHANGED_NAMES,
    CHOICES,
    CUSTOM_CALLS,
    LATE_IDS,
    REFUSALS,
    SEEMING_CALLS,
    VENDOR_CALLS,
    WORD,
    Deferral,
    HostedTool,
    IdRules,
    Loss,
    StateFacts,
    WireFacts,
)
from penstock.wires.shared.token_counts import UsageTable, WrittenCount

STATE_BLOCKS = {
    "redacted_thinking", "compaction", "container_upload", "fallback", "mcp_tool_listing", "search_result",
}  # fmt: skip
STATE_ENDINGS = ("_tool_use", "_tool_result")
"""The blocks of an assistant message that are vendor state as a whole, and how the types of others end."""

DEFERRAL = Deferral(
    flag="defer_loading",
    reference="tool_reference",
    name="tool_name",
    results="tool_search_tool_result",
    references="tool_references",
    searches=("tool_search_tool_regex", "tool_search_tool_bm25"),
    addition="tool_addition",
    removal="tool_removal",
)

FACTS = WireFacts(
    wire="anthropic",
    ids=IdRules(alphabet=WORD),
    max_name=128,
    states=(
        StateFacts("signature", on="reasoning", data="text", is_signature=True),
        StateFacts("citations", on="text", data="list"),
        StateFacts("caller", on="call"),
        StateFacts("toolset_name", on="call", data="text"),
        StateFacts("container", data="any"),
        StateFacts("compaction", text="own"),
    ),
    system_headers="x-anthropic-",
    passed_headers=("anthropic-beta",),
    hosted_tools=(
        HostedTool(
            calls=("server_tool_use", "mcp_tool_use"),
            results="*_tool_result",
            call_id="id",
            result_id="tool_use_id",
        ),
    ),
    deferral=DEFERRAL,
    system_blocks=(DEFERRAL.addition, DEFERRAL.removal),
    caller=("caller", "tool_id"),
    continued_by=("thread",),
    takes_blank=False,
    takes_message_fields=False,
    losses=(
        CHANGED_ARGUMENTS,
        CHANGED_NAMES,
        CHOICES,
        CUSTOM_CALLS,
        LATE_IDS,
        REFUSALS,
        SEEMING_CALLS,
        Loss("explanations", "dropped", "only a refusal and a stop sequence have one"),
        VENDOR_CALLS,
    ),
    output=CLAUDE_SCHEMAS,
)

USAGE = UsageTable(
    input=("input_tokens",),
    output=("output_tokens",),
    parts={
        "cached_tokens": ("cache_read_input_tokens",),
        "cache_write_tokens": ("cache_creation_input_tokens",),
        "reasoning_tokens": ("output_tokens_details.thinking_tokens",),
    },
    cache_extent="left_out",
    written=(
        WrittenCount("input_tokens", "plain_input"),
        WrittenCount("cache_creation_input_tokens", "cache_write_tokens"),
        WrittenCount("cache_read_input_tokens", "cached_tokens"),
        WrittenCount("output_tokens", "output_tokens"),
        WrittenCount("output_tokens_details.thinking_tokens", "reasoning_tokens", unless_zero=("reasoning_tokens",)),
    ),
)
