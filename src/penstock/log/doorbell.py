"""Notifies waiting readers of new events. A notification is only a hint, so readers also poll.

A store notifies them of what its own process writes, and passes the events on, so that they need not be read back. A
store that hears of the writes of other processes notifies them of these too.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Generator, Iterable
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from penstock.log.forks import Shared
from penstock.log.store import QUEUE, Committed, unknown_run

if TYPE_CHECKING:
    from penstock.log.store import Batch, Store, Watcher


class Doorbell(Shared):
    """The callbacks of waiting readers, by run."""

    def __init__(self) -> None:
        self._callbacks: dict[str, list[Watcher]] = {}
        super().__init__()

    def in_child(self) -> None:
        super().in_child()
        self._callbacks.clear()  # waiting readers are in the parent process

    @contextmanager
    def watch(self, run_id: str, callback: Watcher) -> Generator[None]:
        """Call back whenever the run may have new events, from any thread."""
        with self.lock:
            self._callbacks.setdefault(run_id, []).append(callback)
        try:
            yield
        finally:
            with self.lock:
                callbacks = self._callbacks.get(run_id, [])
                with suppress(ValueError):  # this is a child process
                    callbacks.remove(callback)
                if not callbacks:
                    self._callbacks.pop(run_id, None)

    @property
    def is_watched(self) -> bool:
        """Whether anybody waits."""
        return bool(self._callbacks)

    def ring(self, run_ids: Iterable[str]) -> None:
        """Notify the readers of these runs."""
        if not self._callbacks:
            return
        with self.lock:
            callbacks = [callback for run_id in run_ids for callback in self._callbacks.get(run_id, ())]
        for callback in callbacks:
            callback(())

    def ring_with(self, batches: Iterable[tuple[Batch, float]]) -> None:
        """Notify the readers of these runs, with the committed events and their time."""
        if not self._callbacks:
            return
        with self.lock:
            watched = [(batch, at, [*self._callbacks.get(batch.run_id, ())]) for batch, at in batches]
        if any(batch.state == "ready" for batch, _, _ in watched):
            self.ring([QUEUE])
        for batch, at, callbacks in watched:
            if callbacks:
                events = batch.events or [None] * len(batch.bodies)
                committed = [
                    Committed(seq, at, body, len(body), event)
                    for seq, (body, event) in enumerate(zip(batch.bodies, events, strict=True), batch.seq + 1)
                ]
                for callback in callbacks:
                    callback(committed)

    def ring_all(self) -> None:
        """Notify all readers: it is unknown which runs have new events."""
        with self.lock:
            run_ids = [*self._callbacks]
        self.ring(run_ids)


def wait_for_event(store: Store, run_id: str, after: int, seconds: float) -> None:
    """Wait until a run has an event after a number, at most this many seconds: the `wait` of every store."""
    end = time.monotonic() + seconds
    bell = threading.Event()
    with store.watch(run_id, lambda _: bell.set()):
        while True:
            bell.clear()
            row = store.find(run_id)
            if row is None:
                raise unknown_run(run_id)
            left = end - time.monotonic()
            if row.seq > after or left <= 0:
                return
            bell.wait(min(left, store.poll))
