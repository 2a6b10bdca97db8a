"""Plain text as an output, and the output so far with its type."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from typing import Any

import pytest

from penstock import Agent, Model, OutputDelta
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
        ('Use {"n": 3} as the config.', 'Use {"n": 3} as the config.'),
        ("{name} is a placeholder.", "{name} is a placeholder."),
        ("```python\n{'n': 3}\n```", "```python\n{'n': 3}\n```"),
        ("[1, 2]", "[1, 2]"),
        ('"quoted"', '"quoted"'),
        ('{"value": "plain"}', "plain"),
        ('{"value": {"n": 3}}', Count(3)),
        ('Here it is: {"value": {"n": 3}}', Count(3)),
        ('{"n": 3}', Count(3)),
        ('{"n": 3}\nAnything else?', Count(3)),
        ('```json\n{"n": 3}\n```', Count(3)),
    ],
)
def test_plain_text_is_an_output_where_a_union_has_text(text: str, output: Any) -> None:
    script = Scripted([text])
    result = Agent(Model("openai:gpt-5", via=script), output=Count | str).run("Go.")
    assert (result.output, len(script.requests)) == (output, 1)
    assert Model("openai:gpt-5", via=Scripted([text])).complete("Go.", output=Count | str).output == output


@pytest.mark.parametrize(
    "text",
    [
        '{"broken', '{"n": 3', '{"value": {"n": 3}', '{"value": {"n": "x"}}', '{"value": 3}', '{"n": "many"}',
        '{"m": 3}', "{'n': 3}", "{n: 3}", '```json\n{"n": 3,,}\n```', 'Here it is: {"value": {"n": 3}', "{}", "",
    ],
)  # fmt: skip
def test_a_broken_object_or_one_that_does_not_fit_is_not_plain_text(text: str) -> None:
    script = Scripted([text, '{"value": {"n": 3}}'])
    assert Agent(Model("openai:gpt-5", via=script), output=Count | str).run("Go.").output == Count(3)
    assert len(script.requests) == 2


@dataclass
class Setting:
    value: str = ""
    unit: str = ""


@pytest.mark.parametrize(
    ("text", "output"),
    [
        ('{"value": "x"}', "x"),  # the declared form comes first
        ('{"value": {"value": "x"}}', Setting("x")),
        ('{"value": "3", "unit": "m"}', Setting("3", "m")),
        ('{"unit": "m"}', Setting("", "m")),
    ],
)
def test_members_with_a_field_of_the_name_of_the_wrapper(text: str, output: Any) -> None:
    assert Agent(Model("openai:gpt-5", via=Scripted([text])), output=Setting | str).run("Go.").output == output


def test_a_member_of_any_union_may_come_without_its_wrapper() -> None:
    kinds: list[Any] = [Count | None, Count | list[int], Count | Setting]
    for kind in kinds:
        agent = Agent(Model("openai:gpt-5", via=Scripted(['{"n": 3}'])), output=kind)
        assert agent.run("Go.").output == Count(3)


def test_an_object_without_a_field_of_a_member_is_not_that_member_with_its_defaults() -> None:
    script = Scripted(['{"valu": {"unit": "m"}}', '{"value": {"unit": "m"}}'])
    assert Agent(Model("openai:gpt-5", via=script), output=Setting | str).run("Go.").output == Setting("", "m")
    assert len(script.requests) == 2


def test_pieces_of_a_member_without_its_wrapper_are_not_pieces_of_the_output() -> None:
    with Agent(Model("openai:gpt-5", via=Scripted(['{"n": 3}'])), output=Count | str).stream("Go.") as run:
        assert not [event for event in run if isinstance(event, OutputDelta)]
    assert (run.output, run.partial) == (Count(3), None)


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
