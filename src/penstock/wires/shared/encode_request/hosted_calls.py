"""Calls of hosted tools, which the provider runs itself, where the call and its result are separate blocks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from penstock.events import Opaque
from penstock.messages import Message, ToolResult
from penstock.wires.shared.encode_request.pairing import Place
from penstock.wires.shared.facts import HostedTool, WireFacts

HostedKey = tuple[str, HostedTool, str]


class HostedCalls:
    """The hosted calls of a history without a result, and the hosted results without a call.

    Both are vendor state. A response that was cut between the two leaves an `unfinished` call; as long as the user has
    not spoken since, the provider may still finish it, because it pauses or waits for our results. `orphans` are
    results without a call. `callers` are the states on our calls that name an unfinished call as their caller, and
    `lost_callers` those that name a call which the history does not have.
    """

    def __init__(self, messages: Sequence[Message], facts: Mapping[str, WireFacts]) -> None:
        self.orphans: dict[Place, Opaque] = {}
        open_calls: dict[HostedKey, list[tuple[Place, Opaque]]] = {}
        states = [(place, state, facts[state.wire]) for place, state in _states(messages) if state.wire in facts]
        called = {(index, call.block) for index, message in enumerate(messages) for call in message.tool_calls}
        for place, state, known in states:
            if (place[0], state.block) in called:
                continue  # the item of a call that the client runs
            if key := call_key(state, known):
                open_calls.setdefault(key, []).append((place, state))
            elif (key := result_key(state, known)) and open_calls.get(key):
                open_calls[key].pop()
            elif key:
                self.orphans[place] = state
        known_ids = {(wire, id) for wire, _, id in open_calls}
        last = max((index for index, message in enumerate(messages) if _has_words(message)), default=-1)
        self.unfinished: dict[Place, Opaque] = {}
        ids: set[tuple[str, str | None]] = set()
        for (wire, _, id), calls in open_calls.items():
            lost = {place: state for place, state in calls if place[0] < last}
            self.unfinished |= lost
            ids |= {(wire, id)} if lost else set()
        callers = {place: (state.wire, _caller(state, known)) for place, state, known in states}
        self.callers = {place for place, caller in callers.items() if caller in ids}
        self.lost_callers = {
            place
            for place, (wire, id) in callers.items()
            if id and facts[wire].callers_need_calls and (wire, id) not in known_ids
        }


def _states(messages: Sequence[Message]) -> Iterator[tuple[Place, Opaque]]:
    for index, message in enumerate(messages):
        for number, part in enumerate(message.parts):
            if isinstance(part, Opaque):
                yield (index, number), part


def call_key(state: Opaque, facts: WireFacts) -> HostedKey | None:
    """The key that a hosted call shares with its result; None if the state is not a hosted call."""
    for tool in facts.hosted_tools:
        for kind in tool.calls:
            if (id := _id(state.data, kind, tool.call_id)) is not None:
                return state.wire, tool, id
    return None


def result_key(state: Opaque, facts: WireFacts) -> HostedKey | None:
    """The key that a hosted result shares with its call; None if the state is not a hosted result."""
    for tool in facts.hosted_tools:
        if (id := _id(state.data, tool.results, tool.result_id)) is not None:
            return state.wire, tool, id
    return None


def _id(block: Any, kind: str, field: str) -> str | None:
    """The id in a block of this kind; None if it is of another kind."""
    if not isinstance(block, dict):
        return None
    fields: Any = block if _is_kind(block.get("type"), kind) else block.get(kind)
    id: Any = fields.get(field) if isinstance(fields, dict) else None
    return id if isinstance(id, str) else None


def _is_kind(type: Any, kind: str) -> bool:
    return type == kind or (kind.startswith("*") and isinstance(type, str) and type.endswith(kind[1:]))


def _caller(state: Opaque, facts: WireFacts) -> str | None:
    """The id of the hosted call that made the call which this state is on."""
    if facts.caller is None or state.kind != facts.caller[0] or not isinstance(state.data, dict):
        return None
    id: Any = state.data
    for field in facts.caller[1].split("."):
        id = id.get(field) if isinstance(id, dict) else None
    return id if isinstance(id, str) else None


def _has_words(message: Message) -> bool:
    """Whether it is a user message with more than results."""
    return message.role == "user" and any(not isinstance(part, ToolResult) for part in message.parts)
