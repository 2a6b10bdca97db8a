"""The file of a SQLite log: a connection per thread, and transactions that share a commit.

Threads that write at the same time take turns. The thread whose turn it is writes for all that wait, in one
transaction, so that they wait for the disk once.

A process closes all its connections before it forks, and opens them again when they are needed. What SQLite knows of
its locks on a file is shared by the connections of a process, and a child inherits that, but not the locks. Its own
connections would rely on locks that nobody has, and lose what they write when another process closes the file.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar, cast

from msgspec import Struct

from penstock.errors import PenstockError
from penstock.log.forks import Shared
from penstock.log.store import DamagedRunError, StoreError, not_text
from penstock.log.suspects import Outages

T = TypeVar("T")

_TEMPORARY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL,
              sqlite3.SQLITE_CANTOPEN}  # fmt: skip


class _Connecting(Shared):
    """The lock for opening connections: there are no new ones during a fork."""

    rank = 1


class _Closing(Shared):
    """The lock for closing connections: SQLite has locks for that, which a fork would copy.

    `open` are the open connections, with their users. A connection whose user is gone is about to be closed, by a
    thread that waits for the lock.
    """

    rank = 3

    def __init__(self) -> None:
        self.open: dict[sqlite3.Connection, weakref.ref[ThreadConnection]] = {}
        super().__init__()

    def close(self, connection: sqlite3.Connection) -> None:
        """Close a connection that nobody uses."""
        with self.lock:
            self.open.pop(connection, None)
            connection.close()

    def before_fork(self) -> None:
        for connection, user in list(self.open.items()):
            if user() is None:
                self.close(connection)

    def in_child(self) -> None:
        super().in_child()
        _inherited.extend(self.open)  # which threads of the parent process have used for too long to be closed
        self.open.clear()


_connecting, _closing = _Connecting(), _Closing()
_inherited: list[sqlite3.Connection] = []  # connections of the parent process, left alone


class _Write(Struct, eq=False):
    """A queued operation of a thread, and its result."""

    operation: Callable[[sqlite3.Connection], Any]
    durable: bool
    is_over: bool = False
    result: Any = None
    error: Exception | None = None


class _Writes(Shared):
    """The queued writes. The holder of the lock has the turn.

    A write stays here until its thread continues: the thread that writes it for that one may be interrupted.
    """

    def __init__(self) -> None:
        self.waiting: deque[_Write] = deque()
        super().__init__()

    def in_child(self) -> None:
        super().in_child()
        self.waiting.clear()  # the parent process writes them


class ThreadConnection(Shared):
    """The connection of one thread, which ends with the thread: it occupies two open files.

    Who uses it has its lock; then nobody closes it, which SQLite would not survive. `is_durable` if its transactions
    wait until the disk has them, and `is_configured` if its file is known to be a log.
    """

    rank = 2

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self.is_open = True
        self.is_durable = False
        self.is_configured = False
        # Not `__del__`: the garbage collector may call it after it has warned of an open connection.
        weakref.finalize(self, _drop, connection, os.getpid()).atexit = False
        _closing.open[connection] = weakref.ref(self)
        super().__init__()

    def configure(self) -> None:
        """Prepare a new connection for a log."""
        self.connection.execute("PRAGMA journal_mode = WAL")
        self.connection.execute("PRAGMA synchronous = NORMAL")
        # The pages of active runs are written again and again. With a checkpoint every 1000 pages, the default, an
        # event of 200 runs at once costs about 4 µs more; with fewer than every 4000, none less.
        self.connection.execute("PRAGMA wal_autocheckpoint = 4000")
        self.is_configured = True

    def set_durable(self, durable: bool) -> None:
        """Let transactions wait until the disk has them, or not."""
        self.connection.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
        self.is_durable = durable

    def close(self) -> None:
        """Close it, in a thread that has the lock, or if nobody can use it any more."""
        with _closing.lock:  # first: a fork that is under way closes it too
            if self.is_open:
                self.is_open = False
                _closing.close(self.connection)

    def before_fork(self) -> None:
        self.close()

    def in_child(self) -> None:
        super().in_child()
        self.is_open = False


def _drop(connection: sqlite3.Connection, process: int) -> None:
    """Close an abandoned connection, unless another process opened it."""
    if process == os.getpid():
        _closing.close(connection)
    else:
        _inherited.append(connection)


class SQLiteFile:
    """A SQLite file that the threads of this process use. `wait` is how many seconds it waits for other processes.

    When nobody could write for long, it is noted in `outages`.
    """

    def __init__(self, path: str | Path, wait: float, outages: Outages | None = None) -> None:
        self.path = str(path)
        self._place = Path(path).absolute()  # also if the process changes its folder
        self._wait = wait
        self._outages = outages
        self._local = threading.local()
        self.connections: weakref.WeakSet[ThreadConnection] = weakref.WeakSet()
        weakref.finalize(self, _close, self.connections).atexit = False  # threads may use the file until the end
        self._writes = _Writes()
        self.incomplete = 0  # number of uncommitted transactions, including the open one
        self._is_closed = False
        self._found: os.stat_result | None = None
        if not self._place.parent.is_dir():
            raise StoreError(f"the log {self.path} cannot be opened: its folder does not exist")

    def open(self, prepare: Callable[[sqlite3.Connection, str], None]) -> None:
        """Open the file, and let its tables be prepared; until then, nothing of it is changed."""
        try:
            self._use(lambda own: prepare(own.connection, self.path))
            self._found = self._place.stat()
            self._use(lambda _: None)  # which configures the connection
        except BaseException as error:
            self.close()
            if isinstance(error, sqlite3.Error | UnicodeEncodeError):
                raise self._failure("opened", error) from error
            raise

    def read(self, operation: Callable[[sqlite3.Connection], T]) -> T:
        """Carry out a read-only operation that fetches all its rows."""
        try:
            return self._use(lambda own: operation(own.connection))
        except (sqlite3.Error, UnicodeEncodeError) as error:
            raise self._failure("read", error) from error

    def _use(self, operation: Callable[[ThreadConnection], T]) -> T:
        """Carry out an operation with the connection of this thread, which nobody closes meanwhile."""
        while True:
            own: ThreadConnection | None = getattr(self._local, "own", None)
            if own is None or not own.is_open:
                own = self._local.own = self._connect()
            with own.lock:
                if own.is_open:  # else the process has forked since
                    if not own.is_configured and self._found is not None:  # the file is a log, and may be changed
                        own.configure()
                    return operation(own)

    def _connect(self) -> ThreadConnection:
        with _connecting.lock:
            if self._is_closed:
                raise StoreError(f"the log {self.path} was closed")
            self.check()  # SQLite would create the file
            if self._found is None:
                create_private(self._place)
            own = ThreadConnection(
                sqlite3.connect(self._place, timeout=self._wait, isolation_level=None, check_same_thread=False)
            )
            self.connections.add(own)
        return own

    def check(self) -> None:
        """Raise a `StoreError` if the file was deleted or replaced: what is written to it would be lost."""
        try:
            if self._found is None or os.path.samestat(self._place.stat(), self._found):
                return
        except OSError:
            pass
        raise StoreError(f"the log {self.path} was deleted or replaced since it was opened: restart this process")

    def _failure(self, verb: str, error: sqlite3.Error | UnicodeEncodeError) -> PenstockError:
        """An error of SQLite as a `StoreError`."""
        if isinstance(error, UnicodeEncodeError):
            return not_text(error)
        code: int = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code == sqlite3.SQLITE_CORRUPT and verb == "read":
            return DamagedRunError(f"a part of the log {self.path} is damaged: {error}")
        return StoreError(f"the log {self.path} cannot be {verb}: {error}", is_temporary=code in _TEMPORARY)

    def write(self, operation: Callable[[sqlite3.Connection], T], *, durable: bool) -> T:
        """Carry out an operation in a transaction; a durable one waits until the disk has it.

        The operation is called again, in another transaction, if another one that shares its transaction fails.
        """
        self.check()
        write = _Write(operation, durable)
        waiting, began = self._writes.waiting, time.monotonic()
        try:
            waiting.append(write)
            with self._writes.lock:
                while not write.is_over:  # else another thread had the turn
                    self._use(self._commit)
            if write.error is not None:
                raise write.error
        except (sqlite3.Error, UnicodeEncodeError) as error:
            failure = self._failure("written", error)
            if self._outages is not None and isinstance(failure, StoreError) and failure.is_temporary:
                self._outages.note()
            raise failure from error
        finally:  # also if this thread is interrupted, or cannot open the file
            with suppress(ValueError):  # it was interrupted before
                waiting.remove(write)
        if self._outages is not None and time.monotonic() - began > self._outages.slow:
            self._outages.note()
        return cast(T, write.result)

    def _commit(self, own: ThreadConnection) -> None:
        """Carry out all queued writes in one transaction. If one of them fails, that one is over, and no other."""
        connection = own.connection
        writes = [write for write in self._writes.waiting.copy() if not write.is_over]
        durable = any(write.durable for write in writes)
        current: _Write | None = None
        over: list[_Write] = []
        is_complete = False
        self.incomplete += 1
        try:
            if own.is_durable is not durable:
                own.set_durable(durable)
            connection.execute("BEGIN IMMEDIATE")
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

    def close(self) -> None:
        """Close all connections, after threads have finished their current operations."""
        with self._writes.lock:
            with _connecting.lock:
                self._is_closed = True  # from here on nobody opens one
            for own in list(self.connections):
                with own.lock:
                    own.close()


def create_private(path: Path) -> None:
    """Create a file that only its owner can read and write; one that exists keeps its mode.

    SQLite gives the files beside it (`-wal`, `-shm`) the same mode. A file that exists is not opened: SQLite would lose
    its locks on it when it is closed. What else fails is left to SQLite, which says why.
    """
    with suppress(OSError):  # also if it exists
        os.close(os.open(os.path.realpath(path), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))


def _close(connections: weakref.WeakSet[ThreadConnection]) -> None:
    """Close the connections of an abandoned file."""
    for own in list(connections):
        own.close()
