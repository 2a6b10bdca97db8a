"""What all models of a process share, and how it is closed: the connection pools of sync and of async code."""

from __future__ import annotations

from penstock.transport.async_pool import aclose_pools, close_pools
from penstock.transport.sync_pool import sync_pools


def close() -> None:
    """Close the connections that models keep open for later requests.

    A response that is being read is not affected: its connection is closed at its end. The connections of other event
    loops are closed by these loops, soon. A later request opens new connections.
    """
    sync_pools.close()
    close_pools()


async def aclose() -> None:
    """Close the connections that models keep open, as `close` does; those of this event loop are closed afterwards."""
    sync_pools.close()
    await aclose_pools()
