"""The tables of docs that are made from the code: `python -m tests.reference_tables` writes them.

Options, fields and limits have their types and defaults from the code, and their descriptions from its docstrings; the
tree of errors is that of errors.py. Each table stands between two comments in its page, and `make format` renews it.
"""

from __future__ import annotations

import ast
import html
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args, get_origin

import penstock
from penstock import errors
from penstock.dialects.doubtful_words import WORDS
from penstock.dialects.unmarked import READINGS
from penstock.healing.repairs import REPAIRS
from penstock.tools.options import ToolOptions
from tests.healing.rescue_corpus import FORMS

PAGE = Path(__file__).parent.parent / "docs" / "reference.md"
PAGES = PAGE, PAGE.with_name("healing.md")
SOURCES = Path(penstock.__file__).parent
PLACE = re.compile(r"(?<=<!-- made from the code: )(\w+) -->\n.*?(?=<!-- end -->)", re.DOTALL)
LISTED = (
    "calls", "dialects", "framing", "guard", "healing", "hooks", "jsontext", "mcp", "output", "results", "run", "tools",
    "transport", "wires",
)  # fmt: skip
"""The packages that read what providers, models and tools send: their limits are listed."""


class Option(NamedTuple):
    """An option as its signature declares it: the type and the default as they are written."""

    annotation: str
    default: str


def options_in(function: Callable[..., Any], *left_out: str) -> dict[str, Option]:
    """The options in a signature."""
    parameters = inspect.signature(function).parameters.values()
    return {
        each.name: Option(str(each.annotation), "" if each.default is each.empty else _code(each.default))
        for each in parameters
        if each.kind is not each.VAR_KEYWORD and each.name not in left_out
    }


def options_of_tools() -> dict[str, Option]:
    """The options of a tool; only those that say how it runs have a default."""
    declared = options_in(penstock.Tool)
    return {
        name: declared.get(name, Option(hint.__forward_arg__, "")) for name, hint in ToolOptions.__annotations__.items()
    }


def descriptions(owner: Any) -> dict[str, str]:
    """The items of the list in a docstring, by the names that each begins with."""
    items = re.split(r"^- ", inspect.getdoc(owner) or "", flags=re.MULTILINE)[1:]
    found: dict[str, str] = {}
    for item in items:
        names, text = re.split(r":\s", item.split("\n\n")[0], maxsplit=1)
        found |= dict.fromkeys(re.findall(r"`(\w+)`", names), " ".join(text.split()))
    return found


def option_table(owner: str, options: Mapping[str, Option]) -> str:
    """A row per option: its name, which leads to its section, its type, default and description."""
    texts, module = descriptions(getattr(penstock, owner)), inspect.getmodule(getattr(penstock, owner))
    rows = ["| option | type | default | |", "|---|---|---|---|"]
    for name, option in options.items():
        kind = _type(option.annotation, vars(module))
        rows.append(f"| [`{name}`](#{_anchor(f'`{owner}({name}=…)`')}) | {kind} | {option.default} | {texts[name]} |")
    return "\n".join(rows) + "\n"


def request_table() -> str:
    """The options of all requests."""
    texts = descriptions(penstock.ModelOptions)
    module = vars(import_module(penstock.ModelOptions.__module__))
    rows = ["| option | type | |", "|---|---|---|"]
    for name, hint in penstock.ModelOptions.__annotations__.items():
        rows.append(f"| `{name}` | {_type(hint.__forward_arg__, module)} | {texts[name]} |")
    return "\n".join(rows) + "\n"


def field_table(kind: Any) -> str:
    """The fields of a struct with options."""
    texts, default_of = descriptions(kind), kind()
    rows = ["| field | default | |", "|---|--:|---|"]
    rows += [f"| `{name}` | {_code(getattr(default_of, name))} | {texts[name]} |" for name in kind.__struct_fields__]
    return "\n".join(rows) + "\n"


def error_tree() -> str:
    """The tree of errors.py, as text."""
    tree = (errors.__doc__ or "").split("\n\n", 1)[1]
    return f"```text\n{tree.strip()}\n```\n"


def limit_table() -> str:
    """The named limits (`MAX_…`) of each package, in an order that a move of a module does not change."""
    rows: list[tuple[str, str, str]] = []
    for path in sorted(SOURCES.rglob("*.py")):
        parts = path.relative_to(SOURCES).with_suffix("").parts
        if parts[0] not in LISTED:
            continue
        for name, text in _limits(ast.parse(path.read_text(encoding="utf-8"))):
            value = getattr(import_module(".".join(("penstock", *parts))), name)
            rows.append((parts[0], name, f"| `{name}` | {_number(value)} | `penstock.{parts[0]}` | {text} |"))
    return "\n".join(["| name | value | package | |", "|---|--:|---|---|", *(row for *_, row in sorted(rows))]) + "\n"


