"""Connection pools by address: the HTTP clients that all models of a process, or of an event loop, share.

A retired client serves no new request, and is closed with its last open response.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar
from urllib.parse import urlsplit

from penstock.transport.http.proxies import environment_proxy

C = TypeVar("C")

MAX_POOLS = 100
"""How many addresses have a pool: with one more, the least recently used is retired."""


class Address(NamedTuple):
    """The origin and the proxy of requests: requests of one address can share connections."""

    origin: str
    proxy: str | None


def address_of(url: str) -> Address:
    """The address of a URL, with the proxy of the environment."""
    return Address(origin_of(url), environment_proxy(url))


def origin_of(url: str) -> str:
    """The scheme, host and port of a URL."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


class Pool(Generic[C]):
    """A client, and how many responses use it."""

    def __init__(self, client: C) -> None:
        self.client = client
        self.users = 0


class Pools(Generic[C]):
    """The pools by address. The owner closes the clients that `take_unused` returns."""

    def __init__(self, create: Callable[[Address], C]) -> None:
        self._create = create
        self._lock = threading.Lock()
        self._pools: OrderedDict[Address, Pool[C]] = OrderedDict()
        self._retired: set[Pool[C]] = set()  # retired pools in use
        self._unused: list[C] = []

    def lease(self, address: Address) -> Pool[C]:
        """The pool of an address, for one response; call `release` when it is closed."""
        with self._lock:
            pool = self._pools.get(address)
            if pool is None:
                pool = self._pools[address] = Pool(self._create(address))
                if len(self._pools) > MAX_POOLS:
                    self._retire(next(iter(self._pools)))
            self._pools.move_to_end(address)
            pool.users += 1
            return pool

    def release(self, pool: Pool[C]) -> None:
        """A response that used the pool is closed."""
        with self._lock:
            pool.users -= 1
            if pool in self._retired and not pool.users:
                self._retired.remove(pool)
                self._unused.append(pool.client)

    def retire(self, origin: str = "") -> None:
        """Retire the pools of an origin, or all."""
        with self._lock:
            for address in [address for address in self._pools if origin in ("", address.origin)]:
                self._retire(address)

    def take_unused(self) -> list[C]:
        """The clients to close: retired and not used by a response."""
        if not self._unused:
            return []
        with self._lock:
            unused, self._unused = self._unused, []
            return unused

    def take_all(self) -> list[C]:
        """All clients, including those in use."""
        with self._lock:
            clients = [*self._unused, *(pool.client for pool in (*self._pools.values(), *self._retired))]
            self._pools.clear()
            self._retired.clear()
            self._unused = []
            return clients

    def _retire(self, address: Address) -> None:
        pool = self._pools.pop(address)
        if pool.users:
            self._retired.add(pool)
        else:
            self._unused.append(pool.client)


AnyPool = Pool[Any]


class SharedPools(Generic[C]):
    """Pools that requests lease and release. A subclass closes unused clients."""

    def __init__(self, create: Callable[[Address], C]) -> None:
        self._pools = Pools(create)

    def lease(self, url: str) -> Pool[C]:
        """The pool for a URL; call `release` when the response is closed."""
        pool = self._pools.lease(address_of(url))
        self._close_unused()
        return pool

    def release(self, pool: Pool[C]) -> None:
        self._pools.release(pool)
        self._close_unused()

    def close(self, origin: str = "") -> None:
        """Close the connections to an origin, or all; those of responses that are being read close with these."""
        self._pools.retire(origin)
        self._close_unused()

    def _close_unused(self) -> None:
        raise NotImplementedError
