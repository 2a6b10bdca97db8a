"""The shape of the package: imports point down, the public names are sorted, the import is light."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from collections import Counter
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import get_args

import pytest

import penstock
from penstock.events import Event
from penstock.wires import READING_ORDER, WIRES
from tests.architecture import ALLOWED, PAGE, PURE, SOURCE, imports, page, part_of, tree_of
from tests.cases import each

HEAVY = (
    "aiohttp",
    "asyncio",
    "click",
    "httpx",
    "httpx2",
    "jsonschema_rs",
    "mcp",
    "opentelemetry",
    "pydantic",
    "rich",
    "starlette",
    "uvicorn",
)
IO = {"aiohttp", "asyncio", "concurrent", "httpx2", "logging", "queue", "random", "select", "socket", "ssl",
      "subprocess", "threading", "time"}  # fmt: skip

MODULES = sorted(path for path in SOURCE.rglob("*.py") if path.parent != SOURCE or path.name != "__init__.py")
every_module = each("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))


EXCHANGE = [("commands",), ("deadlines",), ("error_responses",), ("exchange",), ("redacted",)]
"""The modules of `transport` that do no I/O."""


def inside(path: Path, package: str) -> tuple[str, ...]:
    """The parts of a module's name below a package."""
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return parts[1:] if parts[0] == package else ()


MAX_MODULES = 20
"""The modules of a folder, without `__init__`: more are sorted into subfolders."""


@pytest.mark.parametrize(("root", "pattern"), [(SOURCE, "*.py"), (SOURCE.parents[1] / "tests", "test_*.py")])
def test_no_folder_has_more_modules_than_a_reader_takes_in(root: Path, pattern: str) -> None:
    modules = [path for path in root.rglob(pattern) if path.name != "__init__.py" and "node_modules" not in path.parts]
    counts = Counter(path.parent.relative_to(root).as_posix() for path in modules)
    assert not {folder: count for folder, count in counts.items() if count > MAX_MODULES}


def test_every_part_of_the_package_has_a_layer() -> None:
    parts = {part_of(path) for path in MODULES}
    assert parts == set(ALLOWED)
    for part, allowed in ALLOWED.items():
        above = list(ALLOWED)[: list(ALLOWED).index(part)]
        assert allowed == "*" or set(allowed.split()) <= set(above), f"{part} may import only what stands above it"


@every_module
def test_imports_point_up_the_list(path: Path) -> None:
    here = part_of(path)
    for module in imports(path):
        assert module != "penstock" or here == "cli", "inside, modules are imported by their own name"
        if module.startswith("penstock.") and ALLOWED[here] != "*":
            there = module.split(".")[1]
            assert there in (here, *ALLOWED[here].split()), f"{here} imports {module}"


@every_module
def test_a_wire_imports_no_other_wire_and_a_shared_part_no_wire(path: Path) -> None:
    folder = inside(path, "wires")[:1]
    if not folder or folder == ("__init__",):
        return
    for module in imports(path):
        _, _, below = module.partition("penstock.wires.")
        assert below.partition(".")[0] in ("", "shared", *folder), f"{path.name} of {folder[0]} imports {module}"


VENDORS = re.compile("anthropic|claude|gemini|bedrock|openai|cohere|ollama|mistral", re.IGNORECASE)
MAY_NAME_VENDORS = {
    "asgi/access.py": "the headers in which clients send a key",
    "gateway/app.py": "the protocols that are served",
    "model/known_models.py": "names of models, for completion",
    "heal/requests.py": "the protocols that are healed, by their paths",
    "model/checks.py": "an example of a model name in an error message",
    "model/recording.py": "a response header",
    "serve/models/api.py": "the protocols that are served",
    "testing/demo.py": "the wire of the demo",
    "tracing/conventions.py": "the names of providers in the semantic conventions",
    "transport/aws_signature.py": "the AWS service that requests are signed for",
    "wires/__init__.py": "the registry of wires",
    "wires/shared/claude.py": "the rules for Claude that three wires share",
    "wires/shared/google.py": "the rules for Gemini that two wires share",
}
FOLDERS_OF_VENDORS = ("adapters/", "cli/", "dialects/", "providers/", "servers/", "testing/wires/")


