"""The folder that the agent works in: nothing outside of it is read or written."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from penstock import ToolError

MAX_FILE = 1_000_000
"""The largest file that is read or searched, in bytes."""
SKIPPED = {".git", ".hg", ".venv", "venv", "node_modules", "__pycache__", ".mypy_cache", ".pytest_cache"}
"""Folders that are not listed and not searched."""
_SECRET = re.compile(
    r"(?:^|/)(?:\.env[^/]*|[^/]*\.(?:pem|key|p12)|id_[a-z0-9]+|\.netrc|[^/]*credentials[^/]*)$", re.IGNORECASE
)


@dataclass(frozen=True)
class Change:
    """The text of a file before and after a change; `before` is None if there is no file yet."""

    path: Path
    name: str
    before: str | None
    after: str

    @property
    def difference(self) -> str:
        """The change as a unified difference."""
        old, new = (self.before or "").splitlines(keepends=True), self.after.splitlines(keepends=True)
        lines = difflib.unified_diff(
            old, new, "/dev/null" if self.before is None else f"a/{self.name}", f"b/{self.name}"
        )
        return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


class Workspace:
    """A folder, and the changes to its files. Paths of the model are relative to it."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()

    def path(self, name: str) -> Path:
        """The path of a file, with links followed; it must be in the folder."""
        path = (self.root / name).resolve()
        if not path.is_relative_to(self.root):
            raise ToolError(f"{name} is outside of the working folder")
        return path

    def text(self, name: str) -> str:
        """The text of a file."""
        path = self.path(name)
        try:
            if path.stat().st_size > MAX_FILE:
                raise ToolError(f"{name} is larger than {MAX_FILE} bytes; use grep")
            with path.open(encoding="utf-8", newline="") as file:  # line ends stay as they are
                return file.read()
        except UnicodeDecodeError:
            raise ToolError(f"{name} is not a text file") from None
        except OSError as error:
            raise ToolError(f"{name} cannot be read: {error.strerror}") from None

    def files(self, pattern: str = "**/*") -> Iterator[str]:
        """The names of the files that match a pattern, in order."""
        for folder, folders, names in os.walk(self.root):
            folders[:] = sorted(set(folders) - SKIPPED)
            for name in sorted(names):
                path = Path(folder, name).relative_to(self.root)
                if matches(path.as_posix(), pattern):
                    yield path.as_posix()

    def plan_write(self, path: str, content: str) -> Change:
        """The change that gives a file this content."""
        file = self._file_to_change(path)
        return Change(file, path, self.text(path) if file.exists() else None, content)

    def plan_edit(self, path: str, old: str, new: str) -> Change:
        """The change that replaces a piece of text, which the file must contain exactly once."""
        file, before = self._file_to_change(path), self.text(path)
        if not old or (count := before.count(old)) == 0:
            raise ToolError(f"{path} does not contain the old text; read it again")
        if count > 1:
            raise ToolError(f"{path} contains the old text {count} times; include more of the lines around it")
        return Change(file, path, before, before.replace(old, new))

    def apply(self, change: Change) -> None:
        """Write a change, unless the file has changed since the change was planned."""
        if (self.text(change.name) if change.path.exists() else None) != change.before:
            raise ToolError(f"{change.name} has changed in the meantime; read it again")
        change.path.parent.mkdir(parents=True, exist_ok=True)
        with change.path.open("w", encoding="utf-8", newline="") as file:
            file.write(change.after)

    def _file_to_change(self, name: str) -> Path:
        path = self.path(name)
        if ".git" in path.relative_to(self.root).parts:
            raise ToolError("files of git are not changed; use git in bash")
        return path


def may_be_secret(name: str) -> bool:
    """Whether a file may hold secrets, by its name: what the agent reads goes to the provider of the model."""
    return _SECRET.search(name) is not None


def matches(name: str, pattern: str) -> bool:
    """Whether a name matches a pattern: `*` and `?` within a folder, `**` for any folders."""
    parts = re.split(r"(\*\*/|\*\*|\*|\?)", pattern)
    wild = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    return re.fullmatch("".join(wild.get(part, re.escape(part)) for part in parts), name) is not None
