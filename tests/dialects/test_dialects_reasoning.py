"""Calls inside reasoning: one rule for all dialects. In reasoning that is closed they are reasoning, else calls."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from penstock import StreamChunk, TextParser, ToolCall
from penstock.dialects.prompt import prompts
from penstock.dialects.reading import reader
from penstock.dialects.registry import dialects
from tests.cases import each
from tests.growth import assert_linear
from tests.texts import calls_of, cuttings, parse, reasoning_of, text_of

TOOLS = [{"name": "find", "parameters": {"type": "object", "properties": {"q": {"type": "string"}}}}]
CALL = ToolCall("functions.find:0", "find", {"q": "x"})
ENDED_BY_CALLS = ("harmony", "muse_glimmer", "inkling")
"""Dialects in which the end of a message with a call is also the end of reasoning: the reasoning is closed."""
CASES = [
    (name, *pair)
    for name in sorted(prompts())
    if name not in ENDED_BY_CALLS
    for pair in dialects()[name].think
    if pair[0] != "<|channel>"  # a part of another mark
]


def events_of(dialect: str, pieces: Iterable[str], *, is_cut: bool = False) -> list[StreamChunk]:
    parser = TextParser(dialect, TOOLS, reasoning=True)
    events = [event for piece in pieces for event in parser.feed(piece)]
    return events + parser.close(cut=is_cut)


def call_of(dialect: str) -> str:
    return "\n" + prompts()[dialect].calls([CALL])


@each(("dialect", "opener", "closer"), CASES)
def test_a_call_in_reasoning_that_is_never_closed_is_a_call(dialect: str, opener: str, closer: str) -> None:
    text = f"{opener}Let me look.\n{call_of(dialect)}"
    whole = parse(TextParser(dialect, TOOLS, reasoning=True), [text])
    assert calls_of(whole) == [("find", {"q": "x"})]
    assert reasoning_of(whole).strip() == "Let me look."
    for pieces in cuttings(text):
        assert parse(TextParser(dialect, TOOLS, reasoning=True), pieces) == whole, pieces


@each(("dialect", "opener", "closer"), CASES)
def test_a_call_in_reasoning_that_is_closed_is_reasoning(dialect: str, opener: str, closer: str) -> None:
    call = call_of(dialect)
    text = f"{opener}I could write {call} or not.{closer}No."
    whole = parse(TextParser(dialect, TOOLS, reasoning=True), [text])
    assert calls_of(whole) == []
    assert (reasoning_of(whole), text_of(whole)) == (f"I could write {call} or not.", "No.")
    for pieces in cuttings(text):
        assert parse(TextParser(dialect, TOOLS, reasoning=True), pieces) == whole, pieces


@each(("dialect", "opener", "closer"), CASES)
def test_a_call_in_reasoning_that_was_cut_is_reasoning(dialect: str, opener: str, closer: str) -> None:
    text = f"{opener}I could write {call_of(dialect)}"
    events = events_of(dialect, [text], is_cut=True)
    assert calls_of(events) == []
    assert reasoning_of(events) == text.removeprefix(opener)


@each("dialect", ENDED_BY_CALLS)
def test_the_end_of_a_call_closes_reasoning_in_dialects_of_messages(dialect: str) -> None:
    [(opener, _), *_] = dialects()[dialect].think
    text = f"{opener}Let me look. {prompts()[dialect].calls([CALL])}"
    assert calls_of(events_of(dialect, [text])) == []


def test_reasoning_after_a_call_is_held_back_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "MAX_HELD", 100)
    text = f"<think>Perhaps {call_of('hermes')}{'x' * 200}"
    events = events_of("hermes", [text])
    assert calls_of(events) == []
    assert reasoning_of(events) == text.removeprefix("<think>")


@each("size", [1, 1000])
def test_reasoning_with_many_marks_is_linear(size: int) -> None:
    def prepare(count: int) -> Callable[[], object]:
        text = "<think>" + '<tool_call> or <tool_call>{"name": "find", "arguments": {"q": "' * count
        return lambda: events_of("hermes", [text[at : at + size] for at in range(0, len(text), size)])

    assert_linear(prepare, 100)


@each(("dialect", "opener", "closer"), CASES)
def test_a_call_in_closed_reasoning_is_text_if_reasoning_is_not_separated(
    dialect: str, opener: str, closer: str
) -> None:
    text = f"{opener}I could write {call_of(dialect)} or not.{closer}No."
    whole = parse(TextParser(dialect, TOOLS), [text])
    assert calls_of(whole) == []
    assert text_of(whole) == text
    for pieces in cuttings(text):
        assert parse(TextParser(dialect, TOOLS), pieces) == whole, pieces


def test_a_call_after_or_in_open_reasoning_is_a_call_if_reasoning_is_not_separated() -> None:
    for text in (f"<think>Hm.</think>{call_of('hermes')}", f"<think>Hm.{call_of('hermes')}", call_of("hermes")):
        whole = parse(TextParser("hermes", TOOLS), [text])
        assert calls_of(whole) == [("find", {"q": "x"})]
        assert text_of(whole).strip() == text.removesuffix(call_of("hermes")).strip()
        assert parse(TextParser("hermes", TOOLS), text) == whole
