"""The newest events of a run in memory, for all its readers."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Generic, Protocol, TypeVar

from msgspec import Struct

from penstock.log.position import Position, position_at
from penstock.log.store import Committed
from penstock.run.events import Done, LogEvent

MAX_KEPT = 1_000
"""How many events of a run are kept in memory for its readers."""

MAX_KEPT_BYTES = 4 * 1024 * 1024
"""How many bytes of events of a run are kept in memory for its readers, unless one event alone has more."""

PAGE = 200
"""How many events a reader gets at a time: one that does not read holds that many in memory."""

STEP = 50
"""How many events are read from the log at a time for a page, which may have enough bytes then."""

PAGE_BYTES = 256 * 1024
"""After how many bytes a reader gets no more events at a time: of frames, and of what is read from the log for them."""


class Item(Struct, gc=False, eq=False):
    """An event of a log with its number and its time.

    `size` is its bytes in the log, `frame` its frame in our own protocol, once somebody reads that. An unlogged event
    has no number.
    """

    seq: int
    at: float
    event: LogEvent
    size: int
    frame: bytes | None = None
    is_logged: bool = True

    @property
    def position(self) -> Position:
        return position_at(self.seq, self.at)


class Page(Struct, gc=False, eq=False):
    """A page of events for a reader, at least one, up to the number `last`.

    `frames` are their frames, once somebody reads them: readers at the same place share a page.
    """

    items: Sequence[Item]
    last: int
    frames: bytes | None = None


def page_of(items: Sequence[Item]) -> Page:
    """The first page of these events."""
    size, count = 0, 0
    for item in items[:PAGE]:
        size += item.size
        count += 1
        if size > PAGE_BYTES:
            break
    return Page(items if count == len(items) else items[:count], items[count - 1].seq)


T = TypeVar("T", Item, Committed)


class Newest(Generic[T]):
    """The newest added items, up to a limit, and at least the last. Thread-safe."""

    def __init__(self) -> None:
        self.kept: deque[T] = deque()
        self._size = 0  # bytes of all kept events
        self._lock = threading.Lock()

    def add(self, new: Sequence[T]) -> None:
        """Add items, and drop the oldest over the limits."""
        with self._lock:
            self.kept.extend(new)
            self._size += sum(one.size for one in new)
            while len(self.kept) > MAX_KEPT or (self._size > MAX_KEPT_BYTES and len(self.kept) > 1):
                self._size -= self.kept.popleft().size

    def take(self) -> deque[T]:
        """Remove and return all items."""
        with self._lock:
            kept, self.kept, self._size = self.kept, deque(), 0
        return kept


class Waiter(Protocol):
    """A waiting reader."""

    def take(self, page: Page, after: int) -> bool:
        """Take all events after a number without waking the reader; False if it must be woken."""
        ...


class Feed:
    """The newest events of one run."""

    def __init__(self, run_id: str, position: Position, is_over: bool) -> None:
        self.run_id = run_id
        self.seq = int(position)  # number of the newest event
        self._first = position
        self.is_over = is_over
        self.is_closed = False  # whether the server stops
        self.has_other_past = False  # whether the log no longer has what was sent
        self.error: Exception | None = None
        self.readers = 0
        self._newest = Newest[Item]()
        self._waiting: dict[Waiter, asyncio.Future[None]] = {}
        # The last page, and the number of the event before it: other readers want the same.
        self._page: tuple[int, Page] | None = None

    @property
    def position(self) -> Position:
        """The position of the newest event."""
        return self._newest.kept[-1].position if self._newest.kept else self._first

    def add(self, items: Sequence[Item]) -> None:
        """Add new events: hand them to waiting readers, and wake those that cannot take them directly."""
        if not items:
            return
        self._newest.add(items)
        before, self.seq, self._page = self.seq, items[-1].seq, None
        self.is_over = isinstance(items[-1].event, Done)
        if not self._waiting:
            return
        page = page_of(items)
        self._page = before, page
        if page.last < self.seq or self.is_over:
            self._wake([*self._waiting])
        elif late := [
            reader for reader, future in self._waiting.items() if future.done() or not reader.take(page, before)
        ]:
            self._wake(late)

    def fail(self, error: Exception) -> None:
        """Report to all readers that the log cannot be read."""
        self.error = error
        self._wake(list(self._waiting))

    def lose_past(self) -> None:
        """Tell all readers to begin again, with another feed."""
        self.has_other_past = True
        self._wake(list(self._waiting))

    def close(self) -> None:
        """End all readers: the server stops."""
        self.is_closed = True
        self._wake(list(self._waiting))

    def _wake(self, readers: Iterable[Waiter]) -> None:
        for reader in readers:
            future = self._waiting.pop(reader)
            if not future.done():
                future.set_result(None)

    def change(self, reader: Waiter) -> asyncio.Future[None]:
        """The awaitable of a reader for the next change. The reader calls `leave` at its end."""
        future = self._waiting[reader] = asyncio.get_running_loop().create_future()
        return future

    def leave(self, reader: Waiter) -> None:
        """Remove a reader."""
        self._waiting.pop(reader, None)

    def after(self, seq: int) -> Page | None:
        """The next page after a number, which must exist; None if some of it is no longer in memory."""
        if self._page is not None and self._page[0] == seq:
            return self._page[1]
        items = self._newest.kept
        first = len(items) - (self.seq - seq)
        if first < 0:
            return None
        page = page_of([items[index] for index in range(first, min(len(items), first + PAGE))])
        self._page = seq, page
        return page