@every_module
def test_no_rule_names_a_vendor_outside_its_wire(path: Path) -> None:
    name = path.relative_to(SOURCE).as_posix()
    is_in_wire = bool(inside(path, "wires")) and inside(path, "wires")[0] not in ("shared", "__init__")
    if is_in_wire or name.startswith(FOLDERS_OF_VENDORS) or name in MAY_NAME_VENDORS:
        return
    tree = tree_of(path)
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            assert not VENDORS.search(node.value), (
                f"{name}:{node.lineno} names a vendor; put it into the wire's facts.py"
            )


@every_module
def test_no_rule_branches_on_a_vendor_outside_its_wire(path: Path) -> None:
    """A table may name vendors where they are registered; a comparison is a rule."""
    if inside(path, "wires") or path.relative_to(SOURCE).as_posix().startswith(
        ("cli/", "providers/", "testing/wires/")
    ):
        return
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.match_case) or (isinstance(node, ast.Compare) and _is_equality(node)):
            compared = node.pattern if isinstance(node, ast.match_case) else node
            words = [one.value for one in ast.walk(compared) if isinstance(one, ast.Constant)]
            vendors = [word for word in words if isinstance(word, str) and VENDORS.search(word)]
            assert not vendors, f"{path.relative_to(SOURCE)} branches on {vendors}: make it a fact of the wire"


def _is_equality(node: ast.Compare) -> bool:
    return isinstance(node.ops[0], ast.Eq | ast.NotEq)


@every_module
def test_what_a_model_reads_about_calls_that_did_not_run_stands_in_one_module(path: Path) -> None:
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and path.name != "sentences.py":
            where = f"{path.relative_to(SOURCE)}:{node.lineno}"
            assert not node.value.startswith(("Not run", "Discarded: ")), f"{where}: add it to penstock/sentences.py"


@every_module
def test_no_value_is_named_by_a_verb_of_speech(path: Path) -> None:
    """A name says what the value is: `messages`, `arguments`, `events`."""
    for node in ast.walk(tree_of(path)):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name):
                where = f"{path.relative_to(SOURCE)}:{node.lineno}"
                assert name.strip("_") not in ("told", "said", "given"), f"{where} calls a value {name}"
            case _:
                pass


@every_module
def test_a_grammar_imports_no_other_grammar(path: Path) -> None:
    if inside(path, "dialects")[:1] == ("grammars",):
        assert not [module for module in imports(path) if module.startswith("penstock.dialects.grammars")]


def test_every_wire_is_asked_whether_a_history_is_its_own() -> None:
    assert sorted(READING_ORDER) == sorted(WIRES)


def is_pure(path: Path) -> bool:
    return part_of(path) in PURE or inside(path, "transport") in EXCHANGE


@each("path", [path for path in MODULES if is_pure(path)], ids=lambda path: path.name)
def test_what_the_drivers_drive_does_no_io(path: Path) -> None:
    """Up to the run, and the exchange with a provider: no sockets, threads, loops, clocks or logs."""
    assert not {module.split(".")[0] for module in imports(path)} & IO


def test_the_page_on_the_architecture_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "python -m tests.architecture writes it"


def test_public_names_are_sorted_and_there() -> None:
    assert sorted(penstock.__all__) == penstock.__all__
    assert set(penstock.__all__) == set(penstock._HOME)
    for name in penstock.__all__:
        assert hasattr(penstock, name)


@each("name", penstock.__all__)
def test_a_public_name_has_a_docstring(name: str) -> None:
    value = getattr(penstock, name)
    home = import_module(f"penstock.{penstock._HOME[name]}")
    if isinstance(value, type) or inspect.isfunction(value):
        assert value.__doc__
    else:
        assert name in documented_types(ast.parse(inspect.getsource(home)).body)


def documented_types(body: list[ast.stmt]) -> set[str]:
    """The names that are assigned in a module and followed by a docstring."""
    documented = set[str]()
    for before, after in pairwise(body):
        if isinstance(before, ast.Assign) and isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            documented |= {target.id for target in before.targets if isinstance(target, ast.Name)}
    return documented


def test_the_import_is_light() -> None:
    code = "import sys, penstock; penstock.Decoder('openai-chat'); print(*{name.split('.')[0] for name in sys.modules})"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not set(loaded) & set(HEAVY)


@each("event", get_args(penstock.StreamEvent), ids=lambda event: event.__name__)
def test_an_event_has_the_name_of_its_type(event: type[Event]) -> None:
    name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", event.__name__).lower()
    assert (event.type, event.__struct_config__.tag) == (name, name)  # type: ignore[attr-defined]
