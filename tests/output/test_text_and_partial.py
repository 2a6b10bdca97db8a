"""Plain text as an output, and the output so far with its type."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from typing import Any

import pytest

from penstock import Agent, Model
from penstock.testing import Reply, Scripted, say


@dataclass
class Count:
    n: int


# -- plain text, where `str` is in the union ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "output"),
    [
        ("I do not know.", "I do not know."),
        ('  Use {"a": 1} as the config.\n', '  Use {"a": 1} as the config.\n'),
        ("[1, 2]", "[1, 2]"),
        ('"quoted"', '"quoted"'),
        ('{"value": "plain"}', "plain"),
        ('{"value": {"n": 3}}', Count(3)),
        ('Here it is: {"value": {"n": 3}}', Count(3)),
        ('{"broken', '{"broken'),
    ],
)
def test_plain_text_is_an_output_where_a_union_has_text(text: str, output: Any) -> None:
    script = Scripted([text])
    result = Agent(Model("openai:gpt-5", via=script), output=Count | str).run("Go.")
    assert (result.output, len(script.requests)) == (output, 1)
    assert Model("openai:gpt-5", via=Scripted([text])).complete("Go.", output=Count | str).output == output


@pytest.mark.parametrize("text", ['{"n": 3}', '{"value": {"n": "x"}}', '{"value": 3}', ""])
def test_an_object_that_does_not_fit_is_not_plain_text(text: str) -> None:
    script = Scripted([text, '{"value": {"n": 3}}'])
    assert Agent(Model("openai:gpt-5", via=script), output=Count | str).run("Go.").output == Count(3)
    assert len(script.requests) == 2


def test_plain_text_is_not_an_output_of_other_types() -> None:
    script = Scripted(["I do not know.", '{"value": null}'])
    assert Agent(Model("openai:gpt-5", via=script), output=Count | None).run("Go.").output is None
    assert len(script.requests) == 2


# -- the output so far, with its type ----------------------------------------------------------------------------------


@dataclass
class Journey:
    start: date
    city: str = ""
    nights: int = 1


def test_a_partial_output_has_its_type_as_soon_as_it_is_valid() -> None:
    text = '{"start": "2026-05-01", "city": "Rome", "nights": 3}'
    seen: list[Any] = []
    script = Scripted([Reply(*(say(letter) for letter in text))])
    with Agent(Model("openai:gpt-5", via=script), output=Journey).stream("Go.") as run:
        assert run.partial_output is None
        for _ in run:
            if run.partial_output not in seen:
                seen.append(run.partial_output)
    day = date(2026, 5, 1)
    cities = [Journey(day, "Rome"[:end]) for end in range(5)]
    assert seen == [None, *cities, Journey(day, "Rome", 3)]
    assert run.partial_output == run.output
    assert run.partial == {"start": day, "city": "Rome", "nights": 3}


def test_partial_outputs_of_lists_and_of_other_types() -> None:
    def last(text: str, kind: Any) -> Any:
        with Agent(Model("openai:gpt-5", via=Scripted([text])), output=kind).stream("Go.") as run:
            list(run)
        return run.partial_output

    assert last('{"value": [{"n": 1}, {"n": 2}]}', list[Count]) == [Count(1), Count(2)]
    assert last('{"value": 3}', int) == 3
    assert last('{"value": ["2026-05-01"]}', list[date]) == [date(2026, 5, 1)]
    assert last("Hello.", str) is None
    assert last("Hello.", Count | str) is None


def test_a_partial_output_does_not_change_when_more_comes() -> None:
    @dataclass
    class Notes:
        items: list[Any]

    kept: list[tuple[int, Notes]] = []
    text = '{"items": [1, 2, 3]}'
    script = Scripted([Reply(*(say(letter) for letter in text))])
    with Agent(Model("openai:gpt-5", via=script), output=Notes).stream("Go.") as run:
        for _ in run:
            if (notes := run.partial_output) is not None:
                kept += [(len(notes.items), notes)]
    assert {count for count, _ in kept} == {0, 1, 2, 3}
    assert all(count == len(notes.items) for count, notes in kept)
