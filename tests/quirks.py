"""The last column of docs/quirks.md: how many vectors test a quirk, per wire; and the table of the inspector.

`python -m tests.quirks` writes both; `python -m tests.quirks 33` prints the vectors of quirk 33.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from pathlib import Path

from tests.support import Vector, vectors

TABLE = Path(__file__).parent.parent / "src" / "penstock" / "inspector" / "quirks.json"
PAGE = Path(__file__).parent.parent / "docs" / "quirks.md"
ROW = re.compile(r"^\| (\d+) \|(.*\|)[^|]*\|$", re.MULTILINE)
LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")

WITHOUT_VECTORS = {148, *range(165, 171)}
"""Quirks of requests (148, 165), and of servers whose streams do not show the fault (166-170)."""


def page() -> str:
    """The page with its last column made from the vectors; the other columns are kept."""
    by_number = vectors_by_number()
    text = PAGE.read_text(encoding="utf-8")
    return ROW.sub(lambda row: f"| {row[1]} |{row[2]} {_counts(by_number.get(int(row[1]), []))} |", text)


def table() -> str:
    """The quirks as the inspector explains them: servers, what they send, what penstock does."""
    rows = {}
    for number, rest in ROW.findall(PAGE.read_text(encoding="utf-8")):
        cells = [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", rest)]
        rows[number] = {"servers": cells[0], "sends": cells[1], "does": LINK.sub(r"\1", cells[2])}
    return json.dumps(rows, ensure_ascii=False, indent=0) + "\n"


def numbers() -> list[int]:
    """The numbers of the rows, in the order of the page."""
    return [int(number) for number, _ in ROW.findall(PAGE.read_text(encoding="utf-8"))]


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
    """Write the page, or print the vectors of the quirks with these numbers."""
    if not arguments:
        PAGE.write_text(page(), encoding="utf-8")
        TABLE.write_text(table(), encoding="utf-8")
    by_number = vectors_by_number()
    for number in map(int, arguments):
        for vector in by_number.get(number, []):
            print(f"{number}  {vector.wire}  {vector.name}")  # noqa: T201  # its job


if __name__ == "__main__":
    main(sys.argv[1:])
