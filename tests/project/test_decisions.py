"""The records of decisions name only what exists: files, and names of the code, of a protocol or of a library.

So do the rows of the threat model: each names a test or an attack.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from tests.siege.attacks import by_name

ROOT = Path(__file__).parents[2]
DECISIONS = sorted((ROOT / "docs" / "decisions").glob("*.md"))
FOLDERS = ("src", "tests", "benchmarks", "examples")
PLACES = (ROOT, ROOT / "src" / "penstock", ROOT / "tests")
"""The folders from which a record may name a path."""
OTHERS = {"dataclass_transform", "decode_lines", "idempotentHint", "list_files", "useChat", "x1_2"}
"""Names of Python, msgspec, MCP and the AI SDK that the code does not use, and names in examples."""

CODE = re.compile(r"`([^`\n]+)`")
PATH = re.compile(r"[\w<>*-]+(/[\w<>*-]+)*(/|\.(py|md|json|toml|svg))")
PROSE = re.compile(r'^ *""".*?"""|#[^\n]*', re.DOTALL | re.MULTILINE)
NAME = re.compile(r"([A-Za-z_][\w.]*)(\(.*\))?")


def missing(text: str) -> list[str]:
    """The names in backticks that do not exist. Names of the past are in italics and are not looked at."""
    text = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    return [code for code in CODE.findall(text) if not _exists(code)]


def _exists(code: str) -> bool:
    if PATH.fullmatch(code):
        path = re.sub(r"<\w+>", "*", code)
        return any(any(place.glob(path)) for place in PLACES) or ("/" not in path and path in _names())
    if name := NAME.fullmatch(code):
        return set(name[1].split(".")) <= _names() | OTHERS
    return True  # markup, values and expressions


@cache
def _names() -> set[str]:
    """The words of the code, without comments and docstrings, and the names of its files."""
    paths = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py") if path != Path(__file__)]
    files = {part for path in paths for part in (path.stem, path.name, path.parent.name)}
    return files.union(*(re.findall(r"\w+", PROSE.sub("", path.read_text(encoding="utf-8"))) for path in paths))


@pytest.mark.parametrize("path", DECISIONS, ids=lambda path: path.stem)
def test_a_record_names_only_what_exists(path: Path) -> None:
    assert missing(path.read_text(encoding="utf-8")) == [], "a name of the past is written in italics, not in backticks"


def test_a_name_that_does_not_exist_is_found() -> None:
    names = ["run/machine.py", "wires/<wire>/facts.py", "Model.for_conversation", "penstock.log.open(…)"]
    assert missing(" ".join(f"`{name}`" for name in names) + ", and *grip*, which did exist") == []
    gone = ["run/no_such.py", "no_such.py", "wires/<wire>/no_such.py", "Model.no_such_method", "no_such_function()"]
    assert missing(" ".join(f"`{name}`" for name in gone)) == gone


THREATS = (ROOT / "docs" / "threat-model.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| \*\*([^*|]+)\*\* \| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)
ROWS: list[tuple[str, ...]] = ROW.findall(THREATS.partition("<!-- threats -->")[2].partition("<!-- end -->")[0])


def untested(cell: str) -> list[str]:
    """The names in a cell that are neither a file of tests nor words of an attack."""
    attacks = [*by_name()]
    return [
        name
        for name in map(str.strip, cell.split(", "))
        if not (
            any(name.removeprefix("siege: ") in attack for attack in attacks)
            if name.startswith("siege: ")
            else re.fullmatch(r"`tests/[\w/]+/test_\w+\.py`", name) and (ROOT / name.strip("`")).is_file()
        )
    ]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[1][:40])
def test_a_row_of_the_threat_model_names_a_test_that_exists(row: tuple[str, ...]) -> None:
    assert untested(row[2]) == []


def test_every_guarantee_has_its_attacks_in_the_threat_model() -> None:
    table = (ROOT / "SECURITY.md").read_text(encoding="utf-8").partition("| | guarantee |")[2].partition("\n\n")[0]
    assert [*dict.fromkeys(row[0] for row in ROWS)] == re.findall(r"^\| \*\*([^*]+)\*\* \|", table, re.MULTILINE)
    assert THREATS.count("\n| **") == len(ROWS) + THREATS.partition("<!-- threats -->")[0].count("\n| **")


def test_a_test_or_an_attack_that_does_not_exist_is_found() -> None:
    assert untested("`tests/run/test_run.py`, siege: empty lists") == []
    gone = ["`tests/run/test_no_such.py`", "siege: no such attack", "a promise", "`tests/run`"]
    assert untested(", ".join(gone)) == gone
