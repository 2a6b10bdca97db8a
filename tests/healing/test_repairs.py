"""The table of repairs: exactly one reading, or none."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from penstock import ToolCallInvalid
from penstock.calls.arguments import diagnose
from penstock.healing.repairs import MAX_REPAIRED, REPAIRS, repair_arguments
from penstock.healing.report import IN_WORDS
from tests.growth import assert_linear


def invalid(raw: str) -> ToolCallInvalid:
    """A call with these arguments, as a decoder reports it."""
    why, message, repaired = diagnose(raw, None)
    return ToolCallInvalid(0, "call_1", "look", raw, why, message, repaired)


SAFE = {
    '```json\n{"a": 1}\n```': (172,),
    '{}{"a": 1}': (180,),
    ' { }\n{}\n{"a": 1}': (180,),
    '{}"{\\"a\\": 1}"': (180, 43),
    '"{\\"a\\": 1}"': (43,),
    '"{\\"a\\": 1,}"': (43, 171),
    '{"a": 1}}': (44,),
    '{"a": 1}\n</function>\n</tool_call>': (44,),
    '{"a": 1}<|im_end|>': (44,),
    '{"a": 1}<｜tool▁call▁end｜>': (44,),
    '{"a": 1}\n```': (44,),
    '{"a": 1}{"a": 1}': (36,),
    '{"a": 1,}': (171,),
}


@pytest.mark.parametrize("raw", SAFE)
def test_a_safe_repair_finds_the_only_reading(raw: str) -> None:
    repair = repair_arguments(invalid(raw), "safe")
    assert repair is not None
    assert repair.arguments == {"a": 1} == json.loads(repair.text)
    assert repair.quirks == SAFE[raw]
    assert repair_arguments(invalid(raw), "guess") == repair
    assert repair_arguments(invalid(raw), "off") is None


@pytest.mark.parametrize(
    ("raw", "quirk"),
    [("{'a': 1}", 173), ('{"a": 1} I hope this helps.', 44), ('{"a": 1}, {"b": 2}', 44)],
)
def test_what_has_several_readings_is_only_guessed(raw: str, quirk: int) -> None:
    assert repair_arguments(invalid(raw), "safe") is None
    guess = repair_arguments(invalid(raw), "guess")
    assert guess is not None
    assert guess.arguments == {"a": 1}
    assert guess.quirks == (quirk,)


@pytest.mark.parametrize(
    "raw",
    [
        '{"a": 1}{"b": 2}',
        '{}{"a": 1}{"b": 2}',
        '{}{"a": ',
        '{"a": "use ',
        '{"a": 1, "a": 2,}',
        "[1, 2]",
        '"text"',
        "<tool_call>",
        "```json\n```",
    ],
)
def test_what_cannot_be_known_is_not_repaired(raw: str) -> None:
    assert repair_arguments(invalid(raw), "guess") is None


def test_two_readings_that_differ_are_no_repair(monkeypatch: pytest.MonkeyPatch) -> None:
    from msgspec.structs import replace

    from penstock.healing import repairs

    call = invalid('{"a": 1,}')
    assert repair_arguments(call, "safe") is not None
    other = replace(REPAIRS[0], quirk=999, apply=lambda _call, text: '{"a": 2}' if text == call.arguments_raw else None)
    monkeypatch.setattr(repairs, "SAFE", (*repairs.SAFE, other))
    assert repair_arguments(call, "safe") is None
    assert repair_arguments(call, "guess") is None


def test_a_repair_continues_what_was_sent() -> None:
    call = invalid('{"a": 1,}')
    assert repair_arguments(call, "safe", '{"a": 1') is not None
    assert repair_arguments(call, "safe", '{"a":1') is None


def test_longer_arguments_are_not_looked_at() -> None:
    raw = f'{{"a": "{"x" * MAX_REPAIRED}",}}'
    assert repair_arguments(invalid(raw), "guess") is None


def test_every_rule_is_described() -> None:
    for rule in REPAIRS:
        assert rule.damage
        assert rule.reading
        assert rule.quirk in IN_WORDS


@pytest.mark.parametrize(
    "damage", ['{}{}{"a": "%s",}', '"{\\"a\\": \\"%s\\"}"', "{'a': '%s'}", '```\n{"a": "%s\n"}}\n```']
)
@pytest.mark.parametrize("filling", ["x", "{} ", "``` ", "'", ",}", '\\"', "<|a|> ", "{'a': "])
def test_a_repair_is_linear(damage: str, filling: str) -> None:
    def work(size: int) -> Callable[[], object]:
        call = invalid(damage % (filling * size))
        return lambda: repair_arguments(call, "guess")

    assert_linear(work, 4_000)
