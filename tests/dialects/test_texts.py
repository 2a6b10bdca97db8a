"""Laws 1 to 4 over the text vectors, our own and the shared ones."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import ToolCall, ToolCallDelta, ToolCallInvalid, ToolCallStart
from tests.budget import places
from tests.cases import each
from tests.texts import (
    TextVector,
    calls_of,
    cuttings,
    differences_of,
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


def name_of(vector: TextVector) -> str:
    return f"{vector.dialect}: {vector.name}"


class TestTextVectors:
    @each("vector", VECTORS, ids=name_of)
    def test_events_are_as_expected(self, vector: TextVector) -> None:
        events = vector.parse([vector.input])
        assert calls_of(events) == vector.calls
        assert [(event.name, event.why) for event in events if isinstance(event, ToolCallInvalid)] == vector.invalid
        assert text_of(events) == vector.text
        assert reasoning_of(events) == vector.reasoning
        if vector.ids:
            assert [event.id for event in events if isinstance(event, ToolCall)] == vector.ids

    @each("vector", VECTORS, ids=name_of, parts=8)
    def test_events_do_not_depend_on_cuts(self, vector: TextVector) -> None:
        whole = vector.parse([vector.input])
        for pieces in cuttings(vector.input):
            assert vector.parse(pieces) == whole, pieces

    @each("vector", VECTORS, ids=name_of, parts=8)
    def test_every_prefix_gives_complete_calls(self, vector: TextVector) -> None:
        for end in places(len(vector.input)):
            check_calls(vector.parse([vector.input[:end]]))

    @each("vector", VECTORS, ids=name_of, parts=8)
    def test_every_call_of_a_text_that_was_cut_is_a_call_of_the_whole(self, vector: TextVector) -> None:
        known = calls_of(vector.parse([vector.input]))
        for end in places(len(vector.input)):
            parser = vector.parser()
            calls = calls_of(parser.feed(vector.input[:end]) + parser.close(cut=True))
            assert all(call in known for call in calls), vector.input[:end]


def check_calls(events: list[Any]) -> None:
    """Checks that every call starts once and ends once, and that its pieces add up to its arguments."""
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


@pytest.mark.skipif(not SHARED, reason="the shared texts are not available: they are not part of the repository")
@each("vector", SHARED, ids=lambda vector: vector["id"], parts=4)
def test_events_of_a_shared_text_do_not_depend_on_cuts(vector: dict[str, Any]) -> None:
    whole = parse(shared_parser(vector), [vector["text"]])
    check_calls(whole)
    for pieces in [*cuttings(vector["text"]), *([vector["chunks"]] if vector.get("chunks") else [])]:
        assert parse(shared_parser(vector), pieces) == whole, pieces


WRONG = {
    "cohere_action-008": "wants an opening mark that the text does not have",
    "deepseek_v3-025": "keeps a leading `</think>` that deepseek_v3-001 drops",
    "deepseek_v31-043": "wants a call without a name",
    "dots-008": "drops a closing mark without a call",
    "hermes-045": "wants the opening mark in the reasoning",
    "hermes-049": "wants the opening mark in the reasoning",
    "hunyuan_v3-004": "drops the call of a tool that was not declared",
    "kimi_k2-021": "keeps the end token of a section without its start",
    "lfm2-092": "keeps `\\n` in a string, where lfm2-010 makes it a newline",
    "llama3_json-002": "drops a call that broke off",
    "mistral_v11-021": "drops the text after a call",
    "muse_glimmer-012": "has arguments that the tool does not have",
    "muse_glimmer-022": "drops the text `<|st` at the end",
    "qwen3_coder-002": "wants an opening mark that the text does not have",
    "qwen3_coder-014": "wants the opening mark in the reasoning",
    "tool_calls_json_array-003": "wants words that the text does not have",
}
"""Strict shared texts that are parsed in another way than they say, and why: docs/decisions/0010."""


@pytest.mark.skipif(not SHARED, reason="the shared texts are not available: they are not part of the repository")
@each("vector", [vector for vector in SHARED if is_strict(vector)], ids=lambda vector: vector["id"])
def test_a_shared_text_is_parsed_as_expected(vector: dict[str, Any]) -> None:
    wrong = differences_of(vector, parse(shared_parser(vector), [vector["text"]]))
    assert bool(wrong) == (vector["id"] in WRONG), wrong
