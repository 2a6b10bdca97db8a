"""Fits a request to the server that gets it, by the facts of the server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from penstock.gateway.routing import Candidate
from penstock.servers.facts import ServerFacts, ToolChoices
from penstock.wires import find_facts
from penstock.wires.shared.encode_request.body import chosen_tool, merge
from penstock.wires.shared.request import Request

NAMED_CHOICE = "the tool choice {!r} was sent as 'required' with this tool alone: the server does not take names"
_WITHOUT_NAMES: frozenset[ToolChoices] = frozenset({"words", "none"})


def fit_choice(request: Request, facts: ServerFacts) -> tuple[Request, tuple[str, ...]]:
    """The request with a tool choice that the server takes, and a note if it is another one.

    llama.cpp takes the choice of a tool by name for `auto`, and LM Studio refuses it (QUIRKS 183).
    """
    if facts.tool_choices not in _WITHOUT_NAMES or (chosen := chosen_tool(request)) is None:
        return request, ()
    fitted = replace(request, tools=(chosen,), tool_choice="required")
    return fitted, (NAMED_CHOICE.format(chosen.name),)


def window_fields(candidate: Candidate, wire: str) -> Mapping[str, Any]:
    """The fields that set the configured window, and make the server refuse longer prompts; empty if it has none."""
    facts = find_facts(wire)
    if not candidate.context or not facts.window_path:
        return {}
    value: Any = candidate.context
    for name in reversed(facts.window_path):
        value = {name: value}
    return merge(facts.whole_prompt, value)


def known_window(candidate: Candidate, wire: str, facts: ServerFacts) -> int | None:
    """The window of requests: the configured one, within what the server and the model can."""
    if not candidate.context:
        return facts.window
    limit = facts.longest_window if find_facts(wire).window_path else facts.window
    return min(candidate.context, limit) if limit else candidate.context
