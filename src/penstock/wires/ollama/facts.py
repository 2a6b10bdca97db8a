"""The facts of Ollama's /api/chat."""

from __future__ import annotations

from penstock.wires.shared.encode_request.output_format import GRAMMAR_SCHEMAS
from penstock.wires.shared.facts import (
    BLOCK_BORDERS,
    CACHE_COUNTS,
    CACHE_WRITE_COUNTS,
    CALL_PIECES,
    CHOICES,
    CUSTOM_CALLS,
    CUT_CALLS,
    FINISH_MESSAGES,
    INVALID_CALLS,
    LINE_BREAKS,
    REASONING_COUNTS,
    REFUSALS,
    VENDOR_CALLS,
    Loss,
    PassedPaths,
    StateFacts,
    WireFacts,
)
from penstock.wires.shared.token_counts import UsageTable

FACTS = WireFacts(
    wire="ollama",
    states=(StateFacts("context", data="list", text="any"),),
    results_may_lack_ids=True,
    needs_answers=True,
    window_path=("options", "num_ctx"),
    whole_prompt={"truncate": False},
    has_chat_parts=True,
    losses=(
        BLOCK_BORDERS,
        CACHE_COUNTS,
        CACHE_WRITE_COUNTS,
        CALL_PIECES,
        CHOICES,
        CUSTOM_CALLS,
        CUT_CALLS,
        FINISH_MESSAGES,
        INVALID_CALLS,
        LINE_BREAKS,
        REASONING_COUNTS,
        REFUSALS,
        Loss("content_filters", "changed", "there is no reason for filtered content; it is another one"),
        VENDOR_CALLS,
    ),
    output=GRAMMAR_SCHEMAS,
    passed_paths=PassedPaths("/api/chat", root="/v1"),
)

USAGE = UsageTable(input=("prompt_eval_count",), output=("eval_count",))
