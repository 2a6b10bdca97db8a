"""The file in which a conversation is kept: looked at before anything is asked, and written after each run."""

from __future__ import annotations

import os
from pathlib import Path

from penstock.errors import UsageError
from penstock.messages import Message, encode_messages


class HistoryFile:
    """A history in a file. That it cannot be read or written is said when it is opened, and not after a run."""

    def __init__(self, path: Path) -> None:
        self._path = path
        if path.exists() and not path.is_file():
            raise UsageError(f"{path} is no file: a history cannot be kept there")
        if not path.parent.is_dir():
            raise UsageError(f"there is no folder {path.parent} to keep the history in")
        if not os.access(path.parent, os.W_OK | os.X_OK) or (path.exists() and not os.access(path, os.W_OK)):
            raise UsageError(f"a history cannot be kept in {path}: writing there is not allowed")

    def read(self) -> list[Message]:
        """What was kept; nothing, if there is no file yet."""
        from penstock.shapes import read_history

        if not self._path.exists():
            return []
        try:
            return read_history(self._path.read_bytes())
        except OSError as error:
            raise UsageError(f"the history in {self._path} cannot be read: {error.strerror}") from None

    def write(self, messages: list[Message]) -> str:
        """Keep this, and say what hindered it, if something did; a crash while it is written spoils nothing."""
        target = self._path.resolve()  # what a link leads to, and not the link
        beside = target.with_name(f"{target.name}.{os.getpid()}.new")
        try:
            beside.write_bytes(encode_messages(messages))
            if target.exists():
                beside.chmod(target.stat().st_mode)
            beside.replace(target)
        except OSError as error:
            return f"the history could not be kept in {self._path}: {error.strerror}"
        return ""
