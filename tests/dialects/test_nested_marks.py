"""Law 13, one reading: the marks of every dialect inside the values of every dialect, in whole and in broken calls."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from typing import Any

import pytest

from penstock import Finish, StreamChunk, Text, TextParser, ToolCall, ToolCallInvalid, ToolCallStart
from penstock.dialects.prompt import find_prompt, prompts
from penstock.dialects.registry import dialects
from penstock.dialects.rescue import LEAKS
from penstock.dialects.stage import TextCalls
from tests.budget import SEED, share
from tests.cases import each
from tests.growth import assert_linear
from tests.support import joined
from tests.texts import calls_of, text_of

DIALECTS = sorted(prompts())
STRING = {"type": "string"}
TOOLS: list[Any] = [
    {"name": "save", "parameters": {"type": "object", "properties": {"path": STRING, "content": STRING}}},
    {"name": "evil", "parameters": {"type": "object", "properties": {"x": STRING}}},
]
DAMAGE = ('"', "'", "}", "]", ",", " oops ", ":", "\\", "{", "[", "(", ")", "</x>", "\n", "<", "= ", '"}', "')")
"""Texts that are inserted into the arguments of a call; half of the time something is removed instead."""


def written(dialect: str, name: str, arguments: dict[str, str]) -> str:
    return find_prompt(dialect).calls([ToolCall(f"functions.{name}:0", name, arguments)])


@cache
def marks(dialect: str) -> tuple[str, ...]:
    """The marks of a dialect, and the ends of a value and its call as they are written."""
    row = dialects()[dialect]
    around_reasoning = (mark for pair in row.think for mark in pair)
    tail = written(dialect, "save", {"content": "@@"}).split("@@")[1]
    return (*filter(None, (*row.opening_marks(("save", "evil")), *row.closes, *row.tokens, *around_reasoning)), tail)


@cache
def inner_calls() -> tuple[str, ...]:
    return tuple(written(name, "evil", arguments) for name in DIALECTS for arguments in ({}, {"x": "1"}))


class AllDialects:
    """A parser of all dialects that a rescue looks for, for declared tools."""

    def __init__(self) -> None:
        self._calls = TextCalls(LEAKS, TOOLS, only_declared=True)

    def feed(self, text: str) -> list[StreamChunk]:
        return self._calls.feed(Text(0, text))

    def close(self, *, cut: bool = False) -> list[StreamChunk]:
        return [*self._calls.feed(Finish("length" if cut else "stop"))[:-1], *self._calls.close()]


class Case:
    """A text with a call of `save`, whose value contains marks, or a call of `evil`, of any dialect."""

    def __init__(self, dialect: str, number: int) -> None:
        chance = random.Random(f"{SEED} {dialect} {number}")
        self.dialect = dialect
        self.is_rescue = dialect in LEAKS and chance.random() < 0.5
        own = (*marks(dialect), written(dialect, "evil", {}), written(dialect, "evil", {"x": "1"}))
        foreign = (*marks(chance.choice(DIALECTS)), *chance.sample(inner_calls(), 3))
        nested = (*(own if chance.random() < 0.4 else foreign), "a b", "\n")
        pieces = [chance.choice(nested) for _ in range(chance.randint(1, 4))]
        value = (
            chance.choice(["", "use "]) + "".join(pieces).replace("\r", " ") + chance.choice(["", " then", "\nmore"])
        )
        ends = [tag for pair in dialects()[dialect].tags.pairs for tag in pair.ends]
        self.may_end_early = any(tag in value for tag in (*ends, *marks(dialect)[-1:]))
        names = ("path", "content") if chance.random() < 0.7 else ("content", "path")
        self.arguments = {name: {"path": "a.md", "content": value}[name] for name in names}
        self.call = written(dialect, "save", self.arguments)
        self.before, self.after = chance.choice([("", ""), ("", "\nDone."), ("Hi.\n", "")])
        if dialect in ("llama3_json", "react"):  # their calls begin the text
            self.before = ""
        self.is_broken = chance.random() < 0.5
        if self.is_broken:
            self._damage(chance)
        self.text = self.before + self.call + self.after

    def _damage(self, chance: random.Random) -> None:
        """Damages the call somewhere between its name and its nested value."""
        start, end = self._name_end(), self.call.find(self.arguments["content"][:4])
        at = chance.randint(start, max(start, end))
        removed = 0 if chance.random() < 0.5 else min(chance.randint(1, 3), max(0, end - at))
        self.call = self.call[:at] + ("" if removed else chance.choice(DAMAGE)) + self.call[at + removed :]

    def _name_end(self) -> int:
        parser = TextParser(self.dialect, TOOLS)
        for position, character in enumerate(self.call):
            if any(isinstance(event, ToolCallStart) for event in parser.feed(character)):
                return position + 1
        raise AssertionError(f"no call in {self.call!r}")

    @property
    def is_without_end(self) -> bool:
        """Whether no tags surround the call: what follows a closed object is text, however the object was damaged."""
        starts = [tag for pair in dialects()[self.dialect].tags.outer for tag in pair.starts]
        return self.is_broken and not self.call.startswith(tuple(starts))

    def has_start_in(self, text: str) -> bool:
        """Whether a start tag is in the text, to which an end tag after it belongs: a call may seem to have ended."""
        starts = [tag for pair in dialects()[self.dialect].tags.pairs for tag in pair.starts]
        return any(tag in text for tag in (*starts, "<save>"))  # which is the start tag of a dialect with named tags

    def parse(self, *pieces: str, cut: bool = False) -> list[StreamChunk]:
        parser: Any = AllDialects() if self.is_rescue else TextParser(self.dialect, TOOLS)
        return joined([event for piece in pieces for event in parser.feed(piece)] + parser.close(cut=cut))


CASES = [(dialect, number) for dialect in DIALECTS for number in range(share(400, 24))]


def confirmed(events: list[StreamChunk]) -> set[str]:
    """The calls that another call confirms, directly after them. A value that contains both is not recognised."""
    pairs = pairwise(events)
    return {call.id for call, next_one in pairs if isinstance(call, ToolCall) and isinstance(next_one, ToolCallStart)}


@each(("dialect", "number"), CASES, parts=4)
def test_only_the_whole_call_runs(dialect: str, number: int) -> None:
    case = Case(dialect, number)
    events = case.parse(case.text)
    exempt = confirmed(events)
    calls = [event for event in events if isinstance(event, ToolCall) and event.id not in exempt]
    if case.has_start_in(text_of(events)) or (case.is_without_end and any(call.name == "save" for call in calls)):
        return
    assert "evil" not in [call.name for call in calls]
    if not case.is_broken:
        assert all(call.arguments == case.arguments for call in calls)
    if not case.is_broken and not case.may_end_early:
        assert calls or any(isinstance(event, ToolCallInvalid) for event in events)


@each(("dialect", "number"), CASES, parts=4)
def test_nothing_of_a_call_is_text(dialect: str, number: int) -> None:
    case = Case(dialect, number)
    events = case.parse(case.text)
    if not case.may_end_early and not (case.is_without_end and calls_of(events)):
        text = text_of(events).strip()
        assert text in (case.before.strip(), (case.before + case.after).strip())  # what follows may be part of the call


@each(("dialect", "number"), CASES, parts=4)
def test_cuts_do_not_show_and_a_prefix_has_no_call_that_the_whole_has_not(dialect: str, number: int) -> None:
    case = Case(dialect, number)
    whole = case.parse(case.text)
    assert case.parse(*case.text) == whole
    known = calls_of(whole)
    for end in random.Random(number).sample(range(len(case.text)), min(4, len(case.text))):
        assert case.parse(case.text[:end], case.text[end:]) == whole
        assert all(call in known for call in calls_of(case.parse(case.text[:end], cut=True)))


def test_no_tag_begins_with_another() -> None:
    rows = dialects().values()
    tags = {tag for row in rows for pair in row.tags.pairs for tag in (*pair.starts, *pair.ends)}
    assert [(tag, other) for tag in tags for other in tags if tag != other and other.startswith(tag)] == []


@pytest.mark.parametrize("is_broken", [False, True], ids=["whole", "broken"])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_nested_marks_take_linear_time(dialect: str, is_broken: bool) -> None:
    """Marks of all dialects in a value, in small pieces: four times as many take about four times as long."""
    others = [mark for name in DIALECTS for mark in marks(name)[:2]]

    def prepare(size: int) -> Callable[[], object]:
        text = written(dialect, "save", {"path": "a", "content": " ".join([*marks(dialect), *others]) * size})
        text = text.replace("content", 'content" }', 1) if is_broken else text
        pieces = [text[start : start + 16] for start in range(0, len(text), 16)]
        return lambda: parsed(TextParser(dialect, TOOLS), pieces)

    assert_linear(prepare, 4)


def parsed(parser: TextParser, pieces: list[str]) -> list[StreamChunk]:
    return [*(event for piece in pieces for event in parser.feed(piece)), *parser.close()]
