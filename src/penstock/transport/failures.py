"""What went wrong in an HTTP client, as an error of ours; the errors of all clients are known by their names."""

from __future__ import annotations

from urllib.parse import urlsplit

from penstock.errors import ConnectionFailed, ProviderError, TimedOut
from penstock.transport.commands import OpenRequest, ReadTimedOut

CONNECTING = {"ConnectTimeout", "PoolTimeout", "ConnectionTimeoutError"}
WAITING = {"TimeoutException", "TimeoutError"}
BREAKING = {"ClientError", "TransportError", "DecodingError", "OSError"}


def client_error(error: Exception, command: OpenRequest) -> ProviderError:
    """What an error of the HTTP client is; one that is none of its own is raised as it is."""
    kinds = {kind.__name__ for kind in type(error).__mro__}
    told = str(error) or type(error).__name__
    if kinds & CONNECTING and command.connect != command.first_byte:  # else the time for all of it is up
        return TimedOut(f"no connection within {command.connect} seconds (timeouts.connect)", retryable=True)
    if kinds & WAITING:
        return ReadTimedOut("nothing came in time")
    if kinds & BREAKING:
        host = urlsplit(command.request.url).netloc.rpartition("@")[2]
        return ConnectionFailed(f"the connection to {host} failed: {told}", retryable=True)
    raise error
