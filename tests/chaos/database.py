"""A PostgreSQL server that is killed or restarted while runs use it, with or without a PgBouncer before it."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psutil

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

    def crash(self, chance: random.Random) -> None:
        """Kill all its processes at once, as the loss of power of a machine whose disks survive does."""
        postmaster = psutil.Process(self._server.get_pid())
        processes = [postmaster, *postmaster.children(recursive=True)]
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        while any(_is_alive(process) for process in processes):
            time.sleep(0.01)
        for left in ("postmaster.pid", ".s.PGSQL.5432.lock"):  # a zombie would count as a server
            (self._server.pgdata / left).unlink(missing_ok=True)
        time.sleep(chance.choice([0.0, 0.5, 2.0]))
        self._start()

    def restart(self, chance: random.Random) -> None:
        """Stop it and start it again, as a deployment does."""
        self._server.stop()
        time.sleep(chance.choice([0.0, 0.5, 2.0]))
        self._start()

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


def _is_alive(process: psutil.Process) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


@contextmanager
def database(*, is_pooled: bool) -> Iterator[Database]:
    """A server that nobody else uses."""
    with own_server() as server:
        if is_pooled:
            with pooler(server.get_uri(), size=8) as url:
                yield Database(server, url)
        else:
            yield Database(server, server.get_uri())
