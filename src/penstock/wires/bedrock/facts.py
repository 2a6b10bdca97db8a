"""The facts of Bedrock's Converse."""

from __future__ import annotations

from penstock.wires.shared.claude import CLAUDE_SCHEMAS
from penstock.wires.shared.facts import (
    CHANGED_ARGUMENTS,
    CHANGED_NAMES,
    CHOICES,
    CUSTOM_CALLS,
    FINISH_MESSAGES,
    LATE_IDS,
    REASONING_COUNTS,
    REFUSALS,
    SEEMING_CALLS,
    VENDOR_CALLS,
    WORD,
    HostedTool,
    IdRules,
    StateFacts,
    WireFacts,
)
from penstock.wires.shared.token_counts import UsageTable, WrittenCount

FACTS = WireFacts(
    wire="bedrock",
    marked_messages=2,
    ids=IdRules(alphabet=WORD + ".:", max_length=64),
    states=(
        StateFacts("signature", on="reasoning", data="text", is_signature=True),
        StateFacts("redactedContent", on="reasoning", data="text", is_signature=True),
        StateFacts("citations", on="text", data="list"),
    ),
    hosted_tools=(HostedTool(calls=("toolUse",), results="toolResult", call_id="toolUseId", result_id="toolUseId"),),
    system_field="system",
    takes_blank=False,
    losses=(
        CHANGED_ARGUMENTS,
        CHANGED_NAMES,
        CHOICES,
        CUSTOM_CALLS,
        FINISH_MESSAGES,
        LATE_IDS,
        REASONING_COUNTS,
        REFUSALS,
        SEEMING_CALLS,
        VENDOR_CALLS,
    ),
    output=CLAUDE_SCHEMAS,
)

METRICS = "amazon-bedrock-invocationMetrics"
"""The field that the last chunk of every model has in InvokeModelWithResponseStream."""
_CACHE = ("cached_tokens", "cache_write_tokens")
USAGE = UsageTable(
    input=("inputTokens", f"{METRICS}.inputTokenCount"),
    output=("outputTokens", f"{METRICS}.outputTokenCount"),
    parts={
        "cached_tokens": ("cacheReadInputTokens", "cacheReadInputTokenCount"),
        "cache_write_tokens": ("cacheWriteInputTokens", "cacheWriteInputTokenCount"),
    },
    cache_extent="left_out",
    written=(
        WrittenCount("inputTokens", "plain_input"),
        WrittenCount("outputTokens", "output_tokens"),
        WrittenCount("totalTokens", "total"),
        WrittenCount("cacheReadInputTokens", "cached_tokens", unless_zero=_CACHE),
        WrittenCount("cacheWriteInputTokens", "cache_write_tokens", unless_zero=_CACHE),
    ),
)
