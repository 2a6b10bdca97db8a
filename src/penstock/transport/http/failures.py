"""Exceptions of HTTP clients as errors of penstock, recognised by class name, so that no client is imported."""

from __future__ import annotations

import os
import re
from urllib.parse import urlsplit
from urllib.request import getproxies

from penstock.errors import ConnectionFailed, ProviderError, TimedOut
from penstock.redaction import Mask
from penstock.transport.commands import OpenRequest, ReadTimedOut

CONNECT_TIMEOUTS = {"ConnectTimeout", "PoolTimeout", "ConnectionTimeoutError", "ProxyTimeoutError"}
READ_TIMEOUTS = {"TimeoutException", "TimeoutError"}
CONNECTION_ERRORS = {"ClientError", "TransportError", "DecodingError", "OSError"}
_CALL_FAILED = re.compile(r"\[Errno (\d+)\] Connect call failed")  # of asyncio, also for each address of several
_OBJECT = re.compile(r",? ?url='[^']*'|<\w.*|\bb['\"].*")  # a URL, an object, bytes of the response
SOCKS_ERRORS = {"ProxyError", "ProxyConnectionError", "SOCKSError", "IncompleteReadError"}


def client_error(error: Exception, command: OpenRequest) -> ProviderError:
    """The error for an exception of the HTTP client; any other exception is raised again."""
    names = {kind.__name__ for kind in type(error).__mro__}
    if names & CONNECT_TIMEOUTS and command.connect != command.first_byte:  # if equal, another time limit was exceeded
        return TimedOut(f"no connection within {command.connect} seconds (timeouts.connect)", retryable=True)
    if names & READ_TIMEOUTS:
        return ReadTimedOut("no data received in time")
    if names & (CONNECTION_ERRORS | SOCKS_ERRORS):
        request = command.request
        name = request.server or urlsplit(request.url).netloc.rpartition("@")[2]
        return ConnectionFailed(
            f"the connection to {name} failed: {client_words(error, request.url, request.server)}", retryable=True
        )
    raise error


def system_reason(error: BaseException) -> str:
    """The operating system's message for a failed connection, such as "Connection refused"; else "".

    The clients wrap it in different ways, and asyncio replaces its words by those of a failed call.
    """
    cause: BaseException | None = error
    while cause is not None:
        if several := _CALL_FAILED.search(str(cause)):
            return os.strerror(int(several[1]))
        if isinstance(cause, OSError) and cause.errno and cause.strerror:
            return os.strerror(cause.errno) if "Connect call failed" in cause.strerror else cause.strerror
        cause = cause.__cause__ or cause.__context__
    return ""


def client_words(error: BaseException, url: str = "", server: str = "") -> str:
    """The reason of a client's exception: its message without the URL, the objects and the bytes that some have.

    It has no passwords of proxies. If a proxy failed, its name is in it. With the name of a `server`, it has no
    address.
    """
    own = getattr(error, "message", None)  # aiohttp has an object in it if the head of a response is broken
    message = own if isinstance(own, str) else str(error) if own is None else ""
    if "Proxy" not in type(error).__name__:
        message = system_reason(error) or message
    elif status := getattr(error, "status", 0):
        message = f"{status} {message}"
    message = _OBJECT.sub("", " ".join(message.split())).strip(" :,") or type(error).__name__
    for proxy in getproxies().values():
        message = Mask({}, proxy if "//" in proxy else f"//{proxy}").text(message)
    message = re.sub(r"//[^\s/@]+@", "//***@", message)
    return _without_addresses(message, url, server) if server else message


def _without_addresses(message: str, url: str, server: str) -> str:
    """A message with the name of a server in place of URLs and of its host."""
    place = urlsplit(url)
    hosts = [re.escape(host) for host in (place.netloc.rpartition("@")[2], place.hostname or "") if host]
    return re.sub("|".join([r"\w+://[^\s'\"]+", *hosts]), lambda _: server, message)
