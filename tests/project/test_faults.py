"""The list of faults: every fault has a test, and every test and vector that it names exists."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.asking import WIRES
from tests.cases import each
from tests.support import vectors
from tests.texts import text_vectors

TESTS = Path(__file__).parents[1]
NUMBERS = range(1, 43)


def rows() -> Iterator[tuple[str, str, str]]:
    """The number, the fault and the tests of each line of the list."""
    for line in (TESTS / "faults.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if len(cells) == 3 and (cells[0].isdigit() or cells[0] == "–"):
            yield cells[0], cells[1], cells[2]


def names(tests: str) -> Iterator[tuple[str, str]]:
    """The tests, vectors and files that a line names, each with its file; "" if it does not say which."""
    file = ""
    for quoted, vector in re.findall(r'`([^`]+)`|"([^"]+)"', tests):
        path, _, test = quoted.partition("::")
        if path.startswith("tests/"):
            file = path
        if path.startswith("tests/") and not test:
            yield path, ""
        elif quoted.endswith(".json"):
            yield f"tests/texts/{quoted}", ""
        elif test or quoted.startswith("test_"):
            yield file, test or quoted
        else:
            yield "", vector or quoted


def test_every_fault_has_a_test() -> None:
    assert {number for number, _, _ in rows()} >= {str(number) for number in NUMBERS}
    assert all(list(names(tests)) for _, _, tests in rows())


@each("tests", sorted({tests for _, _, tests in rows()}))
def test_what_the_list_names_exists(tests: str) -> None:
    for file, name in names(tests):
        if not file:
            assert is_vector(name), name
        elif name:
            function = name.rpartition("::")[2]  # within a class or not
            assert re.search(rf"^ *(async )?def {function}\(", (TESTS.parent / file).read_text(), re.MULTILINE), name
        else:
            assert (TESTS.parent / file).is_file(), file


def is_vector(name: str) -> bool:
    """Whether a vector has this name, which may begin with its wire."""
    spellings = {name, *(name.removeprefix(f"{wire}-") for wire in WIRES)}
    return not spellings.isdisjoint(vector_names())


@cache
def vector_names() -> set[str]:
    return {vector.name for vector in vectors()} | {vector.name for vector in text_vectors()}
