"""The facts of Ollama's /api/chat."""

from __future__ import annotations

from penstock.wires.shared.facts import StateFacts, WireFacts
from penstock.wires.shared.token_counts import UsageTable

FACTS = WireFacts(
    wire="ollama",
    states=(StateFacts("context", data="list"),),
    results_may_lack_ids=True,
    needs_answers=True,
    has_chat_parts=True,
)

USAGE = UsageTable(input=("prompt_eval_count",), output=("eval_count",))
