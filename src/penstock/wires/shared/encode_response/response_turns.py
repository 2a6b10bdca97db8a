"""Turns as responses: the turns of all choices, a turn as events, and calls that only seem complete."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from msgspec.structs import replace

from penstock.calls.arguments import WITHOUT_ARGUMENTS, strict_object
from penstock.events import (
    Error,
    Finish,
    FinishReason,
    Opaque,
    Retry,
    StreamChunk,
    ToolCall,
    ToolCallInvalid,
    ToolCallStart,
    Unknown,
    Usage,
)
from penstock.turn import Turn, TurnBuilder, TurnPart
from penstock.wires.shared.encode_response.response_format import ResponseFormat


def find_seeming_call(calls: list[ToolCallInvalid], reason: FinishReason) -> ToolCallInvalid | None:
    """An invalid call that this finish reason would confirm, because its arguments look complete.

    A call without arguments is confirmed only by a normal end.
    """
    is_normal = reason not in ("length", "content_filter")
    for call in calls:
        is_complete = bool(call.name) and call.kind == "function" and strict_object(call.arguments_raw) is not None
        if is_complete and (is_normal or call.arguments_raw.strip() not in WITHOUT_ARGUMENTS):
            return call
    return None


def find_lost_call(calls: list[ToolCallInvalid], reason: FinishReason) -> ToolCallInvalid | None:
    """A cut call that was not written at all, although nothing else says that the response is incomplete."""
    is_normal = reason not in ("length", "content_filter")
    return next((call for call in calls if call.why == "cut"), None) if is_normal else None


def wrong_call(calls: list[ToolCallInvalid], reason: FinishReason, format: ResponseFormat) -> ToolCallInvalid | None:
    """An invalid call that a client would take for a valid one, or not notice, at this end of the response."""
    if not format.has_text_arguments:
        return find_lost_call(calls, reason)
    return None if format.marks_cut_calls else find_seeming_call(calls, reason)


def unfinished(finish: Finish) -> Finish:
    """The finish of a response with work for the client that the wire cannot express: not a final answer."""
    reason = "other" if finish.reason == "stop" else finish.reason
    return replace(finish, reason=reason, raw_reason=None, client_work="")


def collect_choices(events: Iterable[StreamChunk]) -> list[Turn]:
    """The turns of all choices of a response."""
    listed = list(events)
    choices = {event.choice for event in listed if not isinstance(event, Usage | Error | Retry | Unknown)}
    turns: list[Turn] = []
    for choice in sorted(choices | {0}):
        builder = TurnBuilder(choice)
        for event in listed:
            builder.add(event)
        turns.append(builder.build())
    return turns


def states_by_block(turn: Turn, wire: str) -> dict[int, dict[str, Any]]:
    """The vendor state of a wire, by block and kind."""
    states: dict[int, dict[str, Any]] = {}
    for part in turn.parts:
        if isinstance(part, Opaque) and part.wire == wire:
            states.setdefault(part.block, {})[part.kind] = part.data
    return states


def without_vendor_calls(turn: Turn) -> Turn:
    """The turn without the calls that its vendor state expresses: only the vendor's own wire has a form for them."""
    vendors = turn.vendor_calls
    return replace(turn, parts=tuple(part for part in turn.parts if part not in vendors)) if vendors else turn


def with_starts(parts: Iterable[TurnPart]) -> Iterator[StreamChunk]:
    """The parts of a turn as events, with the start of each call before the vendor state that belongs to it."""
    listed = list(parts)
    calls = {part.block: part for part in listed if isinstance(part, ToolCall | ToolCallInvalid)}
    for part in listed:
        if (call := calls.pop(part.block, None)) is not None:
            yield ToolCallStart(call.block, call.id, call.name, call.choice)
        yield part
