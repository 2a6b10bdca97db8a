"""Finds the process that holds the write lock of a SQLite file: a frozen one blocks all other writers."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

from penstock.cli.runs.owners import process_condition

_WRITE_LOCK = 120
"""The byte of the file `-shm` that a writer locks, in WAL mode."""


class LockHolder(Struct, frozen=True):
    """A process that holds the lock; `condition` is `stopped` if it is frozen."""

    pid: int
    condition: str = ""

    def advice(self, path: str) -> str:
        """A message about the blocked writers, and what to do."""
        way_out = f"`kill -CONT {self.pid}` continues it, `kill -9 {self.pid}` ends it"
        state = "is stopped and holds" if self.condition else "holds"
        return f"process {self.pid} {state} the write lock of {path}: other processes cannot write; {way_out}"


def find_lock_holder(path: str) -> LockHolder | None:
    """The process that holds the write lock of this file; None if there is none, or it is unknown."""
    try:
        status = Path(f"{path}-shm").stat()
        lines = Path("/proc/locks").read_text(encoding="ascii").splitlines()
    except (OSError, ValueError):
        return None  # only Linux lists the locks of a file
    for line in lines:
        # 1: POSIX  ADVISORY  WRITE 4711 08:01:1234567 120 120
        match line.split():
            case [_, "POSIX", _, "WRITE", pid, place, first, last] if (
                place.rpartition(":")[2] == str(status.st_ino)
                and int(first) <= _WRITE_LOCK
                and (last == "EOF" or int(last) >= _WRITE_LOCK)
                and _has_open(int(pid), f"{path}-shm")
            ):
                return LockHolder(int(pid), process_condition(int(pid)))
            case _:
                pass
    return None


def _has_open(pid: int, path: str) -> bool:
    """Whether a process has a file open: a file of another disk may have the same number."""
    try:
        return any(descriptor.samefile(path) for descriptor in Path(f"/proc/{pid}/fd").iterdir() if descriptor.exists())
    except PermissionError:
        return True  # a process of another user, which we may not inspect
    except OSError:
        return False
