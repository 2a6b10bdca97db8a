"""The facts of Cohere's chat, version 2."""

from __future__ import annotations

from penstock.wires.shared.facts import StateFacts, WireFacts

FACTS = WireFacts(
    wire="cohere",
    states=(StateFacts("tool_plan", is_object=False),),
    results_are_text=True,
    has_chat_parts=True,
)
