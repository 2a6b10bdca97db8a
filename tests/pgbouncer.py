"""A PgBouncer in transaction mode before a PostgreSQL server, for tests."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

SECONDS = 20.0
"""How long it may take to start."""


class NoPooler(Exception):
    """There is no PgBouncer on this machine."""


@contextmanager
def pooler(url: str, *, size: int = 3, retry: float = 15.0) -> Iterator[str]:
    """The URL of a PgBouncer before a server, with this many connections to it.

    It waits for `retry` seconds until it tries to reach a server again that was away; 15 is its default.
    """
    program = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
    if program is None:
        raise NoPooler("no PgBouncer: apt-get install pgbouncer")
    settings = psycopg.conninfo.conninfo_to_dict(url)
    folder = Path(tempfile.mkdtemp(prefix="penstock-pgbouncer-"))
    port = _free_port()
    (folder / "users").write_text(f'"{settings["user"]}" ""\n')
    (folder / "settings").write_text(
        f"[databases]\n{settings['dbname']} = host={settings['host']} user={settings['user']} "
        f"{'port=' + str(settings['port']) if settings.get('port') else ''}\n"
        f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\nauth_type = any\n"
        f"auth_file = {folder}/users\npool_mode = transaction\ndefault_pool_size = {size}\n"
        f"server_login_retry = {retry:g}\nserver_reset_query =\n"
        f"ignore_startup_parameters = extra_float_digits\nlogfile = {folder}/log\n"
    )
    user = Path(str(settings["host"])).owner() if os.getuid() == 0 else None  # it refuses to run as root
    if user is not None:
        for path in (folder, *folder.iterdir()):
            shutil.chown(path, user)
    process = subprocess.Popen([program, "-q", str(folder / "settings")], user=user)
    address = f"postgresql://{settings['user']}@127.0.0.1:{port}/{settings['dbname']}"
    try:
        _wait(address, process)
        yield f"{address}?pooler=transaction"
    finally:
        process.terminate()
        process.wait(10)
        shutil.rmtree(folder, ignore_errors=True)


def _wait(address: str, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + SECONDS
    while True:
        try:
            psycopg.connect(address).close()
            return
        except psycopg.OperationalError:
            if process.poll() is not None or time.monotonic() > end:
                raise
            time.sleep(0.05)


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
