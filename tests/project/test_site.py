"""The site has the counts that the committed pages leave out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests import site
from tests.architecture import ALLOWED
from tests.quirks import WITHOUT_VECTORS, numbers


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site") / "docs"
    site.write(folder)
    return folder


def test_the_page_of_the_architecture_has_the_size_of_every_package(pages: Path) -> None:
    page = (pages / "architecture.md").read_text(encoding="utf-8")
    assert "| module or package | what it is | may import | files | lines |\n|---|---|---|--:|--:|\n" in page
    assert "| folder | what it is | files | lines |\n|---|---|--:|--:|\n" in page
    rows = re.findall(r"^\| `(\w+)(?:/|\.py)` \| .* \| ([\d,]+) \| ([\d,]+) \|$", page, re.MULTILINE)
    assert [name for name, _, _ in rows] == list(ALLOWED)
    assert all(int(lines.replace(",", "")) > int(files) > 0 for _, files, lines in rows)


def test_the_page_of_quirks_has_the_vectors_of_every_quirk(pages: Path) -> None:
    page = (pages / "quirks.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| (\d+) \|.*\| ([^|]+) \|$", page, re.MULTILINE))
    assert list(map(int, rows)) == numbers()
    assert {int(number) for number, vectors in rows.items() if vectors == "none"} == WITHOUT_VECTORS
    assert re.fullmatch(r"(\w[\w-]* \d+(, )?)+", rows["33"])
    assert page.count(" | tests |\n|--:|---|---|---|---|\n") == page.count("\n| no. |")


def test_every_other_file_is_as_it_is_in_the_repository(pages: Path) -> None:
    for path in (site.ROOT / "docs").rglob("*"):
        name = path.relative_to(site.ROOT / "docs").as_posix()
        if path.is_file() and name not in site.COUNTED:
            assert (pages / name).read_bytes() == path.read_bytes()
