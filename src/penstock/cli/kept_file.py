"""Files that a command saves for the next one: histories and runs."""

from __future__ import annotations

import os
from pathlib import Path

from penstock.errors import UsageError
from penstock.messages import Message, encode_messages
from penstock.model.recording import open_private


def replace_file(path: Path, data: bytes) -> None:
    """Writes a file whole or not at all. Only the owner can read a new file; one that exists keeps its mode."""
    target = path.resolve()  # not the link, if it is one
    temporary = target.with_name(f"{target.name}.{os.getpid()}.new")
    try:
        temporary.unlink(missing_ok=True)
        with open(temporary, "xb", opener=open_private) as file:
            file.write(data)
        if target.exists():
            temporary.chmod(target.stat().st_mode)
        temporary.replace(target)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


class KeptFile:
    """A file for a `content` ("history", "run"). Creating it checks that it can be written, before anything runs."""

    def __init__(self, path: Path, content: str) -> None:
        self.path = path
        self._content = content
        if path.exists() and not path.is_file():
            raise UsageError(f"{path} is not a regular file: a {content} cannot be saved there")
        if not path.parent.is_dir():
            raise UsageError(f"there is no directory {path.parent} to save the {content} in")
        if not os.access(path.parent, os.W_OK | os.X_OK) or (path.exists() and not os.access(path, os.W_OK)):
            raise UsageError(f"no permission to save the {content} in {path}")

    def read(self) -> bytes | None:
        """The content; None if there is no file."""
        if not self.path.exists():
            return None
        try:
            return self.path.read_bytes()
        except OSError as error:
            raise UsageError(f"the {self._content} in {self.path} cannot be read: {error.strerror}") from None

    def write(self, data: bytes) -> str:
        """Replaces the content; returns what went wrong, or the empty string."""
        try:
            replace_file(self.path, data)
        except OSError as error:
            return f"the {self._content} could not be saved in {self.path}: {error.strerror}"
        return ""

    def remove(self) -> str:
        """Removes the file; returns what went wrong, or the empty string."""
        try:
            self.path.resolve().unlink(missing_ok=True)
        except OSError as error:
            return f"{self.path} could not be removed: {error.strerror}"
        return ""


class HistoryFile:
    """A history in a file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = KeptFile(path, "history")

    def read(self) -> list[Message]:
        """The messages; none if there is no file."""
        from penstock.history.file import read_history

        data = self._file.read()
        try:
            return [] if data is None else read_history(data)
        except UsageError as error:
            raise UsageError(f"the history in {self.path} cannot be read: {error}") from None

    def write(self, messages: list[Message]) -> str:
        """Saves the messages; returns what went wrong, or the empty string."""
        return self._file.write(encode_messages(messages))
