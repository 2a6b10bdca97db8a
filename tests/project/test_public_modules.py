"""What is public is listed: pages and examples import nothing else, and few tests do."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest

from tests.internals import (
    EXTENSION_TABLE,
    PUBLIC_TABLE,
    ROOT,
    is_module,
    listed_modules,
    origin_of,
    read_test_file,
    read_tests,
)

MAX_SHARE = 0.25
"""The share of test functions that may use internal modules."""
IMPORT = re.compile(r"^\s*(?:from (penstock[\w.]*) import (.+)|import (penstock[\w.]*))", re.MULTILINE)
RECORDS = ROOT / "docs" / "decisions"
PAGES = [
    ROOT / "README.md",
    *(path for path in sorted((ROOT / "docs").rglob("*.md")) if RECORDS not in path.parents),
    *sorted((ROOT / "examples").rglob("*.py")),
    *sorted((ROOT / "examples").rglob("*.md")),
]


def imports_in(text: str) -> set[str]:
    """The modules of penstock that a page imports, or imports names from."""
    found = set[str]()
    for origin, names, module in IMPORT.findall(text):
        found |= {origin_of(origin, name) for name in re.findall(r"\w+", names)} if origin else {module}
    return found


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_pages_and_examples_import_public_modules_only(path: Path) -> None:
    allowed = listed_modules(PUBLIC_TABLE)
    if path.name.startswith("add-a-"):
        allowed |= listed_modules(EXTENSION_TABLE)
    assert imports_in(path.read_text(encoding="utf-8")) <= allowed


def test_imports_in_a_page_are_found() -> None:
    page = "```python\nimport penstock.log\n    from penstock import log, Agent\nfrom penstock.run.state import X\n```"
    assert imports_in(page) == {"penstock", "penstock.log", "penstock.run.state"}


@pytest.mark.parametrize("table", [PUBLIC_TABLE, EXTENSION_TABLE])
def test_the_listed_modules_exist(table: str) -> None:
    modules = listed_modules(table)
    assert len(modules) > 15
    for module in modules:
        assert is_module(module), module


def test_the_lists_have_no_module_in_common_and_what_they_export_is_public() -> None:
    assert listed_modules(PUBLIC_TABLE) & listed_modules(EXTENSION_TABLE) == set()
    for module in listed_modules(PUBLIC_TABLE) - {"penstock.runs.dbos", "penstock.runs.pgqueuer"}:  # they need engines
        assert not any(name.startswith("_") for name in getattr(import_module(module), "__all__", ()))


# -- the tests ---------------------------------------------------------------------------------------------------------


def test_few_test_functions_use_internal_modules() -> None:
    files = read_tests().values()
    share = sum(len(file.uses) for file in files) / sum(file.functions for file in files)
    assert share <= MAX_SHARE, "python -m tests.internals lists them"


def test_a_test_function_uses_the_modules_of_its_names() -> None:
    file = read_test_file(
        "from penstock import Agent\n"
        "from penstock.run.state import RunState as State\n"
        "from penstock.run import limits\n"
        "def test_one(): State()\n"
        "def test_two(): Agent()\n"
        "async def test_three(): limits.MAX\n"
        "def test_four():\n"
        "    from penstock.log.flusher import Flusher\n"
        "    Flusher()\n"
        "def helper(): State()\n"
    )
    assert file.functions == 4
    assert file.uses == {
        "test_one": {"penstock.run.state"},
        "test_three": {"penstock.run.limits"},
        "test_four": {"penstock.log.flusher"},
    }
