"""Shared resources of a process, and closing them: connection pools, and the event loop and threads of sync code."""

from __future__ import annotations

import sys

from penstock.transport.http.async_pool import aclose_pools, close_pools
from penstock.transport.http.sync_pool import sync_pools
from penstock.transport.threads.loop_thread import driver_loop, shared_loop
from penstock.transport.threads.worker_threads import workers


def close_websockets() -> None:
    """Close the unused WebSockets of all models, if there are any."""
    if (module := sys.modules.get("penstock.transport.websocket.pool")) is not None:
        module.close_sockets()


def close() -> None:
    """Close the connections that models keep open for later requests.

    A response that is being read is not affected: its connection is closed at its end. The connections of other event
    loops are closed by these loops, soon. The event loop on which sync runs call async tools is closed as well, with
    what is left on it, and threads that wait for work end. All are opened again when they are needed.
    """
    close_websockets()
    sync_pools.close()
    shared_loop.close()
    driver_loop.close_unused()
    workers.close()
    close_pools()


async def aclose() -> None:
    """Close the connections that models keep open, as `close` does; those of this event loop are closed afterwards."""
    close_websockets()
    sync_pools.close()
    shared_loop.close()
    driver_loop.close_unused()
    workers.close()
    await aclose_pools()
