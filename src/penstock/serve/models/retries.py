"""Responses to clients of model protocols: who waits for them, and what happens when a connection is lost.

A request that was not answered has an open row in the log while a server writes its response. When the connection is
lost, or the server dies, the row is no longer open:

| the next request with the same token, tenant and body | what happens |
|---|---|
| is marked as a retry, or has an `Idempotency-Key` | it takes the response over, from its beginning |
| any other | it starts another run |

If nobody takes the response over in time, the run is cancelled.
"""

from __future__ import annotations

import asyncio
import time
from functools import partial

from penstock.asgi.request import HTTPRequest
from penstock.log.starts.requests import StartRequest, StoredStart
from penstock.log.store import StoreError
from penstock.log.store_retries import awith_retries
from penstock.loggers import get_logger
from penstock.serve.hosting import Host

logger = get_logger("penstock.serve")

OPEN_SECONDS = 6.0
"""How long a row stays open after its server has last renewed it: then the server counts as dead."""
JOIN_SECONDS = 600.0
"""For how long after the end of a run its lost response can be taken over."""
NOTICE_SECONDS = 1.0
"""How long a server may take to notice that a connection is lost."""
_POLL = 0.1
RETRY_HEADER = "x-stainless-retry-count"
ABANDONED = "the client left before the response was complete, and did not come back"


def may_join(request: HTTPRequest, start: StartRequest) -> bool:
    """Whether a request may take over a lost response: SDKs mark the requests that they send again."""
    count = request.headers.get(RETRY_HEADER, "")
    return bool(start.key) or (count.isascii() and count.isdigit() and count.strip("0") != "")


class OpenResponses:
    """The responses that this server writes. Their rows in the log stay open until their connections are lost."""

    def __init__(self, host: Host, retry_seconds: float) -> None:
        self._host = host
        self._retry_seconds = retry_seconds
        self._connections: dict[str, int] = {}  # how many, by the ids of their requests
        self._renewal: asyncio.Task[None] | None = None
        self._graces: set[asyncio.Task[None]] = set()

    async def take_lost(self, request: StartRequest) -> StoredStart | None:
        """The newest lost response for an equal request, which is no longer lost; None if there is none.

        A client may be faster than the server that notices its lost connection, or has died. So this waits a moment for
        responses that are open, until their servers renew them.
        """
        starts, begin, seen = self._host.store.starts, time.monotonic(), dict[str, float]()
        while True:
            found = await awith_retries(partial(starts.unanswered, request.tenant, request.caller))
            for start in found:
                if await self._reopen(start):
                    return start
            is_early = time.monotonic() - begin < NOTICE_SECONDS
            pending = [start for start in found if start.is_open]
            seen = seen or {start.id: start.open_until for start in pending}
            if not any(
                is_early or (start.id not in self._connections and seen.get(start.id) == start.open_until)
                for start in pending
            ):
                return None
            await asyncio.sleep(_POLL)

    async def _reopen(self, start: StoredStart) -> bool:
        """Take over a lost response; False if it is not lost, its run ended long ago, or another request was faster."""
        row = None if start.is_open else await awith_retries(partial(self._host.store.find, start.run_id))
        if row is None or (row.state == "over" and time.time() - row.updated > JOIN_SECONDS):
            return False
        return await awith_retries(partial(self._host.store.starts.reopen, start, OPEN_SECONDS))

    def begin(self, id: str) -> None:
        """Keep the row of a request open."""
        self._connections[id] = self._connections.get(id, 0) + 1
        if self._renewal is None:
            self._renewal = asyncio.create_task(self._renew())

    async def _renew(self) -> None:
        while self._connections:
            await asyncio.sleep(OPEN_SECONDS / 3)
            try:
                await asyncio.to_thread(self._host.store.starts.renew, [*self._connections], OPEN_SECONDS)
            except StoreError as error:  # it is tried again
                logger.warning("open responses could not be renewed: %s", error)
        self._renewal = None

    async def answered(self, id: str) -> None:
        """The client has the whole response."""
        self._leave(id)
        await awith_retries(partial(self._host.store.starts.answer, id))

    async def failed(self, id: str, run_id: str, tenant: str) -> None:
        """The client got an error instead of the rest of the response: its run is cancelled."""
        self._leave(id)
        await self._give_up(id, run_id, tenant)

    async def lost(self, id: str, run_id: str, tenant: str, *, is_needed: bool) -> None:
        """The connection was lost. A run that `is_needed` only for this response is cancelled if nobody comes back."""
        if not self._leave(id):
            return
        if is_needed and not self._retry_seconds:
            await self._give_up(id, run_id, tenant)
            return
        await awith_retries(partial(self._host.store.starts.renew, [id], 0.0))
        if is_needed:
            task = asyncio.create_task(self._cancel_later(id, run_id, tenant))
            self._graces.add(task)
            task.add_done_callback(self._graces.discard)

    async def close(self) -> None:
        """Stop: the runs of lost responses continue in other processes, where their clients find them."""
        tasks = [*self._graces, *([self._renewal] if self._renewal else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _leave(self, id: str) -> bool:
        """Remove a connection; returns whether it was the last one for its request."""
        others = self._connections.pop(id) - 1
        if others:
            self._connections[id] = others
        return not others

    async def _cancel_later(self, id: str, run_id: str, tenant: str) -> None:
        await asyncio.sleep(self._retry_seconds)
        try:
            row = await awith_retries(partial(self._host.store.find, run_id))
            if row is not None and row.state != "over":  # a finished run can still be joined
                await self._give_up(id, run_id, tenant, only_lost=True)
        except StoreError as error:
            logger.warning("the run %s could not be cancelled: %s", run_id, error)

    async def _give_up(self, id: str, run_id: str, tenant: str, *, only_lost: bool = False) -> None:
        """Cancel a run: nobody may join it any more. With `only_lost`, only if nobody has."""
        if await awith_retries(partial(self._host.store.starts.answer, id, only_lost=only_lost)):
            await awith_retries(partial(self._host.runs.cancel, run_id, ABANDONED))
            self._host.driven.drive(run_id, tenant)
