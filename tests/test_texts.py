"""Laws 1 to 4 over texts with calls in them: ours, and the shared ones."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.events import ToolCall, ToolCallDelta, ToolCallInvalid, ToolCallStart
from tests.texts import (
    TextVector,
    calls_of,
    complaints,
    cuttings,
    is_strict,
    parse,
    reasoning_of,
    shared_parser,
    shared_texts,
    text_of,
    text_vectors,
)

VECTORS = text_vectors()
SHARED = shared_texts()


@pytest.mark.parametrize("vector", VECTORS, ids=[f"{vector.dialect}: {vector.name}" for vector in VECTORS])
class TestOurs:
    def test_what_comes_out(self, vector: TextVector) -> None:
        events = vector.parse([vector.input])
        assert calls_of(events) == vector.calls
        assert [(event.name, event.why) for event in events if isinstance(event, ToolCallInvalid)] == vector.invalid
        assert text_of(events) == vector.text
        assert reasoning_of(events) == vector.reasoning
        if vector.ids:
            assert [event.id for event in events if isinstance(event, ToolCall)] == vector.ids

    def test_cuts_do_not_show(self, vector: TextVector) -> None:
        whole = vector.parse([vector.input])
        for pieces in cuttings(vector.input):
            assert vector.parse(pieces) == whole, pieces

    def test_every_prefix_is_a_text(self, vector: TextVector) -> None:
        for end in range(len(vector.input)):
            check_calls(vector.parse([vector.input[:end]]))


def check_calls(events: list[Any]) -> None:
    """Every call is announced once and ended once, and its pieces add up to its arguments."""
    started: dict[int, str] = {}
    ended: set[int] = set()
    pieces: dict[int, str] = {}
    for event in events:
        match event:
            case ToolCallStart():
                assert event.block not in started
                started[event.block] = event.id
            case ToolCallDelta():
                assert event.block in started
                assert event.block not in ended
                pieces[event.block] = pieces.get(event.block, "") + event.piece
            case ToolCall() | ToolCallInvalid():
                assert started[event.block] == event.id
                assert event.block not in ended
                ended.add(event.block)
                assert pieces.get(event.block, "") == event.arguments_raw
    assert set(started) == ended


@pytest.mark.skipif(not SHARED, reason="the shared texts are not here")
@pytest.mark.parametrize("vector", SHARED, ids=lambda vector: vector["id"])
def test_cuts_do_not_show_in_a_shared_text(vector: dict[str, Any]) -> None:
    whole = parse(shared_parser(vector), [vector["text"]])
    check_calls(whole)
    for pieces in [*cuttings(vector["text"]), *([vector["chunks"]] if vector.get("chunks") else [])]:
        assert parse(shared_parser(vector), pieces) == whole, pieces


WRONG: dict[str, str] = {}
"""Strict shared texts that do not come out as they say, and why: see docs/decisions/."""


@pytest.mark.skipif(not SHARED, reason="the shared texts are not here")
@pytest.mark.parametrize("vector", [vector for vector in SHARED if is_strict(vector)], ids=lambda vector: vector["id"])
def test_a_shared_text_comes_out_as_expected(vector: dict[str, Any]) -> None:
    wrong = complaints(vector, parse(shared_parser(vector), [vector["text"]]))
    assert bool(wrong) == (vector["id"] in WRONG), wrong
