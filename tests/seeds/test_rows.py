"""Every row has one test; the adapters are imported only by those who use them, and are thin."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import penstock.adapters

ADAPTERS = ("aisuite", "go_client", "langchain_dart", "msgflux", "reqllm")
DOCS = Path(__file__).parent.parent.parent / "docs"
ROWS = 140
MAX_DECISIONS = 5
MAX_LINES = 120
"""The size of an adapter, without imports, docstrings and empty lines: a shape, and no capability of its own."""
LARGER = {"langchain_dart": 150, "msgflux": 160}
"""The documents that describe several parts: `docs/decisions/` has the reason."""


def row_tests() -> list[Any]:
    tests: list[Any] = []
    for name in ADAPTERS:
        module = import_module(f"tests.seeds.test_{name}")
        tests += [test for test in vars(module).values() if hasattr(test, "row")]
    return tests


def test_the_rows_that_differ_from_the_documents_are_few_and_argued() -> None:
    argued = [test.decision for test in row_tests() if test.decision]
    assert len(argued) <= MAX_DECISIONS
    for name in set(argued):
        assert list((DOCS / "decisions").glob(f"*-{name}.md")), name


def test_importing_penstock_imports_no_adapter() -> None:
    code = "import sys, penstock; penstock.Model, penstock.Agent, penstock.decode; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    assert not [name for name in loaded if name.startswith(tuple(f"penstock.adapters.{one}" for one in ADAPTERS))]


def test_the_adapters_are_thin() -> None:
    [folder] = penstock.adapters.__path__
    for name in ADAPTERS:
        paths = [*Path(folder).glob(f"{name}.py"), *Path(folder).glob(f"{name}/*.py")]
        assert all(count_lines(path.read_text(encoding="utf-8")) <= MAX_LINES for path in paths), name
        total = sum(count_lines(path.read_text(encoding="utf-8")) for path in paths)
        assert total <= LARGER.get(name, MAX_LINES), name
    assert list((DOCS / "decisions").glob("*-the-size-of-an-adapter.md"))


def count_lines(source: str) -> int:
    """The lines of code: no imports, docstrings, comments and empty lines."""
    lines = {at: line.strip() for at, line in enumerate(source.splitlines(), 1)}
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import() | ast.ImportFrom() | ast.Expr(value=ast.Constant()):
                for at in range(node.lineno, (node.end_lineno or node.lineno) + 1):
                    lines.pop(at, None)
            case _:
                pass
    return sum(bool(line) and not line.startswith("#") for line in lines.values())


def test_every_row_has_one_test() -> None:
    assert Counter(test.row for test in row_tests()) == Counter(range(1, ROWS + 1))


def test_the_reference_names_everything_that_an_adapter_has() -> None:
    reference = (DOCS / "reference.md").read_text(encoding="utf-8")
    for name in ADAPTERS:
        module = import_module(f"penstock.adapters.{name}")
        [row] = [line for line in reference.splitlines() if line.startswith(f"| `{name}` |")]
        own = [key for key, value in vars(module).items() if _is_defined_in(module, value) and not key.startswith("_")]
        assert own
        assert [key for key in own if not re.search(rf"\b{key}\b", row)] == [], name


def _is_defined_in(module: ModuleType, value: Any) -> bool:
    return str(getattr(value, "__module__", "")).startswith(module.__name__)
