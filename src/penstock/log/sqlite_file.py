"""The file of a SQLite log: a connection per thread, and transactions that share a commit.

Threads that write at the same time take turns. The thread whose turn it is writes for all that wait, in one
transaction, so that they wait for the disk once.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import weakref
from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

from penstock.log.forks import ForkLock
from penstock.log.store import StoreError, not_text

T = TypeVar("T")

_TEMPORARY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL,
              sqlite3.SQLITE_CANTOPEN}  # fmt: skip


_opening = ForkLock()  # of whoever opens or closes a connection: SQLite has a lock for all of them, which a fork copies


class _Write(Generic[T]):
    """An operation that a thread wants to carry out, and its result."""

    __slots__ = ("durable", "error", "is_over", "operation", "result")

    def __init__(self, operation: Callable[[sqlite3.Connection], T], durable: bool) -> None:
        self.operation = operation
        self.durable = durable
        self.is_over = False
        self.result: T | None = None
        self.error: BaseException | None = None


class SQLiteFile:
    """A SQLite file that the threads of this process use. `wait` is how many seconds it waits for other processes."""

    def __init__(self, path: str | Path, wait: float) -> None:
        self.path = str(path)
        self._place = Path(path).absolute()  # also if the process changes its folder
        self._wait = wait
        self._local = threading.local()
        self.connections: weakref.WeakSet[ThreadConnection] = weakref.WeakSet()
        weakref.finalize(self, _close, self.connections).atexit = False  # threads may use the file until the end
        self._lock = ForkLock()
        self._process = os.getpid()
        self._writes: deque[_Write[Any]] = deque()  # those that wait for their turn
        self.incomplete = 0  # how many transactions were not committed, with the one that is open
        self._is_closed = False
        self._found: os.stat_result | None = None
        if not self._place.parent.is_dir():
            raise StoreError(f"the log {self.path} cannot be opened: its folder does not exist")

    def open(self, prepare: Callable[[sqlite3.Connection, str], None]) -> None:
        """Open the file, and let its tables be prepared."""
        try:
            with self.failing("opened"):
                prepare(self.connection, self.path)
                self._found = self._place.stat()
        except BaseException:
            self.close()
            raise

    @property
    def connection(self) -> sqlite3.Connection:
        """The connection of this thread."""
        own: ThreadConnection | None = getattr(self._local, "own", None)
        if own is None or own.process != os.getpid():  # a connection does not survive a fork
            own = self._local.own = self._connect()
        return own.connection

    def _connect(self) -> ThreadConnection:
        if self._is_closed:
            raise StoreError(f"the log {self.path} was closed")
        with _opening.lock:  # not the lock of writers: their holder may wait for this thread
            connection = sqlite3.connect(self._place, timeout=self._wait, isolation_level=None, check_same_thread=False)
            own = ThreadConnection(connection)
            self.connections.add(own)
            if self._process != os.getpid():  # inherited writes belong to the parent process
                self._writes.clear()
                self._process = os.getpid()
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
            # The pages of active runs are written again and again. With a checkpoint every 1000 pages, the default, an
            # event of 200 runs at once costs about 4 µs more; with fewer than every 4000, none less.
            connection.execute("PRAGMA wal_autocheckpoint = 4000")
        return own

    def check(self) -> None:
        """Raise a `StoreError` if the file was deleted or replaced: what is written to it would be lost."""
        try:
            if self._found is None or os.path.samestat(self._place.stat(), self._found):
                return
        except OSError:
            pass
        raise StoreError(f"the log {self.path} was deleted or replaced since it was opened: restart this process")

    @contextmanager
    def failing(self, verb: str) -> Generator[None]:
        """Turn an error of SQLite into a `StoreError`."""
        try:
            yield
        except UnicodeEncodeError as error:
            raise not_text(error) from None
        except sqlite3.Error as error:
            code: int = getattr(error, "sqlite_errorcode", 0) & 0xFF
            raise StoreError(
                f"the log {self.path} cannot be {verb}: {error}", is_temporary=code in _TEMPORARY
            ) from error

    def write(self, operation: Callable[[sqlite3.Connection], T], *, durable: bool) -> T:
        """Carry out an operation in a transaction; a durable one waits until the disk has it.

        The operation is called again, in another transaction, if another one that shares its transaction fails.
        """
        self.check()
        write = _Write(operation, durable)
        with self.failing("written"):
            connection = self.connection
            self._writes.append(write)
            try:
                with self._lock.lock:
                    if not write.is_over:  # else another thread had the turn
                        self._write_all(connection)
            except BaseException:  # this thread is interrupted
                with suppress(ValueError):  # another thread has taken it
                    self._writes.remove(write)
                raise
            if write.error is not None:
                raise write.error
        return cast(T, write.result)

    def _write_all(self, connection: sqlite3.Connection) -> None:
        """Carry out everything that waits, in one transaction; what fails is left out."""
        left = [self._writes.popleft() for _ in range(len(self._writes))]
        while left:
            try:
                left = self._commit(connection, left)
            except BaseException:
                self._writes.extend(write for write in left if not write.is_over)  # their threads still wait
                raise

    def _commit(self, connection: sqlite3.Connection, writes: list[_Write[Any]]) -> list[_Write[Any]]:
        """Commit these writes. If one of them fails, nothing is committed, and the others are returned."""
        current: _Write[Any] | None = None
        over: list[_Write[Any]] = []
        is_complete = False
        self.incomplete += 1
        try:
            self._begin(connection, writes)
            for current in writes:
                current.result = current.operation(connection)
            current, is_complete = None, True
            connection.execute("COMMIT")
            self.incomplete -= 1
        except Exception as error:  # noqa: BLE001  # the threads get it
            is_complete = False
            over = writes if current is None else [current]
            for write in over:
                write.error = error
        finally:
            if connection.in_transaction:  # SQLite has ended it itself after some errors, such as a full disk
                connection.execute("ROLLBACK")
            elif is_complete:  # also if the thread is interrupted, by a signal that came during the commit
                over = writes
            for write in over:
                write.is_over = True
        return [write for write in writes if not write.is_over]

    def _begin(self, connection: sqlite3.Connection, writes: Sequence[_Write[Any]]) -> None:
        durable = any(write.durable for write in writes)
        own: ThreadConnection = self._local.own
        if own.is_durable is not durable:
            connection.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
            own.is_durable = durable
        connection.execute("BEGIN IMMEDIATE")

    def close(self) -> None:
        """Close all connections."""
        with self._lock.lock, _opening.lock:
            self._is_closed = True
            _close(self.connections)


class ThreadConnection:
    """The connection of one thread, which ends with the thread: it occupies two open files.

    `is_durable` if its transactions wait until the disk has them.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self.process = os.getpid()
        self.is_durable = False

    def __del__(self) -> None:
        if self.process == os.getpid():
            with _opening.lock:
                self.connection.close()
        else:
            _inherited.append(self.connection)


_inherited: list[sqlite3.Connection] = []  # of the parent process: closing them might change its file


def _close(connections: weakref.WeakSet[ThreadConnection]) -> None:
    for own in list(connections):
        if own.process == os.getpid():
            own.connection.close()
