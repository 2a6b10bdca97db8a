"""Facts that are read once and kept: until the server fails, its settings change, or they are old.

A request waits for the first reading at most `WAIT_SECONDS`; it goes on without facts while a server is slow. Old facts
are used while they are read again.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable

from penstock.servers.asking import ServerAddress, load_client, server_facts
from penstock.servers.facts import ServerFacts

WAIT_SECONDS = 0.5
"""The longest time that facts delay a request."""
KEPT_SECONDS = 300.0
"""How long facts are used before they are read again: a server may load the model with other settings."""
FAILURE_SECONDS = 15.0
"""The same for a server that did not answer."""
MAX_FACTS = 256
"""How many models of servers are kept."""

Read = Callable[[ServerAddress, str], Awaitable[ServerFacts]]


class KeptFacts:
    """The facts of servers and models."""

    def __init__(self, read: Read = server_facts, clock: Callable[[], float] = time.monotonic) -> None:
        self._read = read
        self._clock = clock
        self._kept: OrderedDict[tuple[Hashable, str], _Reading] = OrderedDict()

    async def find(
        self, place: Hashable, address: ServerAddress, model: str, seconds: float = WAIT_SECONDS
    ) -> ServerFacts:
        """The facts of a model at a place; unknown if they are not read within this time, and on their way."""
        key = (place, model)
        reading = self._kept.get(key)
        if reading is None:
            reading = self._kept[key] = _Reading()
            while len(self._kept) > MAX_FACTS:
                self._kept.popitem(last=False)[1].cancel()
        self._kept.move_to_end(key)
        if reading.facts is None or self._clock() >= reading.until:
            self._begin(reading, address, model)
        if reading.facts is None and reading.task is not None and not (reading.is_slow and seconds <= WAIT_SECONDS):
            _, waiting = await asyncio.wait({reading.task}, timeout=seconds)
            reading.is_slow = bool(waiting)
        return reading.facts or ServerFacts(model=model)

    def _begin(self, reading: _Reading, address: ServerAddress, model: str) -> None:
        """Read the facts, unless that is under way on this event loop."""
        loop = asyncio.get_running_loop()
        if reading.task is None or reading.task.done() or reading.task.get_loop() is not loop:
            load_client()  # before anybody waits
            reading.task = asyncio.ensure_future(self._keep(reading, address, model))

    async def _keep(self, reading: _Reading, address: ServerAddress, model: str) -> None:
        facts = await self._read(address, model)
        if facts.failure and reading.facts is not None and not reading.facts.failure:
            facts = reading.facts  # the old ones: a server that is busy is the same server
            reading.until = self._clock() + FAILURE_SECONDS
        else:
            reading.until = self._clock() + (FAILURE_SECONDS if facts.failure else KEPT_SECONDS)
        reading.facts = facts
        reading.is_slow = False

    def expire(self, place: Hashable) -> None:
        """Read the facts of a place again at the next request: its server has failed, or loaded a model."""
        for (known, _), reading in self._kept.items():
            if known == place:
                reading.until = 0.0

    def clear(self) -> None:
        """Forget all facts, because the settings have changed or the program ends."""
        for reading in self._kept.values():
            reading.cancel()
        self._kept.clear()


class _Reading:
    """The facts of a model, when they are read again, and the task that reads them."""

    __slots__ = ("facts", "is_slow", "task", "until")

    def __init__(self) -> None:
        self.facts: ServerFacts | None = None
        self.until = 0.0
        self.task: asyncio.Future[None] | None = None
        self.is_slow = False  # a request has waited for it in vain

    def cancel(self) -> None:
        if self.task is not None:
            self.task.cancel()
