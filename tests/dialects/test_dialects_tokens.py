"""Control tokens, end tokens and closing marks: one rule for all dialects."""

from __future__ import annotations

from penstock import Finish, Rescue, StreamChunk, Text, TextParser, ToolCall
from penstock.dialects.dialect import END_TOKENS
from penstock.dialects.prompt import prompts
from penstock.dialects.registry import dialects
from tests.cases import each
from tests.texts import calls_of, cuttings, parse, text_of

TOOLS = [{"name": "find", "parameters": {"type": "object", "properties": {"q": {"type": "string"}}}}]
CALL = ToolCall("functions.find:0", "find", {"q": "x"})
DIALECTS = sorted(dialects())


def events_of(dialect: str, text: str) -> list[StreamChunk]:
    return parse(TextParser(dialect, TOOLS), [text])


def own_tokens(dialect: str) -> set[str]:
    row = dialects()[dialect]
    return {*row.tokens, *(mark for pair in row.think for mark in pair)}


@each("dialect", DIALECTS)
def test_end_tokens_are_dropped_at_the_end_of_the_text(dialect: str) -> None:
    for token in END_TOKENS:
        assert text_of(events_of(dialect, f"Hi.{token}")) == "Hi."
        assert text_of(events_of(dialect, f"Hi.{token}\n{END_TOKENS[0]} \n")).rstrip() == "Hi."


@each("dialect", sorted(prompts()))
def test_end_tokens_are_dropped_after_a_call(dialect: str) -> None:
    call = prompts()[dialect].calls([CALL])
    plain = events_of(dialect, call)
    for token in END_TOKENS:
        events = events_of(dialect, call + token)
        assert calls_of(events) == calls_of(plain) == [("find", {"q": "x"})]
        assert text_of(events).strip() == ""


@each("dialect", DIALECTS)
def test_end_tokens_elsewhere_are_text(dialect: str) -> None:
    for token in set(END_TOKENS) - own_tokens(dialect):
        text = f"It writes {token} {token} and goes on."
        assert text_of(events_of(dialect, text)) == text, token


@each("dialect", DIALECTS)
@each("text", ["Not <s>this</s>", "<s>a</s> <s>b</s>", "</s> is a tag", "<s>", "a</s></s>x"])
def test_a_pair_of_tags_is_kept(dialect: str, text: str) -> None:
    assert text_of(events_of(dialect, text)) == text


@each("dialect", DIALECTS)
def test_closing_marks_without_a_call_are_text(dialect: str) -> None:
    for mark in set(dialects()[dialect].closes) - own_tokens(dialect):
        text = f"Write {mark} there."
        events = events_of(dialect, text)
        assert (text_of(events), calls_of(events)) == (text, []), mark


@each("dialect", DIALECTS)
def test_end_tokens_do_not_depend_on_cuts(dialect: str) -> None:
    text = "Hi. </s> <s>a</s> <|im_end|><eos> b </s>\n<|im_end|>"
    whole = events_of(dialect, text)
    for pieces in cuttings(text):
        assert parse(TextParser(dialect, TOOLS), pieces) == whole, pieces


def test_a_rescue_drops_no_tokens() -> None:
    stage = Rescue(TOOLS)
    text = "Hi.<|im_end|></s>"
    events = stage.feed(Text(0, text)) + stage.feed(Finish("stop")) + stage.close()
    assert text_of(events) == text
