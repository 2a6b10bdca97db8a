"""The connection pools of sync code: clients of httpx2, shared by all models of the process."""

from __future__ import annotations

import atexit
import ssl
from functools import cache
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any

from penstock.transport.http.pools import Address, Pools, SharedPools
from penstock.transport.threads.forks import after_fork


class SyncPools(SharedPools[Any]):
    """The pools of this process. They keep connections open for later requests, until `close`."""

    def __init__(self) -> None:
        super().__init__(_new_client)

    def close_now(self) -> None:
        """Close all connections, also of responses that are being read."""
        for client in self._pools.take_all():
            client.close()

    def reset(self) -> None:
        """Start again in a child process, without the clients of its parent and without its lock."""
        self._inherited = self._pools  # kept: what frees a client would use a lock that another thread may have held
        self._pools = Pools(_new_client)

    def _close_unused(self) -> None:
        for client in self._pools.take_unused():
            client.close()


def _new_client(address: Address) -> Any:
    import httpx2

    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=20)
    transport = httpx2.HTTPTransport(verify=_tls(), limits=limits, proxy=address.proxy)
    return httpx2.Client(transport=transport, timeout=None, cookies=_no_cookies())


@cache
def _tls() -> ssl.SSLContext:
    """The TLS settings of all clients, made once because the certificates take long to load."""
    import httpx2

    context: ssl.SSLContext = httpx2.create_ssl_context()
    return context


def _no_cookies() -> CookieJar:
    """A cookie jar that stays empty: a cookie set for one API key must not be sent with another."""
    return CookieJar(DefaultCookiePolicy(allowed_domains=[]))


sync_pools = SyncPools()
after_fork(sync_pools.reset)
atexit.register(sync_pools.close_now)
