"""Calls without marks: the corpus of rescues and refusals, and when text is held back."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable

import pytest

from penstock import Finish, Reasoning, Rescue, StreamChunk, Text, ToolCall, ToolCallStart
from penstock.dialects import unmarked
from penstock.dialects.doubtful_words import WORDS, doubtful_words
from penstock.dialects.reading import reader
from penstock.dialects.stage import TextCalls
from penstock.dialects.unmarked import MAX_BEFORE, why_text
from penstock.healing.rescued import RESCUED
from tests.growth import assert_linear
from tests.healing.rescue_corpus import ARGUMENTS, FORMS, REFUSALS, RESCUES, TOOL, share_of_rescues

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": TOOL,
            "parameters": {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]},
        },
    }
]
CALL = FORMS["object"]


def rescue(pieces: Iterable[str], reason: str = "stop") -> list[StreamChunk]:
    stage = Rescue(TOOLS, RESCUED)
    events = [event for piece in pieces for event in stage.feed(Text(0, piece))]
    return [*events, *stage.feed(Finish(reason)), *stage.close()]  # type: ignore[arg-type]


def calls_in(events: Iterable[StreamChunk]) -> list[tuple[str, object]]:
    return [(event.name, event.arguments) for event in events if isinstance(event, ToolCall)]


def text_in(events: Iterable[StreamChunk]) -> str:
    return "".join(event.text for event in events if isinstance(event, Text))


def cut(text: str, seed: int) -> list[str]:
    """A text in pieces of random sizes."""
    rng, pieces, place = random.Random(seed), [], 0
    while place < len(text):
        size = rng.choice((1, 1, 2, 5, 20, 200))
        pieces.append(text[place : place + size])
        place += size
    return pieces


def texts(corpus: dict[str, list[str]]) -> list[str]:
    return [text for group in corpus.values() for text in group]


def test_the_corpus_is_large_and_has_many_languages() -> None:
    assert len(set(texts(RESCUES))) >= 120
    assert len(set(texts(REFUSALS))) >= 120
    assert len(WORDS) >= 6
    assert {row.language for row in WORDS} <= {*RESCUES}


@pytest.mark.parametrize("form", FORMS)
def test_a_rescue_is_a_call_however_it_is_cut(form: str) -> None:
    wrong: list[str] = []
    for number, text in enumerate(texts(RESCUES)):
        written = text.replace("@", FORMS[form])
        expected = [(TOOL, ARGUMENTS)] * text.count("@")
        wrong += [text for pieces in ([written], cut(written, number)) if calls_in(rescue(pieces)) != expected]
    assert not wrong


@pytest.mark.parametrize("form", FORMS)
def test_a_refusal_stays_text_however_it_is_cut(form: str) -> None:
    wrong = []
    for number, text in enumerate(texts(REFUSALS)):
        written = text.replace("@", FORMS[form])
        for pieces in ([written], cut(written, number)):
            events = rescue(pieces)
            if calls_in(events) or text_in(events) != written:
                wrong.append((text, len(pieces)))
    assert not wrong


def test_every_cut_in_two_gives_the_same() -> None:
    for text in ("Let me look.\n@\n@\n", "Shall I?\n@", "Let me look.\n@\nThen @.", "@ 1 @"):
        for form in ("object", "JSON fence", "Python list", "elements", "OpenAI call"):
            written = text.replace("@", FORMS[form])
            whole = rescue([written])
            for place in range(1, len(written)):
                events = rescue([written[:place], written[place:]])
                assert (calls_in(events), text_in(events)) == (calls_in(whole), text_in(whole)), written[:place]


@pytest.mark.parametrize("form", FORMS)
def test_a_text_that_was_cut_has_no_calls_without_marks(form: str) -> None:
    written = f"Let me look.\n{FORMS[form]}\n{FORMS[form]}"
    for place in range(1, len(written) + 1):
        events = rescue([written[:place]], reason="length")
        assert not calls_in(events)
        assert text_in(events) == written[:place]


def test_a_form_is_a_call_only_as_the_last_thing_of_a_message() -> None:
    for after in (ToolCallStart(1, "call_1", TOOL), Reasoning(1, "Hm."), Text(1, "Or not.")):
        stage = Rescue(TOOLS, RESCUED)
        events = [*stage.feed(Text(0, CALL)), *stage.feed(after), *stage.feed(Finish("stop"))]
        assert not calls_in(events)
        assert text_in(events).startswith(CALL)


def test_text_in_an_earlier_block_stands_before_the_form() -> None:
    for before, calls in (("Never do this:", 0), ("Let me look:", 1)):
        stage = Rescue(TOOLS, RESCUED)
        events = [*stage.feed(Text(0, before)), *stage.feed(Text(1, CALL)), *stage.feed(Finish("stop"))]
        assert len(calls_in(events)) == calls


def test_calls_between_marks_keep_their_rule() -> None:
    marked = f"<tool_call>{CALL}</tool_call>"
    for text in ("Shall I run @?", "@ Shall I?", "Never do this: @", "@\nor\n@"):
        assert len(calls_in(rescue([text.replace("@", marked)]))) == text.count("@")


@pytest.mark.parametrize(
    "text",
    [
        "I look.<|function_call|>@",
        "<|message_sep|>\n\nfunction call<|role_sep|>\n@",
        "<function_call> @",
        "functools[@]",
        "<|python_tag|>@",
        "[TOOL_CALLS][@]",
        "<tool_calls>[@]</tool_calls>",
    ],
)
def test_an_object_after_any_mark_of_a_dialect_is_a_call(text: str) -> None:
    assert calls_in(rescue([text.replace("@", CALL)])) == [(TOOL, ARGUMENTS)]


def test_a_form_in_reasoning_is_reasoning() -> None:
    stage = TextCalls(RESCUED, TOOLS, only_declared=True, reasoning=True, unsettled=lambda name, why: None)
    events = [*stage.feed(Text(0, f"<think>\n{CALL}")), *stage.feed(Finish("stop"))]
    assert not calls_in(events)
    assert "".join(event.text for event in events if isinstance(event, Reasoning)) == f"\n{CALL}"


@pytest.mark.parametrize("text", [text for text in texts(REFUSALS) if "`" not in text and "~" not in text])
def test_what_stays_text_is_noted(text: str) -> None:
    notes: list[tuple[str, str]] = []
    stage = TextCalls(RESCUED, TOOLS, only_declared=True, unsettled=lambda name, why: notes.append((name, why)))
    stage.feed(Text(0, text.replace("@", CALL)))
    stage.feed(Finish("stop"))
    assert notes
    assert notes[0][0] == TOOL


# -- what is held back ---------------------------------------------------------------------------------------------


def shown_after(*pieces: str) -> str:
    """The text that a reader has seen when these pieces have arrived."""
    stage = Rescue(TOOLS, RESCUED)
    return text_in(event for piece in pieces for event in stage.feed(Text(0, piece)))


@pytest.mark.parametrize(
    "text",
    [
        "Rome has 2.8 million inhabitants (2023), see [1] and a[0] = {x}.",
        '{"city": "Rome", "days": [1, 2, {"name": "bash"',
        '{"name": "Rome", "arguments": {"a": "b',
        '[{"city": "Rome"}, {"city": "Par',
        '{"type": "object", "properties": {"a"',
        '{"tool": "hammer", "parameters": {"a"',
        "```python\nprint(1)\n",
        '```json\n{"a": 1',
        '{"function": {"name": "other", "a": 1',
    ],
)
def test_what_cannot_be_a_call_flows_at_once(text: str) -> None:
    assert len(shown_after(*text)) >= len(text) - 16


@pytest.mark.parametrize("before", ["Shall I? ", "Never:\n", "I run "])
def test_a_form_that_stays_text_flows_from_where_that_is_known(before: str) -> None:
    start = '{"name": "bash", "arguments": {"command": "ls'
    assert len(shown_after(*before, *start)) >= len(before) + len(start) - 2


def test_what_follows_a_form_releases_it_at_once() -> None:
    assert shown_after("Let me look.\n", CALL, "\n") == "Let me look.\n"
    assert shown_after("Let me look.\n", CALL, "\n", "So") == f"Let me look.\n{CALL}\nSo"


def test_a_malformed_form_releases_its_text_and_owns_the_rest() -> None:
    broken = '{"name": "bash", "arguments": {"command": oops}} <tool_call>' + CALL + "</tool_call>"
    assert shown_after(broken) == broken
    assert not calls_in(rescue([broken]))


def test_forms_that_are_too_long_are_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "MAX_HELD", 1000)
    long = json.dumps({"name": TOOL, "arguments": {"command": "x" * 2000}})
    pieces = [long[place : place + 100] for place in range(0, len(long), 100)]
    assert text_in(rescue(pieces)) == long
    assert not calls_in(rescue(pieces))


def test_a_long_text_before_a_form_makes_it_text() -> None:
    assert why_text("A" * (MAX_BEFORE - 1) + ".") == ""
    assert why_text("A" * MAX_BEFORE + ".") == unmarked.NO_PARAGRAPH


def test_forms_cost_linear_time() -> None:
    for piece in (f"{CALL}\n", f"x {CALL}", FORMS["JSON fence"] + "\n", FORMS["Python list"] + "\n", "{", "[", "[{"):
        assert_linear(lambda size, piece=piece: lambda: rescue([piece] * size), 200)  # type: ignore[misc]
    for before in ("n", "n'", "o ", "?"):
        assert_linear(lambda size, before=before: lambda: doubtful_words().search(before * size), 2000)  # type: ignore[misc]


def test_no_honest_rescue_of_the_old_rule_becomes_text() -> None:
    honest, others = share_of_rescues()
    assert honest.texts == 0
    assert others.texts == others.total