def _limits(module: ast.Module) -> Iterator[tuple[str, str]]:
    """The public limits of a module with the first paragraph of their docstrings."""
    for statement, after in zip(module.body, module.body[1:], strict=False):
        match statement, after:
            case (
                ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(text))),
            ) if name.startswith("MAX_"):
                yield name, " ".join(text.split())


def _number(value: float) -> str:
    for unit, size in (("Mi", 1024 * 1024), ("Ki", 1024)):
        if value % size == 0 and 1 <= value // size < 1024:
            return f"{value // size} {unit}"
    return f"{value:,}"


def _code(value: Any) -> str:
    plain = int(value) if isinstance(value, float) and value.is_integer() else value
    return f"`{plain!r}`".replace("'", '"')


def _type(annotation: str, names: Mapping[str, Any]) -> str:
    """A type in words: a `|` would end the cell of a table."""
    union = _union(ast.parse(annotation, mode="eval").body)
    *others, last = [kind for part in union for kind in _kinds(ast.unparse(part), names)]
    return f"{', '.join(others)} or {last}" if others else last


def _union(node: ast.expr) -> list[ast.expr]:
    match node:
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return [*_union(left), *_union(right)]
        case _:
            return [node]


def _kinds(text: str, names: Mapping[str, Any]) -> list[str]:
    kind = eval(text, {**names, "Literal": Literal}) if text.isidentifier() or text.startswith("Literal") else None
    if get_origin(kind) is Literal:
        return [_code(value) for value in get_args(kind)]
    return [f"`{text.replace(' | ', ' or ')}`"]


def _anchor(name: str) -> str:
    """The address of the section whose heading has this name."""
    [heading] = [
        line for line in re.findall(r"^#+ (.*)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE) if name in line
    ]
    return re.sub(r"[^\w -]", "", heading).strip().lower().replace(" ", "-")


def repair_table() -> str:
    """The rules by which damaged arguments are repaired."""
    rows = ["| damage | reading | mode | quirk |", "|---|---|---|--:|"]
    for rule in REPAIRS:
        damage = rule.damage.replace("|", "\\|")
        rows.append(f"| {damage} | {rule.reading} | `{rule.mode}` | [{rule.quirk}](quirks.md) |")
    return "\n".join(rows) + "\n"


def form_table() -> str:
    """The forms of calls without marks, all of which are in the corpus of the tests."""
    rows = ["| form | for example |", "|---|---|"]
    for form, example in FORMS.items():
        code = html.escape(example, quote=False).replace("|", "&#124;").replace("`", "&#96;").replace("\n", "<br>")
        rows.append(f"| {form} | <code>{code}</code> |")
    return "\n".join(rows) + "\n"


def reading_table() -> str:
    """Where a form without marks stands, and what it is."""
    rows = ["| where it stands | what it is |", "|---|---|"]
    return "\n".join([*rows, *(f"| {place} | {reading} |" for place, reading in READINGS)]) + "\n"


def word_table() -> str:
    """The words before a form without marks that make it text, by language."""
    rows = ["| language | negation | condition | option | example | report |", "|---|---|---|---|---|---|"]
    for row in WORDS:
        parts = (row.negation, row.condition, row.option, row.example, row.report)
        rows.append(f"| {row.language} | " + " | ".join(part.replace("*", "\\*") for part in parts) + " |")
    return "\n".join(rows) + "\n"


TABLES: dict[str, Callable[[], str]] = {
    "model": lambda: option_table("Model", options_in(penstock.Model, "name")),
    "requests": request_table,
    "timeouts": lambda: field_table(penstock.Timeouts),
    "retries": lambda: field_table(penstock.Retries),
    "errors": error_tree,
    "tool": lambda: option_table("tool", options_of_tools()),
    "agent": lambda: option_table("Agent", options_in(penstock.Agent, "model", "tools")),
    "limits": lambda: field_table(penstock.Limits),
    "buffers": limit_table,
    "repairs": repair_table,
    "forms": form_table,
    "readings": reading_table,
    "words": word_table,
}


def written(page: str) -> str:
    """The page with its tables as the code says."""
    return PLACE.sub(lambda place: f"{place[1]} -->\n\n{TABLES[place[1]]()}\n", page)


if __name__ == "__main__":
    for path in PAGES:
        path.write_text(written(path.read_text(encoding="utf-8")), encoding="utf-8")
