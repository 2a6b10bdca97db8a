"""Access control of a server: this machine only, holders of a token, or a function of the program."""

from __future__ import annotations

import hashlib
import hmac
import inspect
import ipaddress
import re
import secrets
import time
from collections.abc import Awaitable, Callable, Collection
from functools import lru_cache
from http.cookies import CookieError, SimpleCookie

from msgspec import Struct, field

from penstock.asgi.request import HTTPRequest, RejectedRequest, Scope
from penstock.asgi.shares import Share
from penstock.errors import UsageError

Authenticate = Callable[[Scope], "str | Awaitable[str | None] | None"]
"""Returns the tenant of a request, given its ASGI scope; None refuses it. It may be async."""

COOKIE = "penstock_session"
SESSION_SECONDS = 12 * 3600
MAX_TENANT = 1_000
"""How many characters the name of a tenant may have: it is a key of counters, and in each row of a log."""
MAX_ENDED = 10_000
"""How many sessions are remembered that were ended before their time; the oldest are forgotten first."""
MIN_TOKEN = 16
KEY_HEADERS = ("x-api-key", "api-key", "x-goog-api-key")
"""Headers in which clients send a key, besides `Authorization: Bearer`."""
_LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\s\[\]:@/?#\\]+)(?::[0-9]{1,5})?")
_SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
_FOREIGN_ORIGIN = "web pages of other origins may not use this server: add the origin to origins"


