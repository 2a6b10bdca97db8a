"""The quirks of docs/quirks.md and their vectors: `python -m tests.quirks 33` prints the vectors of quirk 33."""

from __future__ import annotations

import re
import sys
from collections import Counter
from pathlib import Path

from tests.support import Vector, vectors

PAGE = Path(__file__).parent.parent / "docs" / "quirks.md"
HEAD = re.compile(r"^(\| no\. \|.*\|)\n(\|--:\|.*)$", re.MULTILINE)
ROW = re.compile(r"^\| (\d+) \|.*\|$", re.MULTILINE)

WITHOUT_VECTORS = {148, *range(165, 171), 183}
"""Quirks of requests (148, 165, 183), and of servers whose streams do not show the fault (166-170)."""


def with_counts(text: str) -> str:
    """The page with one more column in its tables: how many vectors test a quirk, per wire."""
    by_number = vectors_by_number()
    text = HEAD.sub(r"\1 tests |\n\2---|", text)
    return ROW.sub(lambda row: f"{row[0]} {_counts(by_number.get(int(row[1]), []))} |", text)


def numbers() -> list[int]:
    """The numbers of the rows, in the order of the page."""
    return [int(number) for number in ROW.findall(PAGE.read_text(encoding="utf-8"))]


def vectors_by_number() -> dict[int, list[Vector]]:
    """The vectors of each quirk that has some."""
    by_number: dict[int, list[Vector]] = {}
    for vector in vectors():
        for number in vector.quirks:
            by_number.setdefault(number, []).append(vector)
    return by_number


def _counts(tests: list[Vector]) -> str:
    counts = Counter(vector.wire for vector in tests)
    return ", ".join(f"{wire} {count}" for wire, count in counts.items()) or "none"


def main(arguments: list[str]) -> None:
    """Print the vectors of the quirks with these numbers."""
    by_number = vectors_by_number()
    for number in map(int, arguments):
        for vector in by_number.get(number, []):
            print(f"{number}  {vector.wire}  {vector.name}")  # noqa: T201  # its job


if __name__ == "__main__":
    main(sys.argv[1:])
