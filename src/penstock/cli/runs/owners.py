"""The owners of runs, as people read them: the machine and the process."""

from __future__ import annotations

import socket
from pathlib import Path

from msgspec import Struct


class Owner(Struct, frozen=True):
    """A process that owns a run. `pid` is 0 if the name of the owner is not that of a process."""

    host: str
    pid: int = 0

    @property
    def text(self) -> str:
        return f"pid {self.pid} on {self.host}" if self.pid else self.host

    @property
    def is_here(self) -> bool:
        """Whether the process belongs to this machine."""
        return self.pid > 0 and self.host == socket.gethostname()

    @property
    def condition(self) -> str:
        """`stopped` or `dead` if this machine knows it, else empty."""
        return process_condition(self.pid) if self.is_here else ""


def parse_owner(name: str) -> Owner:
    """The owner, from its name in a store."""
    match name.rsplit(":", 2):
        case [host, pid, _] if pid.isascii() and pid.isdigit():
            return Owner(host, int(pid))
        case _:
            return Owner(name)


def process_condition(pid: int) -> str:
    """`stopped` or `dead` if that can be known here, else empty."""
    if not Path("/proc/self/stat").exists():
        return ""  # only Linux says this without a module of its own
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[0]
    except OSError:
        return "dead"
    return {"T": "stopped", "t": "stopped", "Z": "dead", "X": "dead"}.get(state, "")
