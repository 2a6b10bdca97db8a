"""The list of the quirks that have a vector: `python -m tests.quirks` prints docs/quirks.md."""

from __future__ import annotations

from tests.support import Vector, vectors

HEAD = """# Quirks

What real servers do that their documentation does not say, by the numbers that the code's comments use. Each is a claim
that `tests/test_laws.py` checks, in every cutting of the bytes; the vectors are in `tests/vectors`. Made by
`python -m tests.quirks`.

| no. | what comes out right (wire: vectors) |
|--:|---|
"""


def page() -> str:
    """The page, from the vectors."""
    by_number: dict[int, list[Vector]] = {}
    for vector in vectors():
        for number in vector.quirks:
            by_number.setdefault(number, []).append(vector)
    return HEAD + "".join(_row(number, by_number[number]) for number in sorted(by_number))


def _row(number: int, found: list[Vector]) -> str:
    by_wire: dict[str, list[str]] = {}
    for vector in found:
        by_wire.setdefault(vector.wire, []).append(vector.name.replace("-", " "))
    told = " · ".join(f"**{wire}**: {'; '.join(names)}" for wire, names in by_wire.items())
    return f"| {number} | {told} |\n"


if __name__ == "__main__":
    print(page(), end="")  # noqa: T201  # its job
