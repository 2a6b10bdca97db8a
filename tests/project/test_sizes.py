"""Modules, classes and functions stay small enough to be held in the head; larger ones say here why.

Lines of a function are those of its body, without its docstring. Methods of a class are those that it adds to its
bases, without properties and special methods. Names of a class are everything that one finds on its objects, also from
its bases: a class cut into a chain of base classes is one large class.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from tests.architecture import SOURCE, tree_of

MAX_LINES = 400
"""The lines of a module, without overloads, which repeat a signature for type checkers."""
MAX_BODY = 40
"""The lines of a function."""
MAX_METHODS = 15
"""The methods of a class."""
MAX_NAMES = 60
"""The names of a class: methods, properties and fields, with those of its bases."""
MAX_EXCEPTIONS = 3
"""How many classes may have more names."""

INPUTS = "a machine has one method per thing that can happen to it"
HOOKS = "the parts of a response that a protocol may write in its own way"
STORE = "the operations of a Store, which is one interface"
API = "public methods that a user looks for in one place"
PRIMITIVES = "the primitives of a parser, a few lines each"

LARGER_CLASSES = {
    "agent/calls/running_tool.py RunningTool": "the one owner of all that belongs to a started call",
    "agent/driver/dispatcher.py Dispatcher": "one method per input and command of the machine",
    "agent/driver/driver.py Driver": "one method per thing that a reader wants of a run",
    "dialects/reading/source.py Source": PRIMITIVES,
    "dialects/reading/reader.py Reader": PRIMITIVES,
    "framing/sse.py SSE": "a fast lane beside its reference",
    "jsontext/partial.py PartialJSON": PRIMITIVES,
    "inspector/exchange.py InspectedExchange": INPUTS,
    "log/in_memory.py MemoryStore": STORE,
    "log/postgres/store.py PostgresStore": STORE,
    "log/sqlite/store.py SQLiteStore": STORE,
    "log/store.py Store": STORE,
    "run/calls/executions.py Executions": INPUTS,
    "run/machine.py Run": INPUTS,
    "runs/runs.py Runs": API,
    "tracing/run_trace.py RunTrace": INPUTS,
    "wires/shared/decode_response/answer_writer.py AnswerWriter": "what a wire may report of an answer",
    "wires/shared/decode_response/numbered_blocks.py NumberedBlocks": "what a wire may report of a numbered block",
    "wires/shared/decode_response/reports.py Reports": "what a wire may report besides content",
    "wires/shared/encode_response/response_encoder.py ResponseEncoder": "one event stream in, one byte stream out",
    "wires/shared/encode_response/response_frames.py ResponseFrames": HOOKS,
}
"""Classes with more methods, and why they are one class."""

MANY_NAMES: set[str] = set()
"""Classes with more names; each says why in its docstring."""


def modules() -> Iterator[tuple[str, ast.Module, int]]:
    for path in sorted(SOURCE.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        tree = tree_of(path)
        yield path.relative_to(SOURCE).as_posix(), tree, len(text.splitlines()) - overload_lines(tree)


def overload_lines(tree: ast.Module) -> int:
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    overloads = [node for node in functions if any(ast.unparse(each) == "overload" for each in node.decorator_list)]
    return sum((node.end_lineno or node.lineno) - node.decorator_list[0].lineno + 1 for node in overloads)


def own_methods(node: ast.ClassDef) -> set[str]:
    """The methods that a class defines, without properties, overloads and special methods."""
    return {
        item.name
        for item in node.body
        if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef)
        and not item.name.startswith("__")
        and not any("property" in ast.unparse(one) or "overload" in ast.unparse(one) for one in item.decorator_list)
    }


def new_methods(classes: dict[str, ast.ClassDef]) -> dict[str, set[str]]:
    """The methods of each class that no class of its bases has. Classes are found by the last word of their names."""
    by_name: dict[str, list[ast.ClassDef]] = {}
    for name, node in classes.items():
        by_name.setdefault(name.split()[-1], []).append(node)

    def inherited(node: ast.ClassDef) -> set[str]:
        bases = {ast.unparse(base).partition("[")[0] for base in node.bases} - {node.name}
        found = [above for base in bases for above in by_name.get(base, ())]
        return set().union(*map(own_methods, found), *map(inherited, found))

    return {name: own_methods(node) - inherited(node) for name, node in classes.items()}


def own_names(node: ast.ClassDef) -> set[str]:
    """The methods, properties and fields that a class defines, without special names."""
    names = set[str]()
    for item in node.body:
        match item:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                names |= {name, *assigned_fields(item)}
            case ast.AnnAssign(target=ast.Name(id=name)):
                names.add(name)
            case ast.Assign(targets=targets):
                names |= {target.id for target in targets if isinstance(target, ast.Name)}
            case _:
                pass
    return {name for name in names if not (name.startswith("__") and name.endswith("__"))}


def assigned_fields(method: ast.AST) -> Iterator[str]:
    """The fields that a method assigns: `self.x = …`."""
    for node in ast.walk(method):
        match node:
            case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store()):
                yield name
            case _:
                pass


def names_of_classes(trees: Mapping[str, ast.Module]) -> dict[str, set[str]]:
    """The names of each class, with those of its bases in these modules; modules and classes have dotted names."""
    classes: dict[str, ast.ClassDef] = {}
    homes: dict[str, str] = {}  # the dotted name that a name in a module stands for
    for module, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                classes[f"{module}.{node.name}"] = node
            elif isinstance(node, ast.ImportFrom) and node.module:
                imported = {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
                homes |= {f"{module}.{name}": home for name, home in imported.items()}

    def names(name: str) -> set[str]:
        while name not in classes and name in homes:
            name = homes[name]
        if name not in classes:
            return set()
        node, module = classes[name], name.rpartition(".")[0]
        bases = [ast.unparse(base).partition("[")[0] for base in node.bases]
        return own_names(node).union(*(names(f"{module}.{base}") for base in bases if base != node.name))

    return {name: names(name) for name in classes}


def _module_name(path: str) -> str:
    return f"penstock.{path.removesuffix('.py').replace('/', '.')}".removesuffix(".__init__")


def body_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """How many lines the body of a function has, without its docstring."""
    body = node.body[1:] if ast.get_docstring(node) is not None else node.body
    return 0 if not body else (node.end_lineno or 0) - body[0].lineno + 1


def test_every_module_can_be_read_at_once() -> None:
    larger = {name: lines for name, _, lines in modules() if lines > MAX_LINES}
    assert not larger


def test_every_class_is_small_or_says_why_it_is_not() -> None:
    classes = {
        f"{name} {node.name}": node
        for name, tree, _ in modules()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    }
    found = {name: len(methods) for name, methods in new_methods(classes).items() if len(methods) > MAX_METHODS}
    assert not {name: count for name, count in found.items() if name not in LARGER_CLASSES}
    assert not set(LARGER_CLASSES) - set(found), "these are small now"


def test_no_class_has_more_names_than_a_reader_can_hold() -> None:
    trees = {_module_name(name): tree for name, tree, _ in modules()}
    counts = {name: len(names) for name, names in names_of_classes(trees).items()}
    larger = {name: count for name, count in counts.items() if count > MAX_NAMES}
    assert not {name: count for name, count in larger.items() if name not in MANY_NAMES}, "compose: give it parts"
    assert not MANY_NAMES - set(larger), "these are small now: take them out of MANY_NAMES"
    assert len(MANY_NAMES) <= MAX_EXCEPTIONS


def test_every_function_is_short() -> None:
    larger = {
        f"{name} {node.name}": body_lines(node)
        for name, tree, _ in modules()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and body_lines(node) > MAX_BODY
    }
    assert not larger


def test_the_counts_leave_out_docstrings_properties_and_what_a_base_has() -> None:
    text = """
class A:
    def a(self): ...

class B(A):
    def __init__(self): ...
    @property
    def p(self): ...
    def a(self): ...
    def b(self):
        'Says what it does.'
        return (
            1
        )
"""
    classes = {node.name: node for node in ast.parse(text).body if isinstance(node, ast.ClassDef)}
    assert new_methods(classes) == {"A": {"a"}, "B": {"b"}}
    last = classes["B"].body[-1]
    assert isinstance(last, ast.FunctionDef)
    assert body_lines(last) == 3


def test_the_names_of_a_class_are_also_those_of_its_bases_and_the_fields_of_its_methods() -> None:
    base = """
class A:
    kind = "a"
    def __init__(self):
        self.field: int = 1
        self._table, other = {}, 2
    @property
    def p(self): ...
"""
    derived = """
from one import A as First
class B(First):
    size: int = 0
    def a(self):
        self._table["x"] = self.count = 3
"""
    counted = names_of_classes({"one": ast.parse(base), "two": ast.parse(derived)})
    assert counted["one.A"] == {"kind", "field", "_table", "p"}
    assert counted["two.B"] == {"kind", "field", "_table", "p", "size", "a", "count"}
