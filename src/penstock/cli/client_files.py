"""Shows the settings of a client for a gateway, and writes them into the client's own file."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator
from pathlib import Path

from penstock.cli.client_settings import ClientSettings, as_toml, as_yaml, merged_text
from penstock.cli.kept_file import replace_file
from penstock.errors import UsageError
from penstock.model.recording import open_private


def settings_text(settings: ClientSettings) -> str:
    """The settings as text for a person: what to put where, and what to run."""
    lines: list[str] = []
    if settings.file:
        lines += [f"# {settings.file}", _content(settings).rstrip("\n"), ""]
    lines += [f"export {name}={value}" for name, value in settings.variables.items()]
    lines += [settings.command] if settings.command else []
    return "\n".join(lines) + "\n"


def _content(settings: ClientSettings) -> str:
    match Path(settings.file).suffix:
        case ".json":
            return json.dumps(settings.content, indent=2)
        case ".toml":
            return as_toml(settings.content)
        case _:
            return as_yaml(settings.content)


def write(settings: ClientSettings) -> Iterator[str]:
    """Merges the settings into the client's file; yields lines that say what changed."""
    if not settings.file:
        raise UsageError("this client has no file for these settings: use the variables and the command above")
    path = Path(settings.file).expanduser()
    new = merged_text(path, settings.content)
    old = path.read_text(encoding="utf-8") if path.exists() else ""
    if new == old:
        yield f"{path} has these settings already"
        return
    try:
        if path.exists():
            yield f"kept the old file as {_back_up(path, old)}"
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, new.encode())
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from None
    yield from difflib.unified_diff(old.splitlines(), new.splitlines(), str(path), str(path), lineterm="")


def _back_up(path: Path, text: str) -> Path:
    """Writes a backup copy under an unused name."""
    number = 0
    while True:
        copy = path.with_name(f"{path.name}.bak{number or ''}")
        try:
            with open(copy, "x", encoding="utf-8", opener=open_private) as file:
                file.write(text)
        except FileExistsError:
            number += 1
        else:
            copy.chmod(path.stat().st_mode)
            return copy
