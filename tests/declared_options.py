"""Classes that repeat the keywords of a signature: `python -m tests.declared_options` writes them (`make format`).

A signature declares an option: its name, type and default. `Unpack` needs the same keywords as a typed dictionary, and
a configuration has them as fields: these classes keep their docstring, and the rest of them is written from the
signature. See decision 69.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import NamedTuple

SOURCES = Path(__file__).parent.parent / "src" / "penstock"


class Copy(NamedTuple):
    """A class with the keyword-only parameters of a method."""

    method: str
    source: str
    name: str
    target: str
    left_out: frozenset[str] = frozenset()


COPIES = (
    Copy("Agent.__init__", "agent/agent.py", "AgentSettings", "agent/options.py", frozenset({"output"})),
    Copy("Agent.__init__", "agent/agent.py", "AgentOptions", "agent/options.py", frozenset({"output"})),
    Copy("Tool.__init__", "tools/tool.py", "ExecutionOptions", "tools/options.py"),
)


def written(copy: Copy, text: str) -> str:
    """The text of the target with the class as the signature says."""
    target = _find(ast.parse(text).body, copy.name)
    assert isinstance(target, ast.ClassDef)
    docstring, last = target.body[0], target.body[-1]
    assert docstring.end_lineno is not None
    assert last.end_lineno is not None
    lines = text.splitlines(keepends=True)
    fields = [f"    {line}\n" for line in _fields(copy)]
    return "".join([*lines[: docstring.end_lineno], "\n", *fields, *lines[last.end_lineno :]])


def _fields(copy: Copy) -> list[str]:
    text = (SOURCES / copy.source).read_text(encoding="utf-8")
    owner, method = copy.method.split(".")
    class_ = _find(ast.parse(text).body, owner)
    assert isinstance(class_, ast.ClassDef)
    function = _find(class_.body, method)
    assert isinstance(function, ast.FunctionDef)
    keywords = [parameter for parameter in function.args.kwonlyargs if parameter.arg not in copy.left_out]
    return [str(ast.get_source_segment(text, parameter)) for parameter in keywords]


def _find(body: list[ast.stmt], name: str) -> ast.stmt:
    """The class or function of this name; of an overloaded function, the implementation, which is the last."""
    return [node for node in body if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == name][-1]


def main() -> None:
    """Write every class."""
    for copy in COPIES:
        path = SOURCES / copy.target
        path.write_text(written(copy, path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
