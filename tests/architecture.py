"""The packages in the order of their layers, and what each may import; `python -m tests.architecture` writes the page.

The tables of `docs/architecture.md` are generated from this one and from the docstrings of the packages. `with_sizes`
adds their sizes when the site is built.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import penstock

SOURCE = Path(penstock.__file__).parent
PAGE = Path(__file__).parent.parent / "docs" / "architecture.md"

VOCABULARY = "errors events sentences content results messages declarations turn redaction"
ALLOWED = {
    "errors": "",
    "events": "errors",
    "sentences": "events",
    "jsontext": "errors events",
    "loggers": "jsontext",
    "content": "errors events",
    "results": "errors events jsontext content",
    "turn": "errors events",
    "messages": "errors events sentences content results turn",
    "declarations": "errors",
    "schemas": "",
    "redaction": "",
    "framing": "errors jsontext",
    "calls": "events jsontext",
    "wires": "errors events messages turn declarations schemas jsontext framing calls",
    "tools": "errors events results messages declarations schemas jsontext calls",
    "output": "errors events turn declarations schemas jsontext calls tools",
    "guard": "errors events wires tools",
    "dialects": "errors events messages declarations jsontext calls tools",
    "healing": "errors events messages declarations jsontext framing calls wires dialects",
    "decoder": "errors events messages declarations framing wires healing",
    "providers": "errors redaction",
    "prices": "errors events loggers providers",
    "history": "errors events sentences content messages declarations turn jsontext framing calls wires providers",
    "run": "errors events sentences results messages turn jsontext calls tools output",
    "log": "errors events sentences results messages redaction jsontext tools output run",
    "transport": "errors events redaction jsontext",
    "servers": "errors redaction jsontext transport",
    "model": f"{VOCABULARY} loggers wires dialects tools output healing decoder providers history transport",
    "agent": "errors events sentences results messages turn jsontext loggers calls wires dialects tools output guard"
    " healing prices history run log transport model",
    "hooks": "errors events content results messages jsontext loggers calls tools history model agent",
    "runs": "errors events messages loggers tools history run log agent",
    "adapters": f"{VOCABULARY} jsontext framing calls wires dialects tools healing decoder run model agent",
    "heal": "errors events loggers framing wires healing decoder history",
    "mcp": "errors events content results jsontext loggers tools transport agent",
    "tracing": "errors events content messages turn jsontext prices run agent",
    "testing": "errors events declarations redaction framing calls wires providers log transport model",
    "asgi": "errors jsontext loggers transport",
    "inspector": "errors events turn redaction jsontext framing wires dialects decoder transport model asgi",
    "serve": "errors events content results messages jsontext loggers calls wires history run log agent runs asgi"
    " inspector",
    "gateway": "errors events messages turn declarations jsontext loggers framing calls wires tools dialects healing"
    " decoder providers history run transport servers model mcp asgi inspector",
    "cli": "*",
    "__main__": "cli",
}
"""What each module or package of the top level may import, in the order of the layers; `*` is everything."""

PURE = ("events", "errors", "sentences", "jsontext", "content", "results", "messages", "turn", "declarations",
        "schemas", "redaction", "framing", "calls", "wires", "dialects", "tools", "output", "guard", "healing",
        "decoder", "providers", "history", "run")  # fmt: skip
"""What does no I/O: no sockets, threads, tasks, clocks or loggers."""


def part_of(path: Path) -> str:
    """The name of the top-level module or package that a file belongs to."""
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


@cache
def tree_of(path: Path) -> ast.Module:
    """The syntax tree of a module."""
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def imports(path: Path) -> list[str]:
    """The modules that a file imports, wherever the import stands in it."""
    modules = list[str]()
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.ImportFrom) and node.module:
            modules.append(node.module)
            if node.module.startswith("penstock"):
                modules += [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            modules += [name.name for name in node.names]
    return modules


def sentence(part: str) -> str:
    """What a module or package is, from the first line of its docstring."""
    path = SOURCE / f"{part}.py"
    path = path if path.exists() else SOURCE / part / "__init__.py"
    docstring = ast.get_docstring(tree_of(path)) or ""
    return docstring.partition("\n")[0]


def files_of(part: str) -> list[Path]:
    """The files of a module or package."""
    path = SOURCE / f"{part}.py"
    return [path] if path.exists() else sorted((SOURCE / part).rglob("*.py"))


def folders() -> Iterator[str]:
    """The names of all folders below a package."""
    for init in sorted(SOURCE.glob("*/**/__init__.py")):
        name = init.parent.relative_to(SOURCE).as_posix()
        if "/" in name:
            yield name


def _row(part: str) -> str:
    name = f"`{part}.py`" if (SOURCE / f"{part}.py").exists() else f"`{part}/`"
    allowed = ALLOWED[part].replace("*", "everything").replace(VOCABULARY, "the vocabulary")
    return f"| {name} | {sentence(part)} | {allowed or 'nothing'} |"


def page() -> str:
    """The page, with its tables made from the source; the text around them is kept as it stands."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition("<!-- packages -->\n")
    _, _, after = rest.partition("<!-- end -->\n")
    rows = "\n".join(map(_row, ALLOWED))
    inner = "\n".join(f"| `{name}/` | {sentence(name)} |" for name in folders())
    return (
        f"{before}<!-- packages -->\n\n"
        f"| module or package | what it is | may import |\n|---|---|---|\n{rows}\n\n"
        f"Folders inside the packages:\n\n"
        f"| folder | what it is |\n|---|---|\n{inner}\n\n"
        f"<!-- end -->\n{after}"
    )


def with_sizes(text: str) -> str:
    """The page with two more columns in its tables of packages: the files and lines of each."""
    before, start, rest = text.partition("<!-- packages -->\n")
    tables, end, after = rest.partition("<!-- end -->\n")
    return f"{before}{start}{''.join(map(_with_size, tables.splitlines(keepends=True)))}{end}{after}"


def _with_size(line: str) -> str:
    match = re.match(r"\| `([\w/]+?)(?:/|\.py)` ", line)
    if match is not None:
        files = files_of(match[1])
        lines = sum(file.read_text(encoding="utf-8").count("\n") for file in files)
        return f"{line.rstrip()} {len(files)} | {lines:,} |\n"
    if line.startswith("|---"):
        return f"{line.rstrip()}--:|--:|\n"
    return f"{line.rstrip()} files | lines |\n" if line.startswith("| ") else line


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
