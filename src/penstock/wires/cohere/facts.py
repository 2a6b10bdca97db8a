"""The facts of Cohere's chat, version 2."""

from __future__ import annotations

from penstock.wires.shared.facts import StateFacts, WireFacts

FACTS = WireFacts(
    wire="cohere",
    states=(StateFacts("tool_plan", is_object=False),),
    text_results=True,
    chat_parts=True,
)
