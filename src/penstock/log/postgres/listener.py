"""Waits for new events in a PostgreSQL database (LISTEN), in a thread that runs while there are waiting readers."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

from penstock.log.doorbell import Doorbell
from penstock.log.forks import Shared
from penstock.log.postgres.connections import Connections
from penstock.log.store import StoreError

if TYPE_CHECKING:
    import psycopg

EVERY_RUN = "*"
"""The payload of a notification about more runs than fit into one."""

_IDLE = 1.0
"""How many seconds the thread waits for a notification before it checks whether anybody still waits for events."""


class Listener(Shared):
    """Rings a doorbell for events of other processes."""

    def __init__(self, connections: Connections, channel: str, doorbell: Doorbell) -> None:
        self._connections = connections
        self._channel = channel
        self._doorbell = doorbell
        self._thread: threading.Thread | None = None
        self._is_closed = False
        super().__init__()

    def start(self) -> None:
        """Listen while there are waiting readers."""
        with self.lock:
            if self._is_closed or (self._thread is not None and self._thread.is_alive()):
                return
            self._thread = threading.Thread(target=self._run, name="penstock-listen", daemon=True)
            self._thread.start()

    def close(self) -> None:
        self._is_closed = True

    def _run(self) -> None:
        while self._is_wanted():
            try:
                connection = self._connections.connect()
            except StoreError:
                time.sleep(_IDLE)  # meanwhile, who waits polls
                continue
            try:
                with self._connections.failing():
                    self._listen(connection)
            except StoreError:
                pass
            finally:
                connection.close()

    def _is_wanted(self) -> bool:
        with self.lock:
            if self._thread is not threading.current_thread():
                return False
            if self._is_closed or not self._doorbell.is_watched:
                self._thread = None
                return False
            return True

    def _listen(self, connection: psycopg.Connection[Any]) -> None:
        connection.execute(f"LISTEN {self._channel}".encode())
        self._doorbell.ring_all()  # for what came before
        while self._is_wanted():
            for notification in connection.notifies(timeout=_IDLE):
                if self._connections.is_own(notification.pid):
                    continue  # the store has rung already, and has said what came
                if notification.payload == EVERY_RUN:
                    self._doorbell.ring_all()
                else:
                    self._doorbell.ring(notification.payload.split("\n"))
                if self._is_closed:
                    return