class Access(Struct, frozen=True, kw_only=True):
    """The rules for requests.

    Without a `token` and without `auth`, only clients on this machine are served, under the names of this machine.
    `hosts` are the names under which the server may be addressed (`*`: any). `origins` are the web pages of other hosts
    that may use it (CORS); there are none by default. `proxies` are the addresses of proxies whose `X-Forwarded-For` is
    believed. `cookie` is the name of the session cookie.
    """

    token: str = ""
    auth: Authenticate | None = None
    hosts: Collection[str] = ()
    origins: Collection[str] = ()
    proxies: Collection[str] = ()
    cookie: str = COOKIE
    ended_sessions: dict[str, None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.token and self.auth is not None:
            raise UsageError("token and auth cannot be combined: pass one of them")
        if self.token and len(self.token) < MIN_TOKEN:
            raise UsageError(f"the token is too short to be secret: use at least {MIN_TOKEN} characters")
        if isinstance(self.hosts, str) or isinstance(self.origins, str) or isinstance(self.proxies, str):
            raise UsageError("hosts, origins and proxies must be lists of names, not a string")
        for proxy in self.proxies:
            if not _is_address(proxy):
                raise UsageError(
                    f"{proxy!r} is not an IP address: name the proxy as the server sees it, as in 127.0.0.1"
                )

    @property
    def is_local(self) -> bool:
        """Whether only clients on this machine are served."""
        return not self.token and self.auth is None

    def is_trusted(self, address: str) -> bool:
        """Whether the clients at an address may use all of the server: those of this machine, if there is no token."""
        return self.is_local and (not address or is_loopback(address)) and not self.is_proxy(address)

    def is_proxy(self, address: str) -> bool:
        """Whether a proxy with this address says for whom it sends a request."""
        return address in self.proxies

    async def tenant_of(self, request: HTTPRequest) -> str:
        """The tenant of a request, whose share it uses; raises a `RejectedRequest` if it is not allowed."""
        self.check_place(request)
        tenant = await self._authenticated(request)
        client = f"tenant {tenant}" if tenant else f"address {request.client}"
        request.use(Share(client, is_known=not self.is_local, is_trusted=self.is_trusted(request.client)))
        return tenant

    async def _authenticated(self, request: HTTPRequest) -> str:
        if self.auth is not None:
            tenant = self.auth(request.scope)
            if inspect.isawaitable(tenant):
                tenant = await tenant
            if tenant is not None and len(tenant) > MAX_TENANT:
                raise RejectedRequest(
                    403, "tenant_too_long", f"the tenant's name is longer than {MAX_TENANT} characters"
                )
            if tenant is None:
                raise _unauthorized("the request is not authenticated")
            return tenant
        if self.token and not self._has_token(request) and not self._has_session(request):
            raise _unauthorized("send the token of the server as Authorization: Bearer …")
        return ""

    def check_place(self, request: HTTPRequest) -> None:
        """Refuse clients of other machines, unknown host names, and pages of other origins."""
        self._read_forwarded(request)
        if self.is_local and request.client and not is_loopback(request.client):
            raise RejectedRequest(
                403, "local_only", "this server has no token, so it accepts only clients on its own machine"
            )
        if len(request.values("host")) > 1 or len(request.values("origin")) > 1:
            raise RejectedRequest(400, "ambiguous_header", "send one Host header, and at most one Origin header")
        host = request.headers.get("host", "")
        if not self._is_own_host(_host_name(host)):
            raise RejectedRequest(
                421, "wrong_host", f"the Host header {host!r} is not one of this server: add the name to hosts"
            )
        origin = request.headers.get("origin", "")
        if origin and origin not in self.origins and not _is_origin_of(host, origin):
            raise RejectedRequest(403, "foreign_origin", _FOREIGN_ORIGIN)
        site = request.headers.get("sec-fetch-site", "")
        if not origin and site in ("cross-site", "same-site") and request.method not in _SAFE_METHODS:
            raise RejectedRequest(403, "foreign_origin", _FOREIGN_ORIGIN)

    def _read_forwarded(self, request: HTTPRequest) -> None:
        """Take the address of the client from the proxy that has sent the request."""
        if self.proxies and self.is_proxy(request.client):
            last = ",".join(request.values("x-forwarded-for")).rpartition(",")[2].strip()
            request.scope["penstock.forwarded"] = last if _is_address(last) else ""

    def cors_headers(self, request: HTTPRequest) -> dict[str, str]:
        """The headers that let a page of an allowed origin read the response."""
        origin = request.headers.get("origin", "")
        if origin not in self.origins:
            return {}
        return {
            "access-control-allow-origin": origin,
            "access-control-allow-credentials": "true",
            "access-control-expose-headers": "idempotent-replayed, x-request-id, x-run-id",
            "vary": "origin",
        }

    def session_cookie(self, request: HTTPRequest) -> str:
        """A session cookie for a browser that sent the token, so that the page need not keep it."""
        expires = int(time.time()) + SESSION_SECONDS
        secure = "; Secure" if request.scope.get("scheme") == "https" else ""
        session = f"{secrets.token_hex(8)}.{expires}"
        value = f"{session}.{self._signature(session)}"
        path = request.scope.get("root_path") or "/"
        return f"{self.cookie}={value}; Path={path}; Max-Age={SESSION_SECONDS}; HttpOnly; SameSite=Strict{secure}"

    def end_session(self, request: HTTPRequest) -> str:
        """End the session of a browser; returns a cookie that deletes its cookie."""
        if session := self._session(request):
            self.ended_sessions[session] = None
            while len(self.ended_sessions) > MAX_ENDED:
                del self.ended_sessions[next(iter(self.ended_sessions))]
        path = request.scope.get("root_path") or "/"
        return f"{self.cookie}=; Path={path}; Max-Age=0; HttpOnly; SameSite=Strict"

    def _has_token(self, request: HTTPRequest) -> bool:
        return hmac.compare_digest(shown_key(request).encode("utf-8", "replace"), self.token.encode())

    def _has_session(self, request: HTTPRequest) -> bool:
        session = self._session(request)
        return bool(session) and session not in self.ended_sessions

    def _session(self, request: HTTPRequest) -> str:
        """The session of a valid cookie, whether or not it was ended; empty without one."""
        try:
            cookie = SimpleCookie(request.headers.get("cookie", "")).get(self.cookie)
        except CookieError:
            return ""
        session, _, signature = cookie.value.rpartition(".") if cookie else ("", "", "")
        if not hmac.compare_digest(signature.encode(), self._signature(session).encode()):
            return ""
        return session if int(session.rpartition(".")[2]) > time.time() else ""

    def _signature(self, session: str) -> str:
        return hmac.new(self.token.encode(), f"session:{session}".encode(), hashlib.sha256).hexdigest()

    def _is_own_host(self, name: str) -> bool:
        if name in _LOOPBACK_NAMES or "*" in self.hosts or name in {host.lower() for host in self.hosts}:
            return True
        return not self.is_local and not self.hosts


def shown_key(request: HTTPRequest) -> str:
    """The key of a client, from any header that clients of providers use; empty if there is none."""
    kind, _, key = request.headers.get("authorization", "").partition(" ")
    if kind.lower() == "bearer" and key.strip():
        return key.strip()
    return next((request.headers[name] for name in KEY_HEADERS if request.headers.get(name)), "")


def key_digest(key: str) -> str:
    """A digest of a key, by which its owner is recognised without keeping the key."""
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


@lru_cache(maxsize=1024)
def is_loopback(address: str) -> bool:
    """Whether an address is one of this machine."""
    try:
        return ipaddress.ip_address(address.partition("%")[0]).is_loopback
    except ValueError:
        return address == "localhost"


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _host_name(host: str) -> str:
    """The name in a `Host` header, without its port; empty if it is not valid."""
    match = _HOST.fullmatch(host)
    return match[1].strip("[]").lower() if match else ""


def _is_origin_of(host: str, origin: str) -> bool:
    """Whether a page with this origin comes from a host."""
    return origin.lower() in (f"http://{host}".lower(), f"https://{host}".lower())


def _unauthorized(message: str) -> RejectedRequest:
    return RejectedRequest(401, "unauthorized", message, {"www-authenticate": "Bearer"})
