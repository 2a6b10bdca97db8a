"""Public names and signatures, compared with the last release by griffe.

`python -m tests.public_api` prints what changed (`make api`), and fails if a removal or an incompatible change is not
named in the *Breaking* section of the changelog. `python -m tests.public_api --release` writes the file of a release
(tests/released_api.json), once its version is set.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import griffe

from tests.internals import PUBLIC_TABLE, listed_modules

ROOT = Path(__file__).parent.parent
RELEASED = ROOT / "tests" / "released_api.json"
MODULES = sorted(listed_modules(PUBLIC_TABLE))
"""The modules with public names."""

API = dict[str, str]
"""The public names with their declarations: `def (…)` of a function, `class`, or the type of an attribute."""


UNDOCUMENTED: set[str] = set()
"""Incompatible changes of names that are public, but that no page has ever described."""


def read_api(root: Path) -> API:
    """The public names of a checkout. A constructor is public if a page calls it: the objects of others are given."""
    loader = griffe.GriffeLoader(search_paths=[root / "src"], allow_inspection=False)
    loader.load("penstock")
    loader.resolve_aliases(implicit=True, external=False)
    api: API = {}
    listed: set[str] = set()
    released = set(json.loads(RELEASED.read_text(encoding="utf-8"))) if RELEASED.exists() else set()
    for module in MODULES:
        for name, member in _public(loader.modules_collection[module]):
            declarations = _declarations(f"{module}.{name}", member)
            # It has another public name, with the same members, and the last release did not list them here.
            is_again = member.canonical_path in listed and not released & declarations.keys() - {f"{module}.{name}"}
            api |= {f"{module}.{name}": declarations[f"{module}.{name}"]} if is_again else declarations
            listed.add(member.canonical_path)
    pages = [root / "README.md", *(root / "docs").rglob("*.md"), *(root / "examples").rglob("*.py")]
    called = {name for page in pages for name in re.findall(r"\b(\w+)\(", page.read_text(encoding="utf-8"))}
    return {path: api[path] for path in sorted(api) if not _is_constructor(path) or path.split(".")[-2] in called}


def _is_constructor(path: str) -> bool:
    return path.endswith(".__init__")


def _public(module: Any) -> Iterator[tuple[str, Any]]:
    """The names that a module exports; without `__all__`, those that it defines."""
    exports = module.exports
    for name, member in module.members.items():
        is_own = not member.is_alias and not member.is_module and not name.startswith("_")
        if (str(name) in {str(export) for export in exports}) if exports else is_own:
            yield name, member


def _declarations(path: str, member: Any) -> API:
    """A name, and the members of a class, with what classes of ours give it."""
    target = member.final_target if member.is_alias else member
    if target.is_function:
        return {path: _signature(_parameters(target))}
    if not target.is_class:
        return {path: str(target.annotation or "...") if target.is_attribute else "..."}
    api = {path: "class"}
    for name, own in target.all_members.items():
        if (not name.startswith("_") or name == "__init__") and not own.is_module and not own.is_class:
            api |= _declarations(f"{path}.{name}", own)
    if "Struct" in {str(base) for kind in (target, *target.mro()) for base in kind.bases}:
        api[f"{path}.__init__"] = _signature(_fields(target))
    return api


def _parameters(function: Any) -> list[Any]:
    """The parameters of a function; those of a typed dictionary (`Unpack`) one by one."""
    *others, last = [*function.parameters] or [None]
    unpacked = re.match(r"Unpack\[(\w+)", str(last.annotation)) if last is not None else None
    if unpacked is None:
        return [*function.parameters]
    options = function.modules_collection[function.resolve(unpacked[1])]
    kinds = [kind.final_target if kind.is_alias else kind for kind in (*reversed(options.mro()), options)]
    fields = {name: field for kind in kinds for name, field in kind.members.items() if field.is_attribute}
    return [*others, *(_keyword(name, field.annotation, "...") for name, field in fields.items())]


def _fields(struct: Any) -> list[Any]:
    """The fields of a struct as the parameters of its class."""
    fields = [member.final_target if member.is_alias else member for member in struct.all_members.values()]
    own = griffe.Parameter("self", kind=griffe.ParameterKind.positional_or_keyword)
    return [own, *(
        _keyword(field.name, field.annotation, field.value and str(field.value), is_only="kw_only" in struct.keywords)
        for field in fields
        if field.is_attribute and "instance-attribute" in field.labels and field.annotation is not None
    )]  # fmt: skip


def _keyword(name: str, annotation: Any, default: str | None, *, is_only: bool = True) -> Any:
    kind = griffe.ParameterKind.keyword_only if is_only else griffe.ParameterKind.positional_or_keyword
    return griffe.Parameter(name, annotation=annotation, kind=kind, default=default)


def _signature(parameters: list[Any]) -> str:
    """The parameters, as Python writes them."""
    parts: list[str] = []
    kinds, before = griffe.ParameterKind, None
    for parameter in parameters:
        kind = parameter.kind
        if before is kinds.positional_only and kind is not kinds.positional_only:
            parts.append("/")
        if kind is kinds.keyword_only and before not in (kinds.keyword_only, kinds.var_positional):
            parts.append("*")
        star = {kinds.var_positional: "*", kinds.var_keyword: "**"}.get(kind, "")
        annotation = f": {parameter.annotation}" if parameter.annotation is not None else ""
        default = f" = {parameter.default}" if parameter.default is not None and not star else ""
        parts.append(f"{star}{parameter.name}{annotation}{default}")
        before = kind
    return f"def ({', '.join(parts)})"


class Changes(NamedTuple):
    """What is different between two versions of the public names."""

    added: list[str]
    removed: list[str]
    changed: list[str]
    breaking: dict[str, str]
    """What may break a program, by its name: a removed one, or a parameter."""


def compare(old: API, new: API) -> Changes:
    """The differences between two versions; griffe says which of them may break a program."""
    changed = [name for name in old if name in new and old[name] != new[name]]
    removed = [name for name in old if name not in new]
    breaking = {name: f"{name} was removed" for name in removed if name.rpartition(".")[0] not in removed}
    for module in MODULES:
        for breakage in griffe.find_breaking_changes(_tree(module, old), _tree(module, new)):
            where = breakage.obj.path
            if isinstance(breakage, griffe.ObjectRemovedBreakage):
                continue  # it is among the removed names
            parameter = getattr(breakage.old_value or breakage.new_value, "name", "")
            name = f"{where}({parameter})" if parameter else where
            breaking[name] = f"{name}: {breakage.kind.value.lower()}"
    return Changes([name for name in new if name not in old], removed, changed, breaking)


def _tree(module: str, api: API) -> Any:
    """The public names of a module as code, read by griffe."""
    lines: dict[str, list[str]] = {}
    for path, declaration in api.items():
        if not path.startswith(f"{module}.") or path.removeprefix(f"{module}.").split(".")[0] not in _own(module, api):
            continue
        owner, _, name = path.removeprefix(f"{module}.").rpartition(".")
        if declaration == "class":
            lines.setdefault(name, [])
            continue
        kind = (
            f"def {name}{declaration.removeprefix('def ')}: ..." if declaration.startswith("def ") else f"{name} = ..."
        )
        lines.setdefault(owner, []).append(kind)
    code = [*lines.pop("", [])]
    for name, members in lines.items():
        code += [f"class {name}:", *(f"    {member}" for member in members or ["..."])]
    return griffe.visit(module, filepath=Path(f"{module}.py"), code="\n".join(code) + "\n")


def _own(module: str, api: API) -> set[str]:
    """The names of a module, without those of the modules in it."""
    return {path.removeprefix(f"{module}.") for path in api if path.rpartition(".")[0] == module}


def unnamed(changes: Changes, changelog: str) -> list[str]:
    """The breaking changes that the *Breaking* section of the next version does not name, as code."""
    _, _, unreleased = changelog.partition("\n## Unreleased\n")
    _, _, breaking = unreleased.partition("\n## ")[0].partition("\n### Breaking\n")
    code = re.findall(r"`[^`]+`", breaking.partition("\n### ")[0])
    words = {word for span in code for word in re.findall(r"\w+", span)}
    names = [name for name in changes.breaking if name not in UNDOCUMENTED]
    last = {name: re.findall(r"\w+", re.sub(r"\([A-Z]+\)$", "", name))[-1] for name in names}  # `Script(CLASS)`
    return [changes.breaking[name] for name in names if last[name] not in words]


def report(changes: Changes, old: API, new: API) -> str:
    """What changed, for people."""
    lines = [f"+ {name}" for name in changes.added] + [f"- {name}" for name in changes.removed]
    for name in changes.changed:
        before, after = _parts(old[name]), _parts(new[name])
        lines += [f"  {name}", *(f"    - {part}" for part in before if part not in after)]
        lines += [f"    + {part}" for part in after if part not in before]
    return "\n".join([*lines, "", f"{len(changes.breaking)} may break a program:", *changes.breaking.values()])


def _parts(declaration: str) -> list[str]:
    """The parameters of a signature; anything else is one part."""
    if not declaration.startswith("def "):
        return [declaration]
    arguments = ast.parse(f"{declaration.replace('def ', 'def f', 1)}: ...").body[0].args  # type: ignore[attr-defined]
    named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    missing = [None] * (len(arguments.posonlyargs) + len(arguments.args) - len(arguments.defaults))
    defaults = [*missing, *arguments.defaults, *arguments.kw_defaults]
    rest = [f"*{each.arg}" for each in (arguments.vararg, arguments.kwarg) if each is not None]
    return [
        ast.unparse(each) + (f" = {ast.unparse(default)}" if default is not None else "")
        for each, default in zip(named, defaults, strict=True)
    ] + rest


def main() -> int:
    """Compare, or write the file of a release."""
    new = read_api(ROOT)
    if "--release" in sys.argv:
        RELEASED.write_text(json.dumps(new, indent=0) + "\n", encoding="utf-8")
        return 0
    old = json.loads(RELEASED.read_text(encoding="utf-8"))
    changes = compare(old, new)
    sys.stdout.write(report(changes, old, new) + "\n")
    missing = unnamed(changes, (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"))
    if missing:
        sys.stderr.write("\nnot in the Breaking section of the changelog:\n" + "\n".join(missing) + "\n")
    return bool(missing)


if __name__ == "__main__":
    sys.exit(main())
