"""Writes settings into a file, only if the file then has exactly its old settings merged with the new ones."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from penstock.cli.kept_file import replace_file
from penstock.cli.settings_files import json_file, toml_file, yaml_file
from penstock.cli.settings_files.merging import is_same, merged
from penstock.errors import UsageError
from penstock.model.recording import open_private

BOM = "\ufeff"


class FileFormat(Struct, frozen=True):
    """The format of a file: reads a text, merges settings into it, and writes the text of a new file."""

    name: str
    read: Callable[[str], Any]
    edit: Callable[[str, Any], str]
    show: Callable[[Any], str]


_JSON = FileFormat("JSON", json_file.read, json_file.edit, json_file.show)
_YAML = FileFormat("YAML", yaml_file.read, yaml_file.edit, yaml_file.show)
_FORMATS = {
    ".json": _JSON, ".jsonc": _JSON, ".yaml": _YAML, ".yml": _YAML,
    ".toml": FileFormat("TOML", toml_file.read, toml_file.edit, toml_file.show),
}  # fmt: skip


def format_of(path: Path) -> FileFormat:
    """The format of a file, by its name."""
    return _FORMATS[path.suffix]


def merged_text(path: Path, text: str, content: Any, defaults: Mapping[str, Any] | None = None) -> str:
    """The text of a file with settings merged into it; raises if anything else in it would change.

    `defaults` are added where the file does not have them.
    """
    form, bom, body = format_of(path), BOM if text.startswith(BOM) else "", text.removeprefix(BOM)
    if not body.strip():
        return bom + form.show({**defaults, **content} if defaults else content)
    try:
        old = form.read(body)
        if defaults and isinstance(old, dict):
            content = {**{key: value for key, value in defaults.items() if key not in old}, **content}
        wanted = merged(old, content)
    except ValueError as error:
        raise UsageError(f"{path} is not changed ({form.name}: {error}): add the settings above yourself") from None
    if is_same(old, wanted):
        return text
    new = _edited(form, body, content)
    if new is None or not is_same(form.read(new), wanted):
        raise UsageError(
            f"{path} is not changed: other settings in it would change or get lost; add the settings above yourself"
        )
    return bom + new


def _edited(form: FileFormat, text: str, content: Any) -> str | None:
    """The text with settings in it; None if the format's library cannot do it, or makes a text that cannot be read."""
    try:
        new = _with_line_ends(form.edit(text, content), text)
        form.read(new)
    except ValueError:
        return None
    return new


def _with_line_ends(new: str, old: str) -> str:
    """New lines end as the old ones do, if all of those end in one way."""
    is_dos = "\r\n" in old and old.count("\n") == old.count("\r\n")
    return new.replace("\r\n", "\n").replace("\n", "\r\n") if is_dos else new


def write_file(path: Path, content: Any, defaults: Mapping[str, Any] | None = None) -> Iterator[str]:
    """Merge settings into a file; yields lines that say what changed."""
    try:
        data = path.read_bytes() if path.exists() else b""
        old = data.decode()
    except UnicodeDecodeError:
        raise UsageError(f"{path} is not changed: it is not UTF-8; add the settings above yourself") from None
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    new = merged_text(path, old, content, defaults)
    if path.exists() and new == old:
        yield f"{path} has these settings already"
        return
    try:
        if path.exists():
            yield f"kept the old file as {_back_up(path, data)}"
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, new.encode())
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from None
    yield from difflib.unified_diff(old.splitlines(), new.splitlines(), str(path), str(path), lineterm="")


def _back_up(path: Path, data: bytes) -> Path:
    """Writes a backup copy under an unused name."""
    number = 0
    while True:
        copy = path.with_name(f"{path.name}.bak{number or ''}")
        try:
            with open(copy, "xb", opener=open_private) as file:
                file.write(data)
        except FileExistsError:
            number += 1
        else:
            copy.chmod(path.stat().st_mode)
            return copy
