"""Exceptions of HTTP clients as errors of penstock, recognised by class name, so that no client is imported."""

from __future__ import annotations

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


def _message(error: Exception) -> str:
    """The message of a client's exception, without the passwords of proxies."""
    message = str(error) or type(error).__name__
    for proxy in getproxies().values():
        message = Mask({}, proxy if "//" in proxy else f"//{proxy}").text(message)
    return re.sub(r"//[^\s/@]+@", "//***@", message)
