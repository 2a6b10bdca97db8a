"""`each`: every case is tried, and the failure names all that failed."""

from __future__ import annotations

import pytest

from tests import budget
from tests.cases import Case, each, try_cases


def test_every_combination_is_tried_once_in_one_of_the_parts() -> None:
    @each("number", [1, 2, 3], parts=2)
    @each(("text", "size"), [("a", 1), ("bb", 2)])
    def attempt(number: int, text: str, size: int) -> None:
        tried.append((number, text, size))

    tried: list[tuple[int, str, int]] = []
    for part in range(2):
        attempt(part=part)
        assert len(tried) == 3 * (part + 1)
    assert sorted(tried) == [(1, "a", 1), (1, "bb", 2), (2, "a", 1), (2, "bb", 2), (3, "a", 1), (3, "bb", 2)]


def test_a_budget_tries_some_of_the_combinations(monkeypatch: pytest.MonkeyPatch) -> None:
    def tried(is_thorough: bool) -> set[tuple[int, str]]:
        monkeypatch.setattr(budget, "IS_THOROUGH", is_thorough)
        pairs: list[tuple[int, str]] = []

        @each("number", range(20), few=7)
        @each("text", ["a", "b"])
        def attempt(number: int, text: str) -> None:
            pairs.append((number, text))

        attempt()
        assert len(set(pairs)) == len(pairs)
        return set(pairs)

    assert len(tried(is_thorough=False)) == 7
    assert tried(is_thorough=True) == {(number, text) for number in range(20) for text in "ab"}


class TestEach:
    @each("number", [1, 2], parts=2)
    def test_pytest_gives_the_fixtures_and_the_part(self, number: int, request: pytest.FixtureRequest) -> None:
        assert request.node.name.endswith(f"[part {number} of 2]")


def test_a_failure_names_every_case_that_failed_and_shows_why() -> None:
    def attempt(case: Case) -> None:
        tried.append(case.name)
        if case.name == "two":
            pytest.fail("no two")
        assert case.name != "three"

    tried: list[str] = []
    cases = [Case(name, {}) for name in ("one", "two", "three", "four")]
    with pytest.raises(BaseExceptionGroup, match="2 of 4 cases failed: two, three") as caught:
        try_cases(attempt, cases)
    assert tried == ["one", "two", "three", "four"]
    assert [(str(error).split("\n")[0], error.__notes__) for error in caught.value.exceptions] == [
        ("no two", ["case: two"]),
        ("assert 'three' != 'three'", ["case: three"]),
    ]


def test_a_test_without_cases_is_skipped() -> None:
    with pytest.raises(pytest.skip.Exception, match="there are no cases"):
        try_cases(lambda case: None, [])


def test_a_fixture_with_state_is_not_shared_among_cases() -> None:
    with pytest.raises(AssertionError, match="monkeypatch"):

        @each("number", [1])
        def attempt(number: int, monkeypatch: pytest.MonkeyPatch) -> None: ...
