"""The shape of the package: imports point down, the public names are sorted, the import is light."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock
from penstock.wires import WIRES

SOURCE = Path(penstock.__file__).parent
LAYERS = {
    "events": 0, "errors": 0, "halves": 0, "scanner": 0, "masking": 0, "own_loop": 0,
    "objects": 1, "json_values": 1, "declared": 1, "messages": 1, "framing": 1, "jsonstream": 1,
    "answer": 2, "pairing": 2,
    "wires": 3, "dialects": 3, "requests": 3,
    "turn": 4, "accumulator": 4, "decoder": 4, "providers": 4,
    "consuming": 5, "callbacks": 5, "shapes": 5, "transport": 5,
    "happenings": 3, "commands": 4, "call_ids": 3, "execution": 4, "executions": 5, "limits": 5, "run": 6,
    "recording": 6, "stream": 6,
    "tool_problems": 1, "tool_signature": 1, "tool_outcome": 2, "tool_raw": 2, "tool_schema": 2, "tool_options": 5,
    "tools": 6,
    "history": 6,
    "model": 7, "work": 7, "settings": 8, "run_view": 9, "drive_sync": 10, "drive_async": 10, "agent": 11,
    "cli": 12, "testing": 8,
    "__main__": 13,
}  # fmt: skip
HEAVY = ("aiohttp", "asyncio", "click", "httpx", "httpx2", "pydantic", "rich", "starlette", "uvicorn")


def part_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
        elif isinstance(node, ast.Import):
            yield from (name.name for name in node.names)


IO = {"aiohttp", "asyncio", "concurrent", "httpx2", "logging", "queue", "random", "select", "socket", "ssl",
      "subprocess", "threading", "time"}  # fmt: skip


def is_pure(path: Path) -> bool:
    part = part_of(path)
    if part == "transport":
        return path.stem == "exchange"
    return LAYERS[part] <= LAYERS["run"] and part not in ("own_loop", "stream")


MODULES = sorted(path for path in SOURCE.rglob("*.py") if path.parent != SOURCE or path.name != "__init__.py")


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_point_down(path: Path) -> None:
    here = part_of(path)
    for module in imports(path):
        if module == "penstock" or not module.startswith("penstock."):
            assert module != "penstock" or LAYERS[here] >= 12, "inside, modules are imported by their own name"
            continue
        there = module.split(".")[1]
        assert there == here or LAYERS[there] < LAYERS[here], f"{here} imports {module}"


@pytest.mark.parametrize("path", [path for path in MODULES if is_pure(path)], ids=lambda path: path.name)
def test_what_the_drivers_drive_does_no_io(path: Path) -> None:
    """Up to the run, and the exchange with a provider: no sockets, threads, loops, clocks or logs."""
    assert not {module.split(".")[0] for module in imports(path)} & IO


def test_wires_do_not_know_each_other() -> None:
    names = {name.replace("-", "_") for name in WIRES}
    for name in names:
        for module in imports(SOURCE / "wires" / f"{name}.py"):
            if module.startswith("penstock.wires."):
                assert module.split(".")[2] not in names, f"{name} imports {module}"


def test_public_names_are_sorted_and_there() -> None:
    assert sorted(penstock.__all__) == penstock.__all__
    assert set(penstock.__all__) == set(penstock._HOME)
    for name in penstock.__all__:
        assert hasattr(penstock, name)


def test_the_import_is_light() -> None:
    code = "import sys, penstock; penstock.Decoder('openai-chat'); print(*{name.split('.')[0] for name in sys.modules})"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not set(loaded) & set(HEAVY)
