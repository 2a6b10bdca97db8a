"""`StrictObject`: what of growing JSON can be passed on, however it is cut, and what is held."""

from __future__ import annotations

import json
import random
from collections.abc import Callable

import pytest

from penstock.jsontext.strict import MAX_HELD, StrictObject
from tests.growth import assert_linear

STRICT = [
    "{}",
    ' { "a" : [ ] , "b" : { } } \n',
    '{"a": [1, -2.5e+3, true, false, null, "x"], "b": {"c": "\\u00e9\\n\\"\\\\"}}',
    '{"a": [[[]], {}], "": ""}',
]
DEVIATING = {
    '{"a": 1,}': '{"a": 1',
    '{"a": [1, ]}': '{"a": [1',
    "```json\n{}\n```": "",
    "{'a': 1}": "{",
    '{"a": True}': '{"a":',
    '{"a": "x\ny"}': '{"a": "x',
    '{"a": "\\x"}': '{"a": "',
    '{"a": 01}': '{"a":',
    '{"a": 1} {"a": 2}': '{"a": 1} ',
    '{"a": 1}}': '{"a": 1}',
    '{"a" 1}': '{"a" ',
    '{"a": 1]': '{"a": 1',
    "[1]": "",
    '"{}"': "",
    "null": "",
    "{,}": "{",
}


def passed_on(text: str, cuts: list[int]) -> tuple[str, bool]:
    reader = StrictObject()
    pieces = [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    return "".join(map(reader.feed, pieces)), reader.is_deviating


def cuttings(text: str) -> list[list[int]]:
    random.seed(7)
    some = [sorted(random.sample(range(len(text) + 1), min(3, len(text)))) for _ in range(20)]
    return [[], list(range(1, len(text))), *some]


@pytest.mark.parametrize("text", STRICT)
def test_strict_json_is_passed_on_whole_however_it_is_cut(text: str) -> None:
    assert isinstance(json.loads(text), dict)
    for cuts in cuttings(text):
        assert passed_on(text, cuts) == (text, False)


@pytest.mark.parametrize("text", DEVIATING)
def test_what_follows_a_deviation_is_held_however_it_is_cut(text: str) -> None:
    for cuts in cuttings(text):
        assert passed_on(text, cuts) == (DEVIATING[text], True)


def test_the_beginning_of_strict_json_is_passed_on_with_its_strings() -> None:
    reader = StrictObject()
    assert [reader.feed(piece) for piece in ('{"a": "x', "y", '\\', 'n", ', '"b": 4', '2}')] == [
        '{"a": "x', "y", "", '\\n"', ', "b":', " 42}",
    ]  # fmt: skip


def test_space_after_a_comma_is_not_held_for_ever() -> None:
    reader = StrictObject()
    assert reader.feed('{"a": 1') + reader.feed(",") == '{"a": 1'
    reader.feed(" " * (MAX_HELD + 1))
    assert reader.is_deviating
    assert reader.feed('"b": 2}') == ""


def test_the_costs_are_linear() -> None:
    def prepare(size: int) -> Callable[[], object]:
        pieces = ['{"a": [', *(["1, ", '"x', '\\n", ', " "] * size), "1]}"]
        reader = StrictObject()
        return lambda: [reader.feed(piece) for piece in pieces]

    assert_linear(prepare, 1_000)
