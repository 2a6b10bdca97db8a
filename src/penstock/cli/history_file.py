"""The file in which a conversation is kept."""

from __future__ import annotations

from pathlib import Path

from penstock.cli.kept_file import KeptFile
from penstock.messages import Message, encode_messages


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
