"""Connections to a PostgreSQL server: kept while they work, opened again after the server went away."""

from __future__ import annotations

import os
import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from penstock.errors import UsageError
from penstock.log.store import StoreError
from penstock.redaction import without_secrets

if TYPE_CHECKING:
    import psycopg

MAX_IDLE = 8
"""How many unused connections are kept open."""

_SETTINGS: Mapping[str, str] = {
    "application_name": "penstock",
    "connect_timeout": "10",
    # A server that disappears without closing the connection is noticed after about 20 seconds.
    "keepalives_idle": "5",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "20000",
}
"""Settings of a connection, unless the URL has others."""

_TEMPORARY = ("08", "25006", "40", "53", "55P03", "57", "58")
"""How the codes of errors begin that may pass: lost connections, a standby, deadlocks, full disks, locks, restarts."""

_inherited: list[object] = []  # connections of a parent process: closing them here would end them there


def import_psycopg() -> Any:
    """The psycopg package; a `UsageError` that names the extra if it is not installed."""
    try:
        import psycopg
    except ImportError as error:
        raise UsageError(
            f"a log in PostgreSQL needs psycopg 3 ({error}): pip install 'penstock-llm[postgres]'"
        ) from error
    return psycopg


class Connections:
    """The connections of a process to one database, in autocommit mode."""

    def __init__(self, url: str) -> None:
        self._psycopg = import_psycopg()
        settings = self._parse(url)
        self.name = "postgresql://{}/{}".format(settings.get("host", ""), settings.get("dbname", ""))
        self._settings = {**_SETTINGS, **settings}
        self._idle: list[psycopg.Connection[Any]] = []
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._is_closed = False

    def _parse(self, url: str) -> dict[str, Any]:
        """The settings that a URL has. The errors of libpq are not shown: they quote the URL, with the password."""
        is_valid, settings = True, dict[str, Any]()
        try:
            settings = self._psycopg.conninfo.conninfo_to_dict(url)
        except (self._psycopg.Error, UnicodeError):
            is_valid = False
        host, database = str(settings.get("host", "")), str(settings.get("dbname", ""))
        is_cut = "@" in host[1:] or ("@" in database and "user" not in settings)  # "@/tmp" is a socket of Linux
        if not is_valid or is_cut:
            raise UsageError(
                f"{without_secrets(url)} is not the URL of a PostgreSQL database, such as "
                "postgresql://user:password@host:5432/name; in the password, write @ as %40, / as %2F and % as %25"
            )
        return settings

    def execute(self, statement: str, values: Mapping[str, Any] | None = None) -> list[tuple[Any, ...]]:
        """The rows of one statement. A connection that broke while it was unused is replaced."""
        while True:
            connection, is_new = self._take()
            try:
                with self.failing():
                    cursor = connection.cursor(binary=True).execute(statement.encode(), values)
                    rows: list[tuple[Any, ...]] = cursor.fetchall() if cursor.description else []
                    self._give_back(connection)
                    return rows
            except BaseException as error:
                is_broken = connection.broken
                connection.close()
                if is_new or not is_broken or not isinstance(error, StoreError):
                    raise

    @contextmanager
    def failing(self) -> Generator[None]:
        """Turn an error of psycopg into a `StoreError`."""
        try:
            yield
        except self._psycopg.Error as error:
            code: str | None = error.sqlstate
            is_lost = code is None and isinstance(error, self._psycopg.OperationalError | self._psycopg.InterfaceError)
            raise StoreError(
                f"the log {self.name} failed: {str(error).strip()}",
                is_temporary=is_lost or (code or "").startswith(_TEMPORARY),
            ) from error

    def connect(self) -> psycopg.Connection[Any]:
        """A new connection that the caller closes."""
        with self.failing():
            connection: psycopg.Connection[Any] = self._psycopg.connect(autocommit=True, **self._settings)
            return connection

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _take(self) -> tuple[psycopg.Connection[Any], bool]:
        """An unused connection, and whether it is new."""
        if self._process != os.getpid():  # a connection does not survive a fork
            _inherited.extend(self._idle)
            self._idle, self._lock, self._process = [], threading.Lock(), os.getpid()
        with self._lock:
            if self._is_closed:
                raise StoreError(f"the log {self.name} was closed")
            if self._idle:
                return self._idle.pop(), False
        return self.connect(), True

    def _give_back(self, connection: psycopg.Connection[Any]) -> None:
        with self._lock:
            if not self._is_closed and len(self._idle) < MAX_IDLE:
                self._idle.append(connection)
                return
        connection.close()
