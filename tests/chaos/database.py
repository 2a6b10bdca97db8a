"""A PostgreSQL server that is killed, restarted or restored while runs use it, with or without a PgBouncer."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.pgbouncer import pooler
from tests.postgres import own_server

SECONDS = 60.0
"""How long the server may take to come back."""


class Database:
    """A server of its own; `url` is that of the server, or of the PgBouncer before it."""

    def __init__(self, server: Any, url: str) -> None:
        self.url = url
        self.server_url: str = server.get_uri()
        self._server = server
        self._copy = Path(f"{server.pgdata}-copy")

    def crash(self, chance: random.Random) -> None:
        """Kill all its processes at once, as the loss of power of a machine whose disks survive does."""
        self._kill()
        time.sleep(chance.choice([0.0, 0.5, 2.0]))
        self._start()

    def restart(self, chance: random.Random) -> None:
        """Stop it and start it again, as a deployment does."""
        self._server.stop()
        time.sleep(chance.choice([0.0, 0.5, 2.0]))
        self._start()

    def save(self) -> None:
        """Stop it, copy its files, and start it again."""
        self._server.stop()
        shutil.rmtree(self._copy, ignore_errors=True)
        subprocess.run(["cp", "-a", self._server.pgdata, self._copy], check=True)  # with owners and modes
        self._start()

    def restore(self) -> None:
        """Kill it, and start it with the files that were saved: what was written since then is lost."""
        self._kill()
        for path in self._server.pgdata.iterdir():
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        subprocess.run(["cp", "-a", f"{self._copy}/.", self._server.pgdata], check=True)
        self._forget_process()
        self._start()

    def delete_copy(self) -> None:
        """Delete the files that were saved."""
        shutil.rmtree(self._copy, ignore_errors=True)

    def _kill(self) -> None:
        postmaster = int(self._server.get_pid())
        pids = [postmaster, *_children(postmaster)]
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        while any(_stat(pid)[:1] not in ([], ["Z"]) for pid in pids):
            time.sleep(0.01)
        self._forget_process()

    def _forget_process(self) -> None:
        for left in ("postmaster.pid", ".s.PGSQL.5432.lock"):  # a zombie would count as a server
            (self._server.pgdata / left).unlink(missing_ok=True)

    def _start(self) -> None:
        end = time.monotonic() + SECONDS
        while True:
            try:
                self._server.ensure_postgres_running()
                return
            except Exception:
                if time.monotonic() > end:
                    raise
                time.sleep(0.2)


def _stat(pid: int | str) -> list[str]:
    """The state of a process, its parent, and more; nothing if it is gone."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return []


def _children(parent: int) -> list[int]:
    return [int(path.name) for path in Path("/proc").glob("[0-9]*") if _stat(path.name)[1:2] == [str(parent)]]


@contextmanager
def database(*, is_pooled: bool) -> Generator[Database]:
    """A server that nobody else uses."""
    with own_server() as server, ExitStack() as stack:
        url = stack.enter_context(pooler(server.get_uri(), size=8, retry=1.0)) if is_pooled else server.get_uri()
        found = Database(server, url)
        stack.callback(found.delete_copy)
        yield found
