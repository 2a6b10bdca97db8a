"""What a command keeps for the next one: a file that is looked at before anything is asked, and written at once."""

from __future__ import annotations

import os
from pathlib import Path

from penstock.errors import UsageError
from penstock.messages import Message, encode_messages


class KeptFile:
    """A file for `what`. That it cannot be read or written is said when it is opened, and not after a run."""

    def __init__(self, path: Path, what: str) -> None:
        self.path = path
        self._what = what
        if path.exists() and not path.is_file():
            raise UsageError(f"{path} is no file: a {what} cannot be kept there")
        if not path.parent.is_dir():
            raise UsageError(f"there is no folder {path.parent} to keep the {what} in")
        if not os.access(path.parent, os.W_OK | os.X_OK) or (path.exists() and not os.access(path, os.W_OK)):
            raise UsageError(f"a {what} cannot be kept in {path}: writing there is not allowed")

    def read(self) -> bytes | None:
        """What was kept; None, if there is no file yet."""
        if not self.path.exists():
            return None
        try:
            return self.path.read_bytes()
        except OSError as error:
            raise UsageError(f"the {self._what} in {self.path} cannot be read: {error.strerror}") from None

    def write(self, data: bytes) -> str:
        """Keep this, and say what hindered it, if something did; a crash while it is written spoils nothing."""
        target = self.path.resolve()  # what a link leads to, and not the link
        beside = target.with_name(f"{target.name}.{os.getpid()}.new")
        try:
            beside.write_bytes(data)
            if target.exists():
                beside.chmod(target.stat().st_mode)
            beside.replace(target)
        except OSError as error:
            beside.unlink(missing_ok=True)
            return f"the {self._what} could not be kept in {self.path}: {error.strerror}"
        return ""

    def remove(self) -> str:
        """Keep nothing any more, and say what hindered that, if something did."""
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
        """What was kept; nothing, if there is no file yet."""
        from penstock.history.file import read_history

        data = self._file.read()
        return [] if data is None else read_history(data)

    def write(self, messages: list[Message]) -> str:
        """Keep this, and say what hindered it, if something did."""
        return self._file.write(encode_messages(messages))
