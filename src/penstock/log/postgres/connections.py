"""Connections to a PostgreSQL server: reused while they work, reopened after the server was unavailable."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from penstock.errors import UsageError
from penstock.log.forks import Shared
from penstock.log.store import StoreError, not_text
from penstock.redaction import without_secrets

if TYPE_CHECKING:
    from penstock.log.postgres.bounded_connection import BoundedConnection

MAX_IDLE = 8
"""How many unused connections are kept open."""

MAX_STATEMENT = 20.0
"""How many seconds a statement may take."""

MAX_LOCKED = 5.0
"""How many seconds of them a statement may wait for a lock that another session holds."""

MAX_MAINTENANCE = 600.0
"""How many seconds a statement may take that changes the tables, or deletes many runs."""

GRACE = 5.0
"""The seconds after a timeout within which the server must report it: else it hangs, and the connection is closed."""

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

_REFUSED = ("does not exist", "authentication failed", "no pg_hba.conf entry")
"""How a server refuses a connection for good, in words, as psycopg has no code for it. Others are retried."""

_PREPARED = ("26000", "42P05")
"""The codes for a prepared statement that is unknown, or known already: another session has prepared it."""

_POOLER_ADVICE = "; behind a pooler in transaction mode, add ?pooler=transaction to the URL of the log"

# The first column is how many seconds a statement may take. Timeouts of the role or of the URL are left alone.
_LIMIT = """
SELECT extract(epoch FROM CASE current_setting('statement_timeout')
        WHEN '0' THEN set_config('statement_timeout', %(statement)s, false)
        ELSE current_setting('statement_timeout') END::interval)::float8,
    CASE current_setting('lock_timeout') WHEN '0' THEN set_config('lock_timeout', %(lock)s, false) END
"""

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


def without_pooler(url: str) -> tuple[str, str | None]:
    """A URL without the parameter `pooler`, and its value; a `UsageError` unless it is `transaction`."""
    head, mark, query = url.partition("?")
    parameters = [each for each in query.split("&") if each]
    values = [each.removeprefix("pooler=") for each in parameters if each.startswith("pooler=")]
    if not values:
        return url, None
    if set(values) != {"transaction"}:
        raise UsageError(
            f"pooler={values[-1]} is not supported: use pooler=transaction, and nothing for a pooler in session mode"
        )
    others = [each for each in parameters if not each.startswith("pooler=")]
    return (f"{head}{mark}{'&'.join(others)}" if others else head), "transaction"


class Connections(Shared):
    """The connections of a process to one database, in autocommit mode.

    With `?pooler=transaction` in its URL there is a pooler such as PgBouncer before it, in transaction mode: each
    statement may get another connection to the server. Then no statement is prepared and no setting is kept.
    """

    def __init__(self, url: str) -> None:
        self._psycopg = import_psycopg()
        from penstock.log.postgres import arrays as postgres_arrays
        from penstock.log.postgres import bounded_connection

        self._bounded = bounded_connection
        self._adapters = postgres_arrays.adapters_with_columns()
        url, pooler = without_pooler(url)
        self.is_pooled = pooler is not None
        settings = self._parse(url)
        self.name = "postgresql://{}/{}".format(settings.get("host", ""), settings.get("dbname", ""))
        self._settings: dict[str, Any] = {**_SETTINGS, **settings}
        if self.is_pooled:  # a statement that one server connection has prepared is unknown to the next
            self._settings["prepare_threshold"] = None
        self._idle: list[BoundedConnection] = []
        self._open: WeakSet[BoundedConnection] = WeakSet()
        self._is_closed = False
        super().__init__()

    def in_child(self) -> None:
        """Leave the connections of the parent process alone: a connection does not survive a fork."""
        super().in_child()
        _inherited.extend(self._idle)
        self._idle, self._open = [], WeakSet()

    def _parse(self, url: str) -> dict[str, Any]:
        """The settings in a URL. Errors of libpq are not shown: they quote the URL with its password."""
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
        """The rows of one statement. A broken idle connection is replaced."""
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
                if isinstance(error.__cause__, self._bounded.NoAnswerError):
                    self._close_idle()  # they would make others wait as long
                if is_new or not is_broken or not isinstance(error, StoreError):
                    raise

    @contextmanager
    def failing(self) -> Generator[None]:
        """Turn an error of psycopg into a `StoreError`."""
        try:
            yield
        except UnicodeEncodeError as error:
            raise not_text(error) from None
        except self._psycopg.Error as error:
            code: str | None = error.sqlstate
            is_lost = code is None and isinstance(error, self._psycopg.OperationalError | self._psycopg.InterfaceError)
            is_lost = is_lost and not any(words in str(error) for words in _REFUSED)
            advice = _POOLER_ADVICE if code in _PREPARED and not self.is_pooled else ""
            raise StoreError(
                f"the log {self.name} failed: {' '.join(str(error).split())}{advice}",
                is_temporary=is_lost or (code or "").startswith(_TEMPORARY),
            ) from error

    def connect(self, seconds: float | None = None) -> BoundedConnection:
        """A new connection that the caller closes. Its statements may take this many seconds, or `MAX_STATEMENT`."""
        if self._is_closed:
            raise StoreError(f"the log {self.name} was closed")
        with self.failing():
            connection = self._bounded.BoundedConnection.connect(
                autocommit=True, context=self._adapters, **self._settings
            )
            with self.lock:
                self._open.add(connection)
            connection.seconds = (seconds or MAX_STATEMENT) + GRACE
            if self.is_pooled:  # settings of the session would reach whoever gets the server connection next
                return connection
            try:
                limits = {"statement": f"{seconds or MAX_STATEMENT:g}s", "lock": f"{MAX_LOCKED:g}s"}
                limited = connection.execute(_LIMIT, limits).fetchone()
            except BaseException:
                connection.close()
                raise
            connection.seconds = limited[0] + GRACE if limited else connection.seconds
            return connection

    def is_own(self, process: int) -> bool:
        """Whether a server process belongs to one of these connections."""
        with self.lock:
            return any(not each.closed and each.info.backend_pid == process for each in self._open)

    def maintain(self, statement: str, values: Mapping[str, Any] | None = None) -> list[tuple[Any, ...]]:
        """The rows of one long statement, on its own connection."""
        connection = self.connect(MAX_MAINTENANCE)
        try:
            with self.failing():
                cursor = connection.cursor(binary=True).execute(statement.encode(), values)
                return cursor.fetchall() if cursor.description else []
        finally:
            connection.close()

    def close(self) -> None:
        self._is_closed = True
        self._close_idle()

    def _close_idle(self) -> None:
        with self.lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _take(self) -> tuple[BoundedConnection, bool]:
        """An unused connection, and whether it is new."""
        with self.lock:
            if self._idle:
                return self._idle.pop(), False
        return self.connect(), True

    def _give_back(self, connection: BoundedConnection) -> None:
        with self.lock:
            if not self._is_closed and len(self._idle) < MAX_IDLE:
                self._idle.append(connection)
                return
        connection.close()
