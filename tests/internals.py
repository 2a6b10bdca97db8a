"""How many test functions use internal modules of penstock: `python -m tests.internals` prints the count, by file.

A module is internal if neither list of docs/reference.md has it. A test function uses it if its code has a name that
was imported from it, at the top of the file or in the function.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
REFERENCE = ROOT / "docs" / "reference.md"
PUBLIC_TABLE, EXTENSION_TABLE = "public modules", "extension points"
ROW = re.compile(r"^\| `(penstock[\w.]*)` \|", re.MULTILINE)
Function = ast.FunctionDef | ast.AsyncFunctionDef


@cache
def listed_modules(table: str) -> frozenset[str]:
    """The modules in a list of the reference."""
    page = REFERENCE.read_text(encoding="utf-8")
    [rows] = re.findall(rf"<!-- {table} -->(.*?)<!-- end -->", page, re.DOTALL)
    return frozenset(ROW.findall(rows))


def is_internal(module: str) -> bool:
    return module.split(".")[0] == "penstock" and module not in listed_modules(PUBLIC_TABLE) | listed_modules(
        EXTENSION_TABLE
    )


def is_module(name: str) -> bool:
    path = ROOT / "src" / Path(*name.split("."))
    return path.with_suffix(".py").is_file() or (path / "__init__.py").is_file()


@cache
def exported_names(module: str) -> frozenset[str]:
    """The names in `__all__` of a module."""
    path = ROOT / "src" / Path(*module.split("."))
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    if not file.is_file():
        return frozenset()
    lists = re.findall(r"^__all__ = \[(.*?)\]", file.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    return frozenset(name for names in lists for name in re.findall(r'"(\w+)"', names))


def origin_of(module: str, name: str) -> str:
    """The module of a name that is imported from a module: the name may be a module itself."""
    whole = f"{module}.{name}"
    return whole if is_module(whole) and name not in exported_names(module) else module


def imported_modules(node: ast.AST) -> Iterator[tuple[str, str]]:
    """The names that an import statement binds, each with the module of penstock that it is from, or is."""
    match node:
        case ast.Import(names=names):
            for alias in names:
                yield alias.asname or alias.name.split(".")[0], alias.name
        case ast.ImportFrom(module=str(module), names=names, level=0):
            for alias in names:
                yield alias.asname or alias.name, origin_of(module, alias.name)
        case _:
            pass


class TestFile(NamedTuple):
    """How many test functions a file has, and the internal modules that each of some of them uses."""

    functions: int
    uses: dict[str, set[str]]


def read_test_file(source: str) -> TestFile:
    tree = ast.parse(source)
    internals = {
        name: module for node in ast.walk(tree) for name, module in imported_modules(node) if is_internal(module)
    }
    functions = [node for node in ast.walk(tree) if isinstance(node, Function) and node.name.startswith("test_")]
    uses = {function.name: _used(function, internals) for function in functions}
    return TestFile(len(functions), {name: modules for name, modules in uses.items() if modules})


def _used(function: Function, internals: dict[str, str]) -> set[str]:
    """The internal modules of the names in a function; of `import penstock.a.b`, also those of its attributes."""
    names = {node.id for node in ast.walk(function) if isinstance(node, ast.Name)}
    return {module for name, module in internals.items() if name in names}


def read_tests() -> dict[str, TestFile]:
    paths = sorted((ROOT / "tests").rglob("test_*.py"))
    return {path.relative_to(ROOT).as_posix(): read_test_file(path.read_text(encoding="utf-8")) for path in paths}


def main() -> None:
    files = read_tests()
    total, using = sum(file.functions for file in files.values()), sum(len(file.uses) for file in files.values())
    modules = Counter(module for file in files.values() for used in file.uses.values() for module in used)
    for path, file in sorted(files.items(), key=lambda item: -len(item[1].uses)):
        if file.uses:
            sys.stdout.write(f"{len(file.uses):5} of {file.functions:4} {path}\n")
    sys.stdout.write("\n")
    for module, count in modules.most_common():
        sys.stdout.write(f"{count:5} {module}\n")
    sys.stdout.write(f"\n{using} of {total} test functions use internal modules: {using / total:.1%}\n")


if __name__ == "__main__":
    main()
