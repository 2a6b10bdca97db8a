"""Invariants of the events of any stream, well-formed or not."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from penstock import (
    Error,
    Finish,
    Retry,
    StreamChunk,
    Text,
    ToolCall,
    ToolCallClosed,
    ToolCallInvalid,
    ToolCallStart,
    Unknown,
    Usage,
    events,
)
from penstock.calls.arguments import WITHOUT_ARGUMENTS

ANYWHERE = (Error, Unknown, Usage, Retry)
"""Events without a choice."""


def assert_sane(stream: list[StreamChunk]) -> None:
    """One finish per choice and nothing after it; calls start, end once and are strict; events survive JSON."""
    finished: set[int] = set()
    for event in stream:
        if isinstance(event, Finish):
            assert event.choice not in finished, "two finishes"
            finished.add(event.choice)
        elif not isinstance(event, ANYWHERE):
            assert event.choice not in finished, f"{event} after the finish"
        assert events.decode(events.encode(event)) == event
    assert 0 in finished or finished, "no finish"
    assert {event.choice for event in stream if not isinstance(event, ANYWHERE)} == finished, (
        "a choice without a finish"
    )
    assert_calls_are_sane(stream)


def assert_calls_are_sane(stream: Iterable[StreamChunk]) -> None:
    started: dict[int, str] = {}
    ended: set[int] = set()
    for event in stream:
        match event:
            case ToolCallStart():
                assert event.block not in started, "announced twice"
                started[event.block] = event.name
            case ToolCallClosed():
                assert event.block in started
                assert event.block not in ended
            case ToolCall() | ToolCallInvalid():
                is_alone = isinstance(event, ToolCallInvalid) or event.kind in ("vendor", "approval")
                assert event.block in started or is_alone
                assert event.block not in ended, "ended twice"
                ended.add(event.block)
                if isinstance(event, ToolCall):
                    assert_strict(event)
            case _:
                pass
    assert started.keys() <= ended, "a call that never ended"


def assert_strict(call: ToolCall) -> None:
    """The arguments of a complete call are the strict JSON of its raw text (law 7)."""
    if call.kind == "custom":
        assert call.arguments == {"input": call.arguments_raw}
    elif call.arguments_raw.strip() not in WITHOUT_ARGUMENTS:
        assert json.loads(call.arguments_raw) == call.arguments
    else:
        assert call.arguments == {}


def visible_text(stream: list[StreamChunk]) -> str:
    """All visible text, including that of withdrawn attempts."""
    return "".join(event.text for event in stream if isinstance(event, Text))


def without_lone_surrogates(value: Any) -> Any:
    """The value with lone surrogates replaced, as Penstock does."""
    match value:
        case str():
            return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        case list():
            return [without_lone_surrogates(item) for item in value]
        case dict():
            return {without_lone_surrogates(key): without_lone_surrogates(item) for key, item in value.items()}
    return value
