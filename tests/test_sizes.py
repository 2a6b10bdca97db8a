"""Modules, classes and functions stay small enough to be held in the head; larger ones say here why.

Lines of a function are those of its body, without its docstring. Methods of a class are those that it adds to its
bases, without properties and special methods.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.architecture import SOURCE, tree_of

MAX_LINES = 400
"""The lines of a module."""
MAX_BODY = 40
"""The lines of a function."""
MAX_METHODS = 15
"""The methods of a class."""

INPUTS = "a machine has one method per thing that can happen to it"
HOOKS = "the parts of a response that a protocol may write in its own way"
STORE = "the operations of a Store, which is one interface"
API = "public methods that a user looks for in one place"
PRIMITIVES = "the primitives of a parser, a few lines each"

LARGER_CLASSES = {
    "dialects/reading/cursor.py Cursor": PRIMITIVES,
    "dialects/reading/reader.py Reader": PRIMITIVES,
    "framing/sse.py SSE": "a fast lane beside its reference",
    "jsontext/partial.py PartialJSON": PRIMITIVES,
    "inspector/exchange.py InspectedExchange": INPUTS,
    "log/in_memory.py MemoryStore": STORE,
    "log/sqlite.py SQLiteStore": STORE,
    "run/executions.py Executions": INPUTS,
    "run/machine.py Run": INPUTS,
    "runs/runs.py Runs": API,
    "tracing/run_trace.py RunTrace": INPUTS,
    "wires/shared/answer_writer.py AnswerWriter": "what a wire may report of an answer",
    "wires/anthropic/decode_response.py Anthropic": "one method per kind of frame of its protocol",
    "wires/shared/numbered_blocks.py NumberedWire": "what a wire may report of a numbered block",
    "wires/shared/response_encoder.py ResponseEncoder": "one event stream in, one byte stream out",
    "wires/shared/response_frames.py ResponseFrames": HOOKS,
    "wires/shared/wire.py Wire": "a fast lane beside its reference, and the hooks of a protocol",
}
"""Classes with more methods, and why they are one class."""


def modules() -> Iterator[tuple[str, ast.Module, int]]:
    for path in sorted(SOURCE.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        yield path.relative_to(SOURCE).as_posix(), tree_of(path), len(text.splitlines())


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
