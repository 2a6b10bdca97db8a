"""The share that each client has of a server: its connections, and the bytes of its requests.

A client is a tenant where the server knows tenants, and an address elsewhere. Clients on the machine of a server
without a token are trusted: they may use all of it.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Literal

from msgspec import Struct

from penstock.asgi.limits import ServerLimits
from penstock.loggers import get_logger

logger = get_logger("penstock.asgi")

MEMORY_PER_BYTE = 3
"""How much memory a byte of a body takes: as it came, decoded, and in a request to an upstream."""

BYTES_PER_VALUE = 32
"""As how many bytes of a body one of its JSON values counts: a decoded one takes about 100 bytes, however short."""

KNOWN_PART = 0.5
"""The part of all connections that only clients may use who have shown a token."""

Refusal = Literal["client", "server"]
"""What is used up: the share of the client, or the server."""


class Share(Struct, frozen=True):
    """Whose share a request uses; the server knows a client that has shown a token."""

    client: str
    is_known: bool = False
    is_trusted: bool = False


class MemoryBudget:
    """The bytes of request bodies that are held at once, of all clients and of each."""

    def __init__(self, limits: ServerLimits) -> None:
        self._limits = limits
        self._used = 0
        self._by_client: Counter[str] = Counter()

    def take(self, share: Share, size: int) -> Refusal | None:
        """Take some bytes for a client, unless there are not as many left."""
        if (self._used + size) * MEMORY_PER_BYTE > self._limits.memory:
            return "server"
        if not share.is_trusted and self._by_client[share.client] + size > self._limits.client_memory:
            return "client"
        self._used += size
        self._by_client[share.client] += size
        return None

    def give_back(self, share: Share, size: int) -> None:
        """Give bytes back."""
        self._used -= size
        self._by_client[share.client] -= size
        if not self._by_client[share.client]:
            del self._by_client[share.client]


class Connection:
    """An open connection; `close` ends it."""

    __slots__ = ("address", "client", "close", "is_counted_by_request", "is_open")

    def __init__(self, address: str, close: Callable[[], None]) -> None:
        self.address = address
        self.client = ""  # the client who has shown a token on it
        self.close = close
        self.is_open = True
        self.is_counted_by_request = False  # a proxy sends requests of many clients


class Connections:
    """The connections of a server.

    Who a client is shows only in its request. Until then a connection counts for its address; if there are too many,
    the one that has been idle for the longest time is closed. Connections of known clients are never closed.
    """

    def __init__(
        self, limits: ServerLimits, *, is_trusted: Callable[[str], bool], is_proxy: Callable[[str], bool]
    ) -> None:
        self._limits = limits
        self._is_trusted = is_trusted
        self._is_proxy = is_proxy
        self._count = 0
        self._unknown = 0
        self._by_address: Counter[str] = Counter()  # of unknown clients
        self._by_client: Counter[str] = Counter()  # of known clients
        self._idle: dict[Connection, None] = {}  # of unknown clients, the oldest first
        self._idle_of: defaultdict[str, dict[Connection, None]] = defaultdict(dict)
        self._refused = 0
        self._last_line = 0.0

    def admit(self, connection: Connection) -> Refusal | None:
        """Count a new connection, unless there are too many."""
        is_exempt = self._is_trusted(connection.address) or self._is_proxy(connection.address)
        connection.is_counted_by_request = is_exempt
        most = self._limits.connections * (1.0 if is_exempt else 1.0 - KNOWN_PART)
        count = self._count if is_exempt else self._unknown
        if (count >= most or self._count >= self._limits.connections) and not self._close_oldest(self._idle):
            return self._refuse("server")
        address = connection.address
        is_full = not is_exempt and self._by_address[address] >= self._limits.address_connections
        if is_full and not self._close_oldest(self._idle_of.get(address, {})):
            return self._refuse("client")
        self._count += 1
        if not is_exempt:
            self._unknown += 1
            self._by_address[address] += 1
            self.rest(connection)
        return None

    def know(self, connection: Connection, share: Share) -> bool:
        """Count a connection for the client who has shown a token on it; False if that client has too many."""
        if connection.is_counted_by_request or not connection.is_open or connection.client == share.client:
            return True
        if self._by_client[share.client] >= self._limits.tenant_connections:
            return False
        self._forget(connection)
        self._by_client[share.client] += 1
        connection.client = share.client
        return True

    def begin(self, share: Share) -> bool:
        """Count a request that came by a proxy, which `end` ends; False if its client has too many."""
        most = self._limits.tenant_connections if share.is_known else self._limits.address_connections
        if self._by_client[share.client] >= most:
            return False
        self._by_client[share.client] += 1
        return True

    def end(self, share: Share) -> None:
        """End a request that came by a proxy."""
        _subtract(self._by_client, share.client)

    def work(self, connection: Connection) -> None:
        """The connection has a request."""
        self._idle.pop(connection, None)
        if (idle := self._idle_of.get(connection.address)) is not None:
            idle.pop(connection, None)
            if not idle:
                del self._idle_of[connection.address]

    def rest(self, connection: Connection) -> None:
        """The connection waits for a request."""
        if not connection.client and not connection.is_counted_by_request and connection.is_open:
            self._idle[connection] = None
            self._idle_of[connection.address][connection] = None

    def close(self, connection: Connection) -> None:
        """Count a connection no more."""
        if connection.is_open:
            connection.is_open = False
            self._count -= 1
            self._forget(connection)

    def _forget(self, connection: Connection) -> None:
        """Take a connection from the count of its address or client."""
        self.work(connection)
        if connection.client:
            _subtract(self._by_client, connection.client)
        elif not connection.is_counted_by_request:
            self._unknown -= 1
            _subtract(self._by_address, connection.address)

    def _close_oldest(self, idle: dict[Connection, None]) -> bool:
        """Close the connection that has been idle for the longest time; False if none is idle."""
        oldest = next(iter(idle), None)
        if oldest is None:
            return False
        self.close(oldest)
        oldest.close()
        return True

    def _refuse(self, refusal: Refusal) -> Refusal:
        """Write at most one line per second."""
        self._refused += 1
        if (now := time.monotonic()) - self._last_line >= 1:
            logger.warning("refused %d connections: %d are open", self._refused, self._count)
            self._refused, self._last_line = 0, now
        return refusal


def _subtract(counter: Counter[str], name: str) -> None:
    counter[name] -= 1
    if not counter[name]:
        del counter[name]
