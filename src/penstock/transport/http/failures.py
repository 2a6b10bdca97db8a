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
SOCKS_ERRORS = {"ProxyError", "ProxyConnectionError", "SOCKSError", "IncompleteReadError"}


def client_error(error: Exception, command: OpenRequest) -> ProviderError:
    """The error for an exception of the HTTP client; any other exception is raised again."""
    names = {kind.__name__ for kind in type(error).__mro__}
    if names & CONNECT_TIMEOUTS and command.connect != command.first_byte:  # if equal, another time limit was exceeded
        return TimedOut(f"no connection within {command.connect} seconds (timeouts.connect)", retryable=True)
    if names & READ_TIMEOUTS:
        return ReadTimedOut("no data received in time")
    if names & (CONNECTION_ERRORS | SOCKS_ERRORS):
        host = urlsplit(command.request.url).netloc.rpartition("@")[2]
        return ConnectionFailed(f"the connection to {host} failed: {_message(error)}", retryable=True)
    raise error


def system_reason(error: BaseException) -> str:
    """The operating system's message for a failed connection, such as "Connection refused"; else "".

    The clients wrap it in different ways, and asyncio replaces its words by those of a failed call.
    """
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.errno and cause.strerror:
            return os.strerror(cause.errno) if "Connect call failed" in cause.strerror else cause.strerror
        cause = cause.__cause__ or cause.__context__
    return ""


def _message(error: Exception) -> str:
    """The reason of a client's exception, without the passwords of proxies. If a proxy failed, its name is in it."""
    reason = "" if "Proxy" in type(error).__name__ else system_reason(error)
    message = reason or str(error) or type(error).__name__
    for proxy in getproxies().values():
        message = Mask({}, proxy if "//" in proxy else f"//{proxy}").text(message)
    return re.sub(r"//[^\s/@]+@", "//***@", message)
