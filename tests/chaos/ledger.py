"""The ledger of a trial: what its processes did, one note per line, in a file that outlives them."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

What = Literal["start", "end", "frozen", "append", "read", "reset", "shown"]


class Note(Struct, frozen=True, omit_defaults=True):
    """One note.

    | what | |
    |---|---|
    | `start`, `end` | a tool was called, or returns: `name`, `key` |
    | `frozen` | the process stops itself at a point, `name` |
    | `append` | the store took `count` events after `seq`, of the owner with this `epoch` |
    | `read` | a reader of the log got the event `seq`; `name` is a hash of it |
    | `reset` | a reader was told to begin again: the log has lost events |
    | `shown` | whoever drives the run got an event from it; `key` names the reader, `name` is a hash of it |
    """

    what: What
    run_id: str
    name: str = ""
    key: str = ""
    seq: int = 0
    epoch: int = 0
    count: int = 0
    pid: int = 0
    at: float = 0.0


class Ledger:
    """A file that several processes append to; a note is one write, so a process that is killed leaves no half."""

    def __init__(self, path: str | Path) -> None:
        self.path = str(path)
        self._file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self._read = 0

    def add(self, note: Note) -> None:
        note = msgspec.structs.replace(note, pid=os.getpid(), at=time.time())
        os.write(self._file, msgspec.json.encode(note) + b"\n")

    def news(self) -> list[Note]:
        """The notes since the last look."""
        with Path(self.path).open("rb") as file:
            file.seek(self._read)
            lines = file.read()
        lines = lines[: lines.rfind(b"\n") + 1]
        self._read += len(lines)
        return [msgspec.json.decode(line, type=Note) for line in lines.splitlines()]

    def close(self) -> None:
        os.close(self._file)
